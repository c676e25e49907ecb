//! The messages that become ready next, in the order of their due times.
//!
//! A [`Calendar`](crate::calendar::Calendar) says which chunk of times is to be looked at next. But where times are in no order, a
//! chunk has few that are next, and each of them would take a look of its own: when ten million are due at a takeover, a thousand
//! looks for each message. So a look takes all that is due out of its chunk. It stays here, in order, and becomes ready when no chunk
//! has anything that is due before.
//!
//! There is room for [`GATHERED_MAX`], for those that are due first; what finds none goes back to the calendar. To take out what finds
//! no room would be most of the work. So what is gathered from when there is nothing here until there is nothing again, a *pass*,
//! is what is due up to some time, as far beyond its beginning as the pass before has found room for, or further if that found little.
//!
//! Always true, for a leader: a message that sleeps is in here with its due time, or the calendar has its chunk looked at not later
//! than that. What is in here may sleep no longer, or be due at another time: whoever takes it has to look.

use std::collections::BTreeSet;

use boltq_core::Millis;

use crate::calendar::ChunkKey;
use crate::place::Place;
use crate::timetable::chunk_of;

/// Messages that are gathered at most, some 5 MiB. Tests come upon the limit with few.
pub(crate) const GATHERED_MAX: usize = if cfg!(test) { 2_048 } else { 131_072 };

#[derive(Debug)]
pub(crate) struct Gathered {
    messages: BTreeSet<(Millis, Place)>,
    pass: Pass,
}

#[derive(Debug)]
struct Pass {
    began: Millis,
    /// How far beyond its beginning it goes.
    span_ms: u64,
    /// What is due later is not gathered.
    until: Millis,
    /// Messages that were gathered in it.
    count: usize,
    /// Whether there were more than there is room for.
    overflowed: bool,
}

impl Default for Gathered {
    fn default() -> Self {
        Self {
            messages: BTreeSet::new(),
            pass: Pass {
                began: Millis(0),
                span_ms: u64::MAX,
                until: Millis(0),
                count: 0,
                overflowed: false,
            },
        }
    }
}

impl Pass {
    fn next(&self, began: Millis, now: Millis) -> Self {
        let span_ms = match self.overflowed {
            true => self.until.since(self.began).max(1),
            false if self.count < GATHERED_MAX / 2 => self.span_ms.saturating_mul(2),
            false => self.span_ms,
        };
        Self {
            began,
            span_ms,
            until: began.plus(span_ms).min(now),
            count: 0,
            overflowed: false,
        }
    }
}

impl Gathered {
    /// When the first message is or was due, and the chunk that it was in.
    pub(crate) fn first(&self) -> Option<(Millis, ChunkKey)> {
        let (at, place) = self.messages.first()?;
        Some((*at, (place.stream, chunk_of(place.seq.0))))
    }

    pub(crate) fn take_first(&mut self) -> Option<Place> {
        self.messages.pop_first().map(|(_, place)| place)
    }

    /// Up to when messages are gathered from a chunk that is looked at `now`, because something in it may be due `from` then on.
    pub(crate) fn until(&mut self, from: Millis, now: Millis) -> Millis {
        if self.messages.is_empty() {
            self.pass = self.pass.next(from, now);
        }
        self.pass.until
    }

    /// Adds a message that is due until the end of the pass. Returns one that there is no room for.
    pub(crate) fn add(&mut self, at: Millis, place: Place) -> Option<(Millis, Place)> {
        self.pass.count += 1;
        self.messages.insert((at, place));
        if self.messages.len() <= GATHERED_MAX {
            return None;
        }
        let last = self.messages.pop_last();
        self.pass.overflowed = true;
        self.pass.until = self.messages.last().map_or(self.pass.until, |(at, _)| *at);
        last
    }
}

#[cfg(test)]
impl Gathered {
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn has(&self, at: Millis, place: Place) -> bool {
        self.messages.contains(&(at, place))
    }

    /// Checks that there is not more than there is room for, and nothing behind the end of the pass.
    pub(crate) fn check(&self) {
        assert!(self.len() <= GATHERED_MAX);
        assert!(self.messages.last().is_none_or(|(at, _)| *at <= self.pass.until));
    }
}
