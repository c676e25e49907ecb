//! Erasing records from the device for good.
//!
//! An erased record is masked at once ([`crate::index`]). Its bytes are in files that are never changed, so these have to go:
//!
//! - every WAL file that there was when the record was erased. One of them has the entry; others may have entries with the
//!   same bytes that were replaced, or refused by the layer above, and behind the end of any there may be what it was before it was
//!   recycled. From then on none of them is recycled, and the log goes on in a new one;
//! - every segment that there was, or was being written, whose footer says that it holds the record.
//!
//! What is still wanted in them is copied by compaction, whatever its share: WAL files become sorted segments, each once. Then
//! the files wait for what they wait for otherwise: for checkpoints that do not refer to them, and for groups to purge their
//! entries. The log does neither by itself, it says what is missing ([`ErasureProgress`]). When the last of the files is gone from
//! the directory, and its name cannot come back after a power loss, the erasure is complete. (What a device keeps of blocks that
//! the file system has given up is out of reach from here.)
//!
//! So the plane looks at [`GroupLog::erasures`] of each group from time to time, writes a checkpoint if one is wanted, purges
//! as far as is asked for and can be, and is told by [`GroupLog::when_erased`].
//!
//! A crash loses nothing of this: as long as an erasure is not complete, it is in the newest checkpoint, or the
//! entry that it came with is replayed; for that entry was in one of the files that have to go.
//!
//! A state that is installed brings no erased bytes, but it makes up for entries that would have erased records, which this node
//! does not see then. So all that the group had before counts as erased.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use boltq_core::{GroupId, LogIndex, StreamId};
use parking_lot::Mutex;

use crate::error::AppendError;
use crate::group::{Group, GroupLog};
use crate::index::Erasure;
use crate::log::{Disk, Plane, Store};
use crate::segment::{self, SegmentError};
use crate::store::{Account, Class, Name};
use crate::types::FileId;
use crate::wal::Completion;

/// How far a group is with erasing, see [`GroupLog::erasures`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErasureProgress {
    /// Records of the group that were erased and whose bytes may still be in files of this node, and states that were installed.
    pub pending: usize,
    /// Entries of this group up to here have to be purged, for an erasure in whichever group. It can be one that is not there
    /// any more, after a tail was cut off: then what comes next.
    pub purge_upto: Option<LogIndex>,
    /// A checkpoint of this group has to be written, for an erasure in whichever group: the newest refers to files that have
    /// to go, or does not make up for entries that have to be purged.
    pub wants_checkpoint: bool,
}

/// Files that have to go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doomed {
    wal_upto: FileId,
    segments: BTreeSet<FileId>,
}

impl Doomed {
    pub(crate) fn has(&self, id: FileId, account: &Account) -> bool {
        match account.class {
            Class::Wal => id <= self.wal_upto,
            Class::Segment => self.segments.contains(&id),
        }
    }
}

/// What is known of the erasures of all groups.
#[derive(Default)]
pub(crate) struct Erasing {
    /// Locked by who takes turns.
    holders: Mutex<Holders>,
    doomed: Mutex<Doomed>,
    waiting: Mutex<Queue>,
}

/// Segments that hold what is erased, by group and number of the erasure. They were looked for once: those that are written
/// later do not.
type Holders = BTreeMap<(GroupId, u64), Vec<FileId>>;

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    closed: bool,
}

/// Somebody who waits until the erasures of a group are complete, up to a number.
struct Waiting {
    group: GroupId,
    upto: u64,
    done: Completion,
}

/// What is wanted of a segment, and which erasures want it, in segments up to a file.
type Wanted = BTreeMap<(GroupId, Option<(StreamId, u64)>), Vec<(u64, FileId)>>;

/// The erasures of each group that are not complete.
type Pending = Vec<(Arc<Group>, Vec<(u64, Erasure)>)>;

impl Erasing {
    pub(crate) fn doomed(&self) -> Doomed {
        self.doomed.lock().clone()
    }

    /// Notes which erasures are complete, and what has to go for the others. Not to be called while a segment is being written.
    pub(crate) fn turn(&self, plane: &Plane, disk: &Disk) -> io::Result<()> {
        let pending = pending(plane);
        let mut found = self.holders.lock();
        find_holders(disk, &pending, &mut found)?;
        let mut doomed = Doomed::default();
        let mut ready = Vec::new();
        for (group, pending) in &pending {
            let mut complete = BTreeSet::new();
            for (number, erasure) in pending {
                let holders = found.get(&(group.id, *number)).map_or(&[][..], Vec::as_slice);
                let accounts = &disk.frames.accounts;
                if accounts.holds_wal_upto(erasure.wal_upto) || holders.iter().any(|id| accounts.holds(*id)) {
                    doomed.wal_upto = erasure.wal_upto.max(doomed.wal_upto);
                    doomed.segments.extend(holders);
                } else {
                    complete.insert(*number);
                }
            }
            if !complete.is_empty() {
                group.index.write().erasures.complete(&complete);
                found.retain(|(id, number), _| *id != group.id || !complete.contains(number));
                ready.push(group.id);
            }
        }
        *self.doomed.lock() = doomed;
        drop(found);
        for group in ready {
            self.wake(plane, group);
        }
        Ok(())
    }

    /// Answers those who wait for what is complete.
    fn wake(&self, plane: &Plane, group: GroupId) {
        let Some(log) = plane.groups.lock().get(&group).map(Arc::clone) else {
            return;
        };
        let first = log.index.read().erasures.pending().first().map(|(number, _)| *number);
        let is_ready = |waiting: &mut Waiting| waiting.group == group && first.is_none_or(|first| waiting.upto < first);
        let ready: Vec<Waiting> = self.waiting.lock().waiting.extract_if(.., is_ready).collect();
        for waiting in ready {
            (waiting.done)(Ok(()));
        }
    }

    fn wait(&self, waiting: Waiting) {
        let mut queue = self.waiting.lock();
        if queue.closed {
            drop(queue);
            return (waiting.done)(Err(AppendError::Closed));
        }
        queue.waiting.push(waiting);
    }

    /// Nothing is erased any more.
    pub(crate) fn close(&self) {
        let queue = Queue {
            closed: true,
            ..Queue::default()
        };
        let queue = std::mem::replace(&mut *self.waiting.lock(), queue);
        for waiting in queue.waiting {
            (waiting.done)(Err(AppendError::Closed));
        }
    }
}

fn pending(plane: &Plane) -> Pending {
    let groups: Vec<Arc<Group>> = plane.groups.lock().values().map(Arc::clone).collect();
    let pending = |group: Arc<Group>| {
        let pending = group.index.read().erasures.pending().to_vec();
        (group, pending)
    };
    groups.into_iter().map(pending).collect()
}

/// Looks into the footers of segments for what was erased since the last time.
fn find_holders(disk: &Disk, pending: &Pending, holders: &mut Holders) -> io::Result<()> {
    let mut wanted: Vec<(GroupId, u64, Erasure)> = Vec::new();
    for (group, pending) in pending {
        let new = pending
            .iter()
            .filter(|(number, _)| !holders.contains_key(&(group.id, *number)));
        wanted.extend(new.map(|(number, erasure)| (group.id, *number, *erasure)));
    }
    let Some(upto) = wanted.iter().map(|(_, _, erasure)| erasure.segments_upto).max() else {
        return Ok(());
    };
    let mut records = Wanted::new();
    let mut found = Holders::new();
    for (group, number, erasure) in &wanted {
        let of_record = records.entry((*group, erasure.record)).or_default();
        of_record.push((*number, erasure.segments_upto));
        found.insert((*group, *number), Vec::new());
    }
    for (id, account) in disk.frames.accounts.snapshot() {
        if account.class != Class::Segment || id > upto {
            continue;
        }
        let Some(runs) = runs(disk, id)? else {
            // Nobody knows what is in it, so it goes.
            for (group, number, _) in wanted.iter().filter(|(_, _, erasure)| id <= erasure.segments_upto) {
                found.entry((*group, *number)).or_default().push(id);
            }
            continue;
        };
        for run in runs {
            let first = (run.group, Some((run.stream, run.first)));
            let end = (
                run.group,
                Some((run.stream, run.first.saturating_add(u64::from(run.count)))),
            );
            let of_group = records.get(&(run.group, None)).into_iter();
            let held = of_group
                .chain(records.range(first..end).map(|(_, numbers)| numbers))
                .flatten();
            for (number, _) in held.filter(|(_, upto)| id <= *upto) {
                let files = found.entry((run.group, *number)).or_default();
                if files.last() != Some(&id) {
                    files.push(id);
                }
            }
        }
    }
    holders.extend(found);
    Ok(())
}

/// What is in a segment: nothing if it is gone by now, and none if its end is damaged.
fn runs(disk: &Disk, id: FileId) -> io::Result<Option<Vec<segment::Run>>> {
    let handle = match disk.frames.handles.get(id, Class::Segment) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Vec::new())),
        outcome => outcome?,
    };
    match segment::read_end(&handle, id) {
        Ok((_, runs)) => Ok(Some(runs)),
        Err(SegmentError::Io(error)) => Err(error),
        Err(SegmentError::Damaged { offset, why }) => {
            let file = disk.frames.handles.path(Name::Segment(id));
            tracing::error!(file = %file.display(), offset, why, "a segment is damaged, and is rewritten as far as it can be read");
            Ok(None)
        }
    }
}

impl GroupLog {
    /// How far the erasures are that were placed, see [`boltq_core::StorageEffect::Erased`], and what they wait for. To be
    /// looked at by every group of the log from time to time: files are shared by all of them. What is asked for may take
    /// several rounds, as compaction goes on in between. In memory mode there is nothing to wait for: bytes go with their entries.
    pub fn erasures(&self) -> ErasureProgress {
        let Store::Disk(disk) = &self.plane().store else {
            return ErasureProgress::default();
        };
        let saved = self.group.saved.lock();
        let raft = self.group.raft.lock();
        let pending = self.group.index.read().erasures.pending().len();
        let upto = disk.wal.head().erase_upto();
        let purge_upto = raft.table.last_upto(upto);
        let applied = saved.checkpoint.as_ref().map(|checkpoint| checkpoint.applied.index);
        let is_behind = purge_upto.is_some_and(|purge_upto| applied.is_none_or(|applied| applied < purge_upto));
        let doomed = disk.erasing.doomed();
        let refers = || {
            let held = disk.frames.accounts.held_by_checkpoints(&saved.files);
            held.iter().any(|(id, account)| doomed.has(*id, account))
        };
        ErasureProgress {
            pending,
            purge_upto,
            wants_checkpoint: is_behind || refers(),
        }
    }

    /// Calls `done` when all erasures of the group that were placed so far are complete: their bytes are in no file of this node
    /// any more. With an error if the log is closed before. What has to be done for it, [`GroupLog::erasures`] says.
    pub fn when_erased(&self, done: Completion) {
        let Store::Disk(disk) = &self.plane().store else {
            return done(Ok(()));
        };
        let upto = self.group.index.read().erasures.last();
        disk.erasing.wait(Waiting {
            group: self.id(),
            upto,
            done,
        });
        // It may be complete already, or have become so just now.
        disk.erasing.wake(self.plane(), self.id());
    }
}
