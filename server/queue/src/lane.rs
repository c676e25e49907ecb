//! What can be leased from the stream of one priority, and what cannot be just now.
//!
//! Always true, for a leader: every message that is not done is in exactly one of these: behind the cursor (never handed
//! out), `returned`, `backoff`, `claimed`, `purging`, or leased. The cursor only moves forward, at most to the head of
//! the stream, so that the backlog is never looked at twice.

use std::ops::Range;

use boltq_core::Seq;

use crate::ranges::RangeSet;

/// Messages of a stream that are neither leased nor to be leased now.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// A command that settles them was proposed, or is about to be.
    pub(crate) claimed: RangeSet,
    /// A command that purges them was proposed, or is about to be.
    pub(crate) purging: RangeSet,
    /// Failed, and wait for their next attempt.
    pub(crate) backoff: RangeSet,
}

impl Holds {
    pub(crate) fn settling(&self, seq: u64) -> bool {
        self.claimed.contains(seq) || self.purging.contains(seq)
    }
}

#[derive(Debug)]
pub(crate) struct Lane {
    /// Everything from here on was never handed out.
    cursor: u64,
    /// Was handed out, and came back.
    returned: RangeSet,
    pub(crate) holds: Holds,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            cursor: Seq::FIRST.0,
            returned: RangeSet::default(),
            holds: Holds::default(),
        }
    }
}

impl Lane {
    /// Moves the cursor to where messages are neither done nor in any of the sets.
    pub(crate) fn start_at(&mut self, cursor: u64) {
        self.cursor = cursor;
    }

    /// Takes the oldest messages that follow one another, at most `max`.
    pub(crate) fn take_first(&mut self, head: u64, max: u64) -> Option<Range<u64>> {
        if let Some(range) = self.returned.take_first(max) {
            return Some(range);
        }
        let range = self.cursor..head.min(self.cursor.saturating_add(max));
        self.cursor = range.end;
        (!range.is_empty()).then_some(range)
    }

    /// Takes messages out of what can be leased, and returns how many of them were there.
    pub(crate) fn take(&mut self, range: &Range<u64>) -> u64 {
        let mut taken = self.returned.remove(range);
        if range.end > self.cursor {
            let from = range.start.max(self.cursor);
            self.returned.insert(self.cursor..from);
            self.cursor = range.end;
            taken += range.end - from;
        }
        taken
    }

    /// Takes everything that can be leased.
    pub(crate) fn take_all(&mut self, head: u64) -> RangeSet {
        let mut all = std::mem::take(&mut self.returned);
        all.insert(self.cursor..head);
        self.cursor = head;
        all
    }

    /// Makes messages available again, each at its old position.
    pub(crate) fn put_back(&mut self, range: Range<u64>) {
        self.returned.insert(range);
    }

    /// What can be leased, in order.
    pub(crate) fn ready(&self, head: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let rest = self.cursor..head;
        self.returned.iter().chain((!rest.is_empty()).then_some(rest))
    }
}
