//! What there is, all of it at once and in short: for dashboards.

use super::cluster::{ClusterStatus, Clustering};
use super::kv::{Kv, KvStats};
use super::look::Stats;
use super::queue::Queues;
use crate::telemetry::ProcessFigures;

/// A node, its data and its cluster as they are now.
#[derive(Debug, Clone)]
pub struct Overview {
    /// Whether requests succeed.
    pub health: Health,
    /// The queues.
    pub stats: Stats,
    /// The cluster; nothing without clustering.
    pub cluster: Option<ClusterStatus>,
    /// The cache; nothing without one.
    pub cache: Option<KvStats>,
    /// The process.
    pub process: ProcessFigures,
}

/// Whether requests to a node succeed, as far as it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// They do.
    Ok,
    /// Publishes are refused, because there is no room for them.
    StorageFull,
    /// Nobody is known to lead the queues.
    NoLeader,
    /// The node was removed from its cluster.
    Removed,
}

impl Health {
    /// As it is shown; never renamed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::StorageFull => "storage_full",
            Self::NoLeader => "no_leader",
            Self::Removed => "removed",
        }
    }

    fn of(queues: &Queues, clustering: &Clustering, writable: bool) -> Self {
        let leader_id = queues.leader().name;
        if clustering.is_removed() {
            Self::Removed
        } else if !queues.is_leading() && leader_id.is_empty() {
            Self::NoLeader
        } else if !writable {
            Self::StorageFull
        } else {
            Self::Ok
        }
    }
}

/// Everything. See [`Queues::begin_look`] for what a node that does not lead knows.
#[must_use]
pub fn overview(queues: &Queues, kv: &Kv, clustering: &Clustering) -> Overview {
    let stats = queues.stats();
    Overview {
        health: Health::of(queues, clustering, stats.storage.writable),
        stats,
        cluster: clustering.status(),
        cache: kv.stats(),
        process: ProcessFigures::now(),
    }
}
