//! Where a publisher publishes to. The services for queues and topics have streams that differ in their types alone.

use boltq_proto::queue::v1 as queue;
use boltq_proto::topic::v1 as topic;
use boltq_proto::r#type::v1::Message;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

/// A stream of publishes that is being opened.
type Opening<R> = BoxFuture<'static, Result<Response<Streaming<R>>, Status>>;

/// See the module.
pub(crate) trait Target: Send + Sync + 'static {
    /// A batch.
    type Request: Send + 'static;
    /// What became of one, in the order of the batches.
    type Response: Send + 'static;

    fn open(channel: Channel, requests: Request<ReceiverStream<Self::Request>>) -> Opening<Self::Response>;

    fn request(&self, messages: Vec<Message>) -> Self::Request;

    fn answered(response: Self::Response) -> Answered;
}

/// What became of a batch.
pub(crate) struct Answered {
    /// One for each message, in order.
    pub(super) ids: Vec<Bytes>,
    pub(super) failures: Vec<Refused>,
}

/// A message of a batch that was refused.
pub(super) struct Refused {
    /// Position in the batch.
    pub(super) index: u32,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) retriable: bool,
}

/// Reads what a batch became: the responses of both services have the same members, and types of their own.
macro_rules! answered {
    ($response:expr) => {{
        let response = $response;
        let failures = response.failures.into_iter().map(|failure| Refused {
            index: failure.index,
            reason: failure.reason,
            message: failure.message,
            retriable: failure.retriable,
        });
        Answered {
            ids: response.message_ids,
            failures: failures.collect(),
        }
    }};
}

/// The queue of this name.
pub(crate) struct ToQueue(pub(crate) String);

impl Target for ToQueue {
    type Request = queue::PublishStreamRequest;
    type Response = queue::PublishStreamResponse;

    fn open(channel: Channel, requests: Request<ReceiverStream<Self::Request>>) -> Opening<Self::Response> {
        Box::pin(async move { crate::queue::service(channel).publish_stream(requests).await })
    }

    fn request(&self, messages: Vec<Message>) -> Self::Request {
        queue::PublishStreamRequest {
            queue: self.0.clone(),
            messages,
            ack_level: 0,
        }
    }

    fn answered(response: Self::Response) -> Answered {
        answered!(response)
    }
}

/// The topic of this name.
pub(crate) struct ToTopic(pub(crate) String);

impl Target for ToTopic {
    type Request = topic::PublishStreamRequest;
    type Response = topic::PublishStreamResponse;

    fn open(channel: Channel, requests: Request<ReceiverStream<Self::Request>>) -> Opening<Self::Response> {
        Box::pin(async move { crate::topic::service(channel).publish_stream(requests).await })
    }

    fn request(&self, messages: Vec<Message>) -> Self::Request {
        topic::PublishStreamRequest {
            topic: self.0.clone(),
            messages,
        }
    }

    fn answered(response: Self::Response) -> Answered {
        answered!(response)
    }
}
