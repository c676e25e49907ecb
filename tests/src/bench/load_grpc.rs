//! Load on `PublishStream`.
//!
//! Requests are encoded once and sent as bytes, so that the client costs as little as it can: what it takes from the
//! processors is missing on both sides of the comparison, and hides the broker.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use boltq_proto::queue::v1::{PublishStreamRequest, PublishStreamResponse};
use bytes::{BufMut, Bytes};
use futures_util::Stream;
use futures_util::task::AtomicWaker;
use hdrhistogram::Histogram;
use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::{Request, Status, Streaming};
use tonic_prost::{ProstCodec, ProstDecoder};

use super::load::{Failure, Meter};
use super::{PAYLOAD_BYTES, QUEUE};
use crate::harness::grpc;

const PUBLISH_STREAM: PathAndQuery = PathAndQuery::from_static("/boltq.queue.v1.QueueService/PublishStream");
/// Latencies up to 10 s, three digits.
const LATENCY_MAX_NS: u64 = 10_000_000_000;

/// A request of `messages` messages. All but the first of a stream leave the queue out.
fn batch(queue: &str, messages: usize) -> Bytes {
    let message = grpc::message(vec![b'x'; PAYLOAD_BYTES]);
    let request = PublishStreamRequest {
        queue: queue.to_owned(),
        messages: vec![message; messages],
        ..PublishStreamRequest::default()
    };
    request.encode_to_vec().into()
}

/// How many requests may be on their way: counted up when one is sent, down when its answer came.
#[derive(Debug)]
pub(super) struct Window {
    limit: u64,
    answered: AtomicU64,
    sender: AtomicWaker,
}

impl Window {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit,
            answered: AtomicU64::new(0),
            sender: AtomicWaker::new(),
        })
    }

    /// `count` more answers came.
    pub(super) fn answered(&self, count: u64) {
        self.answered.fetch_add(count, Ordering::Release);
        self.sender.wake();
    }

    fn has_room(&self, sent: u64) -> bool {
        sent - self.answered.load(Ordering::Acquire) < self.limit
    }

    fn poll_room(&self, sent: u64, context: &Context<'_>) -> Poll<()> {
        if self.has_room(sent) {
            return Poll::Ready(());
        }
        self.sender.register(context.waker());
        // An answer may have come between the look and the registration.
        if self.has_room(sent) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// The requests of a stream: the first one names the queue; ends after `left` of them.
struct Requests {
    first: Option<Bytes>,
    rest: Bytes,
    sent: u64,
    left: u64,
    windows: Vec<Arc<Window>>,
}

impl Stream for Requests {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        for window in &self.windows {
            if window.poll_room(self.sent, context).is_pending() {
                return Poll::Pending;
            }
        }
        self.sent += 1;
        self.left -= 1;
        let request = self.first.take().unwrap_or_else(|| self.rest.clone());
        Poll::Ready(Some(request))
    }
}

/// Sends bytes that are a message already, decodes answers as usual.
struct EncodedCodec<D>(PhantomData<D>);

impl<D: Message + Default + Send + 'static> Codec for EncodedCodec<D> {
    type Encode = Bytes;
    type Decode = D;
    type Encoder = BytesEncoder;
    type Decoder = ProstDecoder<D>;

    fn encoder(&mut self) -> BytesEncoder {
        BytesEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<D, D>::default().decoder()
    }
}

struct BytesEncoder;

impl Encoder for BytesEncoder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

/// A stream of publishes that is open.
pub(super) struct Publishing {
    responses: Streaming<PublishStreamResponse>,
    messages_per_batch: usize,
    answered: u64,
}

impl Publishing {
    /// Opens a stream of `batches` batches at most, held back by every one of `windows`.
    pub(super) async fn open(
        address: SocketAddr,
        messages_per_batch: usize,
        batches: u64,
        windows: Vec<Arc<Window>>,
    ) -> Result<Self, Failure> {
        let requests = Requests {
            first: Some(batch(QUEUE, messages_per_batch)),
            rest: batch("", messages_per_batch),
            sent: 0,
            left: batches,
            windows,
        };
        let mut client = Grpc::new(grpc::channel(address).await?);
        client.ready().await?;
        let codec = EncodedCodec::<PublishStreamResponse>(PhantomData);
        let responses = client
            .streaming(Request::new(requests), PUBLISH_STREAM, codec)
            .await?
            .into_inner();
        Ok(Self {
            responses,
            messages_per_batch,
            answered: 0,
        })
    }

    /// Waits for the next answer, which has to say that the whole batch is stored. `false` at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<bool, Failure> {
        let Some(response) = self.responses.message().await? else {
            return Ok(false);
        };
        self.answered += 1;
        if let Some(failure) = response.failures.first() {
            return Err(format!("a message was refused: {} ({})", failure.message, failure.reason).into());
        }
        if response.batch != self.answered || response.message_ids.len() != self.messages_per_batch {
            let (batch, ids) = (response.batch, response.message_ids.len());
            return Err(format!("batch {} was answered by batch {batch} with {ids} ids", self.answered).into());
        }
        Ok(true)
    }
}

/// Publishes batches without end, `outstanding` of them unanswered.
pub(super) async fn publish(
    address: SocketAddr,
    messages_per_batch: usize,
    outstanding: u64,
    meter: Meter,
) -> Result<Infallible, Failure> {
    let window = Window::new(outstanding);
    let mut publishing = Publishing::open(address, messages_per_batch, u64::MAX, vec![Arc::clone(&window)]).await?;
    while publishing.next().await? {
        meter.add(messages_per_batch as u64);
        window.answered(1);
    }
    Err("the server ended the stream".into())
}

/// Publishes one message after the other, each after the answer to the one before, and keeps the time of each.
pub(super) async fn publish_in_lock_step(
    address: SocketAddr,
    meter: Meter,
    latencies: &mut Histogram<u64>,
) -> Result<Infallible, Failure> {
    let window = Window::new(1);
    let mut publishing = Publishing::open(address, 1, u64::MAX, vec![Arc::clone(&window)]).await?;
    // The first request is on its way already; its time is not known and it belongs to the warm-up.
    let mut sent = Instant::now();
    while publishing.next().await? {
        if meter.counting() {
            let waited = u64::try_from(sent.elapsed().as_nanos()).unwrap_or(LATENCY_MAX_NS);
            latencies.saturating_record(waited);
        }
        meter.add(1);
        sent = Instant::now();
        window.answered(1);
    }
    Err("the server ended the stream".into())
}

/// An empty histogram for [`publish_in_lock_step`].
pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX_NS, 3).expect("constants that the histogram accepts")
}

/// Publishes `messages` messages as fast as it goes; `messages` is a multiple of 1,000.
pub(super) async fn fill(address: SocketAddr, messages: u64) -> Result<(), Failure> {
    const BATCH: u64 = 1_000;
    let window = Window::new(8);
    let mut publishing = Publishing::open(address, BATCH as usize, messages / BATCH, vec![Arc::clone(&window)]).await?;
    while publishing.next().await? {
        window.answered(1);
    }
    Ok(())
}
