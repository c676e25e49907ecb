//! Whether the key of a publish can be remembered.
//!
//! A message whose key can not is refused before it is encoded, and those that came with it are stored. One whose key is
//! remembered already needs no room: it is answered as it was the first time.

use boltq_queue::KeyScope;

use super::batch::IdempotencyKey;
use super::error::ServiceError;
use super::queue::Queues;

/// What is known of the room for keys while a batch is filled.
pub(super) struct KeyRoom {
    queues: Queues,
    /// Looked up for the first message that has a key, and the same for the others: of the new keys that come together
    /// either all are taken or none, so that their messages keep their order when they are sent again.
    full: Option<bool>,
}

impl KeyRoom {
    pub(super) fn new(queues: Queues) -> Self {
        Self { queues, full: None }
    }

    /// Refuses a message with a key that is new if no more are remembered. Those on their way are not counted, so there may be
    /// a few more. Where nothing is taken at all, everything passes: why that is so is said of the batch as a whole.
    pub(super) fn check(&mut self, scope: KeyScope<'_>, key: IdempotencyKey<'_>) -> Result<(), ServiceError> {
        let inner = &self.queues.inner;
        let (max, now) = (inner.settings.dedup_keys_max, inner.plane.now());
        let full = *self.full.get_or_insert_with(|| {
            self.queues.check_takes().is_ok() && inner.plane.with(|plane| plane.machine().keys_full(max, now))
        });
        if full && !inner.plane.with(|plane| plane.machine().remembers(scope, key.0, now)) {
            return Err(ServiceError::KeysFull { max });
        }
        Ok(())
    }
}
