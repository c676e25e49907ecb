//! A set of sequences, kept as bits.
//!
//! For sequences that go one by one in no order: as ranges, as which [`crate::ranges::RangeSet`] keeps those that stay together, ten
//! million of them would come to be millions of ranges, each of which takes more than a chunk of bits. A chunk has the bits of 1,024
//! neighbours, and goes with its last one.
//!
//! Always true: a chunk has at least one bit that is set; `count` is the number of those of all chunks.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::timetable::{CHUNK, WORDS, chunk_of, mask, part_of};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SeqBits {
    chunks: BTreeMap<u64, [u64; WORDS]>,
    count: u64,
}

fn ones(words: &[u64; WORDS]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

impl SeqBits {
    /// Number of sequences.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn contains(&self, seq: u64) -> bool {
        let words = self.chunks.get(&chunk_of(seq));
        words.is_some_and(|words| {
            let offset = seq % CHUNK;
            let word = usize::try_from(offset / u64::from(u64::BITS)).unwrap_or_default();
            words[word] & 1 << (offset % u64::from(u64::BITS)) != 0
        })
    }

    pub(crate) fn insert(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        for number in chunk_of(range.start)..=chunk_of(range.end - 1) {
            let part = part_of(number, range);
            let words = self.chunks.entry(number).or_default();
            let before = ones(words);
            for (at, word) in words.iter_mut().enumerate() {
                *word |= mask(at, &part);
            }
            self.count += ones(words) - before;
        }
    }

    /// Takes out what there is of `range` and returns how much that was, at the cost of those chunks of it that there are.
    pub(crate) fn remove(&mut self, range: &Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (mut from, last) = (chunk_of(range.start), chunk_of(range.end - 1));
        let before = self.count;
        while let Some((&number, words)) = self.chunks.range_mut(from..=last).next() {
            let part = part_of(number, range);
            let there = ones(words);
            for (at, word) in words.iter_mut().enumerate() {
                *word &= !mask(at, &part);
            }
            let left = ones(words);
            self.count -= there - left;
            if left == 0 {
                self.chunks.remove(&number);
            }
            if number == last {
                break;
            }
            from = number + 1;
        }
        before - self.count
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_plain_set_holds(
            steps in prop::collection::vec((any::<bool>(), 0..3 * CHUNK, 0u64..40, any::<bool>()), 1..100),
        ) {
            let (mut set, mut model) = (SeqBits::default(), BTreeSet::new());
            for (insert, start, length, long) in steps {
                let range = start..start + if long { length * 50 } else { length };
                if insert {
                    set.insert(&range);
                    model.extend(range);
                } else {
                    let before = model.len();
                    model.retain(|seq| !range.contains(seq));
                    prop_assert_eq!(set.remove(&range), (before - model.len()) as u64);
                }
                prop_assert_eq!(set.count(), model.len() as u64);
                let chunks: BTreeSet<u64> = model.iter().map(|seq| chunk_of(*seq)).collect();
                prop_assert!(set.chunks.keys().eq(&chunks));
            }
            prop_assert!((0..6 * CHUNK).all(|seq| set.contains(seq) == model.contains(&seq)));
        }
    }

    #[test]
    fn all_that_there_can_be_is_taken_out_at_the_cost_of_what_there_is() {
        let mut set = SeqBits::default();
        set.insert(&(7..8));
        set.insert(&(u64::MAX - 1..u64::MAX));
        assert_eq!((set.count(), set.remove(&(0..u64::MAX)), set.count()), (2, 2, 0));
        assert!(set.chunks.is_empty());
    }
}
