//! Settings of one queue.

use std::time::Duration;

use boltq_proto::queue::v1 as proto;

use crate::wire::{duration, from_duration};

/// What a queue has of its own. What is `None` is as the configuration of the server says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)]
pub struct QueueSettings {
    /// Deliveries after the first before a message becomes a dead letter, 0 to 1,000.
    pub max_retry: Option<u32>,
    /// Pause after the first failure, 0 to 1 h; doubles with each further one.
    pub retry_backoff: Option<Duration>,
    /// Longest pause, 0 to 24 h.
    pub retry_backoff_max: Option<Duration>,
    /// Length of leases for which the consumer asks no other, 10 ms to 7 days.
    pub ack_timeout: Option<Duration>,
    /// Time to live of messages that are published without one, 1 ms to 10 years.
    pub default_ttl: Option<Duration>,
    /// Messages at most.
    pub max_length: Option<u64>,
    /// Bytes of these at most.
    pub max_length_bytes: Option<u64>,
    /// What happens when it is full.
    pub overflow: Overflow,
    /// Where messages go that failed too often. Empty: the name of the queue with `_dead_letter` behind it.
    pub dead_letter_queue: String,
    /// How long an idempotency key is remembered, 1 s to 7 days.
    pub dedup_ttl: Option<Duration>,
    /// Only the consumer that came first gets messages.
    pub single_active_consumer: bool,
    /// Nothing is delivered.
    pub paused: bool,
}

/// What happens to a publish when the queue is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overflow {
    /// It is refused, with `QUEUE_FULL`.
    #[default]
    Reject,
    /// The oldest messages are discarded.
    DropOldest,
}

impl From<QueueSettings> for proto::QueueSettings {
    fn from(settings: QueueSettings) -> Self {
        Self {
            max_retry: settings.max_retry,
            retry_backoff: settings.retry_backoff.map(duration),
            retry_backoff_max: settings.retry_backoff_max.map(duration),
            ack_timeout: settings.ack_timeout.map(duration),
            default_ttl: settings.default_ttl.map(duration),
            max_length: settings.max_length,
            max_length_bytes: settings.max_length_bytes,
            overflow: match settings.overflow {
                Overflow::Reject => proto::OverflowPolicy::Unspecified.into(),
                Overflow::DropOldest => proto::OverflowPolicy::DropOldest.into(),
            },
            dead_letter_queue: settings.dead_letter_queue,
            dedup_ttl: settings.dedup_ttl.map(duration),
            single_active_consumer: settings.single_active_consumer,
            paused: settings.paused,
        }
    }
}

impl From<proto::QueueSettings> for QueueSettings {
    fn from(wire: proto::QueueSettings) -> Self {
        Self {
            overflow: match wire.overflow() {
                proto::OverflowPolicy::DropOldest => Overflow::DropOldest,
                proto::OverflowPolicy::Reject | proto::OverflowPolicy::Unspecified => Overflow::Reject,
            },
            max_retry: wire.max_retry,
            retry_backoff: from_duration(wire.retry_backoff),
            retry_backoff_max: from_duration(wire.retry_backoff_max),
            ack_timeout: from_duration(wire.ack_timeout),
            default_ttl: from_duration(wire.default_ttl),
            max_length: wire.max_length,
            max_length_bytes: wire.max_length_bytes,
            dead_letter_queue: wire.dead_letter_queue,
            dedup_ttl: from_duration(wire.dedup_ttl),
            single_active_consumer: wire.single_active_consumer,
            paused: wire.paused,
        }
    }
}
