//! Times of messages, by sequence: when delayed ones are due, and when those with a time to live are over.
//!
//! A time takes eight bytes. Sequences lie in chunks of 1,024: bits say which of them have a time, and the times stand
//! one behind the other in the order of their sequences. A chunk goes with its last time and gives memory back before, so
//! that a message which stays for a year costs a few bytes and not what its neighbours took.
//!
//! A copy of a timetable shares the chunks. Whichever of the two changes one copies that before, so a copy costs a handle for each
//! chunk, and stays as it was.
//!
//! Always true: a chunk has at least one time, and one for each bit that is set; `len` is the number of all times.
//!
//! A time is found by counting bits. To append one, as publishing does, moves nothing; to insert or remove one moves those
//! behind it in the chunk, 4 KiB on average. What is earliest in a chunk is found by looking at all of it, which takes about
//! as long as two steps in a large tree: see [`crate::calendar`] for what comes of that.

mod chunk;
mod encoding;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use boltq_core::Millis;

use self::chunk::{Chunk, OFFSETS};

/// Sequences of a chunk.
pub(crate) const CHUNK: u64 = OFFSETS as u64;

/// What a timetable holds of a message, as eight bytes that rise with the time.
pub(crate) trait Slot: Copy {
    /// As it is kept.
    fn pack(self) -> u64;
    /// What was kept.
    fn unpack(packed: u64) -> Self;
    /// Whether these eight bytes are something that was kept.
    fn is_packed(packed: u64) -> bool;
    /// The time in it.
    fn at(self) -> Millis;
}

impl Slot for Millis {
    fn pack(self) -> u64 {
        self.0
    }

    fn unpack(packed: u64) -> Self {
        Self(packed)
    }

    fn is_packed(_: u64) -> bool {
        true
    }

    fn at(self) -> Millis {
        self
    }
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Timetable<T> {
    chunks: BTreeMap<u64, Arc<Chunk>>,
    len: u64,
    slots: PhantomData<T>,
}

/// The chunk of a sequence.
pub(crate) fn chunk_of(seq: u64) -> u64 {
    seq / CHUNK
}

/// The part of a chunk that lies in `range`, as offsets in the chunk.
fn part_of(chunk: u64, range: &Range<u64>) -> Range<usize> {
    let offset = |seq: u64| usize::try_from(seq.saturating_sub(chunk * CHUNK).min(CHUNK)).unwrap_or(usize::MAX);
    offset(range.start)..offset(range.end)
}

fn place_of(seq: u64) -> (u64, usize) {
    (chunk_of(seq), usize::try_from(seq % CHUNK).unwrap_or_default())
}

impl<T: Slot> Timetable<T> {
    /// Number of times.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether no message has a time.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The time of a message.
    pub(crate) fn get(&self, seq: u64) -> Option<T> {
        let (chunk, offset) = place_of(seq);
        self.chunks.get(&chunk)?.get(offset).map(T::unpack)
    }

    /// Gives a message a time, instead of the one that it had.
    pub(crate) fn insert(&mut self, seq: u64, time: T) {
        let (chunk, offset) = place_of(seq);
        let chunk = Arc::make_mut(self.chunks.entry(chunk).or_default());
        let new = chunk.set(offset, time.pack());
        self.len += u64::from(new);
    }

    /// Takes the times of some messages out, at the cost of those chunks of them that there are.
    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut from, last) = (chunk_of(range.start), chunk_of(range.end - 1));
        while let Some((&number, chunk)) = self.chunks.range_mut(from..=last).next() {
            let part = part_of(number, range);
            let gone = chunk.count(part.clone());
            self.len -= gone as u64;
            // One that goes, or stays as it is, is not copied for it.
            if gone == chunk.times().len() {
                self.chunks.remove(&number);
            } else if gone > 0 {
                Arc::make_mut(chunk).remove(&part);
            }
            if number == last {
                return;
            }
            from = number + 1;
        }
    }

    /// Messages of `range` that have a time, in their order.
    pub(crate) fn range(&self, range: Range<u64>) -> impl Iterator<Item = (u64, T)> + '_ {
        self.chunks_of(&range).flat_map(move |(number, chunk)| {
            let times = chunk.within(part_of(number, &range));
            times.map(move |(offset, packed)| (number * CHUNK + offset as u64, T::unpack(packed)))
        })
    }

    /// All messages that have a time, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, T)> + '_ {
        self.range(0..u64::MAX)
    }

    /// Messages of a chunk, in their order.
    pub(crate) fn in_chunk(&self, number: u64) -> impl Iterator<Item = (u64, T)> + '_ {
        let first = number.saturating_mul(CHUNK);
        self.range(first..first.saturating_add(CHUNK))
    }

    /// Whether a message of a chunk has a time.
    pub(crate) fn has_chunk(&self, number: u64) -> bool {
        self.chunks.contains_key(&number)
    }

    /// The chunks that there are from one on, in their order.
    pub(crate) fn chunk_numbers(&self, from: u64) -> impl Iterator<Item = u64> + '_ {
        self.chunks.range(from..).map(|(number, _)| *number)
    }

    /// The earliest time of those messages of each chunk that lie in `range`.
    pub(crate) fn earliest(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Millis)> + '_ {
        self.chunks_of(&range).filter_map(move |(number, chunk)| {
            let earliest = chunk.earliest(part_of(number, &range))?;
            Some((number, T::unpack(earliest).at()))
        })
    }

    fn chunks_of(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &Chunk)> + use<'_, T> {
        let first = chunk_of(range.start);
        let last = chunk_of(range.end.saturating_sub(1)).max(first);
        self.chunks
            .range(first..=last)
            .map(|(number, chunk)| (*number, &**chunk))
    }
}

#[cfg(test)]
impl<T: Slot> Timetable<T> {
    /// Checks what the module promises.
    pub(crate) fn check(&self) {
        let times: usize = self.chunks.values().map(|chunk| chunk.check()).sum();
        assert_eq!(times as u64, self.len);
    }

    /// Chunks that both have in the same place in memory.
    pub(crate) fn shared_with(&self, other: &Self) -> usize {
        let others = &other.chunks;
        let shared = |number: &u64, chunk| others.get(number).is_some_and(|other| Arc::ptr_eq(chunk, other));
        self.chunks
            .iter()
            .filter(|(number, chunk)| shared(number, chunk))
            .count()
    }
}
