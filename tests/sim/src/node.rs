//! A node: the real log, group, queue plane and service, over a disk, a clock and a network of ours.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use boltq_core::{GroupId, NodeId};
use boltq_log::files::FileLayer;
use boltq_log::testing::SimFiles;
use boltq_log::{Log, LogConfig, Storage, SyncPolicy};
use boltq_queue::Settings;
use boltq_raft::sim::{Break, Process};
use boltq_raft::{Group, GroupConfig, Peer};
use boltq_server::ack_level::AckLevel;
use boltq_server::config::CacheConfig;
use boltq_server::plane::QueuePlane;
use boltq_server::service::{Clustering, Kv, Parts, Queues};
use boltq_server::tasks::run_timer;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::clocks;
use crate::disk::{self, Bell, Unsynced};
use crate::net::Net;
use crate::plan::{Broken, LogPlan};
use crate::random::Random;

const GROUP: GroupId = GroupId(1);
/// For the nodes to confirm a command.
const CONFIRM_MAX: Duration = Duration::from_secs(2);
/// For a node to come up; it waits for nobody.
const START_MAX: Duration = Duration::from_secs(30);
/// A disk that hangs for so long makes a leader give way.
const STALL_MAX: Duration = Duration::from_secs(1);
/// Small, so that messages die and come back within a run.
pub(crate) const SETTINGS: Settings = Settings {
    max_retry: 3,
    backoff_first_ms: 50,
    backoff_max_ms: 400,
    ack_timeout_ms: 1_500,
    dedup_ttl_ms: 600_000,
    dedup_keys_max: 10_000,
};

/// Nothing that is set ends.
const CACHE: CacheConfig = CacheConfig {
    enabled: true,
    keys_max: 0,
    default_ttl_ms: 0,
    cleanup: Duration::from_secs(60),
};

/// What all nodes are made of.
#[derive(Clone)]
pub(crate) struct Kit {
    pub(crate) net: Net,
    pub(crate) log: LogPlan,
    pub(crate) broken: Broken,
}

/// A node that runs, from its start to its end.
pub(crate) struct Node {
    pub(crate) index: usize,
    pub(crate) process: Process,
    pub(crate) group: Group<QueuePlane>,
    pub(crate) plane: Arc<QueuePlane>,
    pub(crate) queues: Queues,
    pub(crate) kv: Kv,
    pub(crate) log: Log,
    /// Added to each step of its log, in ms.
    pub(crate) slow_ms: Arc<AtomicU64>,
    failed: Arc<Mutex<Option<String>>>,
    stop: CancellationToken,
}

/// Where others reach a node.
pub(crate) fn peer(node: usize) -> Peer {
    Peer {
        node: NodeId(node as u64 + 1),
        address: format!("n{node}"),
    }
}

impl Node {
    /// Opens what is on the disk. `found`: as the first node of a new cluster.
    pub(crate) async fn start(
        kit: &Kit,
        index: usize,
        files: SimFiles,
        found: bool,
        mut random: Random,
    ) -> Result<Arc<Self>, String> {
        let broken = (kit.broken == Broken::KeepsDivergentTail).then_some(Break::KeepsDivergentTail);
        let process = Process::new(random.next(), broken);
        let opening = process.run(Box::pin(Self::open(
            kit.clone(),
            index,
            files,
            found,
            random,
            process.clone(),
        )));
        let opened = timeout(START_MAX, opening).await;
        match opened {
            Ok(Ok(node)) => {
                kit.net.connect(index, process, Arc::new(node.group.clone()));
                Ok(node)
            }
            Ok(Err(why)) => {
                process.kill();
                Err(why)
            }
            Err(_) => {
                process.kill();
                Err(format!("it did not come up within {START_MAX:?}"))
            }
        }
    }

    async fn open(
        kit: Kit,
        index: usize,
        files: SimFiles,
        found: bool,
        random: Random,
        process: Process,
    ) -> Result<Arc<Self>, String> {
        let bell = Bell::default();
        let slow_ms = Arc::new(AtomicU64::new(0));
        let files: Arc<dyn FileLayer> = match kit.broken {
            Broken::DiskLies => Arc::new(Unsynced(files)),
            _ => Arc::new(files),
        };
        let opened = Log::open_stepped(log_config(&kit), files, bell.on_work());
        let (log, steps) = opened.map_err(|error| format!("the log: {error}"))?;
        tokio::spawn(process.run(disk::run(steps, bell, slow_ms.clone(), random)));
        let plane = QueuePlane::with_sources(SETTINGS, log.group(GROUP), clocks::sources(index));
        let plane = Arc::new(plane);
        let transport = kit.net.transport(index);
        let config = group_config(&kit.log, index, found);
        let group = Group::open(config, log.group(GROUP), plane.clone(), transport)
            .await
            .map_err(|error| error.to_string())?;
        let stop = CancellationToken::new();
        let parts = Parts {
            log: log.clone(),
            disk: true,
            settings: SETTINGS,
            clustering: Clustering::default(),
            confirm_max: Some(CONFIRM_MAX),
            min_ack_level: AckLevel::None,
            tracer: None,
        };
        let queues = Queues::new(group.clone(), plane.clone(), parts, stop.clone());
        let keyed = queues.clone();
        tokio::spawn(process.run(async move { keyed.keyed().await }));
        tokio::spawn(process.run(run_timer(queues.clone(), plane.clone())));
        let kv = Kv::new(queues.clone(), CACHE);
        let failed = Arc::new(Mutex::new(None));
        let (failure, watched) = (failed.clone(), group.clone());
        tokio::spawn(process.run(async move {
            let why = watched.failed().await;
            *failure.lock() = Some(why);
        }));
        Ok(Arc::new(Self {
            index,
            process,
            group,
            plane,
            queues,
            kv,
            log,
            slow_ms,
            failed,
            stop,
        }))
    }

    /// Does something on this node for a client, which waits `patience`. Nothing: it got no answer.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        patience: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let work = self.process.run(async move {
            // The client may wait no more.
            let _ = answer.send(work.await);
        });
        tokio::spawn(work);
        timeout(patience, answered).await.ok()?.ok()
    }

    /// Why the group stopped by itself, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failed.lock().clone()
    }

    /// Whether it hands out messages.
    pub(crate) fn leads(&self) -> bool {
        !self.process.is_killed() && self.plane.is_leading()
    }

    pub(crate) fn term(&self) -> u64 {
        self.group.status().term.0
    }

    /// Leases with smaller numbers ended with an earlier leadership.
    pub(crate) fn first_lease(&self) -> u64 {
        self.plane.with(|plane| plane.first_lease().0)
    }

    pub(crate) fn slow_down(&self, ms: u64) {
        self.slow_ms.store(ms, Ordering::Relaxed);
    }

    /// Stops as on SIGTERM.
    pub(crate) async fn stop(&self) {
        let (group, log, stop) = (self.group.clone(), self.log.clone(), self.stop.clone());
        let stopping = self.process.run(async move {
            stop.cancel();
            group.checkpoint().await;
            group.shutdown().await;
            log.close();
        });
        // A disk that does not answer holds up nobody for ever.
        let _ = timeout(Duration::from_secs(20), stopping).await;
    }
}

fn log_config(kit: &Kit) -> LogConfig {
    let plan = &kit.log;
    LogConfig {
        storage: Storage::Disk {
            dir: PathBuf::from("/data"),
        },
        sync: match kit.broken {
            // Then an entry is done when the system has it.
            Broken::AcksBeforeSync => SyncPolicy::Never,
            _ => SyncPolicy::Always,
        },
        wal_file_bytes: 64 << 10,
        cache_bytes: plan.cache_bytes,
        compaction_threshold: plan.compaction_threshold,
        row_bytes: 2 << 10,
        ..LogConfig::default()
    }
}

fn group_config(plan: &LogPlan, index: usize, found: bool) -> GroupConfig {
    let me = peer(index);
    let mut config = GroupConfig::new(GROUP, me.node, clocks::proposal_clock(index));
    config.address = me.address;
    config.found = found;
    config.stall_max = STALL_MAX;
    config.proposal_bytes_max = 256 << 10;
    config.entry_bytes_max = 8 << 10;
    config.checkpoint_interval_entries = plan.checkpoint_entries;
    config.checkpoint_interval_bytes = plan.checkpoint_bytes;
    config.kept_entries_bytes = plan.kept_bytes;
    config
}
