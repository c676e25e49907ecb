//! What a group counts for those who watch it. Counted once for each append, snapshot or chunk, never for a message.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use boltq_core::histogram::{COUNT, Distribution, Histogram, LATENCY};

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
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) appends: Histogram,
    pub(crate) commits: Histogram,
    pub(crate) entries: Histogram,
    pub(crate) sent: Transfers,
    pub(crate) installed: Transfers,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            appends: Histogram::new(&LATENCY),
            commits: Histogram::new(&LATENCY),
            entries: Histogram::new(&COUNT),
            sent: Transfers::default(),
            installed: Transfers::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn get(&self) -> GroupFigures {
        GroupFigures {
            appends: self.appends.get(),
            commits: self.commits.get(),
            entries: self.entries.get(),
            sent: self.sent.get(),
            installed: self.installed.get(),
        }
    }
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupFigures {
    /// Appends to the log, from the call until they are as durable as the log is set to be.
    pub appends: Distribution,
    /// Entries that this node has proposed, from then until they were committed and applied here.
    pub commits: Distribution,
    /// Proposals in each of these entries.
    pub entries: Distribution,
    /// Snapshots to other nodes.
    pub sent: Snapshots,
    /// Snapshots from other nodes.
    pub installed: Snapshots,
}

/// Nothing yet.
impl Default for GroupFigures {
    fn default() -> Self {
        Metrics::default().get()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
