//! `boltq topic …` and `boltq exchange …`.

use std::ffi::OsString;

use clap::{Subcommand, ValueEnum};

use super::Envelope;
use super::names::queue_name;
use super::publish::header;

#[derive(Debug, Subcommand)]
pub(crate) enum Topic {
    /// Publish a message to all who subscribe, and into the backlogs of durable subscriptions
    Publish {
        /// Name of the topic
        #[arg(value_name = "TOPIC", value_parser = queue_name)]
        topic: String,
        /// The message
        #[arg(long, allow_hyphen_values = true, required = true)]
        payload: OsString,
        #[command(flatten)]
        envelope: Envelope,
    },
    /// Print messages as they come
    Subscribe {
        /// Name of the topic
        #[arg(value_name = "TOPIC", value_parser = queue_name)]
        topic: String,
        /// Name of the subscription; the same again replaces the one before
        #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
        id: String,
        /// Keep messages while nobody is attached; what was printed does not come again
        #[arg(long, requires = "id")]
        durable: bool,
        /// End after so many messages
        #[arg(long, value_name = "N", conflicts_with = "durable", value_parser = clap::value_parser!(u64).range(1..))]
        max: Option<u64>,
    },
    /// All topics that have a durable subscription, or a subscriber on the node at --addr
    List,
    /// The durable subscriptions of a topic
    Subscriptions {
        /// Name of the topic
        #[arg(value_name = "TOPIC", value_parser = queue_name)]
        topic: String,
    },
    /// Remove a durable subscription with its backlog
    DeleteSubscription {
        /// Name of the topic
        #[arg(value_name = "TOPIC", value_parser = queue_name)]
        topic: String,
        /// Name of the subscription
        #[arg(value_name = "NAME", value_parser = queue_name)]
        id: String,
    },
}

/// How an exchange chooses.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ExchangeKind {
    /// Bindings whose key is the routing key
    Direct,
    /// All bindings
    Fanout,
    /// Bindings whose key is a pattern that the routing key matches
    Topic,
    /// Bindings whose headers the message has
    Headers,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Exchange {
    /// Create an exchange
    Declare {
        /// Its name
        #[arg(value_name = "EXCHANGE", value_parser = queue_name)]
        name: String,
        /// How it chooses
        #[arg(long = "type", value_enum, default_value_t = ExchangeKind::Direct)]
        kind: ExchangeKind,
        /// The exchange that gets what matches no binding
        #[arg(long, value_name = "EXCHANGE", default_value = "", hide_default_value = true)]
        alternate: String,
    },
    /// Remove an exchange with its bindings; the queues stay
    Delete {
        /// Its name
        #[arg(value_name = "EXCHANGE", value_parser = queue_name)]
        name: String,
    },
    /// Bind a queue, which is created on first use
    Bind {
        /// Name of the exchange
        #[arg(value_name = "EXCHANGE", value_parser = queue_name)]
        exchange: String,
        /// Name of the queue
        #[arg(value_name = "QUEUE", value_parser = queue_name)]
        queue: String,
        /// Key, or pattern of a topic exchange
        #[arg(long, default_value = "", hide_default_value = true, allow_hyphen_values = true)]
        key: String,
        /// Of a headers exchange: what a message has to have; may be repeated
        #[arg(long = "header", value_name = "KEY=VALUE", value_parser = header, allow_hyphen_values = true)]
        headers: Vec<(String, String)>,
        /// All headers are wanted, and not one of them
        #[arg(long, requires = "headers")]
        match_all: bool,
    },
    /// Remove all bindings of a queue with a key
    Unbind {
        /// Name of the exchange
        #[arg(value_name = "EXCHANGE", value_parser = queue_name)]
        exchange: String,
        /// Name of the queue
        #[arg(value_name = "QUEUE", value_parser = queue_name)]
        queue: String,
        /// Key of the bindings
        #[arg(long, default_value = "", hide_default_value = true, allow_hyphen_values = true)]
        key: String,
    },
    /// Publish a message to an exchange, and tell how many queues have it
    Publish {
        /// Name of the exchange; empty for the default one, which routes to the queue that the key names
        #[arg(value_name = "EXCHANGE")]
        exchange: String,
        /// Routing key
        #[arg(long, default_value = "", hide_default_value = true, allow_hyphen_values = true)]
        key: String,
        /// The message
        #[arg(long, allow_hyphen_values = true, required = true)]
        payload: OsString,
        #[command(flatten)]
        envelope: Envelope,
    },
    /// All exchanges by name
    List,
    /// The bindings of an exchange
    Bindings {
        /// Its name
        #[arg(value_name = "EXCHANGE", value_parser = queue_name)]
        exchange: String,
    },
}
