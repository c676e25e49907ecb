//! Checkpoints: the state of a group and the rows of its records, so that the log before can go.
//!
//! A checkpoint becomes the newest one when its name is on the device. Before that, everything that was applied is synced:
//! what was freed is no longer in its rows, and an entry that is lost cannot free anything.

pub(crate) mod format;

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use boltq_core::LogIndex;
use boltq_core::codec::put_len;
use bytes::{Bytes, BytesMut};

use crate::error::{AppendError, CheckpointError};
use crate::frame::{self, Header, Kind, Mark, PADDING};
use crate::group::GroupLog;
use crate::log::{Disk, Store};
use crate::store::{Name, Pins, TMP_SUFFIX};
use crate::types::{Checkpoint, EntryId, FileId};

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
    /// Bytes of the log up to which it goes.
    pub(crate) total_bytes: u64,
    /// The file of the first entry after it, or that it was to go to.
    replay: FileId,
    /// Bytes of files that only it holds, and when they were counted: this is asked for after every entry.
    held: (u64, u64),
}

impl Saved {
    /// A checkpoint that was read.
    pub(crate) fn new(checkpoint: Checkpoint, file: (Name, u64), files: Vec<FileId>, total_bytes: u64) -> Self {
        Self {
            checkpoint: Some(checkpoint),
            file: Some(file),
            files,
            total_bytes,
            replay: FileId::NONE,
            held: (0, 0),
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
        let mut flat = FlatRows::default();
        let Store::Disk(disk) = &self.plane().store else {
            return Capture {
                flat,
                pins: None,
                total_bytes: 0,
            };
        };
        let index = self.group.index.read();
        flat.rows.reserve(index.len());
        let mut files: Vec<FileId> = Vec::new();
        for (stream, rows) in index.streams() {
            flat.streams
                .push((stream, u32::try_from(rows.len()).unwrap_or(u32::MAX)));
            for row in rows.iter() {
                if files.last() != Some(&row.file) {
                    files.push(row.file);
                }
                flat.rows.push(*row);
            }
        }
        files.sort_unstable();
        files.dedup();
        // Under the lock of the index: the rows are there, and so are their files.
        let pins = Some(disk.frames.accounts.pin(files));
        let total_bytes = disk.wal.head().total_bytes();
        Capture {
            flat,
            pins,
            total_bytes,
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
        state: &[u8],
    ) -> Result<(), CheckpointError> {
        let _writing = self.group.writing.lock();
        let newest = self
            .group
            .saved
            .lock()
            .checkpoint
            .as_ref()
            .map(|newest| newest.applied.index);
        if let Some(newest) = newest.filter(|newest| *newest > applied.index) {
            return Err(CheckpointError::Old {
                group: self.group.id,
                applied: applied.index,
                newest,
            });
        }
        let written = match &self.plane().store {
            Store::Memory(_) => Saved::default(),
            Store::Disk(disk) => {
                sync_log(disk)?;
                self.write_file(disk, &capture, applied, meta, state)?
            }
        };
        let checkpoint = Some(Checkpoint {
            applied,
            meta: Bytes::copy_from_slice(meta),
            state: Bytes::copy_from_slice(state),
        });
        let new = Saved { checkpoint, ..written };
        let (new_file, new_files, replay) = (new.file, new.files.clone(), new.replay);
        let old = std::mem::replace(&mut *self.group.saved.lock(), new);
        if let Store::Disk(disk) = &self.plane().store {
            disk.frames.accounts.checkpointed(&old.files, &new_files);
            // From here on the checkpoint keeps them.
            drop(capture);
            let old = old
                .file
                .map(|(name, _)| name)
                .filter(|old| Some(*old) != new_file.map(|(name, _)| name));
            self.replaced(disk, old, applied.index, replay);
        }
        Ok(())
    }

    /// The one before it is not needed any more.
    fn replaced(&self, disk: &Disk, old: Option<Name>, applied: LogIndex, replay: FileId) {
        let mut raft = self.group.raft.lock();
        raft.table.saved(applied);
        let needed_from = raft.table.needed_from();
        let mut head = disk.wal.head();
        head.group(self.group.id).needed_from = needed_from;
        head.checkpointed(self.group.id, replay);
        drop(head);
        drop(raft);
        if let Some(name) = old
            && let Err(error) = disk.files.remove(&disk.dir.join(name.to_string()))
        {
            tracing::warn!(file = %name, %error, "an old checkpoint cannot be removed; the next start tries again");
        }
        disk.wal.tidy();
    }

    fn write_file(
        &self,
        disk: &Disk,
        capture: &Capture,
        applied: EntryId,
        meta: &[u8],
        state: &[u8],
    ) -> Result<Saved, CheckpointError> {
        let files = capture
            .pins
            .as_ref()
            .map(|pins| pins.files().to_vec())
            .unwrap_or_default();
        let head = self.head(disk, applied, &files);
        let mut front = format::encode_front(&head);
        put_len(&mut front, meta.len());
        let mut middle = BytesMut::new();
        put_len(&mut middle, state.len());
        let rows = format::encode_rows(&head, &capture.flat);
        let payload: [&[u8]; 5] = [&front, meta, &middle, state, &rows];
        let name = Name::Checkpoint(self.group.id, applied.index);
        let bytes = write_durably(disk, name, applied.index.0, &payload)?;
        Ok(Saved {
            checkpoint: None,
            file: Some((name, bytes)),
            files,
            total_bytes: capture.total_bytes,
            replay: head.replay.file_id(),
            held: (0, 0),
        })
    }

    fn head(&self, disk: &Disk, applied: EntryId, files: &[FileId]) -> Head {
        let raft = self.group.raft.lock();
        let place = |index: u64| {
            raft.table.get(LogIndex(index)).map(|slot| Mark {
                file: u64::from(slot.key.file.0),
                offset: slot.key.offset,
            })
        };
        // With the lock of the group: where an entry would go that comes next.
        let end = disk.wal.head().end();
        let replay = place(applied.index.0 + 1).unwrap_or(end);
        let keep = raft.table.first().and_then(place).unwrap_or(replay).min(replay);
        let class = |id: &FileId| disk.frames.accounts.class(*id).map(|class| (*id, class));
        Head {
            group: self.group.id,
            applied,
            keep,
            replay,
            next_file: disk.wal.last_file_id() + 1,
            files: files.iter().filter_map(class).collect(),
        }
    }

    /// Bytes that were written to the log since the newest checkpoint of this group, and of files that only that one holds.
    /// A checkpoint, and a purge of what it contains, let them go.
    pub fn bytes_since_checkpoint(&self) -> u64 {
        let Store::Disk(disk) = &self.plane().store else {
            return 0;
        };
        let mut saved = self.group.saved.lock();
        let emptied = disk.frames.accounts.emptied();
        if saved.held.0 != emptied {
            saved.held = (emptied, disk.frames.accounts.checkpoint_held_bytes(&saved.files));
        }
        let total_bytes = disk.wal.head().total_bytes();
        total_bytes.saturating_sub(saved.total_bytes) + saved.held.1
    }
}

/// Returns when everything that was appended so far is on the device.
fn sync_log(disk: &Disk) -> Result<(), AppendError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let done = Box::new(move |outcome| {
        let _ = sender.send(outcome);
    });
    disk.wal
        .submit(Vec::new(), true, Some(done), |_| {})
        .map_err(|(error, _)| error)?;
    receiver.recv().unwrap_or(Err(AppendError::Closed))
}

/// Writes a file of one frame under another name, syncs it, gives it its name, and syncs that. Returns its length.
fn write_durably(disk: &Disk, name: Name, file: u64, payload: &[&[u8]]) -> Result<u64, CheckpointError> {
    let path = disk.dir.join(name.to_string());
    let tmp = disk.dir.join(format!("{name}{TMP_SUFFIX}"));
    let length: usize = payload.iter().map(|part| part.len()).sum();
    let length_u32 = u32::try_from(length).map_err(|_| CheckpointError::TooLarge { bytes: length as u64 })?;
    let header = Header {
        kind: Kind::Checkpoint,
        file,
        offset: 0,
        mark: Mark::default(),
    };
    let header = frame::encode(&header, length_u32, frame::payload_crc(payload));
    let padding = &PADDING[..frame::frame_bytes(length) - frame::HEADER_BYTES - length];
    let mut parts: Vec<IoSlice<'_>> = Vec::with_capacity(payload.len() + 2);
    parts.push(IoSlice::new(&header));
    parts.extend(
        payload
            .iter()
            .copied()
            .chain([padding])
            .filter(|part| !part.is_empty())
            .map(IoSlice::new),
    );
    write_and_rename(disk, &tmp, &path, &mut parts).inspect_err(|_| {
        let _ = disk.files.remove(&tmp);
    })?;
    Ok(frame::frame_bytes(length) as u64)
}

fn write_and_rename(disk: &Disk, tmp: &Path, path: &Path, parts: &mut [IoSlice<'_>]) -> Result<(), CheckpointError> {
    let at = |operation, path: &Path| {
        let path: PathBuf = path.to_owned();
        move |source: io::Error| CheckpointError::Io {
            operation,
            path,
            source,
        }
    };
    let handle = disk.files.create(tmp).map_err(at("create", tmp))?;
    handle.pwritev(parts, 0).map_err(at("write", tmp))?;
    handle.fdatasync().map_err(at("sync", tmp))?;
    disk.files.rename(tmp, path).map_err(at("rename", path))?;
    disk.files.sync_dir(&disk.dir).map_err(at("sync", &disk.dir))
}

impl Capture {
    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.flat.rows.len()
    }
}
