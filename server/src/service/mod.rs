//! One function per operation, whatever door it came through. Doors decode and encode; rules are in here and below.

mod batch;
mod bury;
mod cluster;
mod error;
mod expiry;
mod kv;
mod look;
mod publish;
mod queue;
mod settle;
mod take;
mod token;

pub(crate) use crate::clock::random;
pub use batch::{NewMessage, PublishBatch, duration_ns};
pub use boltq_queue::{QueueStats, Totals};
pub use bury::DEAD_LETTER_SUFFIX;
pub use cluster::{ClusterStatus, Clustering, GroupView, JoinRequest, MemberView, NodeStatus};
pub use error::{ServiceError, SettleError};
pub use kv::{KEY_BYTES_MAX, Kv, KvError, KvEvent, KvStats, KvWatch, VALUE_BYTES_MAX, WatchEnd};
pub use look::{Peeked, QueueInfo, Stats, StorageStats};
pub use publish::{Admitted, EarlyCounts, PublishCounts};
pub use queue::{Consumer, Delivery, Parts, Queues};
pub use settle::Settlement;
pub use take::ANSWER_BYTES_MAX;
pub use token::{DeliveryToken, Handle};

/// The media type of payloads that are checked to be one JSON value.
pub const JSON_CONTENT_TYPE: &str = "application/json";
