//! Which records of a partition have lost their content.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of sequences, kept as ranges that neither overlap nor touch: start to end (exclusive).
#[derive(Debug, Default)]
pub(crate) struct Redacted(BTreeMap<u64, u64>);

impl Redacted {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn contains(&self, seq: u64) -> bool {
        self.0.range(..=seq).next_back().is_some_and(|(_, end)| seq < *end)
    }

    /// Returns whether it is new.
    pub(crate) fn insert(&mut self, seq: u64) -> bool {
        if self.contains(seq) {
            return false;
        }
        let end = self.0.remove(&(seq + 1)).unwrap_or(seq + 1);
        match self.0.range_mut(..seq).next_back() {
            Some((_, before)) if *before == seq => *before = end,
            _ => drop(self.0.insert(seq, end)),
        }
        true
    }

    /// Takes a range that lies behind all others; `false` if it does not.
    pub(crate) fn push(&mut self, range: Range<u64>) -> bool {
        let behind = self.0.last_key_value().is_none_or(|(_, end)| *end < range.start);
        let fits = behind && !range.is_empty();
        if fits {
            self.0.insert(range.start, range.end);
        }
        fits
    }

    /// Those that are within `range`, cut to it.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let before = self.0.range(..range.start).next_back();
        let starts_in = self.0.range(range.start..range.end.max(range.start));
        let all = before.into_iter().chain(starts_in);
        all.map(move |(start, end)| range.start.max(*start)..range.end.min(*end))
            .filter(|part| !part.is_empty())
    }

    /// What is within `range` and not in the set.
    pub(crate) fn gaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let end = range.end;
        let mut at = range.start;
        let after = std::iter::once(end..end);
        let gaps = self.within(range).chain(after).map(move |part| {
            let gap = at..part.start;
            at = part.end;
            gap
        });
        gaps.filter(|gap| !gap.is_empty())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    /// Forgets what is before `seq`.
    pub(crate) fn forget_before(&mut self, seq: u64) {
        while let Some(first) = self.0.first_entry().filter(|first| *first.key() < seq) {
            let (_, end) = first.remove_entry();
            if end > seq {
                self.0.insert(seq, end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_plain_set_holds(steps in prop::collection::vec((0u8..8, 0u64..40, 0u64..40), 1..120)) {
            let (mut set, mut model) = (Redacted::default(), BTreeSet::new());
            for (what, seq, other) in steps {
                if what == 0 {
                    set.forget_before(seq);
                    model = model.split_off(&seq);
                } else {
                    prop_assert_eq!(set.insert(seq), model.insert(seq));
                }
                prop_assert!(set.iter().flatten().eq(model.iter().copied()));
                let ranges: Vec<_> = set.iter().collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", ranges);
                prop_assert_eq!((set.len(), set.is_empty()), (ranges.len(), model.is_empty()));
                let range = seq.min(other)..other;
                prop_assert!(set.within(range.clone()).flatten().eq(model.range(range.clone()).copied()));
                prop_assert!(set.gaps(range.clone()).flatten().eq(range.filter(|seq| !model.contains(seq))));
                prop_assert_eq!(set.contains(other), model.contains(&other));
            }
        }
    }

    #[test]
    fn ranges_are_taken_in_their_order_only() {
        let mut set = Redacted::default();
        assert!(set.push(3..5));
        for bad in [3..5, 5..6, 9..9, 1..2] {
            assert!(!set.push(bad.clone()), "{bad:?}");
        }
        assert!(set.push(6..7));
    }
}
