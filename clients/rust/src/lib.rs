//! Client of the BoltQ message broker, over gRPC.
//!
//! ```no_run
//! use boltq::{Client, Delivery, Failed, Message};
//!
//! # async fn example() -> Result<(), boltq::Error> {
//! let client = Client::builder().address("localhost:9091").connect().await?;
//!
//! let emails = client.queue("emails");
//! emails.publish(Message::new(r#"{"to":"ann"}"#).content_type("application/json")).await?;
//!
//! let worker = emails.worker().concurrency(8).start(|delivery: Delivery| async move {
//!     println!("{:?}", delivery.payload());
//!     Ok::<(), Failed>(())
//! });
//! worker.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! | what | where |
//! | --- | --- |
//! | work queues: publish, consume, subscribe, work, settings | [`Queue`], [`Publisher`], [`Subscription`], [`Worker`] |
//! | topics and durable subscriptions | [`Topic`] |
//! | exchanges and bindings | [`Exchanges`] |
//! | the key-value cache | [`Kv`] |
//! | statistics of a node, and the cluster | [`Client::stats`], [`Cluster`] |
//!
//! # What it does by itself
//!
//! A [`Client`] is cheap to clone and can be used from any number of tasks; all clones share their connections. Give it the addresses of all nodes of
//! a cluster. It repeats calls that failed because a node stopped, lost its leadership or could not be reached, on that node or another one,
//! with exponential backoff, until the timeout of the call is over. It does that only where a second time does no harm, or the server said that the
//! first had no effect: so restarts of servers and changes of leaders are not seen by the application, except for calls such as
//! [`Kv::increment`] whose outcome is not known then ([`Error::is_outcome_unknown`]).
//!
//! Publishes to queues carry an idempotency key, so that they can be repeated and are stored once; see
//! [`ClientBuilder::idempotent_publishes`].
//!
//! Dropping a future cancels its call. Everything runs on the runtime of tokio that calls it; what runs in the background ends with the
//! [`Publisher`] or [`Worker`] that it belongs to.

mod cluster;
mod delivery;
mod error;
mod exchange;
mod intake;
mod kv;
mod message;
mod net;
mod publisher;
mod queue;
mod settler;
mod stream;
mod subscription;
mod topic;
mod wire;
mod worker;

use std::time::Duration;

use boltq_proto::admin::v1::GetStatsRequest;
use boltq_proto::admin::v1::admin_service_client::AdminServiceClient;

/// The messages of the protocol, for answers that this crate passes on as they are.
pub use boltq_proto as proto;

pub use cluster::Cluster;
pub use delivery::Delivery;
pub use error::{Code, Error, NotSettled, Refusal};
pub use exchange::{Binding, ExchangeOptions, ExchangeType, Exchanges, Routed};
pub use kv::{Condition, Entry, Kv, Watch, WatchEvent};
pub use message::{Message, MessageId};
pub use net::{ClientBuilder, Tls};
pub use publisher::{Confirmation, Publisher, PublisherOptions};
pub use queue::{ConsumeOptions, Overflow, Queue, QueueSettings, Scheduled};
pub use subscription::{SubscribeOptions, Subscription};
pub use topic::{Topic, TopicMessage, TopicPublished, TopicSubscribeOptions, TopicSubscription};
pub use worker::{Failed, Stopped, Worker, WorkerBuilder, WorkerError, WorkerStats};

use net::{Caller, Repeat};
use settler::Settler;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Answers of servers stay below 4 MiB; a proxy in between may not know that.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Servers of BoltQ, and how to reach them. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    caller: Caller,
    settler: Settler,
}

impl Client {
    /// A client in the making.
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    pub(crate) fn new(caller: Caller) -> Self {
        let settler = Settler::new(caller.clone());
        Self { caller, settler }
    }

    /// The same client with another timeout of calls. Shares the connections.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        let caller = self.caller.with_timeout(timeout);
        Self {
            settler: self.settler.with_caller(caller.clone()),
            caller,
        }
    }

    /// A work queue, whether it exists or not.
    #[must_use]
    pub fn queue(&self, name: impl Into<String>) -> Queue {
        Queue::new(self.clone(), name.into())
    }

    /// A topic, whether it exists or not.
    #[must_use]
    pub fn topic(&self, name: impl Into<String>) -> Topic {
        Topic::new(self.clone(), name.into())
    }

    /// The exchanges.
    #[must_use]
    pub fn exchanges(&self) -> Exchanges {
        Exchanges::new(self.clone())
    }

    /// The key-value cache.
    #[must_use]
    pub fn kv(&self) -> Kv {
        Kv::new(self.clone())
    }

    /// The cluster, and what it consists of.
    #[must_use]
    pub fn cluster(&self) -> Cluster {
        Cluster::new(self.clone())
    }

    /// Counters and totals of the node that answers.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn stats(&self) -> Result<proto::admin::v1::GetStatsResponse> {
        let make = |channel, request| async move { AdminServiceClient::new(channel).get_stats(request).await };
        let request = GetStatsRequest { linearizable: false };
        self.caller.call(Repeat::Always, request, make).await
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn settler(&self) -> &Settler {
        &self.settler
    }
}

/// Compiles the example of the README.
#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct Readme;
