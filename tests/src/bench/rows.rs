//! The rows of the table: what is loaded, what it is compared with, and what it has to reach.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use super::load::{Failure, Figure, Latency, Meter, Timing, measure};
use super::options::{BenchOptions, Output};
use super::report::{Line, Report, Verdict, median, ms, us};
use super::size::{self, Size};
use super::target::{Target, Transport};
use super::{calls, clients, cluster, delayed, disk, fanout, load_grpc, load_tcp, streams};
use crate::harness::{ServerOptions, use_server_binary};

/// A work that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// `PublishStream`, batches of 128, 16 outstanding.
    Batches,
    /// `PublishStream`, single messages, 64 outstanding.
    Singles,
    /// Binary protocol, 64 connections, 64 pipelined each.
    Pipelined,
    /// Binary protocol, 64 connections in lock-step.
    LockStep,
    /// One publisher in lock-step.
    Latency,
    /// Publish, deliver by Subscribe, ack; batches of 128.
    Delivery,
    /// The first row with `storage.mode = memory`.
    Memory,
    /// Memory and start time.
    Size,
    /// Delayed messages: rates, memory, start time and lateness; one run.
    Delayed,
    /// A topic with 1 live subscriber.
    #[value(name = "fanout-1")]
    #[serde(rename = "fanout-1")]
    Fanout1,
    /// A topic with 10 live subscribers.
    #[value(name = "fanout-10")]
    #[serde(rename = "fanout-10")]
    Fanout10,
    /// A topic with 100 live subscribers.
    #[value(name = "fanout-100")]
    #[serde(rename = "fanout-100")]
    Fanout100,
    /// A topic with 10 durable subscribers.
    DurableFanout,
    /// Publishes to a topic exchange of 1,000 bindings, beside unary calls that are only answered.
    Exchange,
    /// Values of the cache that are set and read, beside unary calls that are only answered.
    Kv,
    /// Appends to streams, beside a bare transport, and reading one.
    Streams,
    /// The clients that `--client` names, beside that for Rust.
    Clients,
    /// The first row at the leader of three nodes, beside one node.
    ClusterBatches,
    /// One publisher in lock-step at the leader of three nodes, beside one node.
    ClusterLatency,
    /// Time without acknowledgements when the leader of three nodes is killed.
    Failover,
    /// How fast a follower gets what was written while it was away.
    CatchUp,
    /// Processor time and elections of three idle nodes with nine groups; one run.
    Idle,
}

/// Rows whose figure is a rate beside that of a bare transport.
struct RateRow {
    row: Row,
    work: &'static str,
    transport: Transport,
    ratio_min: f64,
    /// Reached by this rate too, whatever the bare transport does.
    rate_min: Option<f64>,
}

const RATE_ROWS: [RateRow; 6] = [
    RateRow {
        row: Row::Batches,
        work: "PublishStream, batches of 128, 16 outstanding",
        transport: Transport::Grpc,
        ratio_min: 0.30,
        rate_min: None,
    },
    RateRow {
        row: Row::Singles,
        work: "PublishStream, single messages, 64 outstanding",
        transport: Transport::Grpc,
        ratio_min: 0.35,
        rate_min: None,
    },
    RateRow {
        row: Row::Pipelined,
        work: "binary, 64 connections, 64 pipelined each",
        transport: Transport::Tcp,
        ratio_min: 0.25,
        rate_min: None,
    },
    RateRow {
        row: Row::LockStep,
        work: "binary, 64 connections in lock-step",
        transport: Transport::Tcp,
        ratio_min: 0.45,
        rate_min: None,
    },
    RateRow {
        row: Row::Delivery,
        work: "publish, Subscribe, ack; batches of 128",
        transport: Transport::Grpc,
        ratio_min: 0.12,
        rate_min: Some(350_000.0),
    },
    RateRow {
        row: Row::Memory,
        work: "batches of 128, storage.mode = memory",
        transport: Transport::Grpc,
        ratio_min: 0.45,
        rate_min: None,
    },
];

impl RateRow {
    fn server_options(&self) -> ServerOptions {
        if self.row == Row::Memory {
            ServerOptions::memory()
        } else {
            ServerOptions::disk()
        }
    }

    async fn measure(&self, target: &Target, timing: Timing) -> Result<Figure, Failure> {
        let bare = matches!(target, Target::Bare(_));
        let plan = match self.row {
            Row::Pipelined => return pipelined(target, timing, 64).await,
            Row::LockStep => return pipelined(target, timing, 1).await,
            Row::Singles => load_grpc::publishing(1, 64),
            Row::Delivery if !bare => load_grpc::delivering(128, 16),
            // A bare transport delivers nothing: the work above it is compared with publishing the same batches.
            _ => load_grpc::publishing(128, 16),
        };
        let (figure, _) = load_grpc::measure(target, timing, &plan).await?;
        Ok(figure)
    }
}

/// 64 connections of the binary protocol, with so many requests unanswered on each.
async fn pipelined(target: &Target, timing: Timing, depth: usize) -> Result<Figure, Failure> {
    let meter = Meter::default();
    let load = load_tcp::publish(target.address(), 64, depth, meter.clone());
    measure(timing, &target.stats(), &meter, load).await
}

/// Measures and prints.
///
/// # Errors
/// A server does not start, or answers with an error.
pub async fn run(options: &BenchOptions) -> Result<(), Failure> {
    use_server_binary(options.server_binary()?);
    let mut report = Report::new(
        options.runs(),
        options.timing().measure,
        options.output == Output::Table,
    );
    for row in RATE_ROWS.iter().filter(|row| options.wants(row.row)) {
        report.add(rate_line(row, options).await?);
    }
    if options.wants(Row::Latency) {
        report.add(latency_line(options).await?);
    }
    if options.wants(Row::Size) {
        for line in size_lines(options).await? {
            report.add(line);
        }
    }
    if options.wants(Row::Delayed) {
        for line in delayed::lines(options.quick).await? {
            report.add(line);
        }
    }
    for audience in fanout::AUDIENCES {
        if options.wants(audience.row) {
            report.add(fanout::line(audience, options).await?);
        }
    }
    if options.wants(Row::Exchange) {
        report.add(calls::exchange_line(options).await?);
    }
    if options.wants(Row::Kv) {
        for line in calls::kv_lines(options).await? {
            report.add(line);
        }
    }
    if options.wants(Row::Streams) {
        for line in streams::lines(options).await? {
            report.add(line);
        }
    }
    if options.wants(Row::Clients) {
        for line in clients::lines(options).await? {
            report.add(line);
        }
    }
    cluster::add_lines(&mut report, options).await?;
    if options.output == Output::Json {
        report.print_json()?;
    }
    Ok(())
}

async fn rate_line(row: &RateRow, options: &BenchOptions) -> Result<Line, Failure> {
    let (mut brokers, mut bares) = (Vec::new(), Vec::new());
    for run in 0..options.runs() {
        for bare in turns(run) {
            let target = if bare {
                Target::bare(row.transport)?
            } else {
                Target::broker(&row.server_options())?
            };
            let figure = row.measure(&target, options.timing()).await?;
            if bare { &mut bares } else { &mut brokers }.push(figure);
        }
    }
    let (broker, bare) = (median_figure(&brokers), median_figure(&bares));
    let ratio = broker.rate / bare.rate;
    let reached = ratio >= row.ratio_min || row.rate_min.is_some_and(|min| broker.rate >= min);
    let target = match row.rate_min {
        Some(min) => format!(">= {:.0} % or {:.0} k/s", row.ratio_min * 100.0, min / 1000.0),
        None => format!(">= {:.0} %", row.ratio_min * 100.0),
    };
    Ok(Line::rates(
        row.row,
        row.work,
        &brokers,
        (broker, bare),
        (target, Verdict::of(reached)),
    ))
}

async fn latency_line(options: &BenchOptions) -> Result<Line, Failure> {
    let (mut brokers, mut bares, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..options.runs() {
        for bare in turns(run) {
            let target = if bare {
                Target::bare(Transport::Grpc)?
            } else {
                Target::broker(&ServerOptions::disk())?
            };
            let latency = lock_step(&target, options.timing()).await?;
            if bare { &mut bares } else { &mut brokers }.push(latency);
        }
        syncs.push(disk::sync_latency()?);
    }
    let (broker, bare, sync) = (median_latency(&brokers), median_latency(&bares), median_latency(&syncs));
    let p50_max = bare.p50_us + 2.0 * sync.p50_us;
    let reached = broker.p50_us <= p50_max && broker.p99_us < 1000.0;
    Ok(Line {
        row: Row::Latency,
        work: "one publisher in lock-step, p50 / p99",
        broker: format!("{} / {}", us(broker.p50_us), us(broker.p99_us)),
        bare: format!("{} / {}", us(bare.p50_us), us(bare.p99_us)),
        ratio: format!("fdatasync {}", us(sync.p50_us)),
        target: format!("p50 <= {}, p99 < 1 ms", us(p50_max)),
        verdict: Verdict::of(reached),
        data: serde_json::json!({"broker": broker, "bare": bare, "fdatasync_4_kib": sync}),
    })
}

pub(super) async fn lock_step(target: &Target, timing: Timing) -> Result<Latency, Failure> {
    let (_, report) = load_grpc::measure(target, timing, &load_grpc::publishing(1, 1)).await?;
    let waits = report.published.latency_us.ok_or("no waiting time was measured")?;
    Ok(Latency {
        p50_us: waits.p50,
        p99_us: waits.p99,
    })
}

async fn size_lines(options: &BenchOptions) -> Result<Vec<Line>, Failure> {
    let mut sizes: Vec<Size> = Vec::new();
    for _ in 0..options.runs() {
        sizes.push(size::measure(&ServerOptions::disk(), !options.quick).await?);
    }
    let of = |pick: fn(&Size) -> f64| median(sizes.iter().map(pick));
    let mut lines = vec![
        memory_line("memory (RSS), idle", of(|size| size.idle_bytes), 20.0),
        memory_line("memory (RSS), 1 M waiting", of(|size| size.million_bytes), 64.0),
    ];
    if !options.quick {
        let bytes = of(|size| size.ten_million_bytes.unwrap_or_default());
        lines.push(memory_line("memory (RSS), 10 M waiting", bytes, 96.0));
    }
    lines.push(start_line("start, empty", of(|size| size.start_empty_s), 0.1));
    lines.push(start_line(
        "start, 1 M waiting, after kill -9",
        of(|size| size.start_million_s),
        0.5,
    ));
    Ok(lines)
}

fn memory_line(work: &'static str, bytes: f64, max_mb: f64) -> Line {
    let mb = bytes / 1e6;
    Line::alone(
        Row::Size,
        work,
        format!("{mb:.1} MB"),
        format!("< {max_mb} MB"),
        mb < max_mb,
        bytes,
    )
}

fn start_line(work: &'static str, seconds: f64, max_s: f64) -> Line {
    let shown = ms(Duration::from_secs_f64(seconds));
    Line::alone(Row::Size, work, shown, format!("< {max_s} s"), seconds < max_s, seconds)
}

/// Which of the two is measured first changes from run to run. `true` is what is compared with.
pub(super) fn turns(run: u32) -> [bool; 2] {
    if run.is_multiple_of(2) {
        [false, true]
    } else {
        [true, false]
    }
}

pub(super) fn median_figure(figures: &[Figure]) -> Figure {
    Figure {
        rate: median(figures.iter().map(|figure| figure.rate)),
        server_cpu_us: median(figures.iter().map(|figure| figure.server_cpu_us)),
    }
}

pub(super) fn median_latency(latencies: &[Latency]) -> Latency {
    Latency {
        p50_us: median(latencies.iter().map(|latency| latency.p50_us)),
        p99_us: median(latencies.iter().map(|latency| latency.p99_us)),
    }
}
