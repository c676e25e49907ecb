//! BoltQ over gRPC: `PublishStream` and `Subscribe`.

mod encoded;
mod publish;
mod subscribe;

use std::future::Future;
use std::pin::Pin;

use boltq_proto::queue::v1::AckLevel;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

use crate::driver::{Batch, Driver, LoadError};

pub use publish::GrpcPublisher;
pub use subscribe::GrpcConsumer;

/// A connection that is being opened.
pub type Connecting = Pin<Box<dyn Future<Output = Result<Channel, LoadError>> + Send>>;
/// Opens connections: the driver knows nothing of addresses, certificates or deadlines.
pub type Connect = Box<dyn Fn() -> Connecting + Send + Sync>;

/// Queues of a server.
pub struct GrpcDriver {
    connect: Connect,
    metadata: MetadataMap,
    ack_level: AckLevel,
}

impl GrpcDriver {
    /// Opens connections with `connect`, and sends `metadata` with every call.
    pub fn new(connect: Connect, metadata: MetadataMap) -> Self {
        Self {
            connect,
            metadata,
            ack_level: AckLevel::Quorum,
        }
    }

    /// How much an answer to a publish waits for.
    #[must_use]
    pub fn with_ack_level(mut self, ack_level: AckLevel) -> Self {
        self.ack_level = ack_level;
        self
    }
}

impl Driver for GrpcDriver {
    type Publisher = GrpcPublisher;
    type Consumer = GrpcConsumer;

    async fn publisher(&self, batch: &Batch) -> Result<GrpcPublisher, LoadError> {
        let channel = (self.connect)().await?;
        GrpcPublisher::open(channel, self.metadata.clone(), batch, self.ack_level).await
    }

    async fn consumer(&self, queue: &str, in_flight: u32, batch: u32) -> Result<GrpcConsumer, LoadError> {
        let channel = (self.connect)().await?;
        GrpcConsumer::open(channel, self.metadata.clone(), queue, (in_flight, batch)).await
    }
}
