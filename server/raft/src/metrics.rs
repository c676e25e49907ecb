//! What a group counts for those who watch it. Counted once for each append, snapshot or chunk, never for a message.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper ends of the classes of a [`Histogram`]; beyond the last one there is one class more.
pub const CLASS_ENDS: [Duration; 16] = [
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_secs(10),
];
const CLASSES: usize = CLASS_ENDS.len() + 1;

/// How long something took, by classes.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    classes: [AtomicU64; CLASSES],
    nanos: AtomicU64,
}

impl Histogram {
    pub(crate) fn record(&self, took: Duration) {
        let class = CLASS_ENDS.partition_point(|end| *end < took);
        self.classes[class].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos(took), Ordering::Relaxed);
    }

    fn get(&self) -> Durations {
        Durations {
            classes: std::array::from_fn(|class| self.classes[class].load(Ordering::Relaxed)),
            sum: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }
}

/// Snapshots in one direction.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    done: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
}

impl Transfers {
    pub(crate) fn bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// One has ended, one way or the other.
    pub(crate) fn ended(&self, well: bool, took: Duration) {
        let count = if well { &self.done } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos(took), Ordering::Relaxed);
    }

    fn get(&self) -> Snapshots {
        Snapshots {
            done: self.done.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }
}

/// Counted where it happens.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) appends: Histogram,
    pub(crate) sent: Transfers,
    pub(crate) installed: Transfers,
}

impl Metrics {
    pub(crate) fn get(&self) -> GroupFigures {
        GroupFigures {
            appends: self.appends.get(),
            sent: self.sent.get(),
            installed: self.installed.get(),
        }
    }
}

/// How long things took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Durations {
    /// How many, by [`CLASS_ENDS`], each without those of the class before.
    pub classes: [u64; CLASSES],
    /// All of them together.
    pub sum: Duration,
}

/// Snapshots to other nodes, or from them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Snapshots {
    /// That arrived, and were installed.
    pub done: u64,
    /// That broke off, or were refused.
    pub failed: u64,
    /// On their way, those that broke off included.
    pub bytes: u64,
    /// From the first chunk until they were installed, or broke off.
    pub time: Duration,
}

/// What a group has counted since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupFigures {
    /// Appends to the log, from the call until they are as durable as the log is set to be.
    pub appends: Durations,
    /// Snapshots to other nodes.
    pub sent: Snapshots,
    /// Snapshots from other nodes.
    pub installed: Snapshots,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_first_class_that_ends_with_it_or_after_it() {
        let histogram = Histogram::default();
        for (micros, class) in [
            (0, 0),
            (100, 0),
            (101, 1),
            (1_000, 3),
            (10_000_000, 15),
            (10_000_001, 16),
        ] {
            let before = histogram.get().classes[class];
            histogram.record(Duration::from_micros(micros));
            assert_eq!(histogram.get().classes[class], before + 1, "{micros} us");
        }
        let all = histogram.get();
        assert_eq!(all.classes.iter().sum::<u64>(), 6);
        assert_eq!(
            all.sum,
            Duration::from_micros(100 + 101 + 1_000 + 10_000_000 + 10_000_001)
        );
    }
}
