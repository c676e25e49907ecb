//! Who holds what until when.
//!
//! Leases are kept in runs: messages that one call leased together and that follow one another. A run is known by its
//! stream and its *last* sequence, because consumers mostly settle in order: a run then shrinks from its front, in
//! place, and none of the three indexes has to know.
//!
//! Always true: runs are not empty and disjoint; `by_end` and `by_consumer` hold exactly one entry for each run;
//! `held` counts the messages of each consumer that has any. Numbers rise from one message to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use boltq_core::{Millis, StreamId};

use crate::place::{ConsumerId, LeaseNo, Place};

/// The lease of one message, and where it is kept: good until the next change of any lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    pub(crate) number: LeaseNo,
    pub(crate) consumer: ConsumerId,
    /// When it began.
    pub(crate) began: Millis,
    seq: u64,
    key: RunKey,
    run: LeaseRun,
}

/// Messages of a run whose lease is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) stream: StreamId,
    pub(crate) range: Range<u64>,
    pub(crate) consumer: ConsumerId,
}

#[derive(Debug, Clone, Copy)]
struct LeaseRun {
    first: u64,
    /// Of `first`.
    number: u64,
    consumer: ConsumerId,
    began: Millis,
    ends: Millis,
}

/// Stream and last sequence.
type RunKey = (StreamId, u64);

#[derive(Debug)]
pub(crate) struct Leases {
    runs: BTreeMap<RunKey, LeaseRun>,
    by_end: BTreeSet<(Millis, RunKey)>,
    by_consumer: BTreeSet<(ConsumerId, RunKey)>,
    held: BTreeMap<ConsumerId, usize>,
    next: u64,
}

impl Leases {
    /// No leases; the first one gets the number `next`.
    pub(crate) fn new(next: LeaseNo) -> Self {
        Self {
            runs: BTreeMap::new(),
            by_end: BTreeSet::new(),
            by_consumer: BTreeSet::new(),
            held: BTreeMap::new(),
            next: next.0,
        }
    }

    /// The number of the next lease.
    pub(crate) fn next(&self) -> LeaseNo {
        LeaseNo(self.next)
    }

    /// Messages that a consumer holds.
    pub(crate) fn held_by(&self, consumer: ConsumerId) -> usize {
        self.held.get(&consumer).copied().unwrap_or(0)
    }

    /// When the first lease ends.
    pub(crate) fn first_end(&self) -> Option<Millis> {
        self.by_end.first().map(|(ends, _)| *ends)
    }

    /// Leases messages that nobody holds and returns the number of the first one.
    pub(crate) fn add(
        &mut self,
        stream: StreamId,
        range: &Range<u64>,
        consumer: ConsumerId,
        (began, ends): (Millis, Millis),
    ) -> LeaseNo {
        let number = self.next;
        self.next += range.end - range.start;
        let run = LeaseRun {
            first: range.start,
            number,
            consumer,
            began,
            ends,
        };
        self.insert((stream, range.end - 1), run);
        *self.held.entry(consumer).or_default() += length(range);
        LeaseNo(number)
    }

    fn insert(&mut self, key: RunKey, run: LeaseRun) {
        self.runs.insert(key, run);
        self.by_end.insert((run.ends, key));
        self.by_consumer.insert((run.consumer, key));
    }

    fn remove(&mut self, key: RunKey, run: &LeaseRun) {
        self.runs.remove(&key);
        self.by_end.remove(&(run.ends, key));
        self.by_consumer.remove(&(run.consumer, key));
    }

    /// The first run of a stream that ends at or behind `seq`.
    fn run_at(&self, stream: StreamId, seq: u64) -> Option<(RunKey, LeaseRun)> {
        let (key, run) = self.runs.range((stream, seq)..).next()?;
        (key.0 == stream).then_some((*key, *run))
    }

    /// The lease of a message.
    pub(crate) fn get(&self, place: Place) -> Option<Lease> {
        let (key, run) = self.run_at(place.stream, place.seq.0)?;
        let ahead = place.seq.0.checked_sub(run.first)?;
        Some(Lease {
            number: LeaseNo(run.number + ahead),
            consumer: run.consumer,
            began: run.began,
            seq: place.seq.0,
            key,
            run,
        })
    }

    /// Takes `part`, which lies within the run, out of it.
    fn cut(&mut self, key: RunKey, run: LeaseRun, part: &Range<u64>) {
        let behind = LeaseRun {
            first: part.end,
            number: run.number + (part.end - run.first),
            ..run
        };
        if behind.first > key.1 {
            self.remove(key, &run);
        } else if let Some(kept) = self.runs.get_mut(&key) {
            *kept = behind;
        }
        if run.first < part.start {
            self.insert((key.0, part.start - 1), run);
        }
    }

    fn release(&mut self, consumer: ConsumerId, count: usize) {
        if let Some(held) = self.held.get_mut(&consumer) {
            *held = held.saturating_sub(count);
            if *held == 0 {
                self.held.remove(&consumer);
            }
        }
    }

    /// Ends a lease that `get` has just found.
    pub(crate) fn end(&mut self, lease: &Lease) {
        self.cut(lease.key, lease.run, &(lease.seq..lease.seq + 1));
        self.release(lease.consumer, 1);
    }

    /// Ends the leases of all messages in a range and returns their number. Whose they were is added to `whose`.
    pub(crate) fn take_range(&mut self, stream: StreamId, range: &Range<u64>, whose: &mut Vec<ConsumerId>) -> u64 {
        let mut taken = 0;
        while let Some((key, run)) = self.run_at(stream, range.start) {
            let part = run.first.max(range.start)..(key.1 + 1).min(range.end);
            if part.is_empty() {
                break;
            }
            self.cut(key, run, &part);
            self.release(run.consumer, length(&part));
            whose.push(run.consumer);
            taken += part.end - part.start;
        }
        taken
    }

    /// Ends leases that are over at `now`: the front of the run that ended first, at most `max` messages.
    pub(crate) fn take_ended(&mut self, now: Millis, max: usize) -> Option<Ended> {
        let (_, key) = *self.by_end.first().filter(|(ends, _)| *ends <= now)?;
        let run = *self.runs.get(&key)?;
        let range = run.first..run.first.saturating_add(max as u64).min(key.1 + 1);
        self.cut(key, run, &range);
        self.release(run.consumer, length(&range));
        Some(Ended {
            stream: key.0,
            range,
            consumer: run.consumer,
        })
    }

    /// Ends the leases of one run of a consumer.
    pub(crate) fn take_of(&mut self, consumer: ConsumerId) -> Option<(StreamId, Range<u64>)> {
        let from = (consumer, (StreamId(0), 0));
        let (owner, key) = *self.by_consumer.range(from..).next()?;
        let run = *self.runs.get(&key).filter(|_| owner == consumer)?;
        let range = run.first..key.1 + 1;
        self.cut(key, run, &range);
        self.release(consumer, length(&range));
        Some((key.0, range))
    }

    /// Moves the end of a lease that `get` has just found.
    pub(crate) fn extend(&mut self, lease: &Lease, ends: Millis) {
        self.cut(lease.key, lease.run, &(lease.seq..lease.seq + 1));
        let alone = LeaseRun {
            first: lease.seq,
            number: lease.number.0,
            ends,
            ..lease.run
        };
        self.insert((lease.key.0, lease.seq), alone);
    }
}

/// Lengths of ranges in here are numbers of messages that were leased one by one into memory.
fn length(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).unwrap_or(usize::MAX)
}

#[cfg(test)]
impl Leases {
    /// Checks what the module promises, and returns the messages that are leased.
    pub(crate) fn check(&self) -> BTreeSet<Place> {
        let mut places = BTreeSet::new();
        let mut held: BTreeMap<ConsumerId, usize> = BTreeMap::new();
        for (key, run) in &self.runs {
            assert!(run.first <= key.1);
            assert!(self.by_end.contains(&(run.ends, *key)));
            assert!(self.by_consumer.contains(&(run.consumer, *key)));
            for seq in run.first..=key.1 {
                assert!(places.insert(Place::new(key.0, seq)), "leased twice");
                *held.entry(run.consumer).or_default() += 1;
            }
        }
        assert_eq!(
            (self.by_end.len(), self.by_consumer.len()),
            (self.runs.len(), self.runs.len())
        );
        assert_eq!(held, self.held);
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: StreamId = StreamId(16);
    const ANN: ConsumerId = ConsumerId(1);
    const BOB: ConsumerId = ConsumerId(2);

    fn at(seq: u64) -> Place {
        Place::new(STREAM, seq)
    }

    fn leases() -> Leases {
        let mut leases = Leases::new(LeaseNo(100));
        assert_eq!(leases.add(STREAM, &(1..11), ANN, (Millis(7), Millis(50))), LeaseNo(100));
        assert_eq!(
            leases.add(STREAM, &(11..13), BOB, (Millis(8), Millis(40))),
            LeaseNo(110)
        );
        leases
    }

    #[test]
    fn a_run_can_be_settled_in_any_order() {
        for order in [[1, 2, 3, 4, 5], [10, 9, 8, 7, 6], [5, 1, 10, 6, 4]] {
            let mut leases = leases();
            for seq in order {
                let lease = leases.get(at(seq)).unwrap();
                assert_eq!((lease.number, lease.consumer), (LeaseNo(99 + seq), ANN));
                leases.end(&lease);
                assert!(leases.get(at(seq)).is_none());
                leases.check();
            }
            assert_eq!((leases.held_by(ANN), leases.held_by(BOB)), (5, 2));
        }
    }

    #[test]
    fn leases_end_in_the_order_of_their_ends_and_in_portions() {
        let mut leases = leases();
        assert_eq!(leases.first_end(), Some(Millis(40)));
        assert_eq!(leases.take_ended(Millis(39), 9), None);
        assert_eq!(leases.take_ended(Millis(50), 9).unwrap().range, 11..13);
        assert_eq!(leases.take_ended(Millis(50), 9).unwrap().range, 1..10);
        leases.check();
        assert_eq!(leases.take_ended(Millis(50), 9).unwrap().range, 10..11);
        assert_eq!(leases.take_ended(Millis(50), 9), None);
        assert_eq!(leases.held_by(ANN), 0);
    }

    #[test]
    fn an_extended_lease_keeps_its_number_and_its_neighbours_their_end() {
        let mut leases = leases();
        let lease = leases.get(at(5)).unwrap();
        leases.extend(&lease, Millis(90));
        assert!(leases.get(at(13)).is_none());
        let extended = leases.get(at(5)).unwrap();
        assert_eq!((extended.number, extended.began), (LeaseNo(104), Millis(7)));
        assert_eq!(leases.check().len(), 12);
        let mut ended = Vec::new();
        while let Some(part) = leases.take_ended(Millis(60), 99) {
            ended.push(part.range);
        }
        assert_eq!(ended, [11..13, 1..5, 6..11]);
        assert_eq!(leases.check(), BTreeSet::from([at(5)]));
    }

    #[test]
    fn what_a_consumer_holds_is_found_without_what_others_hold() {
        let mut leases = leases();
        let lease = leases.get(at(4)).unwrap();
        leases.end(&lease);
        assert_eq!(leases.take_of(ANN), Some((STREAM, 1..4)));
        assert_eq!(leases.take_of(ANN), Some((STREAM, 5..11)));
        assert_eq!(leases.take_of(ANN), None);
        let mut whose = Vec::new();
        assert_eq!(leases.take_range(STREAM, &(0..99), &mut whose), 2);
        assert_eq!(whose, [BOB]);
        assert!(leases.check().is_empty());
    }
}
