//! Load over gRPC on queues, made by the generator that users have too.

use std::net::SocketAddr;
use std::time::Instant;

use boltq_load::grpc::{Connecting, GrpcDriver};
use boltq_load::{Batch, Counts, Driver, Load, Plan, Publisher, Report, Stamp};
use hdrhistogram::Histogram;
use tokio::time::sleep;
use tonic::metadata::MetadataMap;

use super::load::{Failure, Figure, Timing, cpu_used};
use super::target::Target;
use super::{PAYLOAD_BYTES, QUEUE};
use crate::harness::grpc;

/// Latencies up to 10 s, three digits.
const LATENCY_MAX_NS: u64 = 10_000_000_000;
/// Batches that are published and not yet settled. A publisher that ran ahead would measure a growing backlog.
const BACKLOG_BATCHES: u64 = 64;
const MAX_IN_FLIGHT: u32 = 8_192;

fn driver(address: SocketAddr) -> GrpcDriver {
    let connect = move || -> Connecting { Box::pin(async move { Ok(grpc::channel(address).await?) }) };
    GrpcDriver::new(Box::new(connect), MetadataMap::new())
}

fn batch(messages: usize) -> Batch {
    Batch {
        queue: QUEUE.to_owned(),
        messages,
        payload_bytes: PAYLOAD_BYTES,
    }
}

/// One publisher, `outstanding` batches of `messages` messages unanswered.
pub(super) fn publishing(messages: usize, outstanding: usize) -> Plan {
    Plan {
        batch: batch(messages),
        publishers: 1,
        consumers: 0,
        outstanding,
        rate: None,
        backlog: None,
        in_flight: MAX_IN_FLIGHT,
    }
}

/// One publisher and one subscriber, each on its own connection.
pub(super) fn delivering(messages: usize, outstanding: usize) -> Plan {
    Plan {
        consumers: 1,
        backlog: Some(BACKLOG_BATCHES * messages as u64),
        ..publishing(messages, outstanding)
    }
}

/// Runs a plan through the warm-up and the measurement. What counts is the last step of the way: a message that is settled, or
/// stored if nobody settles it.
pub(super) async fn measure(target: &Target, timing: Timing, plan: &Plan) -> Result<(Figure, Report), Failure> {
    let servers = target.stats();
    let consumed = plan.consumers > 0;
    let done = |counts: Counts| if consumed { counts.settled } else { counts.published };
    let mut load = Load::start(&driver(target.address()), plan).await?;
    tokio::select! {
        error = load.failed() => return Err(error),
        () = sleep(timing.warm_up) => load.measure(),
    }
    let (start, cpu_before, before) = (Instant::now(), cpu_used(&servers), done(load.counts()));
    tokio::select! {
        error = load.failed() => return Err(error),
        () = sleep(timing.measure) => {}
    }
    let (elapsed, cpu, after) = (start.elapsed(), cpu_used(&servers) - cpu_before, done(load.counts()));
    let report = load.report()?;
    if report.failed > 0 {
        return Err(format!("messages were refused or not settled: {:?}", report.reasons).into());
    }
    Ok((Figure::of(after - before, elapsed, cpu)?, report))
}

/// An empty histogram for waiting times in nanoseconds.
pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX_NS, 3).expect("constants that the histogram accepts")
}

/// Publishes `messages` messages as fast as it goes; `messages` is a multiple of 1,000.
pub(super) async fn fill(address: SocketAddr, messages: u64) -> Result<(), Failure> {
    const BATCH: usize = 1_000;
    const OUTSTANDING: u64 = 8;
    let mut publisher = driver(address).publisher(&batch(BATCH)).await?;
    let (mut left, mut unanswered) = (messages / BATCH as u64, 0);
    while left > 0 || unanswered > 0 {
        while left > 0 && unanswered < OUTSTANDING {
            publisher.send(Stamp::default())?;
            (left, unanswered) = (left - 1, unanswered + 1);
        }
        let answered = publisher.answered().await?;
        if let Some(reason) = answered.refused.first() {
            return Err(format!("a message was refused: {reason}").into());
        }
        unanswered -= 1;
    }
    Ok(())
}
