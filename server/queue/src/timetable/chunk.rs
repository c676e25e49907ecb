//! The times of [`super::CHUNK`] neighbouring messages.

use std::ops::Range;

const WORD_BITS: usize = u64::BITS as usize;
/// Offsets of a chunk.
pub(super) const OFFSETS: usize = 1_024;
pub(super) const WORDS: usize = OFFSETS / WORD_BITS;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Which offsets have a time.
    there: [u64; WORDS],
    /// Their times, in the order of the offsets.
    times: Vec<u64>,
}

/// The lowest bits of a word.
fn below(bits: usize) -> u64 {
    match bits {
        0..WORD_BITS => (1 << bits) - 1,
        _ => u64::MAX,
    }
}

/// The bits of a word that stand for offsets of `part`.
fn mask(word: usize, part: &Range<usize>) -> u64 {
    let bits = |offset: usize| below(offset.saturating_sub(word * WORD_BITS));
    bits(part.end) & !bits(part.start)
}

/// The positions of the bits that are set, rising.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (word != 0).then(|| word.trailing_zeros() as usize);
        // Takes out the lowest bit.
        word &= word.wrapping_sub(1);
        lowest
    })
}

impl Chunk {
    /// From bits, and as many times as are set in them.
    pub(super) fn new(there: [u64; WORDS], times: Vec<u64>) -> Self {
        Self { there, times }
    }

    pub(super) fn there(&self) -> &[u64; WORDS] {
        &self.there
    }

    pub(super) fn times(&self) -> &[u64] {
        &self.times
    }

    fn has(&self, offset: usize) -> bool {
        self.there[offset / WORD_BITS] & 1 << (offset % WORD_BITS) != 0
    }

    /// How many times stand before that of `offset`.
    fn rank(&self, offset: usize) -> usize {
        let words = self.there.iter().enumerate();
        let before: u32 = words
            .map(|(at, word)| (word & mask(at, &(0..offset))).count_ones())
            .sum();
        before as usize
    }

    pub(super) fn get(&self, offset: usize) -> Option<u64> {
        self.has(offset).then(|| self.times[self.rank(offset)])
    }

    /// Whether there was no time before.
    pub(super) fn set(&mut self, offset: usize, time: u64) -> bool {
        let (new, rank) = (!self.has(offset), self.rank(offset));
        if new {
            self.there[offset / WORD_BITS] |= 1 << (offset % WORD_BITS);
            self.times.insert(rank, time);
        } else {
            self.times[rank] = time;
        }
        new
    }

    pub(super) fn remove(&mut self, part: &Range<usize>) {
        let removed = self.rank(part.start)..self.rank(part.end);
        self.times.drain(removed);
        for (at, word) in self.there.iter_mut().enumerate() {
            *word &= !mask(at, part);
        }
        // Twice the room that is needed, so that removing the rest one by one moves little.
        if self.times.capacity() > 4 * self.times.len() {
            self.times.shrink_to(2 * self.times.len());
        }
    }

    /// How many offsets of `part` have a time.
    pub(super) fn count(&self, part: Range<usize>) -> usize {
        self.rank(part.end) - self.rank(part.start)
    }

    /// The offsets of `part` that have a time, rising, with their times.
    pub(super) fn within(&self, part: Range<usize>) -> impl Iterator<Item = (usize, u64)> + '_ {
        let times = &self.times[self.rank(part.start)..];
        let words = self.there.iter().enumerate();
        let offsets =
            words.flat_map(move |(at, word)| bits(word & mask(at, &part)).map(move |bit| at * WORD_BITS + bit));
        offsets.zip(times.iter().copied())
    }

    pub(super) fn earliest(&self, part: Range<usize>) -> Option<u64> {
        self.times[self.rank(part.start)..self.rank(part.end)]
            .iter()
            .min()
            .copied()
    }
}

#[cfg(test)]
impl Chunk {
    /// The number of times, after checking that there is one for each bit, and not too much room.
    pub(super) fn check(&self) -> usize {
        let there: u32 = self.there.iter().map(|word| word.count_ones()).sum();
        assert_eq!(there as usize, self.times.len());
        assert!(there > 0 && self.times.capacity() <= 4 * self.times.len().max(1));
        self.times.len()
    }
}
