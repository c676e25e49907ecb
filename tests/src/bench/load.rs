//! What all load loops have in common: how they count, and when.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::harness::ProcessStat;

/// Why a measurement failed. A benchmark has no use for kinds of errors, only for their words.
pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// When to count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// Load runs, nothing is counted.
    pub(super) warm_up: Duration,
    /// Load runs and is counted.
    pub(super) measure: Duration,
}

/// One measurement of one server.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Figure {
    /// Messages per second.
    pub(super) rate: f64,
    /// Processor time of the server per message; of a cluster, of all its nodes.
    pub(super) server_cpu_us: f64,
}

impl Figure {
    /// Of what was done in a time, and the processor time that it took.
    pub(super) fn of(messages: u64, elapsed: Duration, cpu: Duration) -> Result<Self, Failure> {
        if messages == 0 {
            return Err("no message was answered during the measurement".into());
        }
        Ok(Self {
            rate: messages as f64 / elapsed.as_secs_f64(),
            server_cpu_us: cpu.as_secs_f64() * 1e6 / messages as f64,
        })
    }
}

/// Quantiles of waiting times.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Latency {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

impl Latency {
    /// Of a histogram in nanoseconds.
    pub(super) fn of(histogram: &Histogram<u64>) -> Self {
        let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Self {
            p50_us: us(0.5),
            p99_us: us(0.99),
        }
    }
}

/// Counts answered messages.
#[derive(Debug, Clone, Default)]
pub(super) struct Meter(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    messages: AtomicU64,
    counting: AtomicBool,
}

impl Meter {
    /// `messages` more were answered.
    pub(super) fn add(&self, messages: u64) {
        self.0.messages.fetch_add(messages, Ordering::Relaxed);
    }

    /// Whether the warm-up is over, for loads that keep more than a count.
    pub(super) fn counting(&self) -> bool {
        self.0.counting.load(Ordering::Relaxed)
    }

    fn messages(&self) -> u64 {
        self.0.messages.load(Ordering::Relaxed)
    }
}

/// Runs `load` through the warm-up and the measurement, and gives up on it then. A load ends by itself only when it fails.
pub(super) async fn measure(
    timing: Timing,
    servers: &[ProcessStat],
    meter: &Meter,
    load: impl Future<Output = Result<Infallible, Failure>>,
) -> Result<Figure, Failure> {
    tokio::select! {
        failed = load => match failed { Err(error) => Err(error), Ok(never) => match never {} },
        figure = watch(timing, servers, meter) => figure,
    }
}

async fn watch(timing: Timing, servers: &[ProcessStat], meter: &Meter) -> Result<Figure, Failure> {
    tokio::time::sleep(timing.warm_up).await;
    meter.0.counting.store(true, Ordering::Relaxed);
    let (start, cpu_before, before) = (Instant::now(), cpu_used(servers), meter.messages());
    tokio::time::sleep(timing.measure).await;
    let (elapsed, cpu, messages) = (
        start.elapsed(),
        cpu_used(servers) - cpu_before,
        meter.messages() - before,
    );
    Figure::of(messages, elapsed, cpu)
}

pub(super) fn cpu_used(servers: &[ProcessStat]) -> Duration {
    servers.iter().map(|server| server.usage().cpu).sum()
}

/// A task that must not outlive the measurement.
pub(super) struct AbortOnDrop(pub(super) tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
