//! Checkpoints: the state of a group and the rows of its records, so that the log before can go.
//!
//! A checkpoint becomes the newest one when its name is on the device. Before that, everything that was applied is synced:
//! what was freed is no longer in its rows, and an entry that is lost cannot free anything.
//!
//! In memory mode it is kept in memory, its rows without their records: see [`crate::Export`].

mod file;
pub(crate) mod format;

use std::sync::mpsc;

use boltq_core::LogIndex;
use bytes::Bytes;

use crate::error::{AppendError, CheckpointError};
use crate::frame::Mark;
use crate::group::{GroupLog, RaftLog};
use crate::log::{Disk, Store};
use crate::store::{Name, Pins};
use crate::types::{Checkpoint, EntryId, FileId};

pub(crate) use file::{read_whole, write_file};
use format::{FlatRows, Head};

/// The rows of a group at a moment between two applied entries. The files that they point into stay until it is dropped.
#[derive(Debug)]
pub struct Capture {
    flat: FlatRows,
    pins: Option<Pins>,
    /// Bytes of the log when it was taken.
    total_bytes: u64,
}

/// The newest durable checkpoint of a group.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) file: Option<(Name, u64)>,
    pub(crate) files: Vec<FileId>,
    /// In memory mode, its rows. On disk they are in its file.
    pub(crate) rows: FlatRows,
    /// Bytes of the log up to which it goes.
    pub(crate) total_bytes: u64,
    /// The file of the first entry after it, or that it was to go to.
    pub(crate) replay: FileId,
    /// Bytes of files that only it holds, and when they were counted: this is asked for after every entry.
    pub(crate) held: (u64, u64),
}

impl Saved {
    /// A checkpoint that was read.
    pub(crate) fn new(checkpoint: Checkpoint, file: (Name, u64), files: Vec<FileId>, total_bytes: u64) -> Self {
        Self {
            checkpoint: Some(checkpoint),
            file: Some(file),
            files,
            total_bytes,
            ..Self::default()
        }
    }

    pub(crate) fn newest(&self) -> Option<Checkpoint> {
        self.checkpoint.clone()
    }

    /// Length of its file, if it has one.
    pub(crate) fn file_bytes(&self) -> Option<u64> {
        self.file.map(|(_, bytes)| bytes)
    }
}

impl GroupLog {
    /// Copies the rows of the group, quickly. To be called between two applied entries, with the state at the same moment.
    pub fn capture(&self) -> Capture {
        let index = self.group.index.read();
        let flat = FlatRows::new(&index);
        match &self.plane().store {
            Store::Memory(memory) => Capture {
                flat,
                pins: None,
                total_bytes: memory.total_bytes(),
            },
            Store::Disk(disk) => Capture {
                // Under the lock of the index: the rows are there, and so are their files.
                pins: Some(disk.frames.accounts.pin(flat.files())),
                flat,
                total_bytes: disk.wal.head().total_bytes(),
            },
        }
    }

    /// Writes a checkpoint of everything up to `applied`, when `capture` was taken, and waits until it is durable. `meta` and
    /// `state` are the caller's. What the checkpoint before it kept alone can go then.
    ///
    /// # Errors
    /// Nothing was lost: the checkpoint before it stays the newest, and a full device can be tried again.
    pub fn write_checkpoint(
        &self,
        capture: Capture,
        applied: EntryId,
        meta: &[u8],
        state: Bytes,
    ) -> Result<(), CheckpointError> {
        let _writing = self.group.writing.lock();
        self.check_newest(applied)?;
        let Capture {
            flat,
            pins,
            total_bytes,
        } = capture;
        let Store::Disk(disk) = &self.plane().store else {
            *self.group.saved.lock() = Saved {
                checkpoint: checkpoint(applied, meta, state),
                rows: flat,
                total_bytes,
                ..Saved::default()
            };
            return Ok(());
        };
        let _user = disk.users.enter()?;
        let head = {
            let raft = self.group.raft.lock();
            // With the lock of the group: where an entry would go that comes next.
            let (keep, replay) = places(&raft, applied.index, disk.wal.head().end());
            self.head(disk, applied, (keep, replay), flat.files())
        };
        // After the places: the checkpoint says that the log is on the device up to there.
        sync_log(disk)?;
        let file = write_file(disk, &head, meta, &state, &flat).inspect_err(|_| keep_if_failed(disk, pins.as_ref()))?;
        let new = Saved {
            checkpoint: checkpoint(applied, meta, state),
            file: Some(file),
            files: flat.files(),
            total_bytes,
            replay: head.replay.file_id(),
            ..Saved::default()
        };
        {
            let mut raft = self.group.raft.lock();
            raft.table.saved(applied.index);
            self.settle_head(disk, &raft, new.replay);
        }
        self.replace_saved(disk, new);
        // Only now: from here on the checkpoint keeps them.
        drop(pins);
        disk.wal.tidy();
        Ok(())
    }

    /// Whether a checkpoint can follow the one that is there.
    pub(crate) fn check_newest(&self, applied: EntryId) -> Result<(), CheckpointError> {
        let saved = self.group.saved.lock();
        match &saved.checkpoint {
            Some(newest) if newest.applied.index > applied.index => Err(CheckpointError::Old {
                group: self.group.id,
                applied: applied.index,
                newest: newest.applied.index,
            }),
            _ => Ok(()),
        }
    }

    /// Tells the head of the log what the group needs now that a checkpoint is durable.
    pub(crate) fn settle_head(&self, disk: &Disk, raft: &RaftLog, replay: FileId) {
        let mut head = disk.wal.head();
        let state = head.group(self.group.id);
        state.purged = raft.table.purged();
        state.needed_from = raft.table.needed_from();
        head.checkpointed(self.group.id, replay);
    }

    /// A checkpoint is durable, and the one before it is not needed any more.
    pub(crate) fn replace_saved(&self, disk: &Disk, new: Saved) {
        let (new_file, new_files) = (new.file, new.files.clone());
        let old = std::mem::replace(&mut *self.group.saved.lock(), new);
        disk.frames.accounts.checkpointed(&old.files, &new_files);
        let name = |file: (Name, u64)| file.0;
        if let Some(old) = old.file.map(name).filter(|old| Some(*old) != new_file.map(name))
            && let Err(error) = disk.files.remove(&disk.dir.join(old.to_string()))
        {
            tracing::warn!(file = %old, %error, "an old checkpoint cannot be removed; the next start tries again");
        }
    }

    /// `places` are those of the first entry that was not purged, and of the first after `applied`.
    pub(crate) fn head(&self, disk: &Disk, applied: EntryId, places: (Mark, Mark), files: Vec<FileId>) -> Head {
        let class = |id: FileId| disk.frames.accounts.class(id).map(|class| (id, class));
        Head {
            group: self.group.id,
            applied,
            keep: places.0,
            replay: places.1,
            next_file: disk.wal.last_file_id() + 1,
            files: files.into_iter().filter_map(class).collect(),
        }
    }

    /// Bytes that were written to the log since the newest checkpoint of this group, and of files that only that one holds.
    /// A checkpoint, and a purge of what it contains, let them go.
    pub fn bytes_since_checkpoint(&self) -> u64 {
        let mut saved = self.group.saved.lock();
        let disk = match &self.plane().store {
            Store::Memory(memory) => return memory.total_bytes().saturating_sub(saved.total_bytes),
            Store::Disk(disk) => disk,
        };
        let emptied = disk.frames.accounts.emptied();
        if saved.held.0 != emptied {
            saved.held = (emptied, disk.frames.accounts.checkpoint_held_bytes(&saved.files));
        }
        let total_bytes = disk.wal.head().total_bytes();
        total_bytes.saturating_sub(saved.total_bytes) + saved.held.1
    }
}

pub(crate) fn checkpoint(applied: EntryId, meta: &[u8], state: Bytes) -> Option<Checkpoint> {
    Some(Checkpoint {
        applied,
        meta: Bytes::copy_from_slice(meta),
        state,
    })
}

/// Where the first entry is that was not purged, and the first one after `applied`; `end` is where the next one goes.
pub(crate) fn places(raft: &RaftLog, applied: LogIndex, end: Mark) -> (Mark, Mark) {
    let place = |index: u64| {
        raft.table.get(LogIndex(index)).map(|slot| Mark {
            file: u64::from(slot.key.file.0),
            offset: slot.key.offset,
        })
    };
    let first = raft.table.first();
    let after = first.map(|first| first.max(applied.0 + 1));
    let replay = after.and_then(place).unwrap_or(end);
    (first.and_then(place).unwrap_or(replay).min(replay), replay)
}

/// After a failure that stops the log, the checkpoint may be on the device or not, and so the files stay that it refers to.
pub(crate) fn keep_if_failed(disk: &Disk, pins: Option<&Pins>) {
    if let Some(pins) = pins
        && disk.wal.failure().is_some()
    {
        pins.keep();
    }
}

/// Returns when everything that was appended so far is on the device.
pub(crate) fn sync_log(disk: &Disk) -> Result<(), AppendError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let done = Box::new(move |outcome| {
        let _ = sender.send(outcome);
    });
    disk.wal
        .submit(Vec::new(), true, Some(done), |_| {})
        .map_err(|(error, _)| error)?;
    disk.wal.write_if_stepped();
    receiver.recv().unwrap_or(Err(AppendError::Closed))
}

impl Capture {
    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.flat.rows.len()
    }
}
