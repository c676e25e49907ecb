//! What commands answer, and the figures that are replicated.

use crate::place::{Place, QueueId, Run, Runs};

/// The answer to one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// To `Init`.
    Done,
    /// The queue exists, whether it was created or was there.
    Declared(QueueId),
    /// Where the published records are, in their order.
    Published(Runs),
    /// To an acknowledgement, an expiry, and failures.
    Settled {
        /// Messages that the command changed.
        done: u64,
        /// Those that were done before, or never existed. No error: a command may be proposed twice.
        missing: Vec<Run>,
    },
    /// Where the dead letter is; `None` if the message was done already, and nothing was moved.
    DeadLettered(Option<Place>),
    /// The number of messages that were removed.
    Purged(u64),
}

/// What the dispatch of a leader has to know of a command beyond its [`boltq_core::StorageEffect`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// An attempt failed, and the message waits for the next one.
    Failed {
        /// The message.
        place: Place,
    },
}

/// Messages of all queues since the group was created.
///
/// Always true: `published` = not done + `acked` + `expired` + `purged`. A dead letter is not counted as published
/// again: the message goes on, in another queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Accepted.
    pub published: u64,
    /// Done because a consumer acknowledged them.
    pub acked: u64,
    /// Failed attempts after which the message was to be tried again: negative acknowledgements and ended leases.
    pub nacked: u64,
    /// Done because their time to live ended.
    pub expired: u64,
    /// Moved to a dead-letter queue.
    pub dead_lettered: u64,
    /// Removed by a purge.
    pub purged: u64,
}

/// Messages of a queue that are not done. Each is counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Waiting for a consumer, or for the end of a backoff.
    pub ready: u64,
    /// Held by a consumer, or being settled. 0 on a node that does not lead.
    pub leased: u64,
    /// Not due yet. On a node that does not lead: all that were published with a due time in the future.
    pub delayed: u64,
}
