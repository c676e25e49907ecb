//! The gRPC door, through the generated clients.

use std::net::SocketAddr;
use std::time::Duration;

use boltq_proto::queue::v1::queue_service_client::QueueServiceClient;
use boltq_proto::queue::v1::{AckRequest, ConsumeRequest, Delivery, GetQueueRequest, PublishRequest, Queue};
use boltq_proto::r#type::v1::Message;
use bytes::Bytes;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tonic_types::StatusExt;

/// Window of a stream, both ways. The default of HTTP/2, 64 KiB, is less than one batch.
pub const STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
/// Window of a connection, both ways.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// A client of the queue service.
pub type QueueClient = QueueServiceClient<Channel>;

/// A connection with the windows that batches need.
///
/// # Errors
/// Nobody listens.
pub async fn channel(address: SocketAddr) -> Result<Channel, tonic::transport::Error> {
    Endpoint::from_shared(format!("http://{address}"))?
        .tcp_nodelay(true)
        .connect_timeout(Duration::from_secs(5))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .connect()
        .await
}

/// A client of the queue service on a connection of its own.
///
/// # Panics
/// When nobody listens.
pub async fn connect(address: SocketAddr) -> QueueClient {
    let channel = channel(address)
        .await
        .unwrap_or_else(|error| panic!("connect to {address}: {error:?}"));
    QueueServiceClient::new(channel)
}

/// A message of these bytes and nothing else.
pub fn message(payload: impl Into<Bytes>) -> Message {
    Message {
        payload: payload.into(),
        ..Message::default()
    }
}

/// A duration on the wire.
///
/// # Panics
/// When it is longer than protobuf can say.
pub fn duration(duration: Duration) -> Option<prost_types::Duration> {
    Some(duration.try_into().expect("a duration that protobuf can say"))
}

/// `google.rpc.ErrorInfo.reason` of a failed call; empty if it carries none of domain "boltq".
pub fn reason(status: &Status) -> String {
    match status.get_details_error_info() {
        Some(info) if info.domain == "boltq" => info.reason,
        _ => String::new(),
    }
}

/// The calls that nearly every test makes, with what they nearly always pass.
pub trait QueueCalls {
    /// Publishes and returns the id.
    fn put(&mut self, queue: &str, message: Message) -> impl Future<Output = Bytes>;
    /// Takes up to `max` messages without waiting.
    fn take(&mut self, queue: &str, max: u32) -> impl Future<Output = Vec<Delivery>>;
    /// Waits up to 10 s for a message.
    fn take_one(&mut self, queue: &str) -> impl Future<Output = Delivery>;
    /// Acknowledges by tokens and returns how many were settled.
    fn done(&mut self, deliveries: &[Delivery]) -> impl Future<Output = u32>;
    /// Statistics of a queue.
    fn look(&mut self, queue: &str) -> impl Future<Output = Queue>;
}

impl QueueCalls for QueueClient {
    async fn put(&mut self, queue: &str, message: Message) -> Bytes {
        let request = PublishRequest {
            queue: queue.to_owned(),
            message: Some(message),
        };
        self.publish(request).await.expect("publish").into_inner().message_id
    }

    async fn take(&mut self, queue: &str, max: u32) -> Vec<Delivery> {
        let request = ConsumeRequest {
            queue: queue.to_owned(),
            max_messages: max,
            ..ConsumeRequest::default()
        };
        self.consume(request).await.expect("consume").into_inner().deliveries
    }

    async fn take_one(&mut self, queue: &str) -> Delivery {
        let request = ConsumeRequest {
            queue: queue.to_owned(),
            wait: duration(Duration::from_secs(10)),
            ..ConsumeRequest::default()
        };
        let deliveries = self.consume(request).await.expect("consume").into_inner().deliveries;
        deliveries
            .into_iter()
            .next()
            .unwrap_or_else(|| panic!("nothing in {queue} within 10 s"))
    }

    async fn done(&mut self, deliveries: &[Delivery]) -> u32 {
        let request = AckRequest {
            delivery_tokens: deliveries
                .iter()
                .map(|delivery| delivery.delivery_token.clone())
                .collect(),
            ..AckRequest::default()
        };
        self.ack(request).await.expect("ack").into_inner().settled
    }

    async fn look(&mut self, queue: &str) -> Queue {
        let request = GetQueueRequest {
            queue: queue.to_owned(),
            ..GetQueueRequest::default()
        };
        self.get_queue(request)
            .await
            .expect("get queue")
            .into_inner()
            .queue
            .expect("a queue in the answer")
    }
}
