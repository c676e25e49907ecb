//! What commands answer, and the figures that are replicated.

use boltq_core::MessageId;

use crate::managing::QueueRefusal;
use crate::place::{Place, QueueId, Run, Runs};
use crate::routing::RoutingRefusal;

/// The answer to one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// To what answers nothing more.
    Done,
    /// The queue exists, whether it was created or was there.
    Declared(QueueId),
    /// Where the published records are, in their order.
    Published(Runs),
    /// The queue has no room for the last ones of a publish.
    Full {
        /// The queue.
        queue: QueueId,
        /// Where the first ones are.
        published: Runs,
        /// How many there was no room for.
        refused: u64,
    },
    /// A message with the same key was published before: where it is, or was.
    PublishedBefore(Place),
    /// To an acknowledgement, an expiry, failures, and to what is done to messages that are not due yet.
    Settled {
        /// Messages that the command changed.
        done: u64,
        /// Those that were done before, or never existed. No error: a command may be proposed twice.
        missing: Vec<Run>,
    },
    /// Where the dead letter is; `None` if the message was done already, and nothing was moved.
    DeadLettered(Option<Place>),
    /// Where the message is that was a dead letter; `None` if that was done already, and nothing was moved.
    Redriven(Option<Place>),
    /// The number of messages that were removed.
    Purged(u64),
    /// Messages of a topic were told to who listens, and are in the backlogs of its durable subscriptions.
    PublishedTopic {
        /// Number of backlogs.
        queues: u32,
    },
    /// The backlog of a durable subscription; `None` if there is no such subscription, and none was to be created.
    Attached(Option<QueueId>),
    /// The number of messages that went with a durable subscription; `None` if there is none, or it was attached since.
    SubscriptionRemoved(Option<u64>),
    /// Whether the exchange is new.
    ExchangeDeclared(bool),
    /// Whether the binding is new.
    Bound(bool),
    /// Number of bindings that were removed.
    Unbound(usize),
    /// A message was published to an exchange.
    Routed {
        /// Number of queues that have it.
        queues: usize,
        /// Number of queues that would have it, and had no room.
        full: usize,
    },
    /// A message with the same key was published to the same topic, or to the same exchange with the same routing key: what
    /// was answered then.
    RoutedBefore {
        /// Of the publish.
        id: MessageId,
        /// Number of queues that got it.
        queues: u32,
    },
    /// A queue has the settings that were asked for.
    QueueSet {
        /// The queue.
        queue: QueueId,
        /// Whether it was created.
        new: bool,
    },
    /// The number of messages that went with a queue.
    QueueDeleted(u64),
    /// A queue was not created, changed or deleted.
    QueueRefused(QueueRefusal),
    /// A command about topics or exchanges that changed nothing.
    Refused(RoutingRefusal),
}

/// What has to be known of a command beyond its [`boltq_core::StorageEffect`]s: by the dispatch of a leader, and by who
/// tells messages of topics to those who listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// An attempt failed, and the message waits for the next one.
    Failed {
        /// The message.
        place: Place,
    },
    /// A message has another due time.
    Rescheduled {
        /// The message.
        place: Place,
    },
    /// The settings of a queue are others.
    QueueChanged {
        /// The queue.
        queue: QueueId,
    },
    /// There is no such queue any more.
    QueueDeleted {
        /// What it was.
        queue: QueueId,
    },
    /// Messages were published to a topic. All offsets are in the data of the entry.
    TopicPublished {
        /// Where the name of the topic is.
        topic: u32,
        /// Its length.
        topic_bytes: u32,
        /// Number of records, at least 1.
        count: u32,
        /// Where they are, one after the other.
        records: u32,
        /// Bytes of all of them.
        records_bytes: u32,
    },
}

/// Messages of all queues since the group was created.
///
/// Always true: `published` = not done + `acked` + `expired` + `purged` + `dropped`. A dead letter is not counted as published
/// again, nor is one that goes back: the message goes on, in another queue.
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
    /// Removed by a purge, with their queue, or cancelled before they were due.
    pub purged: u64,
    /// Removed from a queue that was full, to make room.
    pub dropped: u64,
    /// Not accepted, because a queue was full. Each copy counts that was to go to such a queue.
    pub rejected: u64,
}

/// Messages of a queue that are not done. Each is counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Waiting for a consumer, or for the end of a backoff.
    pub ready: u64,
    /// Held by a consumer, or being settled. 0 on a node that does not lead.
    pub leased: u64,
    /// Not due yet, or due and not woken yet: the timer wakes many in several turns. On a node that does not lead: all that were published with a due time in the future.
    pub delayed: u64,
}
