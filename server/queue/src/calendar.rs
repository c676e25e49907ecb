//! When a leader has to look at which chunk of a timetable.
//!
//! The times themselves are in the machine, eight bytes for each message. What a leader adds is one entry for a *chunk* of
//! them: not later than its next message. When that time comes, all of the chunk is looked at, what is due is dealt with, and
//! the chunk gets an entry for its next message, if there is one. Looking through a chunk takes about a microsecond, so it is
//! no dearer than an entry of a tree for each message would be, and takes a thousandth of the memory. Nothing is left behind by
//! messages that are done early: an entry goes with its chunk.
//!
//! A leader begins without looking at any time: each chunk has an entry for the beginning of time, which is not later than its next
//! message, whatever that is. So beginning costs a thousandth of a walk over the times, and that walk is made in the turns of those
//! who look at chunks, before anything else is due.
//!
//! Always true: a chunk has at most one entry, in both indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use boltq_core::{Millis, StreamId};

use crate::timetable::{Slot, Timetable, chunk_of};

/// Stream, and number of the chunk.
pub(crate) type ChunkKey = (StreamId, u64);

/// When a chunk has to be looked at of which nothing is known.
const UNSEEN: Millis = Millis(0);

#[derive(Debug, Default)]
pub(crate) struct Calendar {
    by_time: BTreeSet<(Millis, ChunkKey)>,
    times: BTreeMap<ChunkKey, Millis>,
}

impl Calendar {
    /// When the next chunk has to be looked at, and which.
    pub(crate) fn first(&self) -> Option<(Millis, ChunkKey)> {
        self.by_time.first().copied()
    }

    /// Has a chunk looked at not later than at this time.
    pub(crate) fn arm(&mut self, key: ChunkKey, at: Millis) {
        match self.times.get_mut(&key) {
            Some(before) if *before <= at => return,
            Some(before) => {
                self.by_time.remove(&(*before, key));
                *before = at;
            }
            None => {
                self.times.insert(key, at);
            }
        }
        self.by_time.insert((at, key));
    }

    /// Has the chunks of some messages looked at when the first of these is due.
    pub(crate) fn arm_all<T: Slot>(&mut self, stream: StreamId, table: &Timetable<T>, messages: Range<u64>) {
        for (chunk, at) in table.earliest(messages) {
            self.arm((stream, chunk), at);
        }
    }

    /// Has all chunks of a stream looked at before all others, as nothing is known of their times.
    pub(crate) fn arm_unseen<T: Slot>(&mut self, stream: StreamId, table: &Timetable<T>) {
        for chunk in table.chunk_numbers(0) {
            self.arm((stream, chunk), UNSEEN);
        }
    }

    /// Forgets the chunks of messages that are done, if nothing is left of them.
    pub(crate) fn forget_gone<T: Slot>(&mut self, stream: StreamId, table: &Timetable<T>, done: &Range<u64>) {
        if self.times.is_empty() || done.is_empty() {
            return;
        }
        let (mut from, last) = (chunk_of(done.start), chunk_of(done.end - 1));
        while let Some((&key, &at)) = self.times.range((stream, from)..=(stream, last)).next() {
            if !table.has_chunk(key.1) {
                self.times.remove(&key);
                self.by_time.remove(&(at, key));
            }
            if key.1 == last {
                return;
            }
            from = key.1 + 1;
        }
    }

    /// Forgets all chunks of a stream.
    pub(crate) fn forget_stream(&mut self, stream: StreamId) {
        while let Some((&key, &at)) = self.times.range((stream, 0)..=(stream, u64::MAX)).next() {
            self.times.remove(&key);
            self.by_time.remove(&(at, key));
        }
    }

    /// Takes the entry of the chunk that is to be looked at first, if its time has come.
    pub(crate) fn take_first(&mut self, now: Millis) -> Option<(Millis, ChunkKey)> {
        let (at, key) = self.first().filter(|(at, _)| *at <= now)?;
        self.by_time.remove(&(at, key));
        self.times.remove(&key);
        Some((at, key))
    }
}

#[cfg(test)]
impl Calendar {
    /// Chunks that nobody has looked at.
    pub(crate) fn unseen(&self) -> usize {
        self.times.values().filter(|at| **at == UNSEEN).count()
    }

    /// When a chunk is looked at.
    pub(crate) fn get(&self, key: ChunkKey) -> Option<Millis> {
        self.times.get(&key).copied()
    }

    /// Checks what the module promises, and returns the number of entries.
    pub(crate) fn check(&self) -> usize {
        assert_eq!(self.by_time.len(), self.times.len());
        assert!(self.times.iter().all(|(key, at)| self.by_time.contains(&(*at, *key))));
        self.times.len()
    }
}
