//! The key-value cache, which the group of the queues has in its state, and who watches it.

use boltq_core::{Applied, DecodeError, Millis, StateMachine};
use boltq_kv::{Cache, Change};
use boltq_raft::Command;
use tokio::sync::broadcast;

use super::{Answer, QueuePlane};

/// Changes of the cache that a watcher may be behind. They have keys and no values.
pub(super) const CHANGES_MAX: usize = 4_096;

impl QueuePlane {
    /// Looks at the cache.
    pub fn with_cache<R>(&self, look: impl FnOnce(&Cache) -> R) -> R {
        look(&self.cache.read())
    }

    /// Looks at the cache, and hears of what changes after that. The receiver ends when another node's state has taken the
    /// place of this one's.
    pub fn watch_cache<R>(&self, look: impl FnOnce(&Cache) -> R) -> (R, broadcast::Receiver<Change>) {
        let cache = self.cache.read();
        (look(&cache), self.changes.read().subscribe())
    }

    pub(super) fn apply_to_cache(&self, time: Millis, command: &Command<'_>) -> Result<Answer, DecodeError> {
        let mut cache = self.cache.write();
        let mut applied = Applied::default();
        let outcome = cache.apply(time, command.bytes, command.offset, &mut applied)?;
        let changes = self.changes.read();
        if changes.receiver_count() > 0 {
            for change in applied.effects {
                // The last watcher may have gone.
                let _ = changes.send(change);
            }
        }
        Ok(Answer::Cache(outcome))
    }
}
