//! A node: opens its log and groups, then its doors, and closes them in the opposite order.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::{GroupId, NodeId};
use boltq_log::{Log, LogConfig, OpenError, OsFiles, Storage, SyncPolicy};
use boltq_queue::Settings;
use boltq_raft::{Group, GroupConfig, GroupError};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::{Config, StorageMode, StorageSync};
use crate::doors::port::{Acceptor, HttpPort, MessagingPort};
use crate::doors::{grpc, http, tcp};
use crate::identity::{self, IdentityError};
use crate::plane::QueuePlane;
use crate::service::{Queues, ServiceError, random};
use crate::tasks::run_timer;
use crate::telemetry::DoorMetrics;

/// The group of the queue plane. Its number is part of the format on disk.
const QUEUE_GROUP: GroupId = GroupId(1);
/// How long a node that is alone may take to lead its groups.
const LEAD_MAX: Duration = Duration::from_secs(30);

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
    /// The queue plane did not become ready.
    #[error("the queue plane is not ready: {0}")]
    Queues(#[from] ServiceError),
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
    log: Log,
    doors: JoinSet<()>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
    messaging: SocketAddr,
    admin: SocketAddr,
}

impl Node {
    /// Opens everything. When it returns, requests are answered.
    ///
    /// # Errors
    /// See [`NodeError`]; nothing is left running then.
    pub async fn start(config: &Config) -> Result<Self, NodeError> {
        // Ports first: a second server on the same ports is to fail before it touches the data.
        let messaging = listen(&config.server.host, config.server.tcp_port).await?;
        let admin = listen(&config.server.host, config.server.http_port).await?;
        let addresses = (local(&messaging)?, local(&admin)?);
        let (log, node) = open_log(config).await?;
        let settings = settings(config);
        let plane = Arc::new(QueuePlane::new(settings, log.group(QUEUE_GROUP)));
        let group_config = GroupConfig::new(QUEUE_GROUP, node, clock::now);
        let group = Group::open(group_config, log.group(QUEUE_GROUP), plane.clone()).await?;
        tokio::time::timeout(LEAD_MAX, plane.led())
            .await
            .map_err(|_| NodeError::NoLeader)?;
        let disk = config.storage.mode == StorageMode::Disk;
        let stop = CancellationToken::new();
        let queues = Queues::open(group.clone(), plane.clone(), log.clone(), disk, settings, stop.clone()).await?;

        let mut tasks = JoinSet::new();
        tasks.spawn(run_timer(queues.clone(), plane));
        let mut node = Self {
            group,
            log,
            doors: JoinSet::new(),
            tasks,
            stop,
            messaging: addresses.0,
            admin: addresses.1,
        };
        node.open_doors(config, &queues, messaging, admin).await?;
        Ok(node)
    }

    async fn open_doors(
        &mut self,
        config: &Config,
        queues: &Queues,
        messaging: TcpListener,
        admin: TcpListener,
    ) -> Result<(), NodeError> {
        let metrics = Arc::new(DoorMetrics::default());
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter
            .set_service_status("", tonic_health::ServingStatus::Serving)
            .await;
        reporter
            .set_service_status("boltq.queue.v1.QueueService", tonic_health::ServingStatus::Serving)
            .await;
        let api_key = config.security.api_key.clone();
        let grpc = grpc::router(queues, health, api_key.clone())?;
        let tcp = tcp::Door::new(queues.clone(), api_key.clone(), &config.server, metrics.clone());
        let port = MessagingPort::new(tcp, grpc);
        let acceptor = self.acceptor(config, "messaging", messaging, &metrics, |metrics| {
            &metrics.messaging_connections
        });
        let stop = self.stop.clone();
        self.doors
            .spawn(acceptor.run(move |stream| port.clone().serve(stream, stop.clone())));

        let port = HttpPort::new(http::router(queues.clone(), api_key, metrics.clone()));
        let acceptor = self.acceptor(config, "admin", admin, &metrics, |metrics| &metrics.admin_connections);
        let stop = self.stop.clone();
        self.doors
            .spawn(acceptor.run(move |stream| port.clone().serve(stream, stop.clone())));
        Ok(())
    }

    fn acceptor(
        &self,
        config: &Config,
        name: &'static str,
        listener: TcpListener,
        metrics: &Arc<DoorMetrics>,
        open: fn(&DoorMetrics) -> &crate::telemetry::Gauge,
    ) -> Acceptor {
        Acceptor {
            name,
            listener,
            connections_max: config.server.connections_max,
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

    /// Serves until `stop` or until the storage fails, then closes: no new connections, requests in progress are
    /// finished, a checkpoint is written, the log is synced.
    ///
    /// # Errors
    /// The storage failed. Nothing more was acknowledged from then on.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), NodeError> {
        let failure = tokio::select! {
            () = stop => None,
            reason = self.group.failed() => Some(reason),
        };
        self.stop.cancel();
        if let Some(reason) = failure {
            tracing::error!(%reason, "the storage failed; stopping");
            self.close().await;
            return Err(NodeError::Failed(reason));
        }
        tracing::info!("stopping");
        while self.doors.join_next().await.is_some() {}
        self.tasks.shutdown().await;
        self.group.checkpoint().await;
        self.close().await;
        Ok(())
    }

    async fn close(&mut self) {
        self.doors.shutdown().await;
        self.tasks.shutdown().await;
        self.group.shutdown().await;
        let log = self.log.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || log.close()).await {
            tracing::error!(%error, "the log was not closed cleanly");
        }
    }
}

async fn listen(host: &str, port: u16) -> Result<TcpListener, NodeError> {
    TcpListener::bind((host, port))
        .await
        .map_err(|source| NodeError::Listen {
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

/// Opens the log of the queue plane, on a thread that may block, and finds out who this node is.
async fn open_log(config: &Config) -> Result<(Log, NodeId), NodeError> {
    let data_dir = config.storage.data_dir.clone();
    let disk = config.storage.mode == StorageMode::Disk;
    let log_config = LogConfig {
        storage: if disk {
            Storage::Disk {
                dir: data_dir.join("queue"),
            }
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
        let node = if disk {
            identity::load_or_create(&data_dir, random)?
        } else {
            NodeId(random().max(1))
        };
        Ok((Log::open(log_config, Arc::new(OsFiles))?, node))
    })
    .await?
}

fn settings(config: &Config) -> Settings {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Settings {
        max_retry: config.queue.retries_max,
        backoff_first_ms: millis(config.queue.retry_backoff),
        backoff_max_ms: millis(config.queue.retry_backoff_max),
        ack_timeout_ms: millis(config.queue.ack_timeout),
    }
}
