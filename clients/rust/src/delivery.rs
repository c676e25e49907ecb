//! Messages that were delivered, and what became of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use boltq_proto::queue::v1 as proto;
use bytes::Bytes;

use crate::settler::{Settlement, Settler};
use crate::wire::{from_timestamp, hex};
use crate::{MessageId, Result};

/// A message that this client holds until it settles it, or its lease ends.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Shared, so that clones are cheap.
    wire: Arc<proto::Delivery>,
    settler: Settler,
}

impl Delivery {
    pub(crate) fn new(wire: proto::Delivery, settler: Settler) -> Self {
        Self {
            wire: Arc::new(wire),
            settler,
        }
    }

    /// The message is done: it is not delivered again. Returns when that is stored.
    ///
    /// Settlements that are made at the same time go to the server together.
    ///
    /// # Errors
    /// [`Error::NotSettled`](crate::Error::NotSettled) if the lease ended and somebody else has the message, or it is settled already;
    /// otherwise see [`Error`](crate::Error).
    pub async fn ack(&self) -> Result<()> {
        self.settle(Settlement::Ack).await
    }

    /// The message has failed: it is delivered again after a pause that the server chooses, or becomes a dead letter if it has
    /// failed too often.
    ///
    /// # Errors
    /// As [`Delivery::ack`].
    pub async fn nack(&self) -> Result<()> {
        self.settle(Settlement::Nack { delay: None }).await
    }

    /// As [`Delivery::nack`], with another pause, of up to 24 h.
    ///
    /// # Errors
    /// As [`Delivery::ack`].
    pub async fn nack_after(&self, delay: Duration) -> Result<()> {
        self.settle(Settlement::Nack { delay: Some(delay) }).await
    }

    /// The message goes to the dead letters at once.
    ///
    /// # Errors
    /// As [`Delivery::ack`].
    pub async fn dead_letter(&self) -> Result<()> {
        self.settle(Settlement::DeadLetter).await
    }

    /// The lease ends so long from now, 1 s to 12 h.
    ///
    /// # Errors
    /// As [`Delivery::ack`].
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        self.settle(Settlement::Extend { lease }).await
    }

    /// The message was not worked on: it is ready for others at once, at its old place, and no failed attempt is counted.
    ///
    /// # Errors
    /// As [`Delivery::ack`].
    pub async fn release(&self) -> Result<()> {
        self.settle(Settlement::Release).await
    }

    /// Bytes in memory, roughly.
    pub(crate) fn size(&self) -> usize {
        let headers = self.wire.headers.iter();
        let headers: usize = headers.map(|(name, value)| 32 + name.len() + value.len()).sum();
        128 + self.wire.payload.len() + self.wire.delivery_token.len() + headers
    }

    pub(crate) async fn settle(&self, settlement: Settlement) -> Result<()> {
        self.settler.settle(self.wire.delivery_token.clone(), settlement).await
    }

    /// Names the message.
    #[must_use]
    pub fn id(&self) -> MessageId {
        MessageId(self.wire.message_id.clone())
    }

    /// Names this delivery; what [`Queue::ack`](crate::Queue::ack) takes. Empty if the message was only looked at.
    #[must_use]
    pub fn token(&self) -> &Bytes {
        &self.wire.delivery_token
    }

    /// What was published.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.wire.payload
    }

    /// All headers.
    #[must_use]
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.wire.headers
    }

    /// One header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.wire.headers.get(name).map(String::as_str)
    }

    /// Media type of the payload; empty if the publisher gave none.
    #[must_use]
    pub fn content_type(&self) -> &str {
        &self.wire.content_type
    }

    /// 0 to 9.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.wire.priority
    }

    /// Failed attempts before this one.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.wire.attempts
    }

    /// Empty if it has none.
    #[must_use]
    pub fn ordering_key(&self) -> &str {
        &self.wire.ordering_key
    }

    /// When the server received it.
    #[must_use]
    pub fn published_at(&self) -> Option<SystemTime> {
        from_timestamp(self.wire.published_at)
    }

    /// `None` if it does not expire.
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        from_timestamp(self.wire.expires_at)
    }

    /// When it was due; `None` if it was published without a delay.
    #[must_use]
    pub fn deliver_at(&self) -> Option<SystemTime> {
        from_timestamp(self.wire.deliver_at)
    }
}

impl std::fmt::Display for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "message {} of {} bytes",
            hex(&self.wire.message_id),
            self.wire.payload.len()
        )
    }
}
