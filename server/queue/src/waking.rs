//! What time brings: delays and backoffs that end, leases that end, and messages that expire.
//!
//! Each turn is bounded, by the messages that it moves and by the times that it looks at, so that others have theirs in between.
//! Messages that are due become ready in the order of their due times also over several turns, see [`crate::gathered`]. So it is
//! too when a leader begins and millions are due.

use boltq_core::Millis;

use crate::calendar::ChunkKey;
use crate::delivery::Claim;
use crate::dispatch::Dispatch;
use crate::machine::Machine;
use crate::place::{DELAYED, Place, stream_of};
use crate::timetable::{Slot, chunk_of};

/// Messages that one turn wakes, where nobody says another number.
pub(crate) const TURN_MESSAGES: usize = 1_000;
/// Chunks of times that one turn looks at: half a million messages, which takes a millisecond if few of them have their time now. Tests
/// come upon the limit with few.
pub(crate) const TURN_CHUNKS: usize = if cfg!(test) { 24 } else { 512 };
/// Messages that one turn gathers before it ends, which takes some milliseconds; the last chunk may have a thousand more.
const TURN_GATHERED: usize = 4_096;

impl Dispatch {
    /// Wakes what is due or out of backoff, and claims what was leased for too long; at most `max` of each.
    pub(crate) fn tick(&mut self, machine: &Machine, now: Millis, timed_out: &mut Vec<Claim>, max: usize) {
        self.wake_due(machine, now, max);
        let wanted = timed_out.len().saturating_add(max);
        while timed_out.len() < wanted && self.claim_ended(machine, now, wanted - timed_out.len(), timed_out) {}
    }

    /// Wakes what is due or out of backoff, at most `max` of each.
    pub(crate) fn wake_due(&mut self, machine: &Machine, now: Millis, max: usize) {
        for _ in 0..max {
            let Some(&(at, place)) = self.alarms.first().filter(|(at, _)| *at <= now) else {
                break;
            };
            self.alarms.remove(&(at, place));
            self.ring(machine, place, now);
        }
        let (mut woken, mut chunks, mut gathered) = (0, 0, 0);
        while woken < max {
            let chunk = self.dues.first().filter(|(at, _)| *at <= now);
            let message = self.gathered.first();
            // Nothing in a chunk that is looked at later is due before.
            if message.is_some_and(|message| chunk.is_none_or(|chunk| message <= chunk)) {
                self.wake_first(machine, now);
                woken += 1;
            } else if chunk.is_some() && chunks < TURN_CHUNKS && gathered < TURN_GATHERED {
                chunks += 1;
                gathered += self.look(machine, now);
            } else {
                break;
            }
        }
    }

    /// The message may have been settled, or have failed again, since the alarm was set.
    fn ring(&mut self, machine: &Machine, place: Place, now: Millis) {
        let seq = place.seq.0;
        let Some((_, lane, window)) = machine.stream(place.stream) else {
            return;
        };
        let rested = window.failed.get(&seq).is_some_and(|failure| failure.not_before <= now);
        let Some((_, _, state)) = self.state_mut(place.stream) else {
            return;
        };
        let range = seq..seq + 1;
        let holds = state.holds_mut(lane).filter(|_| rested);
        if holds.is_some_and(|holds| holds.backoff.remove(&range) > 0) {
            self.give_back(machine, place.stream, &range, now);
        }
    }

    /// Makes the message ready that was gathered first, if it sleeps still. It may have been settled since, or be due at another time.
    fn wake_first(&mut self, machine: &Machine, now: Millis) {
        if let Some(place) = self.gathered.take_first()
            && self.take_sleeping(place)
        {
            self.give_back(machine, place.stream, &(place.seq.0..place.seq.0 + 1), now);
        }
    }

    /// Looks at the chunk of due times that comes next and gathers what is due. Returns the number of messages.
    fn look(&mut self, machine: &Machine, now: Millis) -> usize {
        let Some((from, key)) = self.dues.take_first(now) else {
            return 0;
        };
        let (stream, chunk) = key;
        let state = stream_of(stream).and_then(|(id, _)| self.queues.get(id.0 as usize));
        let (Some((queue, _, _)), Some(delayed)) =
            (machine.stream(stream), state.and_then(|state| state.delayed.as_ref()))
        else {
            return 0;
        };
        let until = self.gathered.until(from, now);
        let (mut found, mut later) = (0, Millis::MAX);
        for (seq, due) in queue.due.in_chunk(chunk).filter(|(_, due)| due.at() >= from) {
            let at = due.at();
            if at > until {
                later = later.min(at);
            } else if delayed.sleeping.contains(seq) {
                found += 1;
                match self.gathered.add(at, Place::new(stream, seq)) {
                    Some((at, place)) if (place.stream, chunk_of(place.seq.0)) == key => later = later.min(at),
                    Some((at, place)) => self.dues.arm((place.stream, chunk_of(place.seq.0)), at),
                    None => {}
                }
            }
        }
        if later < Millis::MAX {
            self.dues.arm(key, later);
        }
        found
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
                    expired: self.is_over(window, place, now),
                }
            }));
        }
        true
    }

    /// Claims messages whose time to live is over and that nobody holds, `max` at most.
    pub(crate) fn claim_expired(&mut self, machine: &Machine, now: Millis, max: usize, expired: &mut Vec<Place>) {
        let wanted = expired.len().saturating_add(max);
        for _ in 0..TURN_CHUNKS {
            if expired.len() >= wanted {
                return;
            }
            let Some((at, key)) = self.expiries.take_first(now) else {
                return;
            };
            self.claim_expired_of(machine, at, key, now, wanted, expired);
        }
    }

    /// Claims the messages of a chunk that are over. None that nobody holds was over before `from`.
    fn claim_expired_of(
        &mut self,
        machine: &Machine,
        from: Millis,
        (stream, chunk): ChunkKey,
        now: Millis,
        wanted: usize,
        expired: &mut Vec<Place>,
    ) {
        let Some((queue, lane, window)) = machine.stream(stream) else {
            return;
        };
        let mut next = Millis::MAX;
        for (seq, expires) in window.expires.in_chunk(chunk).filter(|(_, expires)| *expires >= from) {
            if expires > now || expired.len() >= wanted {
                next = next.min(expires);
                continue;
            }
            let place = Place::new(stream, seq);
            if self.take_idle(queue, lane, window, place) || self.take_sleeping(place) || self.is_behind(place) {
                if let Some((_, _, state)) = self.state_mut(stream) {
                    state.holds_new(lane).claimed.insert(seq..seq + 1);
                }
                expired.push(place);
            }
        }
        if next < Millis::MAX {
            self.expiries.arm((stream, chunk), next);
        }
    }

    /// Takes a message that is not due; false if it is not asleep.
    pub(crate) fn take_sleeping(&mut self, place: Place) -> bool {
        let Some((_, DELAYED, state)) = self.state_mut(place.stream) else {
            return false;
        };
        let range = place.seq.0..place.seq.0.saturating_add(1);
        let delayed = state.delayed.as_mut();
        delayed.is_some_and(|delayed| delayed.sleeping.remove(&range) > 0)
    }
}
