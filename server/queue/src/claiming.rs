//! Taking messages for a command: an acknowledgement, a failed attempt, an expiry, a purge.
//!
//! Between the claim and the command's application the message belongs to the command: it cannot be leased, timed out
//! or claimed again. If the command is not applied, the claim is given back, and no attempt is counted.

use boltq_core::Millis;

use crate::delivery::{Claim, ClaimError, Handle};
use crate::dispatch::Dispatch;
use crate::leases::Lease;
use crate::machine::{Machine, Queue};
use crate::place::{DELAYED, Place, QueueId, Run, STREAMS, stream_id, stream_of};
use crate::ranges::RangeSet;
use crate::window::Window;

impl Dispatch {
    pub(crate) fn claim(&mut self, machine: &Machine, handle: Handle, now: Millis) -> Result<Claim, ClaimError> {
        let place = handle.place();
        let (queue, lane, window) = open(machine, place)?;
        let lease = self.lease_of(handle)?;
        if let Some(lease) = &lease {
            self.leases.end(lease);
        } else if !self.take_idle(queue, lane, window, place) {
            // It sleeps until its due time: nobody can have got it.
            return Err(ClaimError::NotFound);
        }
        let (id, _, state) = self.state_mut(place.stream).ok_or(ClaimError::NotFound)?;
        state.leased -= u64::from(lease.is_some());
        state.holds_new(lane).claimed.insert(place.seq.0..place.seq.0 + 1);
        let claim = Claim {
            place,
            queue: id,
            attempts: window.attempts(place.seq.0),
            consumer: lease.map(|lease| lease.consumer),
            held_ms: lease.map(|lease| now.since(lease.began)),
            expired: self.notes.expired(place, now),
        };
        if claim.expired {
            return Err(ClaimError::Expired(claim));
        }
        Ok(claim)
    }

    /// The lease that a handle stands for; none if nobody holds the message.
    fn lease_of(&mut self, handle: Handle) -> Result<Option<Lease>, ClaimError> {
        let place = handle.place();
        let (_, lane, state) = self.state_mut(place.stream).ok_or(ClaimError::NotFound)?;
        if state.holds(lane).is_some_and(|holds| holds.settling(place.seq.0)) {
            return Err(ClaimError::LeaseLost);
        }
        let lease = self.leases.get(place);
        match (lease, handle) {
            (Some(held), Handle::Token { lease, .. }) if held.number != lease => Err(ClaimError::LeaseLost),
            _ => Ok(lease),
        }
    }

    /// Takes a message that nobody holds out of what is ready or in backoff; false if it is in neither.
    fn take_idle(&mut self, queue: &Queue, lane: usize, window: &Window, place: Place) -> bool {
        let seq = place.seq.0;
        let Some((_, _, state)) = self.state_mut(place.stream) else {
            return false;
        };
        if state.holds_new(lane).backoff.remove(&(seq..seq + 1)) > 0 {
            if let Some(failure) = window.failed.get(&seq) {
                self.alarms.remove(&(failure.not_before, place));
            }
            return true;
        }
        if lane == DELAYED {
            let due = queue.due.get(&seq);
            let delayed = state.delayed.as_mut().zip(due);
            return delayed.is_some_and(|(delayed, due)| delayed.take(seq, *due));
        }
        let ready = state.lanes[lane].as_mut();
        ready.is_some_and(|ready| ready.take(&(seq..seq + 1)) > 0)
    }

    /// Gives a claim back: the message is available again, or in the backoff that it was in.
    pub(crate) fn unclaim(&mut self, machine: &Machine, place: Place, now: Millis) {
        let range = place.seq.0..place.seq.0.saturating_add(1);
        let held = self.state_mut(place.stream);
        let claimed = held
            .and_then(|(_, lane, state)| state.holds_mut(lane))
            .map_or(0, |holds| holds.claimed.remove(&range));
        if claimed > 0 {
            self.give_back(machine, place.stream, &range, now);
            if let Some((id, _)) = stream_of(place.stream) {
                self.relax(id);
            }
        }
    }

    pub(crate) fn extend(&mut self, machine: &Machine, handle: Handle, ends: Millis) -> Result<(), ClaimError> {
        open(machine, handle.place())?;
        let lease = self.lease_of(handle)?.ok_or(ClaimError::LeaseLost)?;
        self.leases.extend(&lease, ends);
        Ok(())
    }

    /// Wakes what is due or out of backoff, and claims what was leased for too long; at most `max` of each.
    pub(crate) fn tick(&mut self, machine: &Machine, now: Millis, timed_out: &mut Vec<Claim>, max: usize) {
        self.wake_due(machine, now, max);
        let wanted = timed_out.len().saturating_add(max);
        while timed_out.len() < wanted && self.claim_ended(machine, now, wanted - timed_out.len(), timed_out) {}
    }

    /// Wakes what is due or out of backoff, at most `max`.
    pub(crate) fn wake_due(&mut self, machine: &Machine, now: Millis, max: usize) {
        for _ in 0..max {
            let Some(&(at, place)) = self.alarms.first().filter(|(at, _)| *at <= now) else {
                break;
            };
            self.alarms.remove(&(at, place));
            self.ring(machine, place, now);
        }
    }

    /// The message may have been settled, or have failed again, since the alarm was set. One that sleeps was not: its
    /// only alarm is that of its due time.
    fn ring(&mut self, machine: &Machine, place: Place, now: Millis) {
        let seq = place.seq.0;
        let Some((queue, lane, window)) = machine.stream(place.stream) else {
            return;
        };
        let rested = window.failed.get(&seq).is_some_and(|failure| failure.not_before <= now);
        let Some((_, _, state)) = self.state_mut(place.stream) else {
            return;
        };
        let range = seq..seq + 1;
        let mut woken = 0;
        if let Some(delayed) = state.delayed.as_mut().filter(|_| lane == DELAYED) {
            woken += delayed.sleeping.remove(&range);
        }
        if let Some(holds) = state.holds_mut(lane).filter(|_| rested) {
            woken += holds.backoff.remove(&range);
        }
        if woken > 0 {
            self.put_ready(queue, place.stream, range);
        }
    }

    fn claim_ended(&mut self, machine: &Machine, now: Millis, max: usize, timed_out: &mut Vec<Claim>) -> bool {
        let Some(ended) = self.leases.take_ended(now, max) else {
            return false;
        };
        let known = machine.stream(ended.stream);
        if let (Some((_, lane, window)), Some((id, _, state))) = (known, self.state_mut(ended.stream)) {
            state.leased -= ended.range.end - ended.range.start;
            state.holds_new(lane).claimed.insert(ended.range.clone());
            timed_out.extend(ended.range.map(|seq| {
                let place = Place::new(ended.stream, seq);
                Claim {
                    place,
                    queue: id,
                    attempts: window.attempts(seq),
                    consumer: Some(ended.consumer),
                    held_ms: None,
                    expired: self.notes.expired(place, now),
                }
            }));
        }
        true
    }

    /// Claims everything of a queue that waits, whether ready or in backoff.
    pub(crate) fn begin_purge(&mut self, machine: &Machine, id: QueueId) -> Vec<Run> {
        let mut runs = Vec::new();
        let (Some(queue), Some(state)) = (machine.queue_at(id), self.queues.get_mut(id.0 as usize)) else {
            return runs;
        };
        for lane in 0..STREAMS {
            let Some(window) = queue.window(lane) else { continue };
            let mut taken = RangeSet::default();
            if let Some(delayed) = state.delayed.as_mut().filter(|_| lane == DELAYED) {
                delayed.take_all().for_each(|seq| taken.insert(seq..seq + 1));
            } else if let Some(ready) = state.lanes.get_mut(lane).and_then(Option::as_mut) {
                taken = ready.take_all(window.head);
            }
            let holds = state.holds_new(lane);
            let stream = stream_id(id, lane);
            for range in std::mem::take(&mut holds.backoff).iter() {
                for (&seq, failure) in window.failed.range(range.clone()) {
                    self.alarms.remove(&(failure.not_before, Place::new(stream, seq)));
                }
                taken.insert(range);
            }
            for range in taken.iter() {
                runs.push(Run::new(stream, &range));
                holds.purging.insert(range);
            }
        }
        runs
    }

    /// Gives back what a purge had claimed.
    pub(crate) fn abort_purge(&mut self, machine: &Machine, runs: &[Run], now: Millis) {
        for run in runs {
            while let Some(part) = self.take_purging(run) {
                self.give_back(machine, run.stream, &part, now);
            }
        }
    }

    fn take_purging(&mut self, run: &Run) -> Option<std::ops::Range<u64>> {
        let (_, lane, state) = self.state_mut(run.stream)?;
        let purging = &mut state.holds_mut(lane)?.purging;
        let part = purging.first_within(&run.range())?;
        purging.remove(&part);
        Some(part)
    }
}

/// Queue, lane and window of a message that exists and is not done.
fn open(machine: &Machine, place: Place) -> Result<(&Queue, usize, &Window), ClaimError> {
    machine
        .stream(place.stream)
        .filter(|(_, _, window)| window.is_open(place.seq.0))
        .ok_or(ClaimError::NotFound)
}
