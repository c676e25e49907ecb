//! Settings of a queue as options.

use std::time::Duration;

use clap::ValueEnum;

use super::names::queue_name;
use super::{QueueName, duration};

/// A setting that is not given stays as it is, or as the server says.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Settings {
    /// Deliveries after the first before a message becomes a dead letter
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) max_retry: Option<u32>,
    /// Wait before the second delivery; doubles with each failure
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) retry_backoff: Option<Duration>,
    /// Longest wait between deliveries
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) retry_backoff_max: Option<Duration>,
    /// Length of a lease for which the consumer asks no other
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ack_timeout: Option<Duration>,
    /// Time to live of messages that are published without one
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) default_ttl: Option<Duration>,
    /// Messages at most
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) max_length: Option<u64>,
    /// Bytes of these messages at most
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) max_length_bytes: Option<u64>,
    /// What happens when the queue is full
    #[arg(long, value_name = "POLICY")]
    pub(crate) overflow: Option<Overflow>,
    /// Queue for messages that failed too often
    #[arg(long, value_name = "QUEUE", value_parser = queue_name)]
    pub(crate) dead_letter_queue: Option<String>,
    /// How long idempotency keys are remembered
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) dedup_ttl: Option<Duration>,
    /// Serve one consumer at a time
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) single_active_consumer: Option<bool>,
    /// Deliver nothing for now
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) paused: Option<bool>,
}

/// What makes room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Overflow {
    /// New messages are refused
    Reject,
    /// The oldest messages are discarded
    DropOldest,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateQueue {
    #[command(flatten)]
    pub(crate) name: QueueName,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UpdateQueue {
    #[command(flatten)]
    pub(crate) name: QueueName,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Leave a setting to the server again, by its name: max-retry; may be repeated
    #[arg(long, value_name = "SETTING")]
    pub(crate) reset: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeleteQueue {
    #[command(flatten)]
    pub(crate) name: QueueName,
    /// Only if it has no messages, leased and delayed ones included
    #[arg(long)]
    pub(crate) if_empty: bool,
}
