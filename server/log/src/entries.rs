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

    /// What is there, the last one first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = (u64, &Slot)> {
        let last = self.first + self.slots.len() as u64;
        self.slots
            .iter()
            .rev()
            .zip(1..)
            .map(move |(slot, back)| (last - back, slot))
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

    /// Whether a state of `applied` can take the place of what is here: the last entry that it would have to undo if not.
    pub(crate) fn check_install(&self, applied: EntryId) -> Result<(), LogIndex> {
        let before = match (self.purged, self.first()) {
            (Some(purged), _) if purged != applied => Some(purged.index),
            // A log that begins somewhere, and nobody knows after what.
            (None, Some(first)) if first > 0 => Some(LogIndex(first - 1)),
            _ => None,
        };
        match before {
            Some(before) if before >= applied.index => Err(before),
            _ => Ok(()),
        }
    }

    /// A state with everything up to `applied` takes the place of the entries up to there. Those after it stay if the one at
    /// its index is there and the same, otherwise they belong to another history and go. Returns where those were that went.
    ///
    /// What went with another history is not held: a replay passes over it, wherever it begins.
    pub(crate) fn install(&mut self, applied: EntryId) -> Vec<FrameKey> {
        let same = self.id(applied.index) == Some(applied);
        let count = match self.first() {
            Some(first) if same => usize::try_from((applied.index.0 + 1).saturating_sub(first)).unwrap_or(usize::MAX),
            _ => self.slots.len(),
        };
        let count = count.min(self.slots.len());
        let keys = self.slots.drain(..count).map(|slot| slot.key).collect();
        self.first += count as u64;
        if !same {
            self.held.clear();
        }
        self.purged = Some(applied);
        self.saved(applied.index);
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

    /// The last entry that lies in a file up to `upto`, or did until it was replaced.
    pub(crate) fn last_upto(&self, upto: FileId) -> Option<LogIndex> {
        let count = self.slots.partition_point(|slot| slot.key.file <= upto) as u64;
        let last = (count > 0).then(|| self.first + count - 1);
        let held = self.held.iter().filter(|(_, file)| *file <= upto);
        held.map(|(index, _)| *index).chain(last).max().map(LogIndex)
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
    fn a_state_that_is_installed_ends_the_entries_before_it_and_those_of_another_history() {
        let table = |from, to| {
            let mut table = EntryTable::default();
            (from..=to).for_each(|index| drop(table.put(index, slot(1))));
            table
        };
        let other = EntryId { term: Term(2), ..id(3) };
        for (applied, left) in [(id(3), vec![4, 5]), (id(5), vec![]), (id(8), vec![]), (other, vec![])] {
            let mut table = table(1, 5);
            table.put(5, slot(2));
            table.put(5, slot(1));
            assert_eq!(table.check_install(applied), Ok(()));
            assert_eq!(table.install(applied).len(), 5 - left.len());
            assert_eq!((table.purged(), table.first()), (Some(applied), left.first().copied()));
            assert_eq!(table.last(), Some(left.last().map_or(applied, |last| id(*last))));
            assert_eq!(table.check(applied.index.0 + 1), Ok(()));
            assert_eq!(table.needed_from().is_some(), !left.is_empty());
        }
        let mut purged = table(1, 5);
        purged.purge(id(3));
        assert_eq!(purged.check_install(id(3)), Ok(()), "the same again");
        assert_eq!(purged.check_install(id(2)), Err(LogIndex(3)));
        assert_eq!(purged.check_install(other), Err(LogIndex(3)));
        assert_eq!(
            table(4, 5).check_install(id(3)),
            Err(LogIndex(3)),
            "what comes before 4 is not known"
        );
        assert_eq!(table(4, 5).check_install(id(4)), Ok(()));
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

    #[test]
    fn what_has_to_be_purged_for_files_to_go_counts_what_was_replaced() {
        let mut table = EntryTable::default();
        for (index, file) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
            table.put(index, slot(file));
        }
        let last = |table: &EntryTable, file| table.last_upto(FileId(file)).map(|index| index.0);
        assert_eq!(
            [0, 1, 2, 9].map(|file| last(&table, file)),
            [None, Some(2), Some(3), Some(4)]
        );
        table.put(2, slot(4));
        assert_eq!([1, 2, 3].map(|file| last(&table, file)), [Some(2), Some(3), Some(4)]);
        table.put(3, slot(4));
        table.purge(id(3));
        assert_eq!(last(&table, 1), Some(2), "in no checkpoint yet");
        table.saved(LogIndex(3));
        assert_eq!([1, 2, 3].map(|file| last(&table, file)), [None, None, Some(4)]);
    }
}
