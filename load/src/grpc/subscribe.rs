//! A subscription to a queue.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use boltq_proto::queue::v1::queue_service_client::QueueServiceClient;
use boltq_proto::queue::v1::subscribe_request::Request as Kind;
use boltq_proto::queue::v1::{Settled, SubscribeAck, SubscribeInit, SubscribeRequest, SubscribeResponse};
use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Extensions, Request, Streaming};

use crate::driver::{Consumer, LoadError, Received};

/// Deliveries may be batches of large messages.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Of the server.
const BATCH_MAX: u32 = 1_000;

/// One stream of `Subscribe`.
#[derive(Debug)]
pub struct GrpcConsumer {
    /// Unbounded in type only: the server has a bound for what is delivered and not settled.
    requests: UnboundedSender<SubscribeRequest>,
    responses: Streaming<SubscribeResponse>,
    /// Number and messages of acknowledgements that are not confirmed, the oldest first.
    unconfirmed: VecDeque<(u64, u64)>,
    requested: u64,
}

impl GrpcConsumer {
    /// A subscription on `channel`, with `metadata`: at most so many messages that are not settled, and in one response.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn open(
        channel: Channel,
        metadata: MetadataMap,
        queue: &str,
        (in_flight, batch): (u32, u32),
    ) -> Result<Self, LoadError> {
        let (requests, receiver) = unbounded_channel();
        let init = SubscribeInit {
            queue: queue.to_owned(),
            max_in_flight: in_flight,
            max_batch: batch.min(BATCH_MAX),
            lease: None,
        };
        // The receiver is here.
        let _ = requests.send(request(Kind::Init(init)));
        let call = Request::from_parts(metadata, Extensions::new(), Requests(receiver));
        let responses = QueueServiceClient::new(channel)
            .max_decoding_message_size(RESPONSE_BYTES_MAX)
            .subscribe(call)
            .await?;
        Ok(Self {
            requests,
            responses: responses.into_inner(),
            unconfirmed: VecDeque::new(),
            requested: 0,
        })
    }

    /// Adds what one confirmation says.
    fn confirmed(&mut self, confirmation: &Settled, received: &mut Received<Bytes>) -> Result<(), LoadError> {
        let (request_id, messages) = self
            .unconfirmed
            .pop_front()
            .ok_or("an acknowledgement that nobody made was confirmed")?;
        if confirmation.request_id != request_id {
            let confirmed = confirmation.request_id;
            return Err(format!("acknowledgement {confirmed} was confirmed before {request_id}").into());
        }
        received.settled += messages.saturating_sub(confirmation.failures.len() as u64);
        received.not_settled.extend(confirmation.failures.iter().map(|failure| {
            let name = failure.reason().as_str_name();
            name.strip_prefix("SETTLE_FAILURE_REASON_").unwrap_or(name).to_owned()
        }));
        Ok(())
    }
}

impl Consumer for GrpcConsumer {
    type Token = Bytes;

    async fn next(&mut self) -> Result<Received<Bytes>, LoadError> {
        let response = self.responses.message().await?;
        let SubscribeResponse { deliveries, settled } = response.ok_or("the server ended the subscription")?;
        let mut received = Received {
            tokens: Vec::with_capacity(deliveries.len()),
            payloads: Vec::with_capacity(deliveries.len()),
            ..Received::default()
        };
        for delivery in deliveries {
            received.tokens.push(delivery.delivery_token);
            received.payloads.push(delivery.payload);
        }
        for confirmation in &settled {
            self.confirmed(confirmation, &mut received)?;
        }
        Ok(received)
    }

    fn ack(&mut self, tokens: Vec<Bytes>) -> Result<(), LoadError> {
        self.requested += 1;
        self.unconfirmed.push_back((self.requested, tokens.len() as u64));
        let ack = SubscribeAck {
            delivery_tokens: tokens,
            request_id: self.requested,
        };
        let sent = self.requests.send(request(Kind::Ack(ack)));
        sent.map_err(|_| "the subscription is closed".into())
    }
}

fn request(kind: Kind) -> SubscribeRequest {
    SubscribeRequest { request: Some(kind) }
}

/// The requests as they are sent.
struct Requests(UnboundedReceiver<SubscribeRequest>);

impl futures_util::Stream for Requests {
    type Item = SubscribeRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<SubscribeRequest>> {
        self.0.poll_recv(context)
    }
}
