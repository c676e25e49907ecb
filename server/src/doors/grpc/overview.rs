//! `GetOverview` and `WatchOverview` of `boltq.admin.v1.AdminService`.

use std::time::Duration;

use boltq_proto::admin::v1::{
    Leadership, MessageCounts, MessageRates, Overview as OverviewProto, QueueOrder as OrderProto, QueueOverview,
    QueueSelection as SelectionProto, StorageStats as StorageProto, WatchOverviewRequest, WatchOverviewResponse,
};
use futures_util::stream::{self, Stream};
use tokio::time::{Interval, MissedTickBehavior};
use tonic::Status;

use super::convert;
use super::error::invalid;
use crate::doors::cluster_status::leader_of;
use crate::service::{
    ClusterStatus, Clustering, Kv, OverviewWatch, QueueOrder, QueueSelection, Queues, Rates, ServiceError, Stats,
    StorageStats, overview as look,
};

/// Between two looks of a watch. Each goes over all queues.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(3_600);
const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);
/// Of an answer, whose size they bound: with the longest names it has less than 300 KiB.
const QUEUES_DEFAULT: usize = 100;
const QUEUES_MAX: usize = 1_000;

/// As the status of the cluster calls it.
const QUEUE_GROUP: &str = "queue";

/// What an overview is made of.
#[derive(Clone)]
pub(super) struct Observed {
    pub(super) queues: Queues,
    pub(super) kv: Kv,
    pub(super) clustering: Clustering,
}

/// Looks of one caller.
pub(super) struct Watch {
    observed: Observed,
    selection: QueueSelection,
    watch: OverviewWatch,
}

impl Watch {
    pub(super) fn new(observed: Observed, selection: Option<SelectionProto>) -> Result<Self, Status> {
        let selection = selection.unwrap_or_default();
        let order = match selection.order() {
            OrderProto::Unspecified | OrderProto::Depth => QueueOrder::Depth,
            OrderProto::Change => QueueOrder::Change,
            OrderProto::Name => QueueOrder::Name,
        };
        if OrderProto::try_from(selection.order).is_err() {
            return Err(invalid(format!(
                "queues.order {} is none of this version",
                selection.order
            )));
        }
        Ok(Self {
            observed,
            selection: QueueSelection {
                max: convert::count(selection.max, "queues.max", QUEUES_DEFAULT, QUEUES_MAX)?,
                order,
                name_contains: selection.name_contains,
            },
            watch: OverviewWatch::default(),
        })
    }

    /// What there is now, and what changed since the last time.
    pub(super) fn look(&mut self) -> OverviewProto {
        let Observed { queues, kv, clustering } = &self.observed;
        let overview = look(queues, kv, clustering);
        let look = self.watch.look(queues, &overview, &self.selection);
        let stats = &overview.stats;
        let rows = look.chosen.into_iter().map(|chosen| QueueOverview {
            name: chosen.info.name,
            ready: chosen.info.ready,
            leased: chosen.info.leased,
            delayed: chosen.info.delayed,
            dead_letters: chosen.info.dead_letters,
            consumers: chosen.info.consumers,
            change: chosen.change,
        });
        OverviewProto {
            health: overview.health.name().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime: prost_types::Duration::try_from(stats.uptime).ok(),
            storage: Some(storage(stats.storage)),
            leadership: overview.cluster.as_ref().map(leadership),
            resident_bytes: overview.process.resident_bytes,
            queue_count: overview.queues.len() as u64,
            ready: stats.queues.iter().map(|(_, queue)| queue.ready).sum(),
            leased: stats.pending,
            delayed: stats.delayed,
            dead_letters: stats.dead_letters.iter().map(|(_, queue)| queue.ready).sum(),
            counts: Some(counts(stats)),
            rates: look.rates.map(rates),
            queues: rows.collect(),
            matching: look.matching as u64,
        }
    }
}

fn leadership(cluster: &ClusterStatus) -> Leadership {
    let queues = cluster.groups.iter().find(|group| group.name == QUEUE_GROUP);
    Leadership {
        node_id: cluster.node.name.clone(),
        leader_id: leader_of(cluster, queues),
    }
}

pub(super) fn storage(storage: StorageStats) -> StorageProto {
    StorageProto {
        mode: if storage.disk { "disk" } else { "memory" }.to_owned(),
        bytes: storage.bytes,
        writable: storage.writable,
    }
}

fn counts(stats: &Stats) -> MessageCounts {
    MessageCounts {
        published: stats.totals.published,
        consumed: stats.consumed,
        acked: stats.totals.acked,
        nacked: stats.failed_attempts(),
        expired: stats.totals.expired,
        dead_lettered: stats.totals.dead_lettered,
        dropped: stats.totals.dropped,
        rejected: stats.totals.rejected,
    }
}

fn rates(rates: Rates) -> MessageRates {
    MessageRates {
        published: rates.published,
        consumed: rates.consumed,
        acked: rates.acked,
        nacked: rates.nacked,
        expired: rates.expired,
        dead_lettered: rates.dead_lettered,
    }
}

/// One look after the other, each when the transport takes it: for a caller that does not read, nothing is looked at and nothing
/// is kept.
pub(super) fn watch(
    observed: Observed,
    request: WatchOverviewRequest,
) -> Result<impl Stream<Item = Result<WatchOverviewResponse, Status>> + Send + use<>, Status> {
    let interval = convert::bounded(request.interval, "interval", INTERVAL_MIN, INTERVAL_MAX)?;
    let mut ticks = tokio::time::interval(interval.unwrap_or(INTERVAL_DEFAULT));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watch = Watch::new(observed, request.queues)?;
    Ok(stream::unfold(Some((watch, ticks)), next))
}

type State = (Watch, Interval);

async fn next(state: Option<State>) -> Option<(Result<WatchOverviewResponse, Status>, Option<State>)> {
    let (mut watch, mut ticks) = state?;
    tokio::select! {
        biased;
        () = watch.observed.queues.stopping() => return Some((Err(ServiceError::Stopped.into()), None)),
        _ = ticks.tick() => {}
    }
    let overview = Some(watch.look());
    Some((Ok(WatchOverviewResponse { overview }), Some((watch, ticks))))
}
