//! A node: opens its log and groups, then its doors, and closes them in the opposite order.

mod clustered;
mod doors;
mod error;
mod messaging;
mod ports;
mod storage;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::NodeId;
use boltq_log::Log;
use boltq_messaging::Route;
use boltq_raft::{Group, GroupConfig, NoPeers};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::clustered::{Clustered, Opening, founds};
use self::doors::Behind;
pub use self::error::NodeError;
use self::messaging::Messaging;
use self::ports::{Ports, local};
use self::storage::{departure, open_log, open_messaging_log, proposal_bytes_max, settings};
use crate::access::Access;
use crate::clock;
use crate::cluster::{LeaderRoute, QUEUE_GROUP};
use crate::config::{Config, StorageMode, Values};
use crate::doors::port::Connections;
use crate::plane::QueuePlane;
use crate::reload::Reloader;
use crate::service::{Clustering, Kv, Parts, Queues};
use crate::tasks::{expire_subscriptions, run_timer};
use crate::telemetry::trace::{Exporter, Tracer};
use crate::telemetry::{DoorMetrics, LogHandle};
use crate::tls::{Dialer, TlsStore};

/// How long a node that is alone may take to lead its groups.
const LEAD_MAX: Duration = Duration::from_secs(30);
/// How long a node that stops waits for the collector of traces.
const FLUSH_MAX: Duration = Duration::from_secs(3);
/// How often a node looks whether its log has failed.
const FAILURE_POLL: Duration = Duration::from_millis(500);

/// A node that serves.
pub struct Node {
    group: Group<QueuePlane>,
    clustered: Option<Clustered>,
    /// None: `messaging.stream.enabled` is not set.
    streams: Option<Messaging>,
    log: Log,
    doors: JoinSet<()>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
    /// Hands on traces, if there are any.
    exporter: Option<Exporter>,
    /// For the last traces to be handed on.
    flush_max: Duration,
    messaging: SocketAddr,
    admin: SocketAddr,
    access: Arc<Access>,
    tls: Option<Arc<TlsStore>>,
}

impl Node {
    /// Opens everything. When it returns, requests are answered.
    ///
    /// # Errors
    /// See [`NodeError`]; nothing is left running then.
    pub async fn start(config: &Config) -> Result<Self, NodeError> {
        let connections = Connections::within_the_limit(
            config.server.connections_max,
            config.cluster.enabled && config.server.tcp_forward,
        );
        let tls = load_tls(config).await?;
        let metrics = Arc::new(DoorMetrics::default());
        let access = Access::new(config, metrics.clone());
        // Ports first: a second server on the same ports is to fail before it touches the data.
        let ports = Ports::open(config).await?;
        let (messaging, admin) = (local(&ports.messaging)?, local(&ports.admin)?);
        let (log, id) = open_log(config).await?;
        let messaging_log = open_messaging_log(config, id, &log).await?;
        let plane = Arc::new(QueuePlane::new(settings(config), log.group(QUEUE_GROUP)));
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (group, clustered, slots) = match ports.raft {
            None => {
                let group = open_alone(config, &log, id, plane.clone()).await?;
                let slots = match &messaging_log {
                    Some(log) => messaging::open_alone(config, log, id).await?,
                    None => Vec::new(),
                };
                (group, None, slots)
            }
            Some(raft) => {
                let dialer = Dialer::new(tls.clone());
                let opening = Opening {
                    config,
                    found: founds(config, &log, &dialer).await,
                    node: id,
                    log: &log,
                    messaging_log: messaging_log.as_ref(),
                    messaging,
                    admin,
                    departure: departure(config).await?,
                    dialer,
                };
                let (group, clustered, slots, seeds) = opening.open(raft, plane.clone()).await?;
                clustered.cluster.start(seeds, &mut tasks, &stop);
                (group, Some(clustered), slots)
            }
        };
        let streams = messaging_log.map(|log| {
            let cluster = clustered.as_ref().map(|clustered| &clustered.cluster);
            let route = cluster.map(|cluster| -> Arc<dyn Route> { Arc::new(LeaderRoute::new(cluster)) });
            let messaging = Messaging::new(config, log, slots, route, stop.clone());
            if let Some(cluster) = cluster {
                cluster.lead_streams(messaging.streams.clone());
            }
            messaging
        });
        let (tracer, exporter) = traces(config)?.unzip();
        let mut node = Self {
            group,
            clustered,
            streams,
            log,
            doors: JoinSet::new(),
            tasks,
            stop,
            exporter,
            flush_max: config.server.shutdown_grace.min(FLUSH_MAX),
            messaging,
            admin,
            access,
            tls,
        };
        let behind = node.start_service(config, plane, tracer, metrics).await?;
        if let Some(store) = &node.tls {
            node.tasks.spawn(store.clone().keep_looking());
        }
        node.open_doors(config, connections, &behind, (ports.messaging, ports.admin))
            .await?;
        Ok(node)
    }

    /// Starts what the doors lead to. A node that is alone leads when this returns.
    async fn start_service(
        &mut self,
        config: &Config,
        plane: Arc<QueuePlane>,
        tracer: Option<Tracer>,
        metrics: Arc<DoorMetrics>,
    ) -> Result<Behind, NodeError> {
        let clustering = Clustering::new(self.clustered.as_ref().map(|clustered| clustered.cluster.clone()));
        let parts = Parts {
            log: self.log.clone(),
            disk: config.storage.mode == StorageMode::Disk,
            settings: settings(config),
            clustering: clustering.clone(),
            min_ack_level: config.publish.min_ack_level,
            confirm_max: self.clustered.is_some().then_some(config.cluster.proposal_timeout),
            tracer,
        };
        let queues = Queues::new(self.group.clone(), plane.clone(), parts, self.stop.clone());
        if self.clustered.is_none() {
            // Nobody else can lead, so requests would only fail until then.
            let ready = async {
                plane.led().await;
                queues.keyed().await;
                if let Some(messaging) = &self.streams {
                    messaging.streams.led().await;
                }
            };
            tokio::time::timeout(LEAD_MAX, ready)
                .await
                .map_err(|_| NodeError::NoLeader)?;
        } else {
            let queues = queues.clone();
            self.tasks.spawn(async move { queues.keyed().await });
        }
        self.tasks.spawn(run_timer(queues.clone(), plane));
        let kv = Kv::new(queues.clone(), config.cache.clone());
        let sweeping = kv.clone();
        self.tasks.spawn(async move { sweeping.sweep().await });
        let streams = self.streams.as_ref().map(|messaging| messaging.streams.clone());
        if let Some(streams) = streams.clone() {
            self.tasks.spawn(async move { streams.maintain().await });
        }
        self.tasks
            .spawn(expire_subscriptions(queues.clone(), config.queue.durable_expiry));
        Ok(Behind {
            queues,
            kv,
            streams,
            clustering,
            metrics,
        })
    }

    /// Where the messaging port listens.
    #[must_use]
    pub fn messaging(&self) -> SocketAddr {
        self.messaging
    }

    /// Where the admin port listens.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Who applies a changed configuration. `in_effect` is what this node was started with.
    #[must_use]
    pub fn reloader(&self, log: LogHandle, in_effect: Values) -> Reloader {
        Reloader::new(self.access.clone(), self.tls.clone(), log, in_effect)
    }

    /// Serves until `stop` or until the storage fails, then closes: no new connections, requests in progress are
    /// finished, a checkpoint is written, the log is synced.
    ///
    /// # Errors
    /// The storage failed. Nothing more was acknowledged from then on.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), NodeError> {
        let failure = tokio::select! {
            () = stop => None,
            reason = log_failed(&self.log) => Some(reason),
            reason = self.group.failed() => Some(reason),
            reason = Clustered::failed(self.clustered.as_ref()) => Some(reason),
            reason = Messaging::failed(self.streams.as_ref()) => Some(reason),
        };
        if failure.is_none()
            && let Some(clustered) = &self.clustered
        {
            clustered.depart().await;
        }
        self.stop.cancel();
        if let Some(reason) = failure {
            tracing::error!(%reason, "the storage failed; stopping");
            self.close().await;
            return Err(NodeError::Failed(reason));
        }
        tracing::info!("stopping");
        while self.doors.join_next().await.is_some() {}
        self.tasks.shutdown().await;
        if let Some(exporter) = self.exporter.take() {
            exporter.finish(self.flush_max).await;
        }
        self.group.checkpoint().await;
        if let Some(messaging) = &self.streams {
            messaging.checkpoint().await;
        }
        self.close().await;
        Ok(())
    }

    async fn close(&mut self) {
        self.doors.shutdown().await;
        self.tasks.shutdown().await;
        self.group.shutdown().await;
        if let Some(messaging) = &self.streams {
            messaging.close().await;
        }
        if let Some(clustered) = &self.clustered {
            clustered.close().await;
        }
        let log = self.log.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || log.close()).await {
            tracing::error!(%error, "the log was not closed cleanly");
        }
    }
}

/// Returns when the log takes no more writes, with the reason. The groups hear of it with the next write, and nobody may
/// write for hours.
async fn log_failed(log: &Log) -> String {
    loop {
        if let Some(failure) = log.failure() {
            return failure.to_string();
        }
        tokio::time::sleep(FAILURE_POLL).await;
    }
}

/// The group of the queue plane of a node that is not one of several.
async fn open_alone(
    config: &Config,
    log: &Log,
    node: NodeId,
    plane: Arc<QueuePlane>,
) -> Result<Group<QueuePlane>, NodeError> {
    let mut group = GroupConfig::new(QUEUE_GROUP, node, clock::now);
    group.proposal_bytes_max = proposal_bytes_max(config);
    Ok(Group::open(group, log.group(QUEUE_GROUP), plane, Arc::new(NoPeers)).await?)
}

/// Reads the files of `server.tls`, on a thread that may block.
async fn load_tls(config: &Config) -> Result<Option<Arc<TlsStore>>, NodeError> {
    let Some(files) = config.server.tls.clone() else {
        return Ok(None);
    };
    let loaded = tokio::task::spawn_blocking(move || TlsStore::load(&files)).await?;
    Ok(Some(loaded?))
}

/// Who makes traces and who hands them on, if anybody is told of them.
fn traces(config: &Config) -> Result<Option<(Tracer, Exporter)>, NodeError> {
    let telemetry = &config.telemetry;
    let Some(collector) = &telemetry.collector else {
        return Ok(None);
    };
    let names = (telemetry.service_name.as_str(), config.cluster.node_id.as_str());
    Ok(Some(Exporter::start(collector, names, telemetry.sample_ratio)?))
}
