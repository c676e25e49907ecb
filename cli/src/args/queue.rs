//! `boltq queue …`.

use clap::Subcommand;

use super::names::queue_name;
use super::publish::header;
use super::{CreateQueue, Current, DeleteQueue, Ids, Reschedule, Scheduled, UpdateQueue};

#[derive(Debug, Subcommand)]
pub(crate) enum Queue {
    /// All queues by name
    List {
        #[command(flatten)]
        current: Current,
        /// Only names that start with this
        #[arg(long, default_value = "", hide_default_value = true)]
        prefix: String,
    },
    /// One queue
    Get {
        #[command(flatten)]
        name: QueueName,
        #[command(flatten)]
        current: Current,
    },
    /// Create a queue with settings of its own; again with the same ones is harmless
    Create(CreateQueue),
    /// Change settings of a queue
    Update(UpdateQueue),
    /// Delete a queue with its messages, bindings and settings; its dead letters stay
    Delete(DeleteQueue),
    /// Deliver nothing of a queue for now; it takes messages still
    Pause(QueueName),
    /// Deliver messages of a paused queue again
    Resume(QueueName),
    /// The next messages, without taking them
    Peek {
        #[command(flatten)]
        name: QueueName,
        /// Messages at most, 1 to 1000
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        max: u32,
        #[command(flatten)]
        current: Current,
    },
    /// Remove all messages that are ready; leased and delayed ones stay
    Purge(QueueName),
    /// Remove the dead letters of a queue
    PurgeDeadLetters(QueueName),
    /// Send the dead letters of a queue back to it, as messages that were never tried
    Redrive(Redrive),
    /// Messages that are not due yet, in the order of their due times
    Scheduled(Scheduled),
    /// Remove messages that are not due yet
    Cancel(Ids),
    /// Give a message that is not due yet another due time
    Reschedule(Reschedule),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Redrive {
    #[command(flatten)]
    pub(crate) name: QueueName,
    /// Only those with this header, x-death-reason for example; may be repeated
    #[arg(long = "header", value_name = "KEY=VALUE", value_parser = header, allow_hyphen_values = true)]
    pub(crate) headers: Vec<(String, String)>,
    /// Messages at most [default: all that are there]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max: Option<u64>,
    /// Messages each second at most [default: as fast as it goes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct QueueName {
    /// Name of the queue
    #[arg(value_name = "QUEUE", value_parser = queue_name)]
    pub(crate) queue: String,
}
