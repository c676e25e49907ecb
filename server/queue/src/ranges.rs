//! A set of sequences, kept as ranges.
//!
//! Always true: the ranges are not empty, disjoint, and do not touch (those that would are one range); `count` is the
//! number of sequences in all of them. Every operation costs the logarithm of the number of ranges, plus the ranges it
//! removes: the length of a range costs nothing.

use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    /// Start to end (exclusive).
    ranges: BTreeMap<u64, u64>,
    count: u64,
}

impl RangeSet {
    /// Number of sequences.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Number of ranges.
    pub(crate) fn range_count(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    pub(crate) fn first(&self) -> Option<Range<u64>> {
        self.iter().next()
    }

    pub(crate) fn last(&self) -> Option<Range<u64>> {
        self.iter().next_back()
    }

    pub(crate) fn contains(&self, seq: u64) -> bool {
        self.ranges.range(..=seq).next_back().is_some_and(|(_, &end)| seq < end)
    }

    /// The first part of `within` that is in the set.
    pub(crate) fn first_within(&self, within: &Range<u64>) -> Option<Range<u64>> {
        if self.ranges.is_empty() || within.is_empty() {
            return None;
        }
        let before = self.ranges.range(..=within.start).next_back();
        let (&start, &end) = before
            .filter(|&(_, &end)| end > within.start)
            .or_else(|| self.ranges.range(within.start..).next())?;
        (start < within.end).then(|| start.max(within.start)..end.min(within.end))
    }

    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // What grows at its end, as a set of things done in order does, changes in place.
        let mut grown = range.clone();
        let before = self.ranges.range_mut(..=range.start).next_back();
        if let Some((&start, end)) = before.filter(|(_, end)| **end >= range.start) {
            if *end >= range.end {
                return;
            }
            self.count += range.end - *end;
            *end = range.end;
            grown.start = start;
        } else {
            self.count += range.end - range.start;
            self.ranges.insert(range.start, range.end);
        }
        self.absorb_after(grown);
    }

    /// Makes one range of `grown`, which was just written, and of those behind it that it reaches.
    fn absorb_after(&mut self, grown: Range<u64>) {
        let mut end = grown.end;
        while let Some((&next, &next_end)) = self.ranges.range(grown.start + 1..).next() {
            if next > end {
                break;
            }
            self.ranges.remove(&next);
            self.count -= end.min(next_end) - next;
            end = end.max(next_end);
        }
        if end > grown.end {
            self.ranges.insert(grown.start, end);
        }
    }

    /// Takes out what there is of `range` and returns how much that was.
    pub(crate) fn remove(&mut self, range: &Range<u64>) -> u64 {
        let mut removed = 0;
        while let Some(part) = self.first_within(range) {
            self.cut(&part);
            removed += part.end - part.start;
        }
        removed
    }

    /// Takes out `part`, which lies within one range.
    fn cut(&mut self, part: &Range<u64>) {
        let Some((&start, end)) = self.ranges.range_mut(..=part.start).next_back() else {
            return;
        };
        let whole_end = *end;
        if start < part.start {
            *end = part.start;
        } else {
            self.ranges.remove(&start);
        }
        if part.end < whole_end {
            self.ranges.insert(part.end, whole_end);
        }
        self.count -= part.end - part.start;
    }

    /// Takes out the first sequences of the first range, at most `max`.
    pub(crate) fn take_first(&mut self, max: u64) -> Option<Range<u64>> {
        let mut first = self.first()?;
        first.end = first.end.min(first.start.saturating_add(max));
        self.cut(&first);
        (max > 0).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn check(set: &RangeSet, model: &BTreeSet<u64>) {
        let sequences: Vec<u64> = set.iter().flatten().collect();
        assert_eq!(sequences, model.iter().copied().collect::<Vec<_>>());
        assert_eq!(set.count(), model.len() as u64);
        let ranges: Vec<_> = set.iter().collect();
        assert!(ranges.iter().all(|range| !range.is_empty()));
        assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
    }

    proptest! {
        #[test]
        fn it_holds_what_a_plain_set_holds(
            steps in prop::collection::vec((0u8..3, 0u64..60, 0u64..20), 1..200),
        ) {
            let (mut set, mut model) = (RangeSet::default(), BTreeSet::new());
            for (what, start, length) in steps {
                let range = start..start + length;
                match what {
                    0 => {
                        set.insert(range.clone());
                        model.extend(range);
                    }
                    1 => {
                        let removed = set.remove(&range);
                        let before = model.len();
                        model.retain(|seq| !range.contains(seq));
                        prop_assert_eq!(removed, (before - model.len()) as u64);
                    }
                    _ => {
                        let taken = set.take_first(length);
                        let start = model.first().copied().filter(|_| length > 0);
                        prop_assert_eq!(taken.as_ref().map(|range| range.start), start);
                        for seq in taken.into_iter().flatten() {
                            prop_assert!(model.remove(&seq));
                        }
                    }
                }
                check(&set, &model);
                for seq in 0..90 {
                    prop_assert_eq!(set.contains(seq), model.contains(&seq));
                }
                let within = start..start + length;
                let first = set.first_within(&within);
                prop_assert_eq!(
                    first.as_ref().map(|range| range.start), model.range(within.clone()).next().copied()
                );
                if let Some(first) = first {
                    prop_assert!(first.end <= within.end && first.clone().all(|seq| model.contains(&seq)));
                    prop_assert!(first.end == within.end || !model.contains(&first.end));
                }
            }
        }
    }

    #[test]
    fn ten_million_sequences_are_one_range() {
        let mut set = RangeSet::default();
        set.insert(1..10_000_001);
        assert_eq!((set.range_count(), set.count()), (1, 10_000_000));
        assert_eq!(set.remove(&(5..6)), 1);
        assert_eq!((set.range_count(), set.count()), (2, 9_999_999));
    }
}
