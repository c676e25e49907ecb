//! Publish, deliver, acknowledge: the whole way of a message. It counts when the server says that its acknowledgement
//! is durable.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use boltq_proto::queue::v1::queue_service_client::QueueServiceClient;
use boltq_proto::queue::v1::subscribe_request::Request as SubscribeKind;
use boltq_proto::queue::v1::{SubscribeAck, SubscribeInit, SubscribeRequest};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::QUEUE;
use super::load::{AbortOnDrop, Failure, Meter};
use super::load_grpc::{Publishing, Window};
use crate::harness::grpc;

const BATCH: u32 = 128;
const OUTSTANDING: u64 = 16;
/// Batches that are published and not yet settled. A publisher that ran ahead would measure a growing backlog.
const BACKLOG: u64 = 64;
const MAX_IN_FLIGHT: u32 = 8_192;

/// One publisher and one subscriber, each on its own connection.
pub(super) async fn publish_and_settle(address: SocketAddr, meter: Meter) -> Result<Infallible, Failure> {
    let backlog = Window::new(BACKLOG);
    let publisher = tokio::spawn(publish(address, Arc::clone(&backlog)));
    let subscriber = tokio::spawn(settle(address, backlog, meter));
    let _ends = (
        AbortOnDrop(publisher.abort_handle()),
        AbortOnDrop(subscriber.abort_handle()),
    );
    tokio::select! {
        ended = publisher => ended?,
        ended = subscriber => ended?,
    }
}

async fn publish(address: SocketAddr, backlog: Arc<Window>) -> Result<Infallible, Failure> {
    let unanswered = Window::new(OUTSTANDING);
    let windows = vec![Arc::clone(&unanswered), backlog];
    let mut publishing = Publishing::open(address, BATCH as usize, u64::MAX, windows).await?;
    while publishing.next().await? {
        unanswered.answered(1);
    }
    Err("the server ended the stream of publishes".into())
}

async fn settle(address: SocketAddr, backlog: Arc<Window>, meter: Meter) -> Result<Infallible, Failure> {
    let (requests, outbound) = mpsc::channel(MAX_IN_FLIGHT as usize);
    requests.send(init()).await?;
    let mut client = QueueServiceClient::new(grpc::channel(address).await?);
    let mut responses = client.subscribe(ReceiverStream::new(outbound)).await?.into_inner();
    let (mut last_request, mut unsettled, mut settled) = (0, VecDeque::new(), 0);
    while let Some(response) = responses.message().await? {
        for answer in response.settled {
            let (request_id, messages) = unsettled.pop_front().ok_or("a settlement that nobody asked for")?;
            if answer.request_id != request_id || !answer.failures.is_empty() {
                return Err(format!("acknowledgement {request_id} was answered by {answer:?}").into());
            }
            meter.add(messages);
            settled += messages;
        }
        // Batches of the publisher and of the subscriber need not be cut at the same places.
        backlog.answered(settled / u64::from(BATCH));
        settled %= u64::from(BATCH);
        if !response.deliveries.is_empty() {
            last_request += 1;
            unsettled.push_back((last_request, response.deliveries.len() as u64));
            let delivery_tokens = response
                .deliveries
                .into_iter()
                .map(|delivery| delivery.delivery_token)
                .collect();
            let ack = SubscribeAck {
                delivery_tokens,
                request_id: last_request,
            };
            requests.send(subscribe_request(SubscribeKind::Ack(ack))).await?;
        }
    }
    Err("the server ended the subscription".into())
}

fn init() -> SubscribeRequest {
    subscribe_request(SubscribeKind::Init(SubscribeInit {
        queue: QUEUE.to_owned(),
        max_in_flight: MAX_IN_FLIGHT,
        max_batch: BATCH,
        lease: None,
    }))
}

fn subscribe_request(kind: SubscribeKind) -> SubscribeRequest {
    SubscribeRequest { request: Some(kind) }
}
