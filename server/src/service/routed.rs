//! Messages to topics and exchanges on their way into the log.
//!
//! All copies of a message are one record, so the id that they have in common is in it, and is known before it is proposed.
//! It comes from a counter, not from a place: ids of places are below those, so that neither is ever taken for the other.

use std::sync::atomic::{AtomicU64, Ordering};

use boltq_core::{IdSalt, MessageId, Millis, Origin, Record, Seq, StreamId, check_name};
use boltq_queue::command::{
    PUBLISH_COUNT_AT, PublishWriter, begin_publish_exchange, begin_publish_exchange_once, begin_publish_topic_once,
    publish_records_at,
};
use boltq_queue::{KeyScope, Outcome, ROUTING_KEY_BYTES_MAX, RoutingRefusal};
use boltq_raft::{Joint, Proposal};

use super::batch::{IdempotencyKey, NewMessage, check_size, record, refuse_order, remembered_until};
use super::error::ServiceError;
use super::key_room::KeyRoom;
use super::observing::Publishing;
use super::publish::Admitted;
use super::queue::Queues;
use crate::ack_level::AckLevel;
use crate::clock::Instant;
use crate::telemetry::trace::TraceContext;

/// The header by which a consumer can tell that messages in several queues are copies of one: the id that the publisher got.
pub const PUBLISH_ID_HEADER: &str = "boltq-publish-id";

/// What the routing of a node stands on.
#[derive(Debug)]
pub(super) struct Routing {
    /// Of this start of this node; no stream has such a number.
    series: StreamId,
    published: AtomicU64,
    pub(super) counts: RoutingCounts,
}

/// What became of messages that this node has routed, since its start.
#[derive(Debug, Default)]
pub struct RoutingCounts {
    /// Messages to exchanges that matched nothing.
    pub unroutable: AtomicU64,
}

impl Routing {
    pub(super) fn new(random: u64) -> Self {
        Self {
            series: StreamId(random | 1 << 63),
            published: AtomicU64::new(0),
            counts: RoutingCounts::default(),
        }
    }

    fn next_id(&self, salt: IdSalt) -> MessageId {
        salt.id(self.series, Seq(self.published.fetch_add(1, Ordering::Relaxed)))
    }
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routed {
    /// The id that all copies have in common.
    pub id: MessageId,
    /// Queues that have it; of a topic the backlogs of its durable subscriptions.
    pub queues: usize,
}

/// What a message is addressed to.
#[derive(Clone, Copy)]
enum To<'a> {
    Topic(&'a str),
    /// The one without a name is the default one.
    Exchange {
        name: &'a str,
        routing_key: &'a str,
    },
}

impl<'a> To<'a> {
    fn origin(self, id: MessageId) -> Origin<'a> {
        let (exchange, routing_key) = match self {
            Self::Topic(_) => ("", ""),
            Self::Exchange { name, routing_key } => (name, routing_key),
        };
        Origin {
            id,
            exchange,
            routing_key,
        }
    }

    /// As it is called in traces.
    fn name(self) -> &'a str {
        match self {
            Self::Topic(name) => name,
            // The default exchange has no name, and the key is that of a queue.
            Self::Exchange { name: "", routing_key } => routing_key,
            Self::Exchange { name, .. } => name,
        }
    }

    fn exchange(self) -> Option<String> {
        match self {
            Self::Topic(_) => None,
            Self::Exchange { name, .. } => Some(name.to_owned()),
        }
    }
}

/// Messages that are published together to topics and exchanges.
pub struct RoutedBatch {
    queues: Queues,
    salt: IdSalt,
    received: Instant,
    /// Until when the keys of its messages are remembered.
    remembered: Millis,
    key_room: KeyRoom,
    publishing: Publishing,
    proposal: Proposal,
    /// That the command at the end is for, while it is a publish to a topic.
    topic: Option<(String, PublishWriter)>,
    in_command: u32,
    /// For each message its id, the number of its command, and its exchange.
    messages: Vec<(MessageId, usize, Option<String>)>,
}

impl RoutedBatch {
    /// Says in which trace the call is that brings the messages, before there are any.
    pub fn called_in(&mut self, context: Option<TraceContext>) {
        self.publishing.called_in(context);
    }

    /// Adds a message to a topic. A delay means nothing to it: who listens gets it at once. With a key it is told to nobody and
    /// stored nowhere if one with the same key was, and the answer is that of the first.
    ///
    /// # Errors
    /// The name, the size or the headers are not acceptable, or no more keys are remembered. Nothing was added then; the
    /// batch can be used further.
    pub fn push_topic<'h>(
        &mut self,
        topic: &str,
        once: Option<IdempotencyKey<'_>>,
        message: &NewMessage<'_>,
        headers: impl Iterator<Item = (&'h str, &'h str)> + Clone,
    ) -> Result<(), ServiceError> {
        check_named("topic", topic)?;
        refuse_order(message)?;
        check_size(message, headers.clone())?;
        if let Some(key) = once {
            self.key_room.check(KeyScope::Topic(topic), key)?;
            self.end();
            begin_publish_topic_once(self.proposal.begin(), self.remembered, topic, key.0);
        } else {
            if self.topic.as_ref().is_none_or(|(same, _)| same != topic) {
                self.end();
                let writer = PublishWriter::begin_topic(self.proposal.begin(), topic);
                self.topic = Some((topic.to_owned(), writer));
            }
            self.in_command += 1;
        }
        self.write(To::Topic(topic), message, headers);
        Ok(())
    }

    /// Adds a message to an exchange; the one without a name is the default one. Neither delay nor expiry mean anything
    /// to it. With a key it is stored nowhere if one with the same key was, and the answer is that of the first.
    ///
    /// # Errors
    /// As for [`RoutedBatch::push_topic`].
    pub fn push_exchange<'h>(
        &mut self,
        exchange: &str,
        routing_key: &str,
        once: Option<IdempotencyKey<'_>>,
        message: &NewMessage<'_>,
        headers: impl Iterator<Item = (&'h str, &'h str)> + Clone,
    ) -> Result<(), ServiceError> {
        match exchange {
            // The key is the name of a queue, which may be new.
            "" => check_name(routing_key)?,
            named => check_named("exchange", named)?,
        }
        check_key("routing_key", routing_key)?;
        refuse_order(message)?;
        check_size(message, headers.clone())?;
        if let Some(key) = once {
            self.key_room.check(KeyScope::Exchange { exchange, routing_key }, key)?;
        }
        self.end();
        let (out, until) = (self.proposal.begin(), self.remembered);
        match once {
            None => begin_publish_exchange(out, exchange, routing_key),
            Some(key) => begin_publish_exchange_once(out, until, exchange, routing_key, key.0),
        }
        let message = NewMessage { ttl_ns: 0, ..*message };
        let to = To::Exchange {
            name: exchange,
            routing_key,
        };
        self.write(to, &message, headers);
        Ok(())
    }

    fn write<'h>(
        &mut self,
        to: To<'_>,
        message: &NewMessage<'_>,
        headers: impl Iterator<Item = (&'h str, &'h str)> + Clone,
    ) {
        let id = self.queues.inner.routing.next_id(self.salt);
        let origin = to.origin(id);
        let message = NewMessage {
            delay_ns: 0,
            ..*message
        };
        let (record, out) = (record(self.received, &message), self.proposal.buffer());
        match self.publishing.carry(to.name(), headers.clone()) {
            None => record.write_routed(Some(origin), headers, out),
            Some(carried) => record.write_routed(Some(origin), carried.with(headers), out),
        }
        let command = self.proposal.commands() - 1;
        self.messages.push((id, command, to.exchange()));
    }

    fn end(&mut self) {
        if let Some((_, writer)) = self.topic.take() {
            writer.finish(self.proposal.buffer(), self.in_command);
        }
        self.in_command = 0;
    }

    /// Number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Bytes of the encoded messages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.proposal.len()
    }

    /// Returns when all messages are where they belong, as durable as a publish to a queue; one answer for each.
    ///
    /// # Errors
    /// Nothing was routed, or with [`ServiceError::Stopped`] and [`ServiceError::NoMajority`] the outcome is unknown. With
    /// [`ServiceError::NotInSync`] the messages were routed.
    pub async fn publish(self) -> Result<Vec<Result<Routed, ServiceError>>, ServiceError> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        self.admit().await?.publish().await
    }

    /// Waits until there is room for the messages among those whose outcome is not known yet, as [`Queues::admit`] does.
    ///
    /// # Errors
    /// The storage is full, too few voters answer, or the node stops.
    pub async fn admit(mut self) -> Result<AdmittedRouted, ServiceError> {
        if let Some((topic, _)) = &self.topic {
            let joint = Joint {
                count_at: PUBLISH_COUNT_AT,
                items_at: publish_records_at(topic),
                count: self.in_command,
            };
            self.end();
            self.proposal.allow_joining(joint);
        }
        let Self {
            queues,
            publishing,
            proposal,
            messages,
            ..
        } = self;
        let admitted = queues
            .admit_proposal(messages.len(), proposal, publishing, AckLevel::Quorum)
            .await?;
        Ok(AdmittedRouted {
            queues,
            admitted,
            messages,
        })
    }
}

/// Messages to topics and exchanges that have room.
pub struct AdmittedRouted {
    queues: Queues,
    admitted: Admitted,
    messages: Vec<(MessageId, usize, Option<String>)>,
}

impl AdmittedRouted {
    /// See [`RoutedBatch::publish`].
    ///
    /// # Errors
    /// As there.
    pub async fn publish(self) -> Result<Vec<Result<Routed, ServiceError>>, ServiceError> {
        let Self {
            queues,
            admitted,
            messages,
        } = self;
        let id = match messages.as_slice() {
            [(id, ..)] => Some(*id),
            _ => None,
        };
        let outcomes = queues.route_admitted(admitted, id).await?;
        let counts = &queues.inner.routing.counts;
        let repeated = &queues.inner.publishes.repeated;
        let answer = |(id, command, exchange): (MessageId, usize, Option<String>)| {
            let queues = match outcomes.get(command) {
                Some(Outcome::PublishedTopic { queues }) => *queues as usize,
                // Nobody has it, and so it is lost unless it is published again.
                Some(Outcome::Routed { queues: 0, full }) if *full > 0 => {
                    return Err(ServiceError::QueuesFull { queues: *full });
                }
                Some(Outcome::Routed { queues, .. }) => *queues,
                Some(Outcome::RoutedBefore { id, queues }) => {
                    repeated.fetch_add(1, Ordering::Relaxed);
                    return Ok(Routed {
                        id: *id,
                        queues: *queues as usize,
                    });
                }
                Some(Outcome::Refused(RoutingRefusal::NoExchange)) => {
                    return Err(ServiceError::ExchangeNotFound {
                        exchange: exchange.unwrap_or_default(),
                    });
                }
                _ => return Err(ServiceError::Stopped),
            };
            if queues == 0 && exchange.is_some() {
                counts.unroutable.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Routed { id, queues })
        };
        Ok(messages.into_iter().map(answer).collect())
    }
}

impl Queues {
    /// An empty batch of messages to topics and exchanges that are received now.
    ///
    /// # Errors
    /// This node does not lead, and never knew who does.
    pub fn routed_batch(&self) -> Result<RoutedBatch, ServiceError> {
        let received = (self.inner.plane.sources().clock)();
        Ok(RoutedBatch {
            queues: self.clone(),
            salt: self.salt()?,
            received,
            remembered: remembered_until(received, self.inner.settings.dedup_ttl_ms),
            key_room: KeyRoom::new(self.clone()),
            publishing: self.publishing(received),
            proposal: Proposal::new(),
            topic: None,
            in_command: 0,
            messages: Vec::new(),
        })
    }

    /// What became of messages that were routed.
    #[must_use]
    pub fn routing_counts(&self) -> &RoutingCounts {
        &self.inner.routing.counts
    }
}

/// The headers of a message as consumers of a queue get them: of one that was routed, with the id of its publish.
pub fn delivered_headers(record: &Record) -> impl Iterator<Item = (&str, std::borrow::Cow<'_, str>)> {
    let publish_id = record
        .origin()
        .map(|origin| (PUBLISH_ID_HEADER, origin.id.to_string().into()));
    let routed = publish_id.is_some();
    let own = record
        .headers()
        .filter(move |(key, _)| !routed || *key != PUBLISH_ID_HEADER);
    own.map(|(key, value)| (key, value.into())).chain(publish_id)
}

/// Refuses what is no name, with a word for what it is to be the name of.
pub(super) fn check_named(what: &str, name: &str) -> Result<(), ServiceError> {
    check_name(name).map_err(|error| ServiceError::InvalidArgument {
        what: format!("{what} {error}"),
    })
}

/// Refuses a routing or binding key that is too long.
pub(super) fn check_key(what: &str, key: &str) -> Result<(), ServiceError> {
    if key.len() <= ROUTING_KEY_BYTES_MAX {
        return Ok(());
    }
    Err(ServiceError::InvalidArgument {
        what: format!(
            "{what} has {} bytes; at most {ROUTING_KEY_BYTES_MAX} are allowed",
            key.len()
        ),
    })
}
