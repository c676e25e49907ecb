//! Where a message goes that is not published to a queue by name: topics and exchanges.
//!
//! Both choose queues while the command is applied, from state that every replica has, and append the *same* records to
//! each of them: one entry, its bytes once, one place in every queue. So a publish reaches all of its queues or none, and
//! the same ones on every replica; and whatever a queue can do (leases, retries, dead letters, expiry, peek, purge,
//! figures) works for what was routed to it.
//!
//! The backlog of a durable subscription is the queue `<topic>:<subscription>`. A topic without durable subscriptions
//! keeps nothing: its publish is told to whoever listens on a node, as [`crate::Effect::TopicPublished`].

mod apply;
pub(crate) mod command;
mod exchange;
mod exchanges;
pub(crate) mod once;
mod pattern;
mod rule;
pub(crate) mod snapshot;
mod topics;

pub use command::ExchangeKind;
pub use exchange::Exchange;
pub use rule::HeaderRule;
pub use topics::{Subscription, backlog_queue};

use exchanges::Exchanges;
use topics::Topics;

/// Longest routing key and binding key, in bytes.
pub const ROUTING_KEY_BYTES_MAX: usize = 255;
/// Exchanges that a message goes through at most, from alternate to alternate.
const ALTERNATES_MAX: usize = 8;

/// The replicated state of topics and exchanges.
#[derive(Debug, Default)]
pub(crate) struct Routing {
    pub(crate) topics: Topics,
    pub(crate) exchanges: Exchanges,
}

impl Routing {
    pub(crate) fn is_empty(&self) -> bool {
        self.topics.is_empty() && self.exchanges.is_empty()
    }
}

/// Why a routing command was not carried out. Nothing changed then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoutingRefusal {
    /// There is no exchange of this name.
    NoExchange,
    /// There is one of this name, of another kind.
    OtherKind(ExchangeKind),
    /// The queue that would be the backlog is that of another subscription, whose topic and id put together give the same
    /// name.
    BacklogTaken {
        /// Its topic.
        topic: Box<str>,
        /// Its id.
        subscription: Box<str>,
    },
}
