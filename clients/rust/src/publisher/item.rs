//! A message on its way, and what is told of it.

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use crate::net::Keyed;
use crate::{Error, MessageId, Result};

/// Given back when the message is confirmed.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) _messages: OwnedSemaphorePermit,
    pub(super) _bytes: OwnedSemaphorePermit,
}

/// A message that is not confirmed.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) keyed: Keyed,
    pub(super) bytes: usize,
    pub(super) deadline: Instant,
    pub(super) outcome: oneshot::Sender<Result<MessageId>>,
    /// An attempt of which nothing is known was made.
    pub(super) unknown: bool,
    pub(super) _room: Room,
}

impl Item {
    /// Whether sending it again, after an attempt of which nothing is known, does no harm.
    pub(super) fn is_repeatable(&self) -> bool {
        !self.keyed.message.idempotency_key.is_empty()
    }

    pub(super) fn finish(self, outcome: Result<MessageId>) {
        let outcome = match self.unknown {
            true => outcome.map_err(Error::with_unknown_outcome),
            false => outcome,
        };
        // Who does not wait any more does not want to know.
        let _ = self.outcome.send(outcome);
    }
}
