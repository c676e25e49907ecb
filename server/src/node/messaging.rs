//! The messaging plane of a node: its groups over a log of its own, and the end of both.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::{GroupId, NodeId};
use boltq_log::Log;
use boltq_messaging::{Route, Settings, Slot, StreamGroup, Streams};
use boltq_raft::{Group, GroupConfig, NoPeers};
use futures_util::future::{BoxFuture, select_all};
use tokio_util::sync::CancellationToken;

use super::storage::proposal_bytes_max;
use super::{NodeError, log_failed};
use crate::clock;
use crate::cluster::FIRST_STREAM_GROUP;
use crate::config::Config;
use crate::service::random;

/// What a node has for it.
pub(super) struct Messaging {
    pub(super) streams: Streams,
    slots: Vec<Slot>,
    log: Log,
}

/// The numbers of its groups.
pub(super) fn group_ids(config: &Config) -> impl Iterator<Item = GroupId> + use<> {
    (0..u32::from(config.messaging.groups)).map(|number| GroupId(FIRST_STREAM_GROUP.0 + number))
}

/// The state of one of them.
pub(super) fn plane(log: &Log, id: GroupId) -> Arc<StreamGroup> {
    Arc::new(StreamGroup::new(log.group(id), random))
}

/// The groups of a node that is not one of several.
pub(super) async fn open_alone(config: &Config, log: &Log, node: NodeId) -> Result<Vec<Slot>, NodeError> {
    let mut slots = Vec::new();
    for id in group_ids(config) {
        let plane = plane(log, id);
        let mut group = GroupConfig::new(id, node, clock::now);
        group.proposal_bytes_max = proposal_bytes_max(config);
        let group = Group::open(group, log.group(id), plane.clone(), Arc::new(NoPeers)).await?;
        slots.push(Slot { group, plane });
    }
    Ok(slots)
}

impl Messaging {
    pub(super) fn new(
        config: &Config,
        log: Log,
        slots: Vec<Slot>,
        route: Option<Arc<dyn Route>>,
        stop: CancellationToken,
    ) -> Self {
        let confirm_max = route.is_some().then_some(config.cluster.proposal_timeout);
        let settings = settings(config, confirm_max);
        let now = || clock::Instant::now().unix_ns();
        let streams = Streams::new(slots.clone(), log.clone(), settings, route, now, stop);
        Self { streams, slots, log }
    }

    /// Returns when its log takes no more writes, or one of its groups has stopped by itself; never without any.
    pub(super) async fn failed(this: Option<&Self>) -> String {
        let Some(this) = this else { return pending().await };
        let groups = this.slots.iter();
        let groups = groups.map(|slot| -> BoxFuture<'_, String> { Box::pin(slot.group.failed()) });
        let log: BoxFuture<'_, String> = Box::pin(log_failed(&this.log));
        let (reason, _, _) = select_all(groups.chain([log])).await;
        reason
    }

    /// Writes checkpoints, so that the next start has nothing to replay.
    pub(super) async fn checkpoint(&self) {
        for slot in &self.slots {
            slot.group.checkpoint().await;
        }
    }

    pub(super) async fn close(&self) {
        for slot in &self.slots {
            slot.group.shutdown().await;
        }
        let log = self.log.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || log.close()).await {
            tracing::error!(%error, "the log of the messaging plane was not closed cleanly");
        }
    }
}

fn settings(config: &Config, confirm_max: Option<Duration>) -> Settings {
    let messaging = &config.messaging;
    Settings {
        default_partitions: messaging.default_partitions,
        retention: boltq_messaging::Retention {
            max_age_ms: u64::try_from(messaging.retention_age.as_millis()).unwrap_or(u64::MAX),
            max_bytes: messaging.retention_bytes,
        },
        claims_ttl: messaging.dedup_ttl,
        claims_max: messaging.dedup_keys_max,
        cursors_max: messaging.cursors_max,
        maintenance_interval: messaging.maintenance_interval,
        confirm_max,
    }
}
