//! Between the messages of the protos and the types of the service.

use std::collections::BTreeMap;
use std::time::Duration;

use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_core::{MessageId, Millis};
use boltq_proto::queue::v1::{Delivery as DeliveryProto, SettleFailure, SettleFailureReason};
use boltq_proto::topic::v1::TopicMessage;
use boltq_proto::r#type::v1::Message;
use bytes::Bytes;
use prost_types::Timestamp;
use tonic::Status;

use super::error::invalid;
use crate::doors::bounds::{LEASE_MAX, LEASE_MIN, RETRY_DELAY_MAX, WAIT_MAX};
use crate::service::{
    Delivery, DeliveryToken, Handle, IdempotencyKey, JSON_CONTENT_TYPE, NewMessage, Peeked, PublishBatch, Push,
    RoutedBatch, ServiceError, SettleError, Settlement, delivered_headers,
};

/// Where a content type other than JSON is kept in a record.
const CONTENT_TYPE_HEADER: &str = "content-type";

/// Adds a message to a batch.
pub(super) fn push(batch: &mut PublishBatch, queue: &str, message: &Message) -> Result<(), ServiceError> {
    let key = IdempotencyKey::read(&message.idempotency_key)?;
    with_message(message, |new, headers| match key {
        None => batch.push(queue, new, headers),
        Some(key) => batch.push_once(queue, key, new, headers),
    })
}

/// Adds a message to a batch, for an exchange.
pub(super) fn push_exchange(
    batch: &mut RoutedBatch,
    exchange: &str,
    routing_key: &str,
    message: &Message,
) -> Result<(), ServiceError> {
    let times = [("delay", &message.delay), ("ttl", &message.ttl)];
    if let Some((name, _)) = times.into_iter().find(|(_, time)| time.is_some()) {
        return Err(ServiceError::InvalidArgument {
            what: format!("message.{name} is set; copies of a message to an exchange have none"),
        });
    }
    let key = IdempotencyKey::read(&message.idempotency_key)?;
    with_message(message, |new, headers| {
        batch.push_exchange(exchange, routing_key, key, new, headers)
    })
}

/// Adds a message to a batch, for a topic.
pub(super) fn push_topic(batch: &mut RoutedBatch, topic: &str, message: &Message) -> Result<(), ServiceError> {
    if message.delay.is_some() {
        return Err(ServiceError::InvalidArgument {
            what: "message.delay is set; subscribers of a topic get messages at once".to_owned(),
        });
    }
    let key = IdempotencyKey::read(&message.idempotency_key)?;
    with_message(message, |new, headers| batch.push_topic(topic, key, new, headers))
}

/// Hands a message with its headers to `push`.
fn with_message<'m, R>(
    message: &'m Message,
    push: impl FnOnce(&NewMessage<'m>, HeaderPairs<'m>) -> Result<R, ServiceError>,
) -> Result<R, ServiceError> {
    let content = Content::read(&message.payload, &message.content_type, &message.headers)
        .map_err(|what| ServiceError::InvalidArgument { what })?;
    let new = NewMessage {
        payload: &message.payload,
        json: content.json,
        priority: i64::from(message.priority),
        delay_ns: nanos(message.delay.as_ref(), "message.delay")?,
        ttl_ns: nanos(message.ttl.as_ref(), "message.ttl")?,
        ordering_key: &message.ordering_key,
    };
    push(&new, content.headers.into_iter())
}

/// What of a message goes into a record beside its payload.
pub(super) struct Content<'m> {
    pub(super) json: bool,
    /// With that of the media type, which takes the place of one that the application has given.
    pub(super) headers: Vec<(&'m str, &'m str)>,
}

impl<'m> Content<'m> {
    /// Looks whether the payload is what its media type says, if that is JSON.
    pub(super) fn read(
        payload: &[u8],
        content_type: &'m str,
        headers: &'m BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let json = content_type == JSON_CONTENT_TYPE;
        if json {
            check_json(payload).map_err(|error| {
                format!("content_type is {JSON_CONTENT_TYPE:?}, but payload is not one JSON value: {error}")
            })?;
        }
        let named = (!json && !content_type.is_empty()).then_some((CONTENT_TYPE_HEADER, content_type));
        let headers = headers.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let headers = headers.filter(|(key, _)| named.is_none() || *key != CONTENT_TYPE_HEADER);
        Ok(Self {
            json,
            headers: headers.chain(named).collect(),
        })
    }
}

type HeaderPairs<'m> = std::vec::IntoIter<(&'m str, &'m str)>;

/// One JSON value and nothing else. The text is checked to be UTF-8 as a whole, since the parser does not look into
/// strings that it skips.
fn check_json(payload: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(payload).map_err(|error| error.to_string())?;
    serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|error| error.to_string())?;
    Ok(())
}

fn nanos(duration: Option<&prost_types::Duration>, what: &str) -> Result<i64, ServiceError> {
    let Some(duration) = duration else { return Ok(0) };
    let nanos = i128::from(duration.seconds) * 1_000_000_000 + i128::from(duration.nanos);
    i64::try_from(nanos.max(0)).map_err(|_| ServiceError::InvalidArgument {
        what: format!(
            "{what} is {} s; at most {} s are allowed",
            duration.seconds,
            i64::MAX / 1_000_000_000
        ),
    })
}

/// A duration of a request within its bounds; unset is `None`.
pub(super) fn bounded(
    duration: Option<prost_types::Duration>,
    what: &str,
    min: Duration,
    max: Duration,
) -> Result<Option<Duration>, Status> {
    let Some(duration) = duration else { return Ok(None) };
    let value = Duration::try_from(duration).map_err(|_| invalid(format!("{what} is negative")))?;
    if value < min || value > max {
        return Err(invalid(format!("{what} is {value:?}; {min:?} to {max:?} are allowed")));
    }
    Ok(Some(value))
}

pub(super) fn lease(duration: Option<prost_types::Duration>) -> Result<Option<Duration>, Status> {
    bounded(duration, "lease", LEASE_MIN, LEASE_MAX)
}

fn delay(duration: Option<prost_types::Duration>) -> Result<Option<Duration>, Status> {
    bounded(duration, "delay", Duration::ZERO, RETRY_DELAY_MAX)
}

/// What is to become of messages that are given back.
pub(super) fn nack(
    delay: Option<prost_types::Duration>,
    dead_letter: bool,
    release: bool,
) -> Result<Settlement, Status> {
    if !release {
        let delay = self::delay(delay)?;
        return Ok(Settlement::Nack { delay, dead_letter });
    }
    if delay.is_some() || dead_letter {
        return Err(invalid(
            "release gives messages back as they came: leave out delay and dead_letter, or release",
        ));
    }
    Ok(Settlement::Release)
}

pub(super) fn wait(duration: Option<prost_types::Duration>) -> Result<Duration, Status> {
    Ok(bounded(duration, "wait", Duration::ZERO, WAIT_MAX)?.unwrap_or(Duration::ZERO))
}

/// A count of a request: 0 is `default`, more than `max` is refused.
pub(super) fn count(value: u32, what: &str, default: usize, max: usize) -> Result<usize, Status> {
    match value as usize {
        0 => Ok(default),
        value if value > max => Err(invalid(format!("{what} is {value}; at most {max} are allowed"))),
        value => Ok(value),
    }
}

pub(super) fn timestamp_ns(unix_ns: u64) -> Timestamp {
    #[allow(clippy::cast_possible_truncation, reason = "under a thousand million")]
    let nanos = (unix_ns % 1_000_000_000) as i32;
    Timestamp {
        seconds: i64::try_from(unix_ns / 1_000_000_000).unwrap_or(i64::MAX),
        nanos,
    }
}

pub(super) fn timestamp_ms(time: Millis) -> Timestamp {
    timestamp_ns(time.0.saturating_mul(1_000_000))
}

pub(super) fn delivery(delivery: &Delivery) -> DeliveryProto {
    let token = Bytes::copy_from_slice(&delivery.token.to_bytes());
    proto(token, delivery.id, delivery.attempts, &delivery.record)
}

pub(super) fn peeked(peeked: &Peeked) -> DeliveryProto {
    proto(Bytes::new(), peeked.id, peeked.attempts, &peeked.record)
}

fn proto(delivery_token: Bytes, id: MessageId, attempts: u32, record: &boltq_core::Record) -> DeliveryProto {
    let (content_type, headers) = content_type_and_headers(record, delivered_headers(record));
    DeliveryProto {
        delivery_token,
        message_id: Bytes::copy_from_slice(&id.0),
        payload: record.payload.clone(),
        headers,
        content_type,
        priority: i32::from(record.priority),
        published_at: Some(timestamp_ns(record.published_ns)),
        attempts,
        expires_at: record.expires.map(timestamp_ms),
        deliver_at: record.due.map(timestamp_ms),
        ordering_key: record.ordering_key().to_owned(),
    }
}

/// A message of a topic.
pub(super) fn topic_message(push: &Push) -> TopicMessage {
    let record = &push.record;
    let headers = record.headers().map(|(key, value)| (key, value.into()));
    let (content_type, headers) = content_type_and_headers(record, headers);
    TopicMessage {
        message_id: Bytes::copy_from_slice(&push.id.0),
        payload: record.payload.clone(),
        headers,
        content_type,
        priority: i32::from(record.priority),
        published_at: Some(timestamp_ns(record.published_ns)),
    }
}

/// A content type other than JSON is kept among the headers.
pub(super) fn content_type_and_headers<'r>(
    record: &boltq_core::Record,
    all: impl Iterator<Item = (&'r str, std::borrow::Cow<'r, str>)>,
) -> (String, std::collections::BTreeMap<String, String>) {
    let mut content_type = if record.json {
        JSON_CONTENT_TYPE.to_owned()
    } else {
        String::new()
    };
    let mut headers = std::collections::BTreeMap::new();
    for (key, value) in all {
        if key == CONTENT_TYPE_HEADER && !record.json {
            content_type = value.into_owned();
        } else {
            headers.insert(key.to_owned(), value.into_owned());
        }
    }
    (content_type, headers)
}

/// Tokens and ids of a settlement as handles, with what each was called; what is none is answered by its failure.
pub(super) struct Handles {
    pub(super) handles: Vec<Handle>,
    names: Vec<Bytes>,
    malformed: Vec<SettleFailure>,
}

impl Handles {
    pub(super) fn read(tokens: Vec<Bytes>, ids: Vec<Bytes>) -> Result<Self, Status> {
        let given = tokens.len() + ids.len();
        if given > BATCH_MESSAGES_MAX {
            return Err(invalid(format!(
                "{given} tokens and ids; at most {BATCH_MESSAGES_MAX} are allowed"
            )));
        }
        let mut read = Self {
            handles: Vec::with_capacity(given),
            names: Vec::with_capacity(given),
            malformed: Vec::new(),
        };
        for token in tokens {
            let handle = DeliveryToken::from_bytes(&token).map(Handle::Token);
            read.add(token, handle);
        }
        for id in ids {
            let handle = <[u8; 16]>::try_from(&id[..]).ok().map(|id| Handle::Id(MessageId(id)));
            read.add(id, handle);
        }
        Ok(read)
    }

    fn add(&mut self, name: Bytes, handle: Option<Handle>) {
        match handle {
            Some(handle) => {
                self.handles.push(handle);
                self.names.push(name);
            }
            None => self.malformed.push(failure(name, &SettleError::Malformed)),
        }
    }

    /// How many were settled, and what became of the others.
    pub(super) fn answer(self, results: &[Result<(), SettleError>]) -> (u32, Vec<SettleFailure>) {
        let mut failures = self.malformed;
        let mut settled = 0;
        for (name, result) in self.names.into_iter().zip(results) {
            match result {
                Ok(()) => settled += 1,
                Err(error) => failures.push(failure(name, error)),
            }
        }
        (settled, failures)
    }
}

fn failure(token: Bytes, error: &SettleError) -> SettleFailure {
    let reason = match error {
        SettleError::Malformed => SettleFailureReason::Malformed,
        SettleError::NotFound => SettleFailureReason::NotFound,
        SettleError::LeaseLost => SettleFailureReason::LeaseLost,
        SettleError::NotScheduled => SettleFailureReason::NotScheduled,
        SettleError::NotSettled(_) => SettleFailureReason::NotSettled,
    };
    SettleFailure {
        token,
        reason: reason.into(),
    }
}
