//! What an operation can answer instead of a result.

use std::time::Duration;

use boltq_core::limits::{HEADER_BYTES_MAX, MESSAGE_BYTES_MAX};
use boltq_core::{MessageId, NameError};
use boltq_queue::ExchangeKind;

use super::Leader;
use crate::ack_level::AckLevel;

/// Why an operation was not carried out. The text is for people: what was wrong, and what to do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ServiceError {
    /// The name of a queue is not acceptable.
    #[error("queue {0}")]
    InvalidName(#[from] NameError),
    /// Payload and headers together are over the limit.
    #[error("message has {bytes} bytes of payload and headers; at most {MESSAGE_BYTES_MAX} are allowed")]
    MessageTooLarge {
        /// What it has.
        bytes: usize,
    },
    /// The headers are over the limit.
    #[error("headers have {bytes} bytes; at most {HEADER_BYTES_MAX} are allowed")]
    HeadersTooLarge {
        /// What they have.
        bytes: usize,
    },
    /// A request member is out of its range.
    #[error("{what}")]
    InvalidArgument {
        /// The member, its value and what is allowed.
        what: String,
    },
    /// There is no queue of this name.
    #[error("queue {queue:?} not found")]
    QueueNotFound {
        /// The name.
        queue: String,
    },
    /// The queue was deleted while somebody waited for its messages.
    #[error("the queue was deleted; who asks for it by name again creates a new one")]
    QueueDeleted,
    /// There is a queue of this name, with other settings.
    #[error("queue {queue:?} exists with other settings; change these with UpdateQueue")]
    QueueExists {
        /// The name.
        queue: String,
    },
    /// The queue was to be deleted only if it is empty.
    #[error("queue {queue:?} has {messages} messages, and is to be deleted only if it has none")]
    QueueNotEmpty {
        /// The name.
        queue: String,
        /// That are not done.
        messages: u64,
    },
    /// The queue belongs to a durable subscription.
    #[error(
        "queue {queue:?} is the backlog of subscription {subscription:?} of topic {topic:?}; delete that with \
         DeleteSubscription"
    )]
    QueueIsBacklog {
        /// The name.
        queue: String,
        /// The topic.
        topic: String,
        /// The id of the subscription.
        subscription: String,
    },
    /// The queue has no room for the message. It was not stored.
    #[error(
        "queue {queue:?} is full ({limits}): not stored; try again when messages were consumed, or change its settings"
    )]
    QueueFull {
        /// The name.
        queue: String,
        /// How much it may hold.
        limits: String,
    },
    /// None of the queues that a message was routed to has room for it. It was not stored.
    #[error(
        "all {queues} queues that the message was routed to are full: not stored; try again when messages were consumed"
    )]
    QueuesFull {
        /// How many there are.
        queues: usize,
    },
    /// There are no dead letters of this queue.
    #[error("dead letter queue {queue:?} not found")]
    DeadLettersNotFound {
        /// The name, with its suffix.
        queue: String,
    },
    /// There is no such message.
    #[error(
        "message {id} not found: it was never published, or it is done: acknowledged, expired, cancelled or purged"
    )]
    MessageNotFound {
        /// Its id.
        id: MessageId,
    },
    /// The message waits for no due time.
    #[error(
        "message {id} is due: it is ready, being delivered or being settled, and can be consumed or acknowledged only"
    )]
    NotScheduled {
        /// Its id.
        id: MessageId,
    },
    /// There is no exchange of this name.
    #[error("exchange {exchange:?} not found")]
    ExchangeNotFound {
        /// The name.
        exchange: String,
    },
    /// No exchange chooses in this way.
    #[error("unknown exchange type {kind:?}")]
    UnknownExchangeType {
        /// What was asked for.
        kind: String,
    },
    /// There is one of this name that chooses in another way.
    #[error("exchange {exchange:?} already exists with type {kind}")]
    ExchangeExists {
        /// The name.
        exchange: String,
        /// How it chooses.
        kind: ExchangeKind,
    },
    /// There is no such durable subscription.
    #[error("topic {topic:?} has no durable subscription {subscription:?}")]
    SubscriptionNotFound {
        /// The topic.
        topic: String,
        /// The id.
        subscription: String,
    },
    /// The queue that would be the backlog is that of another subscription.
    #[error(
        "its backlog would be that of subscription {subscription:?} of topic {topic:?}; topic, \":\" and id put together have \
         to differ"
    )]
    BacklogTaken {
        /// Its topic.
        topic: String,
        /// Its id.
        subscription: String,
    },
    /// This node does not lead the group, or no longer.
    #[error("not the leader; {}", ask(&.0.messaging))]
    NotLeader(Leader),
    /// The call was passed on to the node that led, which went away or was replaced before it answered. The outcome is unknown.
    #[error("passed on to {leader}, which no longer leads or did not answer; it may still be carried out")]
    LeaderLost {
        /// Its messaging address.
        leader: String,
    },
    /// This node was removed from its cluster.
    #[error("this node was removed from its cluster; ask another one")]
    Removed,
    /// The read asked for what is current, and this node cannot make sure that it has that.
    #[error(
        "it cannot be made sure that what this node has is current: {why}; try again, or ask without \"linearizable\""
    )]
    NotCurrent {
        /// What is in the way.
        why: String,
    },
    /// No majority of the nodes confirmed it in time. The outcome is unknown: it may still be carried out.
    #[error("no majority of the nodes confirmed in time; it may still be carried out")]
    NoMajority,
    /// Fewer voters answer than `cluster.min_in_sync` asks for. Nothing was stored.
    #[error(
        "{answering} voters answer, and cluster.min_in_sync asks for {wanted}: nothing was stored; try again when more of \
         them are there"
    )]
    NotEnoughReplicas {
        /// Those that answer.
        answering: usize,
        /// What is asked for.
        wanted: usize,
    },
    /// A majority has it, so it was carried out, but fewer voters confirmed it in time than `cluster.min_in_sync` asks for.
    #[error(
        "a majority has it and it is carried out, but fewer voters confirmed it in time than cluster.min_in_sync asks for"
    )]
    NotInSync,
    /// A publisher asks for less than the configuration allows.
    #[error(
        "ack_level {level} is below publish.min_ack_level, which is {min} on this server; ask for {min}, or change the key"
    )]
    AckLevelTooLow {
        /// What was asked for.
        level: AckLevel,
        /// What is allowed.
        min: AckLevel,
    },
    /// So many keys of publishes are remembered. Nothing was stored.
    #[error(
        "{max} idempotency keys are remembered, and queue.dedup_max_keys allows no more: nothing was stored; publish without \
         a key, try again later, or change queue.dedup_max_keys or queue.dedup_ttl"
    )]
    KeysFull {
        /// What is allowed.
        max: usize,
    },
    /// The disk is full. Settling goes on as long as its reserve lasts.
    #[error("disk full: nothing was written; make room under the data directory, and try again")]
    StorageFull,
    /// A stored record could not be read.
    #[error("stored data could not be read: {what}")]
    Storage {
        /// File and offset, and what was wrong.
        what: String,
    },
    /// The node is stopping, or its log failed.
    #[error("the server is stopping")]
    Stopped,
}

impl ServiceError {
    /// Stable name for programs; never renamed.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InvalidName(_) => "INVALID_NAME",
            Self::MessageTooLarge { .. } => "MESSAGE_TOO_LARGE",
            Self::HeadersTooLarge { .. } => "HEADERS_TOO_LARGE",
            Self::InvalidArgument { .. } => "INVALID_ARGUMENT",
            Self::QueueNotFound { .. } => "QUEUE_NOT_FOUND",
            Self::QueueDeleted => "QUEUE_DELETED",
            Self::QueueExists { .. } => "QUEUE_EXISTS",
            Self::QueueNotEmpty { .. } => "QUEUE_NOT_EMPTY",
            Self::QueueIsBacklog { .. } => "QUEUE_IS_BACKLOG",
            Self::QueueFull { .. } | Self::QueuesFull { .. } => "QUEUE_FULL",
            Self::DeadLettersNotFound { .. } => "DEAD_LETTERS_NOT_FOUND",
            Self::MessageNotFound { .. } => "MESSAGE_NOT_FOUND",
            Self::NotScheduled { .. } => "MESSAGE_NOT_SCHEDULED",
            Self::ExchangeNotFound { .. } => "EXCHANGE_NOT_FOUND",
            Self::ExchangeExists { .. } => "EXCHANGE_EXISTS",
            Self::UnknownExchangeType { .. } => "UNKNOWN_EXCHANGE_TYPE",
            Self::SubscriptionNotFound { .. } => "SUBSCRIPTION_NOT_FOUND",
            Self::BacklogTaken { .. } => "BACKLOG_TAKEN",
            Self::NotLeader { .. } => "NOT_LEADER",
            Self::LeaderLost { .. } => "LEADER_LOST",
            Self::Removed => "NODE_REMOVED",
            Self::NotCurrent { .. } => "NOT_CURRENT",
            Self::NoMajority => "NO_MAJORITY",
            Self::NotEnoughReplicas { .. } => "NOT_ENOUGH_REPLICAS",
            Self::NotInSync => "NOT_IN_SYNC",
            Self::AckLevelTooLow { .. } => "ACK_LEVEL_TOO_LOW",
            Self::KeysFull { .. } => "IDEMPOTENCY_KEYS_FULL",
            Self::StorageFull => "STORAGE_FULL",
            Self::Storage { .. } => "STORAGE_DAMAGED",
            Self::Stopped => "STOPPED",
        }
    }

    /// How long to wait before the same request can succeed; `None`: it cannot.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NotLeader { .. }
            | Self::LeaderLost { .. }
            | Self::NotCurrent { .. }
            | Self::NoMajority
            | Self::NotInSync
            | Self::Stopped => Some(Duration::from_millis(100)),
            Self::StorageFull
            | Self::NotEnoughReplicas { .. }
            | Self::KeysFull { .. }
            | Self::QueueFull { .. }
            | Self::QueuesFull { .. } => Some(Duration::from_secs(1)),
            Self::InvalidName(_)
            | Self::MessageTooLarge { .. }
            | Self::HeadersTooLarge { .. }
            | Self::InvalidArgument { .. }
            | Self::AckLevelTooLow { .. }
            | Self::QueueNotFound { .. }
            | Self::QueueDeleted
            | Self::QueueExists { .. }
            | Self::QueueNotEmpty { .. }
            | Self::QueueIsBacklog { .. }
            | Self::DeadLettersNotFound { .. }
            | Self::MessageNotFound { .. }
            | Self::NotScheduled { .. }
            | Self::ExchangeNotFound { .. }
            | Self::ExchangeExists { .. }
            | Self::UnknownExchangeType { .. }
            | Self::SubscriptionNotFound { .. }
            | Self::BacklogTaken { .. }
            | Self::Removed
            | Self::Storage { .. } => None,
        }
    }
}

/// What to do instead.
fn ask(leader: &str) -> String {
    if leader.is_empty() {
        "nobody is known to lead, try again".to_owned()
    } else {
        format!("ask {leader}")
    }
}

/// Why one message could not be settled.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SettleError {
    /// Not a token of this server.
    #[error("malformed delivery token")]
    Malformed,
    /// Unknown, settled before, expired or purged.
    #[error("not found in pending")]
    NotFound,
    /// The lease ended and somebody else holds the message.
    #[error("lease lost: somebody else holds the message")]
    LeaseLost,
    /// It is due, and was to be cancelled before.
    #[error("due already: it is ready, being delivered or being settled")]
    NotScheduled,
    /// Others of the same request were settled, this one was not, or nobody knows. It is available again.
    #[error("{0}")]
    NotSettled(Box<ServiceError>),
}
