//! A node: opens its log and groups, then its doors, and closes them in the opposite order.

mod clustered;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::NodeId;
use boltq_log::{Log, LogConfig, OpenError, OsFiles, RaftState, Storage, SyncPolicy};
use boltq_queue::Settings;
use boltq_raft::{Group, GroupConfig, GroupError, NoPeers};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use self::clustered::{Clustered, Opening, founds};
use crate::access::Access;
use crate::clock;
use crate::cluster::{Departure, QUEUE_GROUP};
use crate::config::{Config, StorageMode, StorageSync, Values};
use crate::doors::intake::Intake;
use crate::doors::port::{Acceptor, Connections, HttpPort, MessagingPort, listen_on};
use crate::doors::{grpc, http, tcp};
use crate::identity::{self, IdentityError};
use crate::peer::PeerError;
use crate::plane::QueuePlane;
use crate::reload::Reloader;
use crate::service::{Clustering, Kv, Parts, Queues, random};
use crate::tasks::{expire_subscriptions, run_timer};
use crate::telemetry::trace::{Exporter, Tracer};
use crate::telemetry::{DoorMetrics, LogHandle, Via};
use crate::tls::{Dialer, PortTls, TlsError, TlsStore};

/// Proposals that may be on their way at most, in bytes.
const PROPOSAL_BYTES_MAX: usize = 32 << 20;
/// How often it is looked whether a node still belongs to its cluster.
const REPORT_EVERY: Duration = Duration::from_millis(500);
/// How long a node that is alone may take to lead its groups.
const LEAD_MAX: Duration = Duration::from_secs(30);
/// How long a node that stops waits for the collector of traces.
const FLUSH_MAX: Duration = Duration::from_secs(3);
/// How often a node looks whether its log has failed.
const FAILURE_POLL: Duration = Duration::from_millis(500);

/// Why a node did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A port cannot be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Host and port.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The data cannot be opened.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// The node does not know who it is.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A group cannot be opened.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// Nobody leads the queue plane.
    #[error("the queue plane has no leader after {} s: its membership may name other nodes", LEAD_MAX.as_secs())]
    NoLeader,
    /// The port for other nodes.
    #[error(transparent)]
    Peers(#[from] PeerError),
    /// The data is that of a node that was alone, and this node is to join a cluster that has data of its own.
    #[error(
        "{}: the data of a node that was alone cannot be joined with that of a cluster; found the cluster with this node \
         (cluster.bootstrap), or start on an empty directory", path.display()
    )]
    DataOfItsOwn {
        /// The data directory.
        path: PathBuf,
    },
    /// It cannot be read whether this node was removed from its cluster.
    #[error("{}: {source}", path.display())]
    Departure {
        /// The data directory.
        path: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
    /// The collector of traces has no such address.
    #[error("telemetry.otlp.endpoint: {0}")]
    Collector(#[from] tonic::transport::Error),
    /// The protos were built wrongly.
    #[error("gRPC reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// A group stopped by itself. What was acknowledged is in the log.
    #[error("stopped by a failure of the storage: {0}")]
    Failed(String),
    /// A task that opens the log ended.
    #[error("start interrupted: {0}")]
    Interrupted(#[from] tokio::task::JoinError),
}

/// A node that serves.
pub struct Node {
    group: Group<QueuePlane>,
    clustered: Option<Clustered>,
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
        let dialer = Dialer::new(tls.clone());
        let metrics = Arc::new(DoorMetrics::default());
        let access = Access::new(config, metrics.clone());
        // Ports first: a second server on the same ports is to fail before it touches the data.
        let messaging = listen(&config.server.host, config.server.tcp_port).await?;
        let admin = listen(&config.server.host, config.server.http_port).await?;
        let raft = match config.cluster.enabled {
            true => Some(listen(&config.cluster.raft_host, config.cluster.raft_port).await?),
            false => None,
        };
        let addresses = (local(&messaging)?, local(&admin)?);
        let (log, node) = open_log(config).await?;
        let settings = settings(config);
        let plane = Arc::new(QueuePlane::new(settings, log.group(QUEUE_GROUP)));
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (group, clustered) = match raft {
            None => {
                let mut group_config = GroupConfig::new(QUEUE_GROUP, node, clock::now);
                group_config.proposal_bytes_max = proposal_bytes_max(config);
                let transport = Arc::new(NoPeers);
                let group = Group::open(group_config, log.group(QUEUE_GROUP), plane.clone(), transport).await?;
                (group, None)
            }
            Some(raft) => {
                let opening = Opening {
                    config,
                    found: founds(config, &log, &dialer).await,
                    node,
                    log: &log,
                    messaging: addresses.0,
                    admin: addresses.1,
                    departure: departure(config).await?,
                    dialer: dialer.clone(),
                };
                let (group, clustered, seeds) = opening.open(raft, plane.clone()).await?;
                clustered.cluster.start(seeds, &mut tasks, &stop);
                (group, Some(clustered))
            }
        };
        let (tracer, exporter) = traces(config)?.unzip();
        let parts = Parts {
            log: log.clone(),
            disk: config.storage.mode == StorageMode::Disk,
            settings,
            clustering: Clustering::new(clustered.as_ref().map(|clustered| clustered.cluster.clone())),
            min_ack_level: config.publish.min_ack_level,
            confirm_max: clustered.is_some().then_some(config.cluster.proposal_timeout),
            tracer,
        };
        let clustering = parts.clustering.clone();
        let queues = Queues::new(group.clone(), plane.clone(), parts, stop.clone());
        if clustered.is_none() {
            // Nobody else can lead, so requests would only fail until then.
            let ready = async {
                plane.led().await;
                queues.keyed().await;
            };
            tokio::time::timeout(LEAD_MAX, ready)
                .await
                .map_err(|_| NodeError::NoLeader)?;
        } else {
            let queues = queues.clone();
            tasks.spawn(async move { queues.keyed().await });
        }
        tasks.spawn(run_timer(queues.clone(), plane));
        let kv = Kv::new(queues.clone(), config.cache.clone());
        let sweeping = kv.clone();
        tasks.spawn(async move { sweeping.sweep().await });
        tasks.spawn(expire_subscriptions(queues.clone(), config.queue.durable_expiry));
        let mut node = Self {
            group,
            clustered,
            log,
            doors: JoinSet::new(),
            tasks,
            stop,
            exporter,
            flush_max: config.server.shutdown_grace.min(FLUSH_MAX),
            messaging: addresses.0,
            admin: addresses.1,
            access,
            tls,
        };
        if let Some(store) = &node.tls {
            node.tasks.spawn(store.clone().keep_looking());
        }
        let ports = (messaging, admin);
        node.open_doors(config, connections, (&queues, &kv), &clustering, metrics, ports)
            .await?;
        Ok(node)
    }

    async fn open_doors(
        &mut self,
        config: &Config,
        connections: Connections,
        (queues, kv): (&Queues, &Kv),
        clustering: &Clustering,
        metrics: Arc<DoorMetrics>,
        (messaging, admin): (TcpListener, TcpListener),
    ) -> Result<(), NodeError> {
        let (reporter, health) = tonic_health::server::health_reporter();
        report(&reporter, true).await;
        if clustering.is_enabled() {
            self.tasks.spawn(keep_reported(reporter, clustering.clone()));
        }
        let (access, dialer) = (self.access.clone(), Dialer::new(self.tls.clone()));
        let grpc = grpc::router(
            &queues.via(Via::Grpc),
            kv,
            clustering,
            health,
            (access.clone(), dialer.clone()),
            metrics.clone(),
        )?;
        let tcp = tcp::Door::new(
            queues.via(Via::Binary),
            clustering.clone(),
            access.clone(),
            dialer,
            &config.server,
            metrics.clone(),
        );
        let intake = Intake::new(&config.server, metrics.clone());
        self.tasks.spawn(intake.clone().watch());
        let tls = PortTls::messaging(self.tls.clone(), &metrics);
        let port = MessagingPort::new(tcp, grpc, intake.clone(), tls, access.clone());
        let acceptor = self.acceptor(
            config,
            ("messaging", connections.messaging),
            messaging,
            &metrics,
            |metrics| &metrics.messaging_connections,
        );
        let stop = self.stop.clone();
        self.doors
            .spawn(acceptor.run(move |stream| port.clone().serve(stream, stop.clone())));

        let router = http::router(
            (queues.via(Via::Http), kv.clone()),
            clustering.clone(),
            access.clone(),
            self.tls.clone(),
            metrics.clone(),
            &config.metrics,
        );
        let tls = PortTls::admin(self.tls.clone(), &metrics);
        let port = HttpPort::new(router, intake, tls, access);
        let acceptor = self.acceptor(config, ("admin", connections.admin), admin, &metrics, |metrics| {
            &metrics.admin_connections
        });
        let stop = self.stop.clone();
        self.doors
            .spawn(acceptor.run(move |stream| port.clone().serve(stream, stop.clone())));
        Ok(())
    }

    fn acceptor(
        &self,
        config: &Config,
        (name, connections_max): (&'static str, usize),
        listener: TcpListener,
        metrics: &Arc<DoorMetrics>,
        open: fn(&DoorMetrics) -> &crate::telemetry::Gauge,
    ) -> Acceptor {
        Acceptor {
            name,
            listener,
            connections_max,
            grace: config.server.shutdown_grace,
            metrics: metrics.clone(),
            open,
            stop: self.stop.clone(),
        }
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
        self.close().await;
        Ok(())
    }

    async fn close(&mut self) {
        self.doors.shutdown().await;
        self.tasks.shutdown().await;
        self.group.shutdown().await;
        if let Some(clustered) = &self.clustered {
            clustered.close().await;
        }
        let log = self.log.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || log.close()).await {
            tracing::error!(%error, "the log was not closed cleanly");
        }
    }
}

/// What probes over gRPC are told.
async fn report(reporter: &HealthReporter, serves: bool) {
    let status = match serves {
        true => ServingStatus::Serving,
        false => ServingStatus::NotServing,
    };
    for service in ["", "boltq.queue.v1.QueueService"] {
        reporter.set_service_status(service, status).await;
    }
}

/// A node that was removed from its cluster does not serve.
async fn keep_reported(reporter: HealthReporter, clustering: Clustering) {
    let mut serves = true;
    loop {
        if serves == clustering.is_removed() {
            serves = !serves;
            report(&reporter, serves).await;
        }
        tokio::time::sleep(REPORT_EVERY).await;
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

async fn listen(host: &str, port: u16) -> Result<TcpListener, NodeError> {
    listen_on(host, port).await.map_err(|source| NodeError::Listen {
        address: format!("{host}:{port}"),
        source,
    })
}

fn local(listener: &TcpListener) -> Result<SocketAddr, NodeError> {
    listener.local_addr().map_err(|source| NodeError::Listen {
        address: "a port".to_owned(),
        source,
    })
}

/// Reads the files of `server.tls`, on a thread that may block.
async fn load_tls(config: &Config) -> Result<Option<Arc<TlsStore>>, NodeError> {
    let Some(files) = config.server.tls.clone() else {
        return Ok(None);
    };
    let loaded = tokio::task::spawn_blocking(move || TlsStore::load(&files)).await?;
    Ok(Some(loaded?))
}

/// Opens the log of the queue plane, on a thread that may block, and finds out who this node is.
async fn open_log(config: &Config) -> Result<(Log, NodeId), NodeError> {
    let data_dir = config.storage.data_dir.clone();
    let log_dir = data_dir.join("queue");
    let disk = config.storage.mode == StorageMode::Disk;
    let log_config = LogConfig {
        storage: if disk {
            Storage::Disk { dir: log_dir.clone() }
        } else {
            Storage::Memory
        },
        sync: match config.storage.sync {
            StorageSync::Always => SyncPolicy::Always,
            StorageSync::Interval(every) => SyncPolicy::Interval(every),
            StorageSync::Never => SyncPolicy::Never,
        },
        wal_file_bytes: config.storage.wal_file_bytes,
        cache_bytes: config.storage.cache_bytes,
        compaction_threshold: config.storage.compaction_threshold_bytes,
        ..LogConfig::default()
    };
    tokio::task::spawn_blocking(move || {
        let known = if disk {
            identity::load(&data_dir, &log_dir)?
        } else {
            None
        };
        let log_config = LogConfig {
            existing: known.is_some(),
            ..log_config
        };
        let log = Log::open(log_config, Arc::new(OsFiles))?;
        let node = if disk {
            identity::keep(&data_dir, &log_dir, known, is_new(&log), random())?
        } else {
            NodeId(random().max(1))
        };
        Ok((log, node))
    })
    .await?
}

/// Whether nothing was ever written to it.
fn is_new(log: &Log) -> bool {
    let state = |group| log.group(group).raft_state();
    log.groups()
        .into_iter()
        .map(state)
        .all(|state| state == RaftState::default())
}

/// How this node parted from its cluster the last time, if it did.
async fn departure(config: &Config) -> Result<Departure, NodeError> {
    let dir = (config.storage.mode == StorageMode::Disk).then(|| config.storage.data_dir.clone());
    let loaded = tokio::task::spawn_blocking(move || Departure::load(dir)).await?;
    loaded.map_err(|source| NodeError::Departure {
        path: config.storage.data_dir.clone(),
        source,
    })
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

/// What may be on its way into the log. The log learns that the device is full when a file ends and there is no next one:
/// what was admitted by then has to fit into a file that is not used up yet.
fn proposal_bytes_max(config: &Config) -> usize {
    let bytes = config.storage.wal_file_bytes * 3 / 8;
    usize::try_from(bytes).unwrap_or(usize::MAX).min(PROPOSAL_BYTES_MAX)
}

fn settings(config: &Config) -> Settings {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Settings {
        max_retry: config.queue.retries_max,
        backoff_first_ms: millis(config.queue.retry_backoff),
        backoff_max_ms: millis(config.queue.retry_backoff_max),
        ack_timeout_ms: millis(config.queue.ack_timeout),
        dedup_ttl_ms: millis(config.queue.dedup_ttl),
        dedup_keys_max: config.queue.dedup_max_keys,
    }
}
