//! What can be leased from the stream of messages that were published with a due time in the future.
//!
//! Always true, for a leader: every message that is not done is in exactly one of these: `sleeping`, `ready`, one of
//! `holds`, or leased. A message sleeps until its due time and never again. Where a leader begins all of them sleep, those too that
//! are due: it wakes them in portions, see `waking`.

use std::collections::BTreeSet;

use crate::bits::SeqBits;
use crate::due::Due;
use crate::lane::Holds;
#[cfg(test)]
use crate::timetable::Timetable;

/// The order of the due time, and then that of publishing.
type ReadyKey = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct Delayed {
    /// Not due yet, or not woken yet.
    pub(crate) sleeping: SeqBits,
    ready: BTreeSet<ReadyKey>,
    pub(crate) holds: Holds,
}

/// Where a message stands that is due.
fn ready_key(seq: u64, due: Due) -> ReadyKey {
    (due.order(), seq)
}

impl Delayed {
    /// Takes the message of this priority that was due first. Higher priorities have to be empty.
    pub(crate) fn take_first(&mut self, priority: u8) -> Option<u64> {
        let first = *self.ready.range(from(priority)..).next()?;
        if priority > 0 && first >= from(priority - 1) {
            return None;
        }
        self.ready.remove(&first);
        Some(first.1)
    }

    /// Takes a message out of what can be leased; false if it was not there.
    pub(crate) fn take(&mut self, seq: u64, due: Due) -> bool {
        self.ready.remove(&ready_key(seq, due))
    }

    /// As [`Delayed::take`], for messages whose due time is known no longer. Looks at all that can be leased: for what
    /// an earlier leader had settled, not for what goes through a claim.
    pub(crate) fn forget(&mut self, range: &std::ops::Range<u64>) {
        self.ready.retain(|(_, seq)| !range.contains(seq));
    }

    /// Takes everything that can be leased.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = u64> + use<> {
        std::mem::take(&mut self.ready).into_iter().map(|(_, seq)| seq)
    }

    /// Makes a message available, at its place in the order.
    pub(crate) fn put(&mut self, seq: u64, due: Due) {
        self.ready.insert(ready_key(seq, due));
    }

    /// What can be leased of a priority, in order.
    pub(crate) fn ready(&self, priority: u8) -> impl Iterator<Item = u64> + '_ {
        let end = priority.checked_sub(1).map(from);
        let ready = self.ready.range(from(priority)..);
        ready
            .take_while(move |key| end.is_none_or(|end| **key < end))
            .map(|(_, seq)| *seq)
    }
}

/// Where the messages of a priority begin.
fn from(priority: u8) -> ReadyKey {
    (Due::order_from(priority), 0)
}

#[cfg(test)]
impl Delayed {
    /// How often a message is in here, `holds` aside.
    pub(crate) fn count_of(&self, seq: u64, due: Option<Due>) -> usize {
        let ready = due.is_some_and(|due| self.ready.contains(&ready_key(seq, due)));
        usize::from(ready) + usize::from(self.sleeping.contains(seq))
    }

    /// Checks that what is ready stands where its due time says, and so nowhere else.
    pub(crate) fn check(&self, dues: &Timetable<Due>) {
        let stands_right = |key: &ReadyKey| dues.get(key.1).is_some_and(|due| ready_key(key.1, due) == *key);
        assert!(self.ready.iter().all(stands_right));
    }
}
