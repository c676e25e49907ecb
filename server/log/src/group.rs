//! The log of one group: entries, vote, purge.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::{GroupId, LogIndex};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::checkpoint::Saved;
use crate::config::ENTRY_BYTES_MAX;
use crate::entries::{EntryTable, Slot};
use crate::error::{AppendError, Failure, ReadError};
use crate::frame::{self, Kind};
use crate::index::StreamIndex;
use crate::log::{Disk, Owner, Plane, Store};
use crate::types::{Checkpoint, Entry, EntryId, FileId, FrameKey, RaftState, Space};
use crate::wal::payload::{EntryPrefix, encode_purge, encode_truncate, encode_vote};
use crate::wal::{Completion, ENTRY_PREFIX_BYTES, INDEX_MAX, Outgoing, VOTE_BYTES_MAX};

/// Files that entries may lie in, if they are not as long as files are when they are full.
const ENTRY_FILES_MAX: u64 = 16;
/// Entries that are read at once from a file, in bytes.
const READ_TOGETHER_BYTES: u64 = 256 << 10;

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

    /// Entries of `range` that there are, in order and without a hole, up to `bytes_max` bytes of data but at least one.
    /// Recent ones come from memory, older ones from the device.
    pub fn entries(&self, range: Range<LogIndex>, bytes_max: u64) -> Result<Vec<Entry>, ReadError> {
        let slots = self.slots(range, bytes_max);
        match &self.plane().store {
            Store::Memory(memory) => {
                let entries = slots.into_iter().map(|(id, slot)| {
                    let data = memory.body(slot.key).ok_or_else(|| self.no_entry(id.index))?;
                    Ok(entry(id, &slot, data))
                });
                entries.collect()
            }
            Store::Disk(disk) => self.read_entries(disk, &slots),
        }
    }

    fn slots(&self, range: Range<LogIndex>, bytes_max: u64) -> Vec<(EntryId, Slot)> {
        let raft = self.group.raft.lock();
        let Some(first) = raft.table.first() else {
            return Vec::new();
        };
        let mut slots = Vec::new();
        let mut bytes = 0u64;
        for index in range.start.0.max(first)..range.end.0 {
            let Some((slot, id)) = raft.table.get(LogIndex(index)).zip(raft.table.id(LogIndex(index))) else {
                break;
            };
            bytes += u64::from(slot.bytes);
            if bytes > bytes_max && !slots.is_empty() {
                break;
            }
            slots.push((id, *slot));
        }
        slots
    }

    fn no_entry(&self, index: LogIndex) -> ReadError {
        ReadError::NoEntry {
            group: self.group.id,
            index,
        }
    }

    fn read_entries(&self, disk: &Disk, slots: &[(EntryId, Slot)]) -> Result<Vec<Entry>, ReadError> {
        let mut entries = Vec::with_capacity(slots.len());
        while let Some((id, slot)) = slots.get(entries.len()) {
            if let Some(data) = disk.frames.cached(slot.key) {
                entries.push(entry(*id, slot, data));
                continue;
            }
            let rest = &slots[entries.len()..];
            // What stands behind it may not be written yet, and what is not written is in the cache.
            let together = &rest[..together(rest, |key| disk.frames.cached(key).is_none())];
            match self.read_together(disk, together) {
                Ok(read) => entries.extend(read),
                // Purged or replaced meanwhile, and then the file may be gone.
                Err(_) if self.group.raft.lock().table.get(id.index) != Some(slot) => {
                    return Err(self.no_entry(id.index));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    /// Reads entries that stand near each other in a file.
    fn read_together(&self, disk: &Disk, slots: &[(EntryId, Slot)]) -> Result<Vec<Entry>, ReadError> {
        let keys: Vec<FrameKey> = slots.iter().map(|(_, slot)| slot.key).collect();
        let end = slots.last().map_or(0, |(_, slot)| frame_end(slot));
        let frames = disk.frames.read_near(&keys, end)?;
        let mut entries = Vec::with_capacity(slots.len());
        for ((id, slot), frame) in slots.iter().zip(frames) {
            let wanted = EntryPrefix {
                group: self.group.id,
                kind: slot.kind,
                id: *id,
            };
            match (EntryPrefix::decode(&frame.payload), frame.body()) {
                (Ok(prefix), Some(data)) if frame.kind == Kind::Entry && prefix == wanted => {
                    entries.push(entry(*id, slot, data));
                }
                _ => {
                    return Err(disk
                        .frames
                        .damaged(slot.key, "it is not the entry that was written there"));
                }
            }
        }
        Ok(entries)
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

    /// The entry before the last `bytes` of entries; none if there is not more than that. Entries up to it can be given up, if a
    /// checkpoint makes up for them, and `bytes` of them stay: less if they lie in many files, of which each start begins one.
    pub fn before_last_bytes(&self, bytes: u64) -> Option<LogIndex> {
        let files_max = ENTRY_FILES_MAX + bytes / self.plane().config.wal_file_bytes;
        let raft = self.group.raft.lock();
        let (mut left, mut files, mut file) = (bytes, 0, FileId::NONE);
        for (index, slot) in raft.table.newest_first() {
            if slot.key.file != file {
                (files, file) = (files + 1, slot.key.file);
            }
            let size = frame::frame_bytes(ENTRY_PREFIX_BYTES + slot.bytes as usize) as u64;
            if size > left || files > files_max {
                return Some(LogIndex(index));
            }
            left -= size;
        }
        None
    }

    /// Whether the entries lie in so many files, of which each start begins one, that a checkpoint should make up for some of
    /// them. Looks at all entries.
    pub fn lies_in_many_files(&self) -> bool {
        let raft = self.group.raft.lock();
        let mut files: Vec<FileId> = raft.table.newest_first().map(|(_, slot)| slot.key.file).collect();
        files.dedup();
        files.len() as u64 > ENTRY_FILES_MAX
    }

    /// The last entry of those that lie more than `bytes` behind the end of the log, whichever groups wrote what is in between.
    /// As long as such entries are there, no file after them goes, be they ever so few.
    pub fn last_far_behind(&self, bytes: u64) -> Option<LogIndex> {
        let Store::Disk(disk) = &self.plane().store else {
            return None;
        };
        let files = (bytes / self.plane().config.wal_file_bytes).max(1);
        let end = disk.wal.head().file();
        let near = FileId(end.0.saturating_sub(u32::try_from(files).unwrap_or(u32::MAX)));
        let raft = self.group.raft.lock();
        let first = raft.table.get(LogIndex(raft.table.first()?))?;
        if first.key.file >= near {
            return None;
        }
        let far = raft.table.newest_first().find(|(_, slot)| slot.key.file < near);
        far.map(|(index, _)| LogIndex(index))
    }

    /// The newest checkpoint that is durable.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        self.group.saved.lock().newest()
    }
}

fn entry(id: EntryId, slot: &Slot, data: Bytes) -> Entry {
    Entry {
        id,
        kind: slot.kind,
        data,
    }
}

/// Where the frame of an entry ends in its file.
fn frame_end(slot: &Slot) -> u64 {
    u64::from(slot.key.offset) + frame::frame_bytes(ENTRY_PREFIX_BYTES + slot.bytes as usize) as u64
}

/// How many entries from the first on are read at once: those after it in its file that are to be read at all, up to a bound.
fn together(slots: &[(EntryId, Slot)], is_read: impl Fn(FrameKey) -> bool) -> usize {
    let Some((_, first)) = slots.first() else { return 0 };
    let near = slots[1..].iter().take_while(|(_, slot)| {
        let start = u64::from(first.key.offset);
        slot.key.file == first.key.file
            && slot.key > first.key
            && frame_end(slot) - start <= READ_TOGETHER_BYTES
            && is_read(slot.key)
    });
    1 + near.count()
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
