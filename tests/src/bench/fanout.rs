//! One topic and many subscribers.
//!
//! A message counts as often as it was delivered. The publisher does not run ahead of the slowest subscriber: live ones would be
//! told that messages were dropped, and that is an error here. How long it takes until the last subscriber has a message is
//! measured apart from the rate, with one message at a time: in a full pipe it says how full that is.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use boltq_proto::topic::v1::topic_service_client::TopicServiceClient;
use boltq_proto::topic::v1::{PublishStreamRequest, SubscribeRequest, SubscribeResponse};
use hdrhistogram::Histogram;
use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::load::{Failure, Figure, Latency, Meter, Timing, measure};
use super::load_grpc::latencies;
use super::options::BenchOptions;
use super::report::{Line, Verdict, rate, us};
use super::rows::{Row, median_figure, median_latency};
use super::target::Target;
use super::{PAYLOAD_BYTES, calls};
use crate::harness::{ServerOptions, grpc};

const TOPIC: &str = "bench";
const BATCH: u64 = 128;
/// Batches that not everybody has.
const OUTSTANDING: u64 = 16;
const MAX_IN_FLIGHT: u32 = 100_000;

/// Who listens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Audience {
    pub(super) row: Row,
    pub(super) work: &'static str,
    pub(super) subscribers: usize,
    pub(super) durable: bool,
}

pub(super) const AUDIENCES: [Audience; 4] = [
    Audience {
        row: Row::Fanout1,
        work: "topic, 1 live subscriber, deliveries",
        subscribers: 1,
        durable: false,
    },
    Audience {
        row: Row::Fanout10,
        work: "topic, 10 live subscribers, deliveries",
        subscribers: 10,
        durable: false,
    },
    Audience {
        row: Row::Fanout100,
        work: "topic, 100 live subscribers, deliveries",
        subscribers: 100,
        durable: false,
    },
    Audience {
        row: Row::DurableFanout,
        work: "topic, 10 durable subscribers, deliveries",
        subscribers: 10,
        durable: true,
    },
];

pub(super) async fn line(audience: Audience, options: &BenchOptions) -> Result<Line, Failure> {
    let (mut figures, mut lasts) = (Vec::new(), Vec::new());
    for _ in 0..options.runs() {
        let (figure, _) = one_run(audience, options.timing(), (BATCH, OUTSTANDING)).await?;
        figures.push(figure);
        let (_, last) = one_run(audience, options.timing(), (1, 1)).await?;
        lasts.push(last);
    }
    let (figure, last) = (median_figure(&figures), median_latency(&lasts));
    Ok(Line {
        row: audience.row,
        work: audience.work,
        broker: rate(figure),
        bare: String::new(),
        ratio: format!("last p50 {}", us(last.p50_us)),
        target: String::new(),
        verdict: Verdict::None,
        data: json!({"broker": figure, "publish_to_last_delivery": last}),
    })
}

/// `outstanding` batches of `batch` messages at a time, on a new server.
async fn one_run(
    audience: Audience,
    timing: Timing,
    (batch, outstanding): (u64, u64),
) -> Result<(Figure, Latency), Failure> {
    let target = Target::broker(&ServerOptions::disk())?;
    let (meter, mut waits) = (Meter::default(), latencies());
    let run = Run {
        batch,
        outstanding,
        meter: meter.clone(),
        received: (0..audience.subscribers).map(|_| AtomicU64::new(0)).collect(),
        progress: Notify::new(),
    };
    let load = publish(target.address(), audience, Arc::new(run), &mut waits);
    let figure = measure(timing, &target.stats(), &meter, load).await?;
    Ok((figure, Latency::of(&waits)))
}

/// What publisher and subscribers share.
struct Run {
    batch: u64,
    outstanding: u64,
    meter: Meter,
    /// Messages that each subscriber has.
    received: Vec<AtomicU64>,
    progress: Notify,
}

impl Run {
    /// Batches that everybody has.
    fn batches_received(&self) -> u64 {
        let received = self.received.iter().map(|count| count.load(Ordering::Acquire));
        received.min().unwrap_or_default() / self.batch
    }
}

/// Publishes as soon as subscribers allow it, and keeps the time until all of them had a batch.
async fn publish(
    address: SocketAddr,
    audience: Audience,
    run: Arc<Run>,
    waits: &mut Histogram<u64>,
) -> Result<Infallible, Failure> {
    let mut subscribers = JoinSet::new();
    for number in 0..audience.subscribers {
        let stream = subscribe(address, number, audience.durable).await?;
        subscribers.spawn(receive(stream, number, Arc::clone(&run)));
    }
    let (requests, receiver) = mpsc::channel(OUTSTANDING as usize + 1);
    let request = PublishStreamRequest {
        topic: TOPIC.to_owned(),
        messages: vec![grpc::message(calls::payload()); run.batch as usize],
    };
    // The server may want to see a request before it answers the call.
    requests.send(request.clone()).await?;
    let mut on_their_way = VecDeque::from([Instant::now()]);
    let mut client = TopicServiceClient::new(grpc::channel(address).await?);
    let mut answers = client.publish_stream(ReceiverStream::new(receiver)).await?.into_inner();
    let (mut sent, mut everywhere) = (1, 0);
    loop {
        tokio::select! {
            () = run.progress.notified() => {}
            answer = answers.message() => {
                let answer = answer?.ok_or("the server ended the stream of publishes")?;
                if let Some(failure) = answer.failures.first() {
                    return Err(format!("a message was refused: {} ({})", failure.message, failure.reason).into());
                }
            }
            Some(ended) = subscribers.join_next() => ended??,
        }
        let now = Instant::now();
        let received = run.batches_received();
        while everywhere < received {
            everywhere += 1;
            if let Some(at) = on_their_way.pop_front()
                && run.meter.counting()
            {
                waits.saturating_record(u64::try_from((now - at).as_nanos()).unwrap_or(u64::MAX));
            }
        }
        while sent - everywhere < run.outstanding {
            requests.send(request.clone()).await?;
            on_their_way.push_back(now);
            sent += 1;
        }
    }
}

async fn subscribe(address: SocketAddr, number: usize, durable: bool) -> Result<Streaming<SubscribeResponse>, Failure> {
    let mut client = TopicServiceClient::new(grpc::channel(address).await?);
    let request = SubscribeRequest {
        topic: TOPIC.to_owned(),
        subscription: format!("bench-{number}"),
        durable,
        max_in_flight: MAX_IN_FLIGHT,
    };
    Ok(client.subscribe(request).await?.into_inner())
}

async fn receive(mut stream: Streaming<SubscribeResponse>, number: usize, run: Arc<Run>) -> Result<(), Failure> {
    while let Some(response) = stream.message().await? {
        if response.dropped > 0 {
            return Err(format!("a subscriber missed {} messages", response.dropped).into());
        }
        if response
            .messages
            .iter()
            .any(|message| message.payload.len() != PAYLOAD_BYTES)
        {
            return Err("a message came with another payload".into());
        }
        let messages = response.messages.len() as u64;
        run.received[number].fetch_add(messages, Ordering::AcqRel);
        run.meter.add(messages);
        run.progress.notify_one();
    }
    Err("the server ended a subscription".into())
}
