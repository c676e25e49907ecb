//! Taking messages for a command: an acknowledgement, a failed attempt, an expiry, a purge.
//!
//! Between the claim and the command's application the message belongs to the command: it cannot be leased, timed out
//! or claimed again. If the command is not applied, the claim is given back, and no attempt is counted.

use boltq_core::Millis;

use crate::delivery::{Claim, ClaimError, Handle};
use crate::dispatch::Dispatch;
use crate::leases::Lease;
use crate::machine::{Machine, Queue};
use crate::place::{DELAYED, KEYED, Place, QueueId, Run, STREAMS, stream_id, stream_of};
use crate::ranges::RangeSet;
use crate::timetable::Slot;
use crate::window::Window;

impl Dispatch {
    pub(crate) fn claim(&mut self, machine: &Machine, handle: Handle, now: Millis) -> Result<Claim, ClaimError> {
        let place = handle.place();
        let (queue, lane, window) = open(machine, place)?;
        let lease = self.lease_of(handle)?;
        match &lease {
            Some(lease) => self.leases.end(lease),
            None if !self.reach(queue, place, now) => return Err(ClaimError::Later),
            None => {}
        }
        if lease.is_none() && !self.take_idle(queue, lane, window, place) {
            // It sleeps until its due time, or waits for its key: nobody can have got it.
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
            expired: self.is_over(window, place, now),
        };
        if claim.expired {
            return Err(ClaimError::Expired(claim));
        }
        Ok(claim)
    }

    /// Whether the time to live of a message is over. The machine knows the ends of those that were published since it keeps
    /// them, and whoever read the record noted that of any.
    pub(crate) fn is_over(&self, window: &Window, place: Place, now: Millis) -> bool {
        let expires = window.expires.get(place.seq.0);
        expires.is_some_and(|expires| expires <= now) || self.notes.expired(place, now)
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
    pub(crate) fn take_idle(&mut self, queue: &Queue, lane: usize, window: &Window, place: Place) -> bool {
        let seq = place.seq.0;
        let due = queue.due.get(seq).filter(|_| lane == DELAYED);
        let was_due = due.is_some_and(|due| self.was_due(due));
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
            let delayed = state.delayed.as_mut().zip(due);
            return delayed.is_some_and(|(delayed, due)| {
                delayed.take(seq, due) || (was_due && delayed.sleeping.remove(&(seq..seq + 1)) > 0)
            });
        }
        if lane == KEYED {
            return state.keyed.as_mut().is_some_and(|keyed| keyed.take(seq));
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

    /// Claims everything of a queue that waits, whether ready or in backoff.
    pub(crate) fn begin_purge(&mut self, machine: &Machine, id: QueueId) -> Vec<Run> {
        let mut runs = Vec::new();
        let began = self.began;
        // Otherwise all that was due then has been woken.
        let some_sleep = self.next_due().is_some_and(|at| at <= began);
        let (Some(queue), Some(state)) = (machine.queue_at(id), self.queues.get_mut(id.0 as usize)) else {
            return runs;
        };
        for lane in 0..STREAMS {
            let Some(window) = queue.window(lane) else { continue };
            let mut taken = RangeSet::default();
            if let Some(delayed) = state.delayed.as_mut().filter(|_| lane == DELAYED) {
                delayed.take_all().for_each(|seq| taken.insert(seq..seq + 1));
                for (seq, due) in queue.due.iter().take_while(|_| some_sleep) {
                    if due.at() <= began && delayed.sleeping.remove(&(seq..seq + 1)) > 0 {
                        taken.insert(seq..seq + 1);
                    }
                }
            } else if let Some(keyed) = state.keyed.as_mut().filter(|_| lane == KEYED) {
                taken = keyed.take_all(window);
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
pub(crate) fn open(machine: &Machine, place: Place) -> Result<(&Queue, usize, &Window), ClaimError> {
    machine
        .stream(place.stream)
        .filter(|(_, _, window)| window.is_open(place.seq.0))
        .ok_or(ClaimError::NotFound)
}
