//! Messages on their way into the log: checked, and encoded straight into the buffer that is proposed.

use std::sync::Arc;
use std::time::Duration;

use boltq_core::limits::{HEADER_BYTES_MAX, IDEMPOTENCY_KEY_BYTES_MAX, MESSAGE_BYTES_MAX, PRIORITY_MAX};
use boltq_core::{Millis, RecordBuilder, check_name};
use boltq_queue::KeyScope;
use boltq_queue::command::{PUBLISH_COUNT_AT, PublishWriter, begin_publish_once, publish_records_at};
use boltq_raft::{Joint, Proposal};

use super::error::ServiceError;
use super::key_room::KeyRoom;
use super::observing::Publishing;
use crate::clock::Instant;
use crate::plane::DefaultTtls;
use crate::telemetry::trace::TraceContext;

/// A message as a door has it.
#[derive(Debug, Clone, Copy)]
pub struct NewMessage<'a> {
    /// Opaque bytes.
    pub payload: &'a [u8],
    /// Whether the payload is one JSON value. The door has checked it.
    pub json: bool,
    /// Clamped to 0-9.
    pub priority: i64,
    /// Nanoseconds from now until it may be delivered; none if not positive.
    pub delay_ns: i64,
    /// Nanoseconds from now until it is discarded; never if not positive.
    pub ttl_ns: i64,
    /// Messages of a queue with the same one are delivered one after the other; empty: none.
    pub ordering_key: &'a str,
}

/// What makes a publish repeatable: a message with the same key to the same queue, to the same topic, or to the same exchange with
/// the same routing key, is not stored a second time.
#[derive(Debug, Clone, Copy)]
pub struct IdempotencyKey<'a>(pub(super) &'a str);

impl<'a> IdempotencyKey<'a> {
    /// What a publisher has given; none if that is empty.
    ///
    /// # Errors
    /// It is too long.
    pub fn read(key: &'a str) -> Result<Option<Self>, ServiceError> {
        if key.len() > IDEMPOTENCY_KEY_BYTES_MAX {
            return Err(ServiceError::InvalidArgument {
                what: format!(
                    "idempotency_key has {} bytes; at most {IDEMPOTENCY_KEY_BYTES_MAX} are allowed",
                    key.len()
                ),
            });
        }
        Ok((!key.is_empty()).then_some(Self(key)))
    }
}

/// Messages that are published together: durable together, one id for each.
pub struct PublishBatch {
    received: Instant,
    publishing: Publishing,
    /// Until when the keys of its messages are remembered.
    remembered: Millis,
    /// What queues say of messages without a time to live.
    default_ttls: Option<Arc<DefaultTtls>>,
    key_room: KeyRoom,
    proposal: Proposal,
    queue: String,
    writer: Option<PublishWriter>,
    in_command: u32,
    messages: usize,
    /// Those of them that have a key.
    keyed: usize,
}

impl PublishBatch {
    /// A batch of messages that were received at `received`, and whose keys are remembered for `dedup_ttl_ms` unless their
    /// queue says otherwise.
    pub(super) fn new(
        received: Instant,
        dedup_ttl_ms: u64,
        default_ttls: Option<Arc<DefaultTtls>>,
        key_room: KeyRoom,
        publishing: Publishing,
    ) -> Self {
        Self {
            received,
            publishing,
            remembered: remembered_until(received, dedup_ttl_ms),
            default_ttls,
            key_room,
            proposal: Proposal::new(),
            queue: String::new(),
            writer: None,
            in_command: 0,
            messages: 0,
            keyed: 0,
        }
    }

    /// Says in which trace the call is that brings the messages, before there are any.
    pub fn called_in(&mut self, context: Option<TraceContext>) {
        self.publishing.called_in(context);
    }

    /// Adds a message for a queue. Messages for one queue in a row share a command.
    ///
    /// # Errors
    /// The name, the size or the headers are not acceptable. Nothing was added then; the batch can be used further.
    pub fn push<'h>(
        &mut self,
        queue: &str,
        message: &NewMessage<'_>,
        headers: impl Iterator<Item = (&'h str, &'h str)> + Clone,
    ) -> Result<(), ServiceError> {
        let same_queue = self.writer.is_some() && self.queue == queue;
        if !same_queue {
            check_name(queue)?;
        }
        check_order(message)?;
        check_size(message, headers.clone())?;
        if !same_queue {
            self.begin(queue);
        }
        self.write(queue, message, headers);
        self.in_command += 1;
        self.messages += 1;
        Ok(())
    }

    /// As [`PublishBatch::push`], for a message with a key.
    ///
    /// # Errors
    /// As there, and [`ServiceError::KeysFull`].
    pub fn push_once<'h>(
        &mut self,
        queue: &str,
        key: IdempotencyKey<'_>,
        message: &NewMessage<'_>,
        headers: impl Iterator<Item = (&'h str, &'h str)> + Clone,
    ) -> Result<(), ServiceError> {
        check_name(queue)?;
        check_order(message)?;
        check_size(message, headers.clone())?;
        self.key_room.check(KeyScope::Queue(queue), key)?;
        self.end();
        begin_publish_once(self.proposal.begin(), self.remembered, queue, key.0);
        self.write(queue, message, headers);
        self.messages += 1;
        self.keyed += 1;
        Ok(())
    }

    fn write<'h>(
        &mut self,
        queue: &str,
        message: &NewMessage<'_>,
        headers: impl Iterator<Item = (&'h str, &'h str)> + Clone,
    ) {
        let message = &self.with_ttl(queue, message);
        let (record, out) = (record(self.received, message), self.proposal.buffer());
        match self.publishing.carry(queue, headers.clone()) {
            None => record.write(headers, out),
            Some(carried) => record.write(carried.with(headers), out),
        }
    }

    /// The message, with the time to live of its queue if it has none.
    fn with_ttl<'m>(&self, queue: &str, message: &NewMessage<'m>) -> NewMessage<'m> {
        let mut message = *message;
        if message.ttl_ns <= 0
            && let Some(ttl_ns) = self.default_ttls.as_ref().and_then(|ttls| ttls.get(queue))
        {
            message.ttl_ns = ttl_ns;
        }
        message
    }

    fn begin(&mut self, queue: &str) {
        self.end();
        queue.clone_into(&mut self.queue);
        self.writer = Some(PublishWriter::begin(self.proposal.begin(), queue));
    }

    fn end(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.finish(self.proposal.buffer(), self.in_command);
            self.in_command = 0;
        }
    }

    /// Number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages
    }

    /// Whether there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Bytes of the encoded messages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.proposal.len()
    }

    pub(super) fn into_parts(mut self) -> (Proposal, Publishing) {
        self.end();
        if self.keyed == 0
            && let Ok(count) = u32::try_from(self.messages)
        {
            // Only if all are for one queue, which is the last one then.
            self.proposal.allow_joining(Joint {
                count_at: PUBLISH_COUNT_AT,
                items_at: publish_records_at(&self.queue),
                count,
            });
        }
        (self.proposal, self.publishing)
    }
}

/// Until when a key is remembered of a publish that is received now.
pub(super) fn remembered_until(received: Instant, dedup_ttl_ms: u64) -> Millis {
    Millis(received.unix_ns() / 1_000_000).plus(dedup_ttl_ms)
}

/// Refuses what cannot be delivered in the order of its key.
fn check_order(message: &NewMessage<'_>) -> Result<(), ServiceError> {
    let key = message.ordering_key;
    if key.is_empty() {
        return Ok(());
    }
    let refused = |what| Err(ServiceError::InvalidArgument { what });
    if let Err(error) = check_name(key) {
        return refused(format!("ordering_key: {error}"));
    }
    if message.priority > 0 {
        return refused(format!(
            "ordering_key is set and priority is {}; messages of a key are delivered in the order of publishing: leave one out",
            message.priority
        ));
    }
    if message.delay_ns > 0 {
        return refused(
            "ordering_key and delay are set; messages of a key are delivered in the order of publishing: leave one out"
                .to_owned(),
        );
    }
    Ok(())
}

/// Refuses an ordering key where nothing is delivered in the order of one.
pub(super) fn refuse_order(message: &NewMessage<'_>) -> Result<(), ServiceError> {
    if message.ordering_key.is_empty() {
        return Ok(());
    }
    Err(ServiceError::InvalidArgument {
        what: "ordering_key is set; only publishes to queues can have one".to_owned(),
    })
}

/// Refuses what is over the limits of a message.
pub(super) fn check_size<'h>(
    message: &NewMessage<'_>,
    headers: impl Iterator<Item = (&'h str, &'h str)>,
) -> Result<(), ServiceError> {
    let header_bytes: usize = headers.map(|(key, value)| key.len() + value.len()).sum();
    if header_bytes > HEADER_BYTES_MAX {
        return Err(ServiceError::HeadersTooLarge { bytes: header_bytes });
    }
    let bytes = message.payload.len() + header_bytes;
    if bytes > MESSAGE_BYTES_MAX {
        return Err(ServiceError::MessageTooLarge { bytes });
    }
    Ok(())
}

/// The record of a message that was received at `received`.
pub(super) fn record<'a>(received: Instant, message: &NewMessage<'a>) -> RecordBuilder<'a> {
    let after = |ns: i64| {
        // Up to the next millisecond: never early.
        let ns = u64::try_from(ns).ok().filter(|ns| *ns > 0)?;
        Some(Millis(received.unix_ns().saturating_add(ns).div_ceil(1_000_000)))
    };
    let priority = u8::try_from(message.priority.clamp(0, i64::from(PRIORITY_MAX))).unwrap_or(0);
    RecordBuilder {
        json: message.json,
        priority,
        published_ns: received.unix_ns(),
        expires: after(message.ttl_ns),
        due: after(message.delay_ns),
        ordering_key: message.ordering_key,
        id: None,
        payload: message.payload,
    }
}

/// A duration of a door as nanoseconds, at most what an `i64` holds: 292 years.
#[must_use]
pub fn duration_ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// The time `ms` after `now`.
pub(crate) fn after(now: Millis, duration: Duration) -> Millis {
    now.plus(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
