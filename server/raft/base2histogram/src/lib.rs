//! The part of the crate `base2histogram` that openraft uses, with one bucket for each power of two.
//!
//! openraft records batch sizes and latencies of its stages into histograms that it only shows with a feature that is
//! off here. The original builds tables for sixteen resolutions on first use, 25 MB that stay for good: more than all the
//! rest of an idle broker. `[patch.crates-io]` in the workspace puts this crate in its place. It counts correctly, and
//! answers with the lower end of the bucket that a percentile falls into.

use std::fmt;
use std::marker::PhantomData;

/// One for zero, one for each power of two of a `u64`.
const BUCKETS: usize = 65;

/// Counts values by the power of two at or below them. `T` is of no use here; the original tags slots with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram<T = ()> {
    counts: [u64; BUCKETS],
    tag: PhantomData<T>,
}

impl<T> Default for Histogram<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Histogram<T> {
    /// Nothing counted yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            counts: [0; BUCKETS],
            tag: PhantomData,
        }
    }

    /// Counts a value.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts a value `times` times.
    pub fn record_n(&mut self, value: u64, times: u64) {
        let bucket = (u64::BITS - value.leading_zeros()) as usize;
        self.counts[bucket] = self.counts[bucket].saturating_add(times);
    }

    fn at(&self, samples: u64, permille: u64) -> u64 {
        let rank = (u128::from(samples) * u128::from(permille)).div_ceil(1_000).max(1);
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += u128::from(*count);
            seen >= rank
        });
        match bucket {
            None | Some(0) => 0,
            Some(bucket) => 1 << (bucket - 1),
        }
    }

    /// Usual percentiles, each as the lower end of its bucket.
    #[must_use]
    pub fn percentile_stats(&self) -> PercentileStats {
        let samples = self.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let at = |permille| self.at(samples, permille);
        PercentileStats {
            samples,
            p0_1: at(1),
            p1: at(10),
            p5: at(50),
            p10: at(100),
            p50: at(500),
            p90: at(900),
            p99: at(990),
            p99_9: at(999),
        }
    }
}

/// Percentiles of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PercentileStats {
    /// Values counted.
    pub samples: u64,
    /// One in a thousand is at or below.
    pub p0_1: u64,
    /// One in a hundred is at or below.
    pub p1: u64,
    /// One in twenty is at or below.
    pub p5: u64,
    /// One in ten is at or below.
    pub p10: u64,
    /// The median.
    pub p50: u64,
    /// Nine in ten are at or below.
    pub p90: u64,
    /// 99 in a hundred are at or below.
    pub p99: u64,
    /// 999 in a thousand are at or below.
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            samples,
            p50,
            p90,
            p99,
            p99_9,
            ..
        } = self;
        write!(f, "{samples} values, p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p99_9}")
    }
}

/// Named histograms, shown as their percentiles.
#[derive(Debug, Clone, Default)]
pub struct AsciiChart<T = ()> {
    series: Vec<(String, Histogram<T>)>,
}

impl<T> AsciiChart<T> {
    /// No histograms yet.
    #[must_use]
    pub fn new() -> Self {
        Self { series: Vec::new() }
    }

    /// Adds one.
    #[must_use]
    #[allow(clippy::should_implement_trait, reason = "the name is given by the original")]
    pub fn add(mut self, name: &str, histogram: Histogram<T>) -> Self {
        self.series.push((name.to_owned(), histogram));
        self
    }
}

impl<T> fmt::Display for AsciiChart<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, histogram) in &self.series {
            writeln!(f, "{name}: {}", histogram.percentile_stats())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_lower_ends_of_their_buckets() {
        let mut histogram = Histogram::<()>::new();
        histogram.record_n(0, 100);
        histogram.record_n(5, 850);
        histogram.record_n(1_000, 49);
        histogram.record(u64::MAX);
        let stats = histogram.percentile_stats();
        assert_eq!(stats.samples, 1_000);
        assert_eq!((stats.p1, stats.p10, stats.p50, stats.p90), (0, 0, 4, 4));
        assert_eq!((stats.p99, stats.p99_9), (512, 512));
        assert_eq!(histogram.at(1_000, 1_000), 1 << 63);
    }

    #[test]
    fn nothing_counted_is_all_zero() {
        let stats = Histogram::<()>::new().percentile_stats();
        assert_eq!((stats.samples, stats.p50, stats.p99_9), (0, 0, 0));
    }
}
