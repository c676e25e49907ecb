//! Taking over the state of a group from another node.
//!
//! What comes is the other node's newest checkpoint and the records that it refers to ([`crate::Export`]). The records go
//! into segments of this node; these have names that the next start removes, until all of them are there. Then a checkpoint
//! is written whose rows point into them. When that has its name on the device, the state is this one, and not before: a
//! crash leaves either the group as it was, or the one that was installed.
//!
//! Entries of the group that were written before stand in the log still. The checkpoint names the place where the log ended
//! for it, and a start passes over what is before (see [`crate::recovery`]). A later checkpoint names another place, and
//! by then entries that were appended to the state come before it, too. So a purge stands between the two kinds: it ends
//! what is older than the state, and the first entry after it replaces the rest. An entry finds no room where a
//! purge does not, and then the first frame of the next file says the same.

mod spill;

use boltq_core::{DecodeError, StreamId};
use bytes::{Bytes, BytesMut};

use crate::checkpoint::{self, Saved, format::FlatRows};
use crate::error::{AppendError, InstallError};
use crate::export::ExportedRun;
use crate::frame::Kind;
use crate::group::{GroupLog, RaftLog};
use crate::index::{Erasure, Erasures, Row, RowChanges, StreamIndex, record_bytes};
use crate::log::{Disk, Store};
use crate::store::{MemoryFrames, Pins};
use crate::types::{EntryId, FileId, FrameKey};
use crate::users::User;
use crate::wal::payload::encode_purge;
use crate::wal::{INDEX_MAX, Outgoing};
use spill::Spill;

/// A state that comes from another node, as far as it is here. Dropped without [`Install::commit`], nothing remains of it.
pub struct Install {
    log: GroupLog,
    /// What was added last; the next run may continue it.
    pending: Option<Pending>,
    /// A row for each frame that was written. In memory mode, `frame` is the position among the frames that are held.
    rows: Vec<(StreamId, Row)>,
    /// The last file that there was when it began.
    begun: FileId,
    /// None if something could not be added.
    frames: Option<Frames>,
}

/// Where the records are meanwhile.
enum Frames {
    Memory(Vec<Bytes>),
    Disk(Spill),
}

struct Pending {
    stream: StreamId,
    first: u64,
    count: u32,
    live: u32,
    data: BytesMut,
}

/// What is to be installed, complete.
struct State<'a> {
    applied: EntryId,
    meta: &'a [u8],
    state: &'a [u8],
    index: StreamIndex,
}

impl GroupLog {
    /// Begins to take over a state from another node. Nothing of the group changes before [`Install::commit`].
    ///
    /// # Errors
    /// The log has stopped.
    pub fn begin_install(&self) -> Result<Install, InstallError> {
        let mut begun = FileId::NONE;
        let frames = match &self.plane().store {
            Store::Memory(_) => Frames::Memory(Vec::new()),
            Store::Disk(disk) => {
                if let Some(failure) = disk.wal.failure() {
                    return Err(AppendError::Failed(failure).into());
                }
                begun = disk.wal.last_file();
                Frames::Disk(Spill::new(disk, self.plane().config.wal_file_bytes))
            }
        };
        Ok(Install {
            log: self.clone(),
            pending: None,
            rows: Vec::new(),
            begun,
            frames: Some(frames),
        })
    }
}

impl Install {
    /// Adds records, in any order; runs that follow each other are best added one after the other, as they are joined.
    /// They go to the device as they come, and only their rows are kept in memory. Blocks.
    ///
    /// # Errors
    /// The run contradicts itself, or cannot be written. What was added before is given up, and its room is free again.
    pub fn add(&mut self, run: &ExportedRun) -> Result<(), InstallError> {
        let outcome = self.try_add(run);
        if outcome.is_err() {
            self.frames = None;
        }
        outcome
    }

    fn try_add(&mut self, run: &ExportedRun) -> Result<(), InstallError> {
        check(run).map_err(|source| InstallError::Records {
            stream: run.stream,
            first: run.first,
            count: run.count,
            source,
        })?;
        let row_bytes = self.log.plane().config.row_bytes as usize;
        if let Some(pending) = &mut self.pending
            && pending.is_continued_by(run, row_bytes)
        {
            pending.count += run.count;
            pending.live += run.live;
            pending.data.extend_from_slice(&run.data);
            return Ok(());
        }
        let log = self.log.clone();
        let _user = log.enter()?;
        self.flush()?;
        self.pending = Some(Pending {
            stream: run.stream,
            first: run.first.0,
            count: run.count,
            live: run.live,
            data: BytesMut::from(&run.data[..]),
        });
        Ok(())
    }

    fn flush(&mut self) -> Result<(), InstallError> {
        let frames = self.frames.as_mut().ok_or(InstallError::Incomplete)?;
        let Some(run) = self.pending.take() else {
            return Ok(());
        };
        let bytes = u32::try_from(run.data.len()).unwrap_or(u32::MAX);
        let key = match (frames, &self.log.plane().store) {
            (Frames::Disk(spill), Store::Disk(disk)) => {
                let id = || disk.wal.next_file_id();
                spill.add(id, self.log.id(), run.stream, run.first, run.count, &run.data)?
            }
            (Frames::Memory(bodies), _) => {
                bodies.push(run.data.freeze());
                FrameKey {
                    file: FileId::NONE,
                    offset: u32::try_from(bodies.len() - 1).unwrap_or(u32::MAX),
                }
            }
            (Frames::Disk(_), Store::Memory(_)) => return Err(InstallError::Incomplete),
        };
        let row = Row {
            first: run.first,
            count: run.count,
            live: run.live,
            file: key.file,
            frame: key.offset,
            at: 0,
            bytes,
        };
        self.rows.push((run.stream, row));
        Ok(())
    }

    /// Puts the state in the place of what the group is: state, records and entries. Entries up to `applied` are gone; those
    /// after it stay if the entry `applied` is there, otherwise they are of another history and go too. The log then
    /// begins after `applied`; the vote stays. Durable when it returns. Blocks, and so do meanwhile appends to the group.
    ///
    /// To be called when nothing is applied, placed or captured.
    ///
    /// # Errors
    /// The group is as it was, and nothing of what was added remains. Only if it is not known whether the state reached the
    /// device, the log stops, and the next start finds the one or the other.
    pub fn commit(mut self, applied: EntryId, meta: &[u8], state: &[u8]) -> Result<(), InstallError> {
        // The next start would take it for damage.
        if applied.index.0 > INDEX_MAX {
            return Err(InstallError::TooHigh { applied: applied.index });
        }
        let log = self.log.clone();
        let _user = log.enter()?;
        self.flush()?;
        let _writing = log.group.writing.lock();
        log.check_newest(applied)?;
        let frames = self.frames.take().ok_or(InstallError::Incomplete)?;
        let mut rows = std::mem::take(&mut self.rows);
        sort(&mut rows)?;
        let mut state = State {
            applied,
            meta,
            state,
            index: StreamIndex::default(),
        };
        match (frames, &log.plane().store) {
            (Frames::Memory(bodies), Store::Memory(memory)) => log.install_in_memory(memory, state, rows, &bodies),
            (Frames::Disk(spill), Store::Disk(disk)) => {
                state.index = index(&rows);
                let pins = spill.publish(disk)?;
                let outcome = log.install_on_disk(disk, state, self.begun);
                if outcome.is_err() {
                    let keep = |pins: &Pins| checkpoint::keep_if_failed(disk, Some(pins));
                    pins.iter().for_each(keep);
                }
                // From here on the checkpoint keeps them, or nothing does.
                drop(pins);
                disk.wal.tidy();
                outcome
            }
            (Frames::Memory(_) | Frames::Disk(_), _) => Err(InstallError::Incomplete),
        }
    }
}

impl GroupLog {
    fn enter(&self) -> Result<Option<User<'_>>, AppendError> {
        match &self.plane().store {
            Store::Memory(_) => Ok(None),
            Store::Disk(disk) => disk.users.enter().map(Some),
        }
    }

    fn check_install(&self, raft: &RaftLog, applied: EntryId) -> Result<(), InstallError> {
        let behind = |begins_after| InstallError::Behind {
            group: self.id(),
            applied: applied.index,
            begins_after,
        };
        raft.table.check_install(applied).map_err(behind)
    }

    fn install_on_disk(&self, disk: &Disk, mut new: State<'_>, begun: FileId) -> Result<(), InstallError> {
        // Held from here on: whether an entry is one before the state or after it is a matter of its place.
        let mut raft = self.group.raft.lock();
        self.check_install(&raft, new.applied)?;
        let end = disk.wal.head().end();
        let replay = match raft.table.id(new.applied.index) {
            Some(id) if id == new.applied => checkpoint::places(&raft, new.applied.index, end).1,
            _ => end,
        };
        // After the place: the checkpoint says that the log is on the device up to there.
        checkpoint::sync_log(disk)?;
        new.index.erasures = self.erasures_with_install(disk, &raft, begun);
        let flat = FlatRows::new(&new.index);
        let head = self.head(disk, new.applied, (replay, replay), flat.files());
        let file = checkpoint::write_file(disk, &head, new.meta, new.state, &flat)?;

        let mut changes = self.plane().store.changes();
        self.replace_index(new.index, &mut changes);
        disk.frames.accounts.book(&changes);
        raft.table.install(new.applied);
        self.settle_head(disk, &raft, replay.file_id());
        let purge = Outgoing::other(Kind::Purge, encode_purge(self.id(), new.applied));
        // Without room, there is none for an entry either, and the first frame of the next file will say it.
        let _ = disk.wal.submit(vec![purge], false, None, |_| {});
        drop(raft);
        let saved = Saved {
            checkpoint: checkpoint::checkpoint(new.applied, new.meta, Bytes::copy_from_slice(new.state)),
            file: Some(file),
            files: flat.files(),
            total_bytes: disk.wal.head().total_bytes(),
            replay: replay.file_id(),
            ..Saved::default()
        };
        self.replace_saved(disk, saved);
        Ok(())
    }

    /// What the group had before may be erased in the state that takes its place.
    fn erasures_with_install(&self, disk: &Disk, raft: &RaftLog, begun: FileId) -> Erasures {
        let index = self.group.index.read();
        let mut erasures = index.erasures.without_marks();
        if index.len() > 0 || raft.table.last().is_some() {
            erasures.begin(Erasure {
                record: None,
                wal_upto: disk.wal.begin_erasure(),
                segments_upto: begun,
            });
        }
        erasures
    }

    fn install_in_memory(
        &self,
        memory: &MemoryFrames,
        mut new: State<'_>,
        mut rows: Vec<(StreamId, Row)>,
        bodies: &[Bytes],
    ) -> Result<(), InstallError> {
        let mut raft = self.group.raft.lock();
        self.check_install(&raft, new.applied)?;
        for (stream, row) in &mut rows {
            let key = memory.add_records(bodies[row.frame as usize].clone());
            (row.file, row.frame) = (key.file, key.offset);
            memory.placed(*stream, &[*row]);
        }
        new.index = index(&rows);
        let flat = FlatRows::new(&new.index);
        let mut changes = self.plane().store.changes();
        self.replace_index(new.index, &mut changes);
        memory.book(&changes);
        memory.purged(&raft.table.install(new.applied));
        drop(raft);
        *self.group.saved.lock() = Saved {
            checkpoint: checkpoint::checkpoint(new.applied, new.meta, Bytes::copy_from_slice(new.state)),
            rows: flat,
            total_bytes: memory.total_bytes(),
            ..Saved::default()
        };
        Ok(())
    }

    fn replace_index(&self, new: StreamIndex, changes: &mut impl RowChanges) {
        new.rows().for_each(|row| changes.added(row, true, row.bytes));
        let mut index = self.group.index.write();
        index.rows().for_each(|row| changes.removed(row));
        *index = new;
    }
}

impl Pending {
    fn is_continued_by(&self, run: &ExportedRun, bytes_max: usize) -> bool {
        self.stream == run.stream
            && self.first + u64::from(self.count) == run.first.0
            && self.data.len() + run.data.len() <= bytes_max
    }
}

/// Whether a run is what it says.
fn check(run: &ExportedRun) -> Result<(), DecodeError> {
    let invalid = |why| Err(DecodeError::Invalid { what: "run", why });
    if run.live == 0 || run.live > run.count {
        return invalid("it has no record that is wanted, or more than there are");
    }
    if run.first.0.checked_add(u64::from(run.count)).is_none() {
        return invalid("its sequences are higher than any record can have");
    }
    if run.data.len() > crate::config::ENTRY_BYTES_MAX {
        return invalid("it is longer than an entry can be");
    }
    let mut rest = &run.data[..];
    for _ in 0..run.count {
        rest = &rest[record_bytes(rest)?..];
    }
    if rest.is_empty() {
        Ok(())
    } else {
        invalid("it is longer than its records")
    }
}

/// Brings rows into order.
fn sort(rows: &mut [(StreamId, Row)]) -> Result<(), InstallError> {
    rows.sort_unstable_by_key(|(stream, row)| (*stream, row.first));
    let twice = rows
        .windows(2)
        .find(|pair| pair[0].0 == pair[1].0 && pair[0].1.end() > pair[1].1.first);
    match twice {
        Some(pair) => Err(InstallError::Twice {
            stream: pair[1].0,
            seq: pair[1].1.first.into(),
        }),
        None => Ok(()),
    }
}

/// `rows` are in order.
fn index(rows: &[(StreamId, Row)]) -> StreamIndex {
    let mut index = StreamIndex::default();
    for part in rows.chunk_by(|a, b| a.0 == b.0) {
        index.append(part[0].0, part.iter().map(|(_, row)| *row).collect());
    }
    index
}
