//! Streams: appending to one topic and to many, beside a transport that only answers, and reading what there is.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use boltq_proto::stream::v1::stream_service_client::StreamServiceClient;
use boltq_proto::stream::v1::tail_response::Event;
use boltq_proto::stream::v1::{AppendStreamRequest, NewRecord, TailRequest, TailSource};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use super::calls::payload;
use super::load::{Failure, Figure, Meter, Timing, cpu_used, measure};
use super::load_grpc;
use super::options::BenchOptions;
use super::report::{Line, Verdict, median};
use super::rows::{Row, median_figure, turns};
use super::target::{Target, Transport};
use crate::harness::{ServerOptions, grpc};

/// Records of a request.
const BATCH: usize = 128;
/// Requests that are not answered.
const OUTSTANDING: usize = 16;
const TOPICS: u64 = 100_000;
/// Multiplied by the number of a record modulo [`TOPICS`], goes through all topics in no order.
const STRIDE: u64 = 61_803;
/// Records that are there to be tailed.
const HISTORY: u64 = 1_000_000;
const HISTORY_QUICK: u64 = 100_000;
/// Least of [`HISTORY`] a second.
const TAIL_RATE_MIN: f64 = 1_500_000.0;
/// For all of them to come.
const TAIL_MAX: Duration = Duration::from_secs(120);

fn options() -> ServerOptions {
    ServerOptions::disk()
        .set("messaging.stream.enabled", true)
        .set("messaging.stream.default_partitions", 1)
}

pub(super) async fn lines(options: &BenchOptions) -> Result<Vec<Line>, Failure> {
    let one = append_line(1, "AppendStream, one topic, batches of 128", 0.30, options).await?;
    let many = "AppendStream, 100,000 topics at random, batches of 128";
    // 60 % of what one topic has to reach.
    let many = append_line(TOPICS, many, 0.18, options).await?;
    Ok(vec![one, many, tail_line(options).await?])
}

async fn append_line(topics: u64, work: &'static str, ratio_min: f64, options: &BenchOptions) -> Result<Line, Failure> {
    let (mut brokers, mut bares) = (Vec::new(), Vec::new());
    for run in 0..options.runs() {
        for bare in turns(run) {
            if bare {
                let target = Target::bare(Transport::Grpc)?;
                let plan = load_grpc::publishing(BATCH, OUTSTANDING);
                bares.push(load_grpc::measure(&target, options.timing(), &plan).await?.0);
            } else {
                brokers.push(appended(topics, options.timing()).await?);
            }
        }
    }
    let (broker, bare) = (median_figure(&brokers), median_figure(&bares));
    let reached = broker.rate / bare.rate >= ratio_min;
    let target = (format!(">= {:.0} %", ratio_min * 100.0), Verdict::of(reached));
    Ok(Line::rates(Row::Streams, work, &brokers, (broker, bare), target))
}

async fn appended(topics: u64, timing: Timing) -> Result<Figure, Failure> {
    let target = Target::broker(&options())?;
    let meter = Meter::default();
    let mut appender = Appender::start(target.address(), topics).await?;
    let load = appender.run(&meter);
    measure(timing, &target.stats(), &meter, load).await
}

/// A stream of appends, with so many of them on their way.
struct Appender {
    requests: mpsc::Sender<AppendStreamRequest>,
    answers: Streaming<boltq_proto::stream::v1::AppendStreamResponse>,
    outstanding: VecDeque<usize>,
    topics: u64,
    /// Records that were sent.
    sent: u64,
}

impl Appender {
    async fn start(address: SocketAddr, topics: u64) -> Result<Self, Failure> {
        let (requests, receiver) = mpsc::channel(OUTSTANDING);
        let mut client = client(address).await?;
        let answers = client.append_stream(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(Self {
            requests,
            answers,
            outstanding: VecDeque::new(),
            topics,
            sent: 0,
        })
    }

    /// Appends without end.
    async fn run(&mut self, meter: &Meter) -> Result<Infallible, Failure> {
        loop {
            self.turn(meter).await?;
        }
    }

    /// Fills up what is on its way, and takes one answer.
    async fn turn(&mut self, meter: &Meter) -> Result<(), Failure> {
        while self.outstanding.len() < OUTSTANDING {
            let request = self.request();
            self.outstanding.push_back(request.records.len());
            self.requests.send(request).await?;
        }
        self.answer(meter).await
    }

    async fn answer(&mut self, meter: &Meter) -> Result<(), Failure> {
        let answer = self.answers.message().await?.ok_or("the stream ended")?;
        if let Some(failure) = answer.failures.first() {
            return Err(format!("a record was refused: {}", failure.message).into());
        }
        let records = self.outstanding.pop_front().ok_or("an answer to nothing")?;
        meter.add(records as u64);
        Ok(())
    }

    fn request(&mut self) -> AppendStreamRequest {
        let record = NewRecord {
            payload: payload(),
            ..NewRecord::default()
        };
        let numbers = self.sent..self.sent + BATCH as u64;
        self.sent = numbers.end;
        let topics = match self.topics {
            1 => Vec::new(),
            topics => numbers
                .map(|number| format!("bench-{}", number.wrapping_mul(STRIDE) % topics))
                .collect(),
        };
        AppendStreamRequest {
            topic: "bench".to_owned(),
            records: vec![record; BATCH],
            topics,
        }
    }
}

async fn client(address: SocketAddr) -> Result<StreamServiceClient<Channel>, Failure> {
    Ok(StreamServiceClient::new(grpc::channel(address).await?))
}

/// One reader that comes after a million records were appended. They are more than the cache holds.
async fn tail_line(bench: &BenchOptions) -> Result<Line, Failure> {
    let history = if bench.quick { HISTORY_QUICK } else { HISTORY };
    let mut rates = Vec::new();
    for _ in 0..bench.runs() {
        let target = Target::broker(&options())?;
        let (meter, mut appender) = (Meter::default(), Appender::start(target.address(), 1).await?);
        while appender.sent < history {
            appender.turn(&meter).await?;
        }
        while !appender.outstanding.is_empty() {
            appender.answer(&meter).await?;
        }
        rates.push(
            tokio::time::timeout(TAIL_MAX, tailed(&target, appender.sent))
                .await??
                .rate,
        );
    }
    let rate = median(rates.into_iter());
    let (shown, target) = (
        format!("{:.0} k/s", rate / 1e3),
        format!(">= {:.0} k/s", TAIL_RATE_MIN / 1e3),
    );
    let work = "Tail, one reader of 1 M records that are there";
    Ok(Line::alone(
        Row::Streams,
        work,
        shown,
        target,
        rate >= TAIL_RATE_MIN,
        rate,
    ))
}

async fn tailed(target: &Target, records: u64) -> Result<Figure, Failure> {
    let request = TailRequest {
        sources: vec![TailSource {
            topic: "bench".to_owned(),
            ..TailSource::default()
        }],
        max_records: 1_000,
        progress_interval: None,
    };
    let mut client = client(target.address()).await?.max_decoding_message_size(usize::MAX);
    let (started, cpu) = (Instant::now(), cpu_used(&target.stats()));
    let mut tail = client.tail(request).await?.into_inner();
    let mut next = 1;
    while next <= records {
        let response = tail.message().await?.ok_or("the tail ended")?;
        if let Some(Event::Records(page)) = response.event {
            let first = page.records.first().map_or(0, |record| record.seq);
            if first != next {
                return Err(format!("record {first} after {next}").into());
            }
            next = page.next_seq;
        }
    }
    Figure::of(records, started.elapsed(), cpu_used(&target.stats()) - cpu)
}
