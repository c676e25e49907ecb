//! Messages on their way to the server.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use boltq_proto::r#type::v1 as wire;
use bytes::Bytes;

use crate::wire::{duration, hex};

/// A message to publish: a payload, and what may go with it.
///
/// ```
/// use std::time::Duration;
/// use boltq::Message;
///
/// let message = Message::new(r#"{"to":"ann"}"#)
///     .content_type("application/json")
///     .header("trace", "a-17")
///     .ttl(Duration::from_secs(3_600));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    pub(crate) wire: wire::Message,
}

impl Message {
    /// A message with this payload, up to 4 MiB less 64 KiB with its headers.
    #[must_use]
    pub fn new(payload: impl Into<Bytes>) -> Self {
        let payload = payload.into();
        Self {
            wire: wire::Message {
                payload,
                ..wire::Message::default()
            },
        }
    }

    /// One header more, or another value of it. 64 KiB in all.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.wire.headers.insert(name.into(), value.into());
        self
    }

    /// All headers, in place of those that it has.
    #[must_use]
    pub fn headers(mut self, headers: BTreeMap<String, String>) -> Self {
        self.wire.headers = headers;
        self
    }

    /// Media type of the payload. With `application/json` the server checks that it is JSON.
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.wire.content_type = content_type.into();
        self
    }

    /// 0 to 9; 9 is delivered first. 0 by default.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.wire.priority = priority;
        self
    }

    /// Time until it may be delivered. Only for queues.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.wire.delay = Some(duration(delay));
        self
    }

    /// Time until it is discarded, the delay included.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.wire.ttl = Some(duration(ttl));
        self
    }

    /// A message with the same key is not stored in the queue again for `queue.dedup_ttl`: the answer is the id of the first one.
    /// The same holds for publishes to a topic, and to an exchange with the same routing key. Up to 200 bytes. By default the client gives one
    /// to publishes to queues; see
    /// [`ClientBuilder::idempotent_publishes`](crate::ClientBuilder::idempotent_publishes).
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.wire.idempotency_key = key.into();
        self
    }

    /// Messages of a queue with the same key are delivered in order, one at a time. 1 to 200 bytes.
    #[must_use]
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.wire.ordering_key = key.into();
        self
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.wire.payload
    }
}

impl<P: Into<Bytes>> From<P> for Message {
    fn from(payload: P) -> Self {
        Self::new(payload)
    }
}

/// Names a message: 16 bytes, which the server chose. Shown as 32 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(pub(crate) Bytes);

impl MessageId {
    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<[u8; 16]> for MessageId {
    fn from(bytes: [u8; 16]) -> Self {
        Self(Bytes::copy_from_slice(&bytes))
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageId({self})")
    }
}
