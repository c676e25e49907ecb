//! What came out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::driver::LoadError;
use crate::figures::{Counts, Waits, together};

/// What a load did since [`crate::Load::measure`], or since its start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// How long was measured.
    pub seconds: f64,
    /// Messages whose publish was answered well, and the time from when they were due until then.
    pub published: Rate,
    /// Messages that consumers got, and the time from when they were due until then. `None` without consumers.
    pub delivered: Option<Rate>,
    /// Messages whose acknowledgement is done. `None` without consumers.
    pub settled: Option<u64>,
    /// Publishes that were refused, and acknowledgements that failed.
    pub failed: u64,
    /// The same by reason. The reason "others" stands for those beyond the first few.
    pub reasons: BTreeMap<String, u64>,
}

/// Messages and how fast they went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rate {
    /// How many.
    pub messages: u64,
    /// Messages each second.
    pub per_second: f64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Bytes of payload each second.
    pub bytes_per_second: f64,
    /// `None` if nothing could be measured: there were no messages, or their payloads have no room for a stamp.
    pub latency_us: Option<Latency>,
}

/// Waiting times in microseconds: as many percent of the messages had to wait no longer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Half of them.
    pub p50: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p99_9: f64,
    /// All.
    pub max: f64,
}

impl Latency {
    /// Of a histogram in nanoseconds; `None` if it is empty.
    pub fn of(waits_ns: &Histogram<u64>) -> Option<Self> {
        let us = |ns: u64| ns as f64 / 1_000.0;
        let quantile = |quantile| us(waits_ns.value_at_quantile(quantile));
        (!waits_ns.is_empty()).then(|| Self {
            p50: quantile(0.5),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            max: us(waits_ns.max()),
        })
    }
}

/// What a report is made of.
pub(crate) struct Measured<'a> {
    pub(crate) elapsed: Duration,
    pub(crate) counts: Counts,
    pub(crate) payload_bytes: usize,
    pub(crate) consumed: bool,
    pub(crate) publish_waits: &'a [Arc<Waits>],
    pub(crate) delivery_waits: &'a [Arc<Waits>],
    pub(crate) reasons: BTreeMap<String, u64>,
}

impl Report {
    pub(crate) fn of(measured: &Measured<'_>) -> Result<Self, LoadError> {
        let seconds = measured.elapsed.as_secs_f64();
        let rate = |messages: u64, waits: &[Arc<Waits>]| -> Result<Rate, LoadError> {
            let bytes = messages * measured.payload_bytes as u64;
            Ok(Rate {
                messages,
                per_second: messages as f64 / seconds,
                bytes,
                bytes_per_second: bytes as f64 / seconds,
                latency_us: Latency::of(&together(waits.iter().map(AsRef::as_ref))?),
            })
        };
        let counts = measured.counts;
        let delivered = match measured.consumed {
            true => Some(rate(counts.delivered, measured.delivery_waits)?),
            false => None,
        };
        Ok(Self {
            seconds,
            published: rate(counts.published, measured.publish_waits)?,
            delivered,
            settled: measured.consumed.then_some(counts.settled),
            failed: counts.failed,
            reasons: measured.reasons.clone(),
        })
    }
}
