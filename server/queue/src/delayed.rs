//! What can be leased from the stream of messages that were published with a due time in the future.
//!
//! Always true, for a leader: every message that is not done is in exactly one of these: `sleeping`, `ready`, one of
//! `holds`, or leased. A message sleeps until its due time and never again.

use std::collections::BTreeSet;

use boltq_core::Millis;
use boltq_core::limits::PRIORITY_MAX;

use crate::lane::Holds;
use crate::machine::Due;
use crate::ranges::RangeSet;

/// Highest priority first, then by due time, then in the order of publishing.
type ReadyKey = (u8, Millis, u64);

#[derive(Debug, Default)]
pub(crate) struct Delayed {
    /// Not due yet.
    pub(crate) sleeping: RangeSet,
    ready: BTreeSet<ReadyKey>,
    pub(crate) holds: Holds,
}

fn key(seq: u64, due: Due) -> ReadyKey {
    (rank(due.priority), due.at, seq)
}

fn rank(priority: u8) -> u8 {
    PRIORITY_MAX.saturating_sub(priority)
}

impl Delayed {
    /// Takes the message of this priority that was due first. Higher priorities have to be empty.
    pub(crate) fn take_first(&mut self, priority: u8) -> Option<u64> {
        let first = *self.ready.first()?;
        if first.0 != rank(priority) {
            return None;
        }
        self.ready.remove(&first);
        Some(first.2)
    }

    /// Takes a message out of what can be leased; false if it was not there.
    pub(crate) fn take(&mut self, seq: u64, due: Due) -> bool {
        self.ready.remove(&key(seq, due))
    }

    /// As [`Delayed::take`], for messages whose due time is known no longer. Looks at all that can be leased: for what
    /// an earlier leader had settled, not for what goes through a claim.
    pub(crate) fn forget(&mut self, range: &std::ops::Range<u64>) {
        self.ready.retain(|(_, _, seq)| !range.contains(seq));
    }

    /// Takes everything that can be leased.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = u64> + use<> {
        std::mem::take(&mut self.ready).into_iter().map(|(_, _, seq)| seq)
    }

    /// Makes a message available, at its place in the order.
    pub(crate) fn put(&mut self, seq: u64, due: Due) {
        self.ready.insert(key(seq, due));
    }

    /// What can be leased of a priority, in order.
    pub(crate) fn ready(&self, priority: u8) -> impl Iterator<Item = u64> + '_ {
        let rank = rank(priority);
        self.ready
            .range((rank, Millis(0), 0)..=(rank, Millis::MAX, u64::MAX))
            .map(|(_, _, seq)| *seq)
    }
}

#[cfg(test)]
impl Delayed {
    /// How often a message is in here, `holds` aside.
    pub(crate) fn count_of(&self, seq: u64) -> usize {
        let ready = self.ready.iter().filter(|(_, _, at)| *at == seq).count();
        ready + usize::from(self.sleeping.contains(seq))
    }
}
