//! One function per operation, whatever door it came through. Doors decode and encode; rules are in here and below.

mod batch;
mod bury;
mod cluster;
mod dead_letters;
mod error;
mod exchange;
mod expiry;
mod key_room;
mod kv;
mod look;
mod managing;
mod observing;
mod overview;
mod overview_queues;
mod publish;
mod queue;
mod redrive;
mod routed;
mod scheduled;
mod settle;
mod subscriptions;
mod survey;
mod take;
mod token;
mod topic;

pub(crate) use crate::clock::random;
pub use batch::{IdempotencyKey, NewMessage, PublishBatch, duration_ns};
pub use boltq_queue::{
    DEAD_LETTER_SUFFIX, ExchangeKind, HeaderRule, QueueOption, QueueOptionSet, QueueOptions, QueueStats, Totals,
};
pub use cluster::{ClusterStatus, Clustering, GroupView, JoinRequest, Leader, MemberView, NodeStatus};
pub use dead_letters::DeadLettersInfo;
pub use error::{ServiceError, SettleError};
pub use exchange::{BindingInfo, ExchangeInfo, NewBinding, NewExchange};
pub use kv::{KEY_BYTES_MAX, Kv, KvError, KvEvent, KvStats, KvWatch, VALUE_BYTES_MAX, WatchEnd};
pub use look::{Peeked, QueueInfo, Stats, StorageStats};
pub use observing::QueueTimings;
pub use overview::{Health, Overview, overview};
pub use overview_queues::{Chosen, Look as OverviewLook, OverviewWatch, QueueOrder, QueueSelection, Rates};
pub use publish::{Admitted, EarlyCounts, PublishCounts, Published};
pub use queue::{Consumer, Delivery, Parts, Queues};
pub use redrive::Redrive;
pub use routed::{AdmittedRouted, PUBLISH_ID_HEADER, Routed, RoutedBatch, RoutingCounts, delivered_headers};
pub use scheduled::{NewDue, ScheduledAfter, ScheduledMessage};
pub use settle::Settlement;
pub use subscriptions::{SubscriptionInfo, TopicInfo};
pub use survey::Surveyed;
pub use take::ANSWER_BYTES_MAX;
pub use token::{DeliveryToken, Handle};
pub use topic::{NewSubscription, Push, Pushes, Subscribed, SubscriptionEnd};

/// The media type of payloads that are checked to be one JSON value.
pub const JSON_CONTENT_TYPE: &str = "application/json";
