//! The log of one group: entries, vote, purge.

mod keeping;
mod reading;

use std::sync::Arc;
use std::time::Duration;

use boltq_core::{GroupId, LogIndex};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::checkpoint::Saved;
use crate::config::ENTRY_BYTES_MAX;
use crate::entries::{EntryTable, Slot};
use crate::error::{AppendError, Failure};
use crate::frame::Kind;
use crate::index::StreamIndex;
use crate::log::{Owner, Plane, Store};
use crate::types::{Checkpoint, Entry, EntryId, FrameKey, RaftState, Space};
use crate::wal::payload::{encode_purge, encode_truncate, encode_vote};
use crate::wal::{Completion, INDEX_MAX, Outgoing, VOTE_BYTES_MAX};

/// What is known of a group. Locks are taken in the order of the fields, and before those of the plane.
pub(crate) struct Group {
    pub(crate) id: GroupId,
    /// Held while a checkpoint is written.
    pub(crate) writing: Mutex<()>,
    pub(crate) saved: Mutex<Saved>,
    pub(crate) raft: Mutex<RaftLog>,
    pub(crate) index: RwLock<StreamIndex>,
}

#[derive(Default)]
pub(crate) struct RaftLog {
    pub(crate) vote: Option<Bytes>,
    pub(crate) table: EntryTable,
}

impl Group {
    pub(crate) fn new(id: GroupId) -> Self {
        Self {
            id,
            writing: Mutex::default(),
            saved: Mutex::default(),
            raft: Mutex::default(),
            index: RwLock::default(),
        }
    }
}

/// The log of one group. Cloning gives another handle to the same.
#[derive(Clone)]
pub struct GroupLog {
    pub(crate) owner: Arc<Owner>,
    pub(crate) group: Arc<Group>,
}

impl GroupLog {
    pub(crate) fn new(owner: Arc<Owner>, group: Arc<Group>) -> Self {
        Self { owner, group }
    }

    pub(crate) fn plane(&self) -> &Plane {
        &self.owner.plane
    }

    /// The group.
    pub fn id(&self) -> GroupId {
        self.group.id
    }

    /// What Raft starts from.
    pub fn raft_state(&self) -> RaftState {
        let raft = self.group.raft.lock();
        RaftState {
            vote: raft.vote.clone(),
            purged: raft.table.purged(),
            last: raft.table.last(),
        }
    }

    /// Appends entries that follow each other. The first one follows the last one of the log, or replaces the tail from
    /// its index on. Readable at once; `done` says when it is durable as the policy wants it.
    pub fn append(&self, entries: Vec<Entry>, done: Completion) {
        let frames = match self.outgoing(entries) {
            Ok(frames) => frames,
            Err(error) => return done(Err(error)),
        };
        if let Err((error, Some(done))) = self.try_append(frames, done) {
            done(Err(error));
        }
    }

    /// Takes the checksums, outside of all locks.
    fn outgoing(&self, entries: Vec<Entry>) -> Result<Vec<Outgoing>, AppendError> {
        let mut next: Option<LogIndex> = None;
        let mut frames = Vec::with_capacity(entries.len());
        for entry in entries {
            let bytes = entry.data.len();
            if bytes > ENTRY_BYTES_MAX {
                return Err(AppendError::TooLarge { bytes: bytes as u64 });
            }
            if entry.id.index.0 > INDEX_MAX {
                return Err(AppendError::TooHigh { index: entry.id.index });
            }
            if let Some(expected) = next.filter(|next| *next != entry.id.index) {
                return Err(self.order(entry.id.index, expected));
            }
            next = Some(LogIndex(entry.id.index.0 + 1));
            frames.push(Outgoing::entry(self.group.id, entry));
        }
        Ok(frames)
    }

    fn order(&self, index: LogIndex, expected: LogIndex) -> AppendError {
        AppendError::Order {
            group: self.group.id,
            index,
            expected,
        }
    }

    fn try_append(&self, frames: Vec<Outgoing>, done: Completion) -> Result<(), (AppendError, Option<Completion>)> {
        if let Store::Disk(disk) = &self.plane().store
            && let Some(failure) = disk.wal.failure()
        {
            return Err((AppendError::Failed(failure), Some(done)));
        }
        let mut raft = self.group.raft.lock();
        let first = frames.first().and_then(Outgoing::prefix).map(|prefix| prefix.id.index);
        if let Some(Err(expected)) = first.map(|first| raft.table.check(first.0)) {
            let error = self.order(first.unwrap_or_default(), LogIndex(expected));
            return Err((error, Some(done)));
        }
        match &self.plane().store {
            Store::Memory(memory) => {
                let keys = memory.add(frames.iter().map(|frame| &frame.data));
                let mut replaced = Vec::new();
                for (frame, key) in frames.iter().zip(keys) {
                    replaced.extend(put(&mut raft.table, frame, key));
                }
                memory.purged(&replaced);
                drop(raft);
                done(Ok(()));
                Ok(())
            }
            Store::Disk(disk) => {
                let mut keys = Vec::with_capacity(frames.len());
                disk.wal.submit(frames, false, Some(done), |placed| {
                    let entries = || placed.iter().filter(|frame| frame.prefix().is_some());
                    let bodies = entries().map(|frame| (frame.key, frame.data.clone()));
                    disk.frames.cache.insert_unwritten(bodies);
                    keys.extend(entries().filter_map(slot));
                })?;
                for (index, slot) in keys {
                    raft.table.put(index, slot);
                }
                Ok(())
            }
        }
    }

    /// Saves the vote; always synced before `done`.
    pub fn save_vote(&self, vote: Bytes, done: Completion) {
        if vote.len() > VOTE_BYTES_MAX {
            return done(Err(AppendError::TooLarge {
                bytes: vote.len() as u64,
            }));
        }
        let mut raft = self.group.raft.lock();
        let frame = Outgoing::other(Kind::Vote, encode_vote(self.group.id, &vote));
        raft.vote = Some(vote.clone());
        match &self.plane().store {
            Store::Memory(_) => {
                drop(raft);
                done(Ok(()));
            }
            Store::Disk(disk) => {
                // A file that starts before the frame gets its place says the same, which does no harm.
                disk.wal.head().group(self.group.id).vote = vote;
                let outcome = disk.wal.submit(vec![frame], true, Some(done), |_| {});
                drop(raft);
                fail(outcome);
            }
        }
    }

    /// Drops the entries after `last`, or all of them.
    pub fn truncate_after(&self, last: Option<LogIndex>, done: Completion) {
        let mut raft = self.group.raft.lock();
        let dropped = raft.table.truncate_after(last);
        match &self.plane().store {
            Store::Memory(memory) => {
                memory.purged(&dropped);
                drop(raft);
                done(Ok(()));
            }
            Store::Disk(disk) => {
                let frame = Outgoing::other(Kind::Truncate, encode_truncate(self.group.id, last));
                let outcome = disk.wal.submit(vec![frame], false, Some(done), |_| {});
                drop(raft);
                fail(outcome);
            }
        }
    }

    /// Forgets the entries up to `upto`. Their records stay, and so do files that a checkpoint does not make up for yet.
    /// After the last entry, the log is empty and goes on after `upto`.
    pub fn purge(&self, upto: EntryId) {
        let mut raft = self.group.raft.lock();
        if raft.table.purged().is_some_and(|purged| purged.index >= upto.index) {
            return;
        }
        let purged = raft.table.purge(upto);
        match &self.plane().store {
            Store::Memory(memory) => {
                memory.purged(&purged);
                drop(raft);
                let mut index = self.group.index.write();
                memory.copy_sparse(purged.into_iter(), &mut index, self.plane().config.row_bytes);
            }
            Store::Disk(disk) => {
                let mut head = disk.wal.head();
                let state = head.group(self.group.id);
                state.purged = Some(upto);
                state.needed_from = raft.table.needed_from();
                drop(head);
                let frame = Outgoing::other(Kind::Purge, encode_purge(self.group.id, upto));
                // Without it, entries that a checkpoint has are there again after a start, and purged again.
                let outcome = disk.wal.submit(vec![frame], false, None, |_| {});
                drop(raft);
                fail(outcome);
                disk.wal.tidy();
            }
        }
    }

    /// The id of an entry that is there, or of the last one that was purged.
    pub fn entry_id(&self, index: LogIndex) -> Option<EntryId> {
        self.group.raft.lock().table.id(index)
    }

    /// Whether there is room for more in the log that the group shares with others. Cheap.
    pub fn space(&self) -> Space {
        match &self.plane().store {
            Store::Memory(_) => Space::Ample,
            Store::Disk(disk) => disk.wal.space(),
        }
    }

    /// As [`crate::Log::left_bytes`], of the log that the group shares with others.
    pub fn left_bytes(&self) -> u64 {
        match &self.plane().store {
            Store::Memory(_) => u64::MAX,
            Store::Disk(disk) => disk.wal.head().left_bytes(),
        }
    }

    /// How long the device has not answered while the log waits for it; zero if it does not wait. The log does not give up: a
    /// device may come back, and until then nothing is known of what it was to write.
    pub fn stalled(&self) -> Duration {
        match &self.plane().store {
            Store::Memory(_) => Duration::ZERO,
            Store::Disk(disk) => disk.wal.stalled(),
        }
    }

    /// Why the log that the group shares with others takes no more writes, if it does not.
    pub fn failure(&self) -> Option<Arc<Failure>> {
        match &self.plane().store {
            Store::Memory(_) => None,
            Store::Disk(disk) => disk.wal.failure(),
        }
    }

    /// The newest checkpoint that is durable.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        self.group.saved.lock().newest()
    }
}

fn slot(frame: &Outgoing) -> Option<(u64, Slot)> {
    let prefix = frame.prefix()?;
    let slot = Slot {
        term: prefix.id.term,
        leader: prefix.id.leader,
        key: frame.key,
        bytes: u32::try_from(frame.data.len()).unwrap_or(u32::MAX),
        kind: prefix.kind,
    };
    Some((prefix.id.index.0, slot))
}

/// Puts an entry that lies at `key`; returns where those were that it replaced.
fn put(table: &mut EntryTable, frame: &Outgoing, key: FrameKey) -> Vec<FrameKey> {
    match slot(frame) {
        Some((index, slot)) => table.put(index, Slot { key, ..slot }),
        None => Vec::new(),
    }
}

fn fail(outcome: Result<(), (AppendError, Option<Completion>)>) {
    if let Err((error, Some(done))) = outcome {
        done(Err(error));
    }
}
