//! What an operation can answer instead of a result.

use std::time::Duration;

use boltq_core::NameError;
use boltq_core::limits::{HEADER_BYTES_MAX, IDEMPOTENCY_KEY_BYTES_MAX, MESSAGE_BYTES_MAX, ORDERING_KEY_BYTES_MAX};
use boltq_stream::CURSOR_NAME_BYTES_MAX;

/// Why an operation was not carried out. The text is for people: what was wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The name of a topic is not acceptable.
    #[error("topic {0}")]
    InvalidName(#[from] NameError),
    /// A request member is out of its range.
    #[error("{0}")]
    InvalidArgument(String),
    /// Payload and headers together are over the limit.
    #[error("record has {bytes} bytes of payload and headers; at most {MESSAGE_BYTES_MAX} are allowed")]
    RecordTooLarge {
        /// What it has.
        bytes: usize,
    },
    /// The headers are over the limit.
    #[error("headers have {bytes} bytes; at most {HEADER_BYTES_MAX} are allowed")]
    HeadersTooLarge {
        /// What they have.
        bytes: usize,
    },
    /// The key is over the limit.
    #[error("key has {bytes} bytes; at most {ORDERING_KEY_BYTES_MAX} are allowed")]
    KeyTooLong {
        /// What it has.
        bytes: usize,
    },
    /// The idempotency key is over the limit.
    #[error("idempotency key has {bytes} bytes; at most {IDEMPOTENCY_KEY_BYTES_MAX} are allowed")]
    IdempotencyKeyTooLong {
        /// What it has.
        bytes: usize,
    },
    /// The name of a group of readers, or of a member of it, is over the limit.
    #[error("group and member of a cursor have up to {CURSOR_NAME_BYTES_MAX} bytes each, and the group at least 1")]
    InvalidCursorName,
    /// There is no topic of this name.
    #[error("topic {topic:?} not found")]
    TopicNotFound {
        /// The name.
        topic: String,
    },
    /// There is a topic of this name, with other settings.
    #[error("topic {topic:?} exists with {partitions} partitions; that is decided once")]
    TopicExists {
        /// The name.
        topic: String,
        /// What it has.
        partitions: u32,
    },
    /// The topic has no such partition.
    #[error("topic {topic:?} has the partitions 0 to {}, and not {partition}", partitions.saturating_sub(1))]
    NoPartition {
        /// The name.
        topic: String,
        /// What was asked for.
        partition: u32,
        /// How many it has.
        partitions: u32,
    },
    /// The topic was deleted or created again while it was appended to. Nothing was stored.
    #[error("topic {topic:?} was deleted or created again meanwhile: not stored; try again")]
    TopicChanged {
        /// The name.
        topic: String,
    },
    /// So many keys of appends are remembered. Nothing was stored.
    #[error(
        "so many idempotency keys are remembered as messaging.stream.dedup_max_keys allows in a group: not stored; try again \
         when the time of others is over"
    )]
    KeysFull,
    /// So many positions are kept. This one was not.
    #[error("so many cursors are kept as messaging.stream.cursors_max allows in a group: not committed; delete some")]
    CursorsFull,
    /// Nobody is known to lead the group, and nothing was done.
    #[error("nobody leads {group} as far as this node knows ({why}); try again")]
    NoLeader {
        /// What people call the group.
        group: String,
        /// What is in the way.
        why: String,
    },
    /// It was passed on, and whether it was carried out is not known.
    #[error("no majority of the nodes confirmed in time, or their leader changed; it may still be carried out")]
    Unconfirmed,
    /// Fewer voters answer than `cluster.min_in_sync` asks for. Nothing was stored.
    #[error("{0}, as cluster.min_in_sync says: nothing was stored; try again when more of them are there")]
    NotEnoughReplicas(String),
    /// A majority has it, so it was carried out, but fewer voters confirmed it in time than `cluster.min_in_sync` asks for.
    #[error(
        "a majority has it and it is carried out, but fewer voters confirmed it in time than cluster.min_in_sync asks for"
    )]
    NotInSync,
    /// The read asked for what is current, and this node cannot make sure that it has that.
    #[error(
        "it cannot be made sure that what this node has is current: {why}; try again, or ask without \"linearizable\""
    )]
    NotCurrent {
        /// What is in the way.
        why: String,
    },
    /// The disk is full. Nothing was stored.
    #[error("the disk of the messaging plane is full: not stored; make room, or shorten how long records are kept")]
    StorageFull,
    /// A record cannot be read.
    #[error("cannot be read: {0}")]
    Storage(String),
    /// The node stops, or its storage failed.
    #[error("the node is stopping")]
    Stopped,
}

impl StreamError {
    /// For machines; never changes.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InvalidName(_) => "INVALID_NAME",
            Self::InvalidArgument(_) | Self::InvalidCursorName | Self::KeyTooLong { .. } => "INVALID_ARGUMENT",
            Self::IdempotencyKeyTooLong { .. } => "INVALID_IDEMPOTENCY_KEY",
            Self::RecordTooLarge { .. } => "MESSAGE_TOO_LARGE",
            Self::HeadersTooLarge { .. } => "HEADERS_TOO_LARGE",
            Self::TopicNotFound { .. } => "TOPIC_NOT_FOUND",
            Self::TopicExists { .. } => "TOPIC_EXISTS",
            Self::NoPartition { .. } => "NO_PARTITION",
            Self::TopicChanged { .. } => "TOPIC_CHANGED",
            Self::KeysFull => "IDEMPOTENCY_KEYS_FULL",
            Self::CursorsFull => "CURSORS_FULL",
            Self::NoLeader { .. } => "NO_LEADER",
            Self::Unconfirmed => "UNCONFIRMED",
            Self::NotEnoughReplicas(_) => "NOT_ENOUGH_REPLICAS",
            Self::NotInSync => "NOT_IN_SYNC",
            Self::NotCurrent { .. } => "NOT_CURRENT",
            Self::StorageFull => "STORAGE_FULL",
            Self::Storage(_) => "STORAGE_DAMAGED",
            Self::Stopped => "STOPPED",
        }
    }

    /// How long to wait before the same request can succeed; `None`: it cannot.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TopicChanged { .. }
            | Self::NoLeader { .. }
            | Self::Unconfirmed
            | Self::NotInSync
            | Self::NotCurrent { .. }
            | Self::Stopped => Some(Duration::from_millis(100)),
            Self::KeysFull | Self::StorageFull | Self::NotEnoughReplicas(_) => Some(Duration::from_secs(1)),
            Self::InvalidName(_)
            | Self::InvalidArgument(_)
            | Self::RecordTooLarge { .. }
            | Self::HeadersTooLarge { .. }
            | Self::KeyTooLong { .. }
            | Self::IdempotencyKeyTooLong { .. }
            | Self::InvalidCursorName
            | Self::TopicNotFound { .. }
            | Self::TopicExists { .. }
            | Self::NoPartition { .. }
            | Self::CursorsFull
            | Self::Storage(_) => None,
        }
    }
}
