//! The log of a plane: what its groups share, and its threads or steps.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use boltq_core::GroupId;
use boltq_core::histogram::Distribution;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::compaction::Compaction;
use crate::config::{LogConfig, Storage};
use crate::erasing::Erasing;
use crate::error::{Failure, OpenError, ReadError};
use crate::files::{DirLock, FileLayer};
use crate::group::{Group, GroupLog};
use crate::recovery;
use crate::steps::{OnWork, Steps};
use crate::store::{Changes, Class, DiskFrames, MemoryFrames};
use crate::types::{FrameKey, Space, Usage};
use crate::users::Users;
use crate::wal::Wal;

/// What is kept on disk, and by what.
pub(crate) struct Disk {
    pub(crate) files: Arc<dyn FileLayer>,
    pub(crate) dir: PathBuf,
    pub(crate) wal: Arc<Wal>,
    pub(crate) frames: Arc<DiskFrames>,
    pub(crate) spare_bytes: Arc<AtomicU64>,
    pub(crate) compaction: Arc<Compaction>,
    pub(crate) erasing: Arc<Erasing>,
    pub(crate) users: Arc<Users>,
}

/// Where frames are.
pub(crate) enum Store {
    Memory(MemoryFrames),
    Disk(Disk),
}

impl Store {
    pub(crate) fn changes(&self) -> Changes {
        match self {
            Self::Memory(_) => Changes::by_frame(),
            Self::Disk(_) => Changes::by_file(),
        }
    }

    /// The body of a frame if it is in memory.
    pub(crate) fn cached(&self, key: FrameKey) -> Option<Bytes> {
        match self {
            Self::Memory(frames) => frames.body(key),
            Self::Disk(disk) => disk.frames.cached(key),
        }
    }

    /// The body of a frame.
    pub(crate) fn body(&self, key: FrameKey) -> Result<Bytes, ReadError> {
        match self {
            Self::Memory(frames) => frames.body(key).ok_or_else(|| self.damaged(key, "the frame is gone")),
            Self::Disk(disk) => disk.frames.body(key),
        }
    }

    pub(crate) fn damaged(&self, key: FrameKey, why: &'static str) -> ReadError {
        match self {
            Self::Memory(_) => ReadError::Damaged {
                file: PathBuf::from("(memory)"),
                offset: u64::from(key.offset),
                why,
            },
            Self::Disk(disk) => disk.frames.damaged(key, why),
        }
    }
}

/// What all groups of a plane share.
pub(crate) struct Plane {
    pub(crate) config: LogConfig,
    pub(crate) store: Store,
    pub(crate) groups: Mutex<BTreeMap<GroupId, Arc<Group>>>,
}

/// Stops the threads and gives the directory back when the last handle goes.
pub(crate) struct Owner {
    pub(crate) plane: Arc<Plane>,
    pub(crate) running: Mutex<Running>,
}

/// What ends with the log.
#[derive(Default)]
pub(crate) struct Running {
    pub(crate) threads: Vec<JoinHandle<()>>,
    /// Dropped last.
    pub(crate) lock: Option<Box<dyn DirLock>>,
}

impl Owner {
    fn close(&self) {
        if let Store::Disk(disk) = &self.plane.store {
            disk.wal.close();
            disk.compaction.close();
        }
        let running = std::mem::take(&mut *self.running.lock());
        for thread in running.threads {
            // A completion may hold the last handle, and then this is the thread that it runs on.
            if thread.thread().id() != thread::current().id() && thread.join().is_err() {
                tracing::error!("a thread of the log ended with a panic");
            }
        }
        if let Store::Disk(disk) = &self.plane.store {
            disk.users.close();
            disk.erasing.close();
        }
        drop(running.lock);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        match &self.plane.store {
            Store::Disk(disk) if disk.wal.abandon_if_stepped() => {
                disk.compaction.close();
                disk.erasing.close();
            }
            Store::Disk(_) | Store::Memory(_) => self.close(),
        }
    }
}

/// The log of a plane. Cloning gives another handle to the same log; it is closed with the last one.
#[derive(Clone)]
pub struct Log {
    owner: Arc<Owner>,
}

impl Log {
    /// Opens the log, and recovers what it held. Memory mode uses no files.
    ///
    /// # Errors
    /// Settings that cannot be, a directory that another process uses, and everything that [`OpenError`] says about a
    /// directory that is not as this log left it. A torn tail is no error.
    pub fn open(config: LogConfig, files: Arc<dyn FileLayer>) -> Result<Self, OpenError> {
        Self::open_with(config, files, None)
    }

    /// Opens a log that has no threads: what they do is done when [`Steps::step`] is called, and `on_work` is told that there
    /// may be something. An append never waits for the next file, it prepares it; and what waits for the log to be
    /// synced, as [`GroupLog::write_checkpoint`] does, writes and syncs it.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn open_stepped(
        config: LogConfig,
        files: Arc<dyn FileLayer>,
        on_work: OnWork,
    ) -> Result<(Self, Steps), OpenError> {
        let log = Self::open_with(config, files, Some(on_work))?;
        let steps = Steps::new(&log.owner.plane);
        Ok((log, steps))
    }

    fn open_with(config: LogConfig, files: Arc<dyn FileLayer>, on_work: Option<OnWork>) -> Result<Self, OpenError> {
        config.check()?;
        let owner = match config.storage.clone() {
            Storage::Memory => Owner {
                plane: Arc::new(Plane {
                    config,
                    store: Store::Memory(MemoryFrames::default()),
                    groups: Mutex::default(),
                }),
                running: Mutex::default(),
            },
            Storage::Disk { dir } => recovery::open(config, files, &dir, on_work)?,
        };
        Ok(Self { owner: Arc::new(owner) })
    }

    /// The group: the recovered one, or an empty one.
    pub fn group(&self, id: GroupId) -> GroupLog {
        let mut groups = self.owner.plane.groups.lock();
        let group = groups.entry(id).or_insert_with(|| Arc::new(Group::new(id)));
        GroupLog::new(Arc::clone(&self.owner), Arc::clone(group))
    }

    /// The groups that there are.
    pub fn groups(&self) -> Vec<GroupId> {
        self.owner.plane.groups.lock().keys().copied().collect()
    }

    /// Whether there is room for more. Cheap.
    pub fn space(&self) -> Space {
        match &self.owner.plane.store {
            Store::Memory(_) => Space::Ample,
            Store::Disk(disk) => disk.wal.space(),
        }
    }

    /// Bytes of entries, with their frames, that can be appended for certain while the device is full. An entry may have to
    /// lie in one file, so a large one can be refused although there is room for many small ones.
    pub fn left_bytes(&self) -> u64 {
        match &self.owner.plane.store {
            Store::Memory(_) => u64::MAX,
            Store::Disk(disk) => disk.wal.head().left_bytes(),
        }
    }

    /// Why the log takes no more writes, if it does not.
    pub fn failure(&self) -> Option<Arc<Failure>> {
        match &self.owner.plane.store {
            Store::Memory(_) => None,
            Store::Disk(disk) => disk.wal.failure(),
        }
    }

    /// What the log holds.
    pub fn usage(&self) -> Usage {
        let plane = &self.owner.plane;
        let mut usage = Usage::default();
        for group in plane.groups.lock().values() {
            let index = group.index.read();
            usage.rows += index.len();
            usage.erasures += index.erasures.pending().len();
            drop(index);
            if let Some(bytes) = group.saved.lock().file_bytes() {
                usage.checkpoint_bytes += bytes;
                usage.files += 1;
            }
        }
        match &plane.store {
            Store::Memory(frames) => (usage.wal_bytes, usage.live_bytes) = frames.bytes(),
            Store::Disk(disk) => disk.add_usage(&mut usage),
        }
        usage
    }

    /// How long the device took to sync, since the log was opened. In memory mode there is nothing to sync.
    pub fn syncs(&self) -> Distribution {
        match &self.owner.plane.store {
            Store::Memory(_) => Distribution::default(),
            Store::Disk(disk) => disk.wal.syncs.get(),
        }
    }

    /// Writes and syncs what waits, ends the threads and gives the directory back. What is appended later fails.
    pub fn close(&self) {
        self.owner.close();
    }
}

impl Disk {
    fn add_usage(&self, usage: &mut Usage) {
        for (_, account) in self.frames.accounts.snapshot() {
            match account.class {
                Class::Wal => usage.wal_bytes += account.bytes,
                Class::Segment => usage.segment_bytes += account.bytes,
            }
            usage.live_bytes += account.live_bytes;
            usage.files += 1;
        }
        let spare_bytes = self.spare_bytes.load(Ordering::Relaxed);
        usage.wal_bytes += spare_bytes;
        usage.files += usize::from(spare_bytes > 0);
        (usage.cached_bytes, usage.unwritten_bytes) = self.frames.cache.bytes();
    }
}
