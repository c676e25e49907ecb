//! Delivery state of one stream for competing consumers.
//!
//! Knows which sequences are done and how often a failed one was tried. Does not know who holds a message: leases live
//! on the leader and end with its leadership.
//!
//! Always true: `1 <= base <= head`; every sequence below `base` is done, `base` itself is not (or is `head`);
//! `finished` lies between the two; `failed` and `expires` hold only sequences that are not done. Memory grows with what is in
//! flight and with messages that have a time to live, never with the rest of the backlog.

use std::collections::BTreeMap;
use std::ops::Range;

use boltq_core::{Millis, Seq};

use crate::ranges::RangeSet;
use crate::timetable::Timetable;

/// What is known of a message that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Failed attempts.
    pub(crate) attempts: u32,
    /// When it may be delivered again.
    pub(crate) not_before: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Window {
    /// The next sequence to give.
    pub(crate) head: u64,
    pub(crate) base: u64,
    pub(crate) finished: RangeSet,
    pub(crate) failed: BTreeMap<u64, Failure>,
    /// When messages with a time to live are to be discarded.
    pub(crate) expires: Timetable<Millis>,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            head: Seq::FIRST.0,
            base: Seq::FIRST.0,
            finished: RangeSet::default(),
            failed: BTreeMap::new(),
            expires: Timetable::default(),
        }
    }
}

/// A part of what was to be finished.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Is done by this call.
    Fresh(Range<u64>),
    /// Was done before, or never existed.
    Missing(Range<u64>),
}

impl Window {
    /// Gives sequences to `count` records.
    pub(crate) fn append(&mut self, count: u64) -> Range<u64> {
        let first = self.head;
        self.head += count;
        first..self.head
    }

    /// Number of messages that are not done.
    pub(crate) fn open_count(&self) -> u64 {
        self.head - self.base - self.finished.count()
    }

    /// Whether the message exists and is not done.
    pub(crate) fn is_open(&self, seq: u64) -> bool {
        (self.base..self.head).contains(&seq) && !self.finished.contains(seq)
    }

    /// Failed attempts of a message that is not done.
    pub(crate) fn attempts(&self, seq: u64) -> u32 {
        self.failed.get(&seq).map_or(0, |failure| failure.attempts)
    }

    /// Counts a failed attempt; false if there is no such message, or it is done.
    pub(crate) fn fail(&mut self, seq: u64, not_before: Millis) -> bool {
        let open = self.is_open(seq);
        if open {
            let attempts = self.attempts(seq).saturating_add(1);
            self.failed.insert(seq, Failure { attempts, not_before });
        }
        open
    }

    /// Finishes messages and tells, in order, which of them were not done before.
    pub(crate) fn finish(&mut self, range: &Range<u64>, mut tell: impl FnMut(Part)) {
        let mut tell = |fresh: bool, part: Range<u64>| match part.is_empty() {
            true => {}
            false if fresh => tell(Part::Fresh(part)),
            false => tell(Part::Missing(part)),
        };
        let known = range.start.clamp(self.base, self.head)..range.end.clamp(self.base, self.head);
        tell(false, range.start..range.end.min(self.base));
        let mut at = known.start;
        while let Some(done) = self.finished.first_within(&(at..known.end)) {
            tell(true, at..done.start);
            at = done.end;
            tell(false, done);
        }
        tell(true, at..known.end);
        tell(false, range.start.max(self.head)..range.end);
        if !known.is_empty() {
            self.mark(known);
        }
    }

    /// Until when a message that failed waits, if it still does.
    pub(crate) fn rests(&self, seq: u64, now: Millis) -> Option<Millis> {
        let not_before = self.failed.get(&seq)?.not_before;
        (not_before > now).then_some(not_before)
    }

    fn mark(&mut self, done: Range<u64>) {
        remove_within(&mut self.failed, &done);
        self.expires.remove(&done);
        if done.start > self.base {
            self.finished.insert(done);
            return;
        }
        self.base = done.end;
        while let Some(next) = self.finished.first().filter(|next| next.start <= self.base) {
            self.base = self.base.max(next.end);
            self.finished.take_first(u64::MAX);
        }
    }

    /// The parts of `within` that are not done, in order.
    pub(crate) fn open_parts(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let end = within.end.min(self.head);
        let mut at = within.start.max(self.base);
        std::iter::from_fn(move || {
            while at < end {
                let done = self.finished.first_within(&(at..end)).unwrap_or(end..end);
                let open = at..done.start;
                at = done.end;
                if !open.is_empty() {
                    return Some(open);
                }
            }
            None
        })
    }
}

/// Removes the entries of some sequences, at the cost of those that there are.
pub(crate) fn remove_within<V>(map: &mut BTreeMap<u64, V>, range: &Range<u64>) {
    if map.is_empty() || range.is_empty() {
        return;
    }
    while let Some((&seq, _)) = map.range(range.clone()).next() {
        map.remove(&seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(head: u64) -> Window {
        let mut window = Window::default();
        window.append(head - 1);
        window
    }

    fn finish(window: &mut Window, range: Range<u64>) -> Vec<Part> {
        let mut parts = Vec::new();
        window.finish(&range, |part| parts.push(part));
        parts
    }

    #[test]
    fn the_base_follows_what_is_done_without_a_gap() {
        let mut window = window(11);
        assert_eq!(finish(&mut window, 3..5), [Part::Fresh(3..5)]);
        assert_eq!((window.base, window.open_count()), (1, 8));
        assert_eq!(finish(&mut window, 1..3), [Part::Fresh(1..3)]);
        assert_eq!(
            (window.base, window.finished.range_count(), window.open_count()),
            (5, 0, 6)
        );
    }

    #[test]
    fn what_is_done_or_never_was_is_missing() {
        let mut window = window(11);
        finish(&mut window, 1..2);
        finish(&mut window, 4..6);
        assert_eq!(
            finish(&mut window, 0..20),
            [
                Part::Missing(0..2),
                Part::Fresh(2..4),
                Part::Missing(4..6),
                Part::Fresh(6..11),
                Part::Missing(11..20),
            ]
        );
        assert_eq!((window.base, window.open_count()), (11, 0));
        assert_eq!(finish(&mut window, 3..4), [Part::Missing(3..4)]);
    }

    #[test]
    fn attempts_are_forgotten_with_the_message() {
        let mut window = window(4);
        assert!(window.fail(2, Millis(9)));
        assert!(window.fail(2, Millis(9)));
        assert_eq!(window.attempts(2), 2);
        finish(&mut window, 2..3);
        assert!(window.failed.is_empty());
        assert!(!window.fail(2, Millis(9)));
        assert!(!window.fail(4, Millis(9)));
    }

    #[test]
    fn open_parts_are_the_gaps() {
        let mut window = window(11);
        finish(&mut window, 3..5);
        finish(&mut window, 7..8);
        assert_eq!(window.open_parts(0..99).collect::<Vec<_>>(), [1..3, 5..7, 8..11]);
        assert_eq!(window.open_parts(4..9).collect::<Vec<_>>(), [5..7, 8..9]);
    }
}
