//! A stream of publishes.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use boltq_proto::queue::v1::{AckLevel, PublishStreamResponse};
use bytes::Bytes;
use http::uri::PathAndQuery;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Extensions, Request, Status, Streaming};

use super::encoded::{EncodedCodec, Template};
use crate::driver::{Answered, Batch, LoadError, Publisher};
use crate::stamp::Stamp;

const PUBLISH_STREAM: PathAndQuery = PathAndQuery::from_static("/boltq.queue.v1.QueueService/PublishStream");

/// One stream of `PublishStream`.
pub struct GrpcPublisher {
    /// Unbounded in type only: whoever sends waits for answers.
    requests: UnboundedSender<Bytes>,
    /// Names the queue.
    first: Option<Template>,
    rest: Template,
    stream: Stream,
    messages: usize,
    ids_expected: bool,
    answered: u64,
}

/// A server may want to see the first request before it answers the call.
enum Stream {
    /// Kept here, so that who waits for an answer and gives up does not end the call.
    Opening(Pin<Box<dyn Future<Output = Result<Streaming<PublishStreamResponse>, Status>> + Send>>),
    Open(Box<Streaming<PublishStreamResponse>>),
}

impl GrpcPublisher {
    /// A stream on `channel` that sends such batches, with `metadata`.
    ///
    /// # Errors
    /// The connection is gone.
    pub async fn open(
        channel: Channel,
        metadata: MetadataMap,
        batch: &Batch,
        ack_level: AckLevel,
    ) -> Result<Self, LoadError> {
        let mut client = Grpc::new(channel);
        client.ready().await?;
        let (requests, receiver) = unbounded_channel();
        let call = async move {
            let requests = Request::from_parts(metadata, Extensions::new(), Requests(receiver));
            let response = client
                .streaming(requests, PUBLISH_STREAM, EncodedCodec::default())
                .await?;
            Ok(response.into_inner())
        };
        Ok(Self {
            requests,
            first: Some(Template::of(batch, &batch.queue, ack_level)),
            rest: Template::of(batch, "", ack_level),
            stream: Stream::Opening(Box::pin(call)),
            messages: batch.messages,
            ids_expected: ack_level == AckLevel::Quorum,
            answered: 0,
        })
    }

    async fn next(&mut self) -> Result<PublishStreamResponse, LoadError> {
        loop {
            match &mut self.stream {
                Stream::Open(responses) => {
                    return Ok(responses
                        .message()
                        .await?
                        .ok_or("the server ended the stream of publishes")?);
                }
                Stream::Opening(call) => {
                    let responses = call.await?;
                    self.stream = Stream::Open(Box::new(responses));
                }
            }
        }
    }
}

impl Publisher for GrpcPublisher {
    fn send(&mut self, stamp: Stamp) -> Result<(), LoadError> {
        let first = self.first.take();
        let request = first.as_ref().unwrap_or(&self.rest).stamped(stamp);
        let sent = self.requests.send(request);
        sent.map_err(|_| "the stream of publishes is closed".into())
    }

    async fn answered(&mut self) -> Result<Answered, LoadError> {
        let PublishStreamResponse {
            batch,
            message_ids,
            failures,
        } = self.next().await?;
        self.answered += 1;
        // Who asks for less than QUORUM gets no ids.
        if batch != self.answered || (self.ids_expected && message_ids.len() != self.messages) {
            let ids = message_ids.len();
            return Err(format!("batch {} was answered as batch {batch} with {ids} ids", self.answered).into());
        }
        Ok(Answered {
            stored: self.messages.saturating_sub(failures.len()) as u64,
            refused: failures.into_iter().map(|failure| failure.reason).collect(),
        })
    }
}

/// The requests as they are sent.
struct Requests(UnboundedReceiver<Bytes>);

impl futures_util::Stream for Requests {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.0.poll_recv(context)
    }
}
