//! The Raft log of one group in memory: which entries there are, and where each one lies.

use std::collections::VecDeque;

use boltq_core::{LogIndex, NodeId, Term};

use crate::types::{EntryId, FileId, FrameKey};

/// Where an entry lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) term: Term,
    pub(crate) leader: NodeId,
    pub(crate) key: FrameKey,
    /// Length of its data.
    pub(crate) bytes: u32,
    pub(crate) kind: u8,
}

/// Entries after `purged`, without a hole.
///
/// `held` are the files with frames of entries that are no longer in the table, but that a replay may come across and
/// needs: they were replaced, or purged before a checkpoint had them.
#[derive(Debug, Default)]
pub(crate) struct EntryTable {
    purged: Option<EntryId>,
    first: u64,
    slots: VecDeque<Slot>,
    held: Vec<(u64, FileId)>,
    /// Last entry of the newest durable checkpoint.
    saved: Option<u64>,
}

impl EntryTable {
    pub(crate) fn purged(&self) -> Option<EntryId> {
        self.purged
    }

    /// Index of the first entry that is there.
    pub(crate) fn first(&self) -> Option<u64> {
        (!self.slots.is_empty()).then_some(self.first)
    }

    pub(crate) fn last(&self) -> Option<EntryId> {
        match self.slots.len() {
            0 => self.purged,
            count => self.id(LogIndex(self.first + count as u64 - 1)),
        }
    }

    /// The index that comes next; none if any can.
    pub(crate) fn next(&self) -> Option<u64> {
        self.last().map(|id| id.index.0 + 1)
    }

    fn position(&self, index: u64) -> Option<usize> {
        let position = usize::try_from(index.checked_sub(self.first)?).ok()?;
        (position < self.slots.len()).then_some(position)
    }

    pub(crate) fn get(&self, index: LogIndex) -> Option<&Slot> {
        self.slots.get(self.position(index.0)?)
    }

    /// The id of an entry that is there, or of the last one that is purged.
    pub(crate) fn id(&self, index: LogIndex) -> Option<EntryId> {
        if let Some(purged) = self.purged.filter(|purged| purged.index == index) {
            return Some(purged);
        }
        self.get(index).map(|slot| EntryId {
            term: slot.term,
            leader: slot.leader,
            index,
        })
    }

    /// Whether an entry can be put at `index`: the index that could if not.
    pub(crate) fn check(&self, index: u64) -> Result<(), u64> {
        let Some(next) = self.next() else { return Ok(()) };
        let least = self.purged.map_or(0, |purged| purged.index.0 + 1);
        if index > next || index < least {
            Err(next)
        } else {
            Ok(())
        }
    }

    /// Puts an entry, for which [`EntryTable::check`] is fine, at its index. Those from there on are gone; returns where
    /// they were.
    pub(crate) fn put(&mut self, index: u64, slot: Slot) -> Vec<FrameKey> {
        let replaced = self.cut(index);
        if self.slots.is_empty() {
            self.first = index;
        }
        self.slots.push_back(slot);
        replaced
    }

    /// Drops all entries after `last`, or all; returns where they were.
    pub(crate) fn truncate_after(&mut self, last: Option<LogIndex>) -> Vec<FrameKey> {
        self.cut(last.map_or(0, |last| last.0 + 1))
    }

    fn cut(&mut self, from: u64) -> Vec<FrameKey> {
        let keep = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        if keep >= self.slots.len() {
            return Vec::new();
        }
        for position in keep..self.slots.len() {
            let (index, file) = (self.first + position as u64, self.slots[position].key.file);
            self.hold(index, file);
        }
        self.slots.drain(keep..).map(|slot| slot.key).collect()
    }

    fn hold(&mut self, index: u64, file: FileId) {
        match self.held.last_mut() {
            Some((last, last_file)) if *last_file == file => *last = index.max(*last),
            _ => self.held.push((index, file)),
        }
    }

    /// Forgets entries up to `upto`; returns where they were. Later than the last entry, the log is empty and goes on after it.
    pub(crate) fn purge(&mut self, upto: EntryId) -> Vec<FrameKey> {
        if self.purged.is_some_and(|purged| purged.index >= upto.index) {
            return Vec::new();
        }
        let count = if self.slots.is_empty() {
            0
        } else {
            (upto.index.0 + 1).saturating_sub(self.first)
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(self.slots.len());
        let mut keys = Vec::with_capacity(count);
        for _ in 0..count {
            if let Some(slot) = self.slots.pop_front() {
                if self.saved.is_none_or(|saved| saved < self.first) {
                    self.hold(self.first, slot.key.file);
                }
                keys.push(slot.key);
                self.first += 1;
            }
        }
        self.purged = Some(upto);
        self.release();
        keys
    }

    /// A checkpoint with everything up to `applied` is durable.
    pub(crate) fn saved(&mut self, applied: LogIndex) {
        self.saved = Some(applied.0);
        self.release();
    }

    fn release(&mut self) {
        if let (Some(purged), Some(saved)) = (self.purged, self.saved) {
            let done = purged.index.0.min(saved);
            self.held.retain(|(index, _)| *index > done);
        }
    }

    /// The first file that a replay needs for this group.
    pub(crate) fn needed_from(&self) -> Option<FileId> {
        let first = self.slots.front().map(|slot| slot.key.file);
        let held = self.held.iter().map(|(_, file)| *file).min();
        first.into_iter().chain(held).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(file: u32) -> Slot {
        Slot {
            term: Term(1),
            leader: NodeId(1),
            key: FrameKey {
                file: FileId(file),
                offset: 0,
            },
            bytes: 0,
            kind: 0,
        }
    }

    fn id(index: u64) -> EntryId {
        EntryId {
            term: Term(1),
            leader: NodeId(1),
            index: LogIndex(index),
        }
    }

    #[test]
    fn entries_follow_each_other_and_replace_a_tail() {
        let mut table = EntryTable::default();
        assert_eq!(table.check(0), Ok(()));
        for index in 0..5 {
            table.put(index, slot(1));
        }
        assert_eq!(table.check(6), Err(5));
        table.put(3, slot(2));
        assert_eq!(table.last(), Some(id(3)));
        table.truncate_after(Some(LogIndex(1)));
        assert_eq!(table.last(), Some(id(1)));
        table.truncate_after(None);
        assert_eq!(table.last(), None);
    }

    #[test]
    fn a_purge_beyond_the_end_moves_the_log() {
        let mut table = EntryTable::default();
        table.put(1, slot(1));
        assert_eq!(table.purge(id(10)).len(), 1);
        assert_eq!(table.last(), Some(id(10)));
        assert_eq!(
            (table.check(11), table.check(10), table.check(12)),
            (Ok(()), Err(11), Err(11))
        );
        assert!(table.purge(id(4)).is_empty(), "older than what is purged");
        assert_eq!(table.purged(), Some(id(10)));
    }

    #[test]
    fn files_are_needed_until_purged_and_saved() {
        let mut table = EntryTable::default();
        for (index, file) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
            table.put(index, slot(file));
        }
        table.purge(id(3));
        assert_eq!(table.needed_from(), Some(FileId(1)), "purged, but in no checkpoint");
        table.saved(LogIndex(2));
        assert_eq!(table.needed_from(), Some(FileId(2)));
        table.saved(LogIndex(3));
        assert_eq!(table.needed_from(), Some(FileId(3)));
        table.put(4, slot(5));
        assert_eq!(
            table.needed_from(),
            Some(FileId(3)),
            "a replay comes across what was replaced"
        );
        table.saved(LogIndex(4));
        table.purge(id(4));
        assert_eq!(table.needed_from(), None);
    }
}
