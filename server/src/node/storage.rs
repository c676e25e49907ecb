//! What a node finds of its own: its log, who it is, and how it parted from its cluster. And how the configuration says that
//! it is to be used.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::NodeId;
use boltq_log::{Log, LogConfig, OsFiles, RaftState, Storage, SyncPolicy};
use boltq_queue::Settings;

use super::NodeError;
use crate::cluster::{Departure, META_GROUP};
use crate::config::{Config, StorageMode, StorageSync};
use crate::identity;
use crate::service::random;

/// Proposals that may be on their way at most, in bytes.
const PROPOSAL_BYTES_MAX: usize = 32 << 20;

/// Opens the log of the queue plane, on a thread that may block, and finds out who this node is.
pub(super) async fn open_log(config: &Config) -> Result<(Log, NodeId), NodeError> {
    let data_dir = config.storage.data_dir.clone();
    let log_dir = data_dir.join("queue");
    let disk = config.storage.mode == StorageMode::Disk;
    let log_config = log_config(config, &log_dir);
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

/// Opens the log of the messaging plane, if there is one, for a node that knows who it is and whose other log is open.
///
/// # Errors
/// Beside what can be wrong with a log: in a cluster, it has to be as old as the other one. The groups of the plane are founded with the
/// cluster, and a log that was lost has promised what a new one would not keep.
pub(super) async fn open_messaging_log(config: &Config, node: NodeId, other: &Log) -> Result<Option<Log>, NodeError> {
    if !config.messaging.enabled {
        return Ok(None);
    }
    let data_dir = config.storage.data_dir.clone();
    let log_dir = config.messaging.dir.clone();
    let log_dir = log_dir.unwrap_or_else(|| data_dir.join("messaging"));
    let disk = config.storage.mode == StorageMode::Disk;
    let log_config = log_config(config, &log_dir);
    let groups = config.messaging.groups;
    let late = config.cluster.enabled && other.group(META_GROUP).raft_state().last.is_some();
    tokio::task::spawn_blocking(move || {
        if !disk {
            return Ok(Some(Log::open(log_config, Arc::new(OsFiles))?));
        }
        identity::load(&data_dir, &log_dir)?;
        let existing = identity::was_written(&log_dir)?;
        if late && !existing {
            return Err(NodeError::NoMessagingLog { path: log_dir });
        }
        let log_config = LogConfig { existing, ..log_config };
        let log = Log::open(log_config, Arc::new(OsFiles))?;
        // Where a record is, hangs on it.
        let written = u16::try_from(log.groups().len()).unwrap_or(u16::MAX);
        if written != 0 && written != groups {
            return Err(NodeError::Groups {
                path: log_dir,
                written,
                wanted: groups,
            });
        }
        identity::keep(&data_dir, &log_dir, Some(node), is_new(&log), 0)?;
        Ok(Some(log))
    })
    .await?
}

/// How the configuration says that a log is kept.
fn log_config(config: &Config, dir: &Path) -> LogConfig {
    let storage = &config.storage;
    LogConfig {
        storage: match storage.mode {
            StorageMode::Disk => Storage::Disk { dir: dir.to_owned() },
            StorageMode::Memory => Storage::Memory,
        },
        sync: match storage.sync {
            StorageSync::Always => SyncPolicy::Always,
            StorageSync::Interval(every) => SyncPolicy::Interval(every),
            StorageSync::Never => SyncPolicy::Never,
        },
        wal_file_bytes: storage.wal_file_bytes,
        cache_bytes: storage.cache_bytes,
        compaction_threshold: storage.compaction_threshold_bytes,
        ..LogConfig::default()
    }
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
pub(super) async fn departure(config: &Config) -> Result<Departure, NodeError> {
    let dir = (config.storage.mode == StorageMode::Disk).then(|| config.storage.data_dir.clone());
    let loaded = tokio::task::spawn_blocking(move || Departure::load(dir)).await?;
    loaded.map_err(|source| NodeError::Departure {
        path: config.storage.data_dir.clone(),
        source,
    })
}

/// What may be on its way into the log. The log learns that the device is full when a file ends and there is no next one:
/// what was admitted by then has to fit into a file that is not used up yet.
pub(super) fn proposal_bytes_max(config: &Config) -> usize {
    let bytes = config.storage.wal_file_bytes * 3 / 8;
    usize::try_from(bytes).unwrap_or(usize::MAX).min(PROPOSAL_BYTES_MAX)
}

pub(super) fn settings(config: &Config) -> Settings {
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
