//! Messages that wait for their due time: listing them, taking them back, and giving them another time.
//!
//! As a settlement does, each change claims its message first, on the leader, and only one that sleeps can be claimed for it. So a
//! message is delivered or changed, never both: what is due, whether it is ready, leased or being settled, is out of reach.

use std::collections::BinaryHeap;

use boltq_core::{Applied, Millis, Seq};

use crate::claiming::open;
use crate::command::Items;
use crate::dispatch::Dispatch;
use crate::due::Due;
use crate::machine::Machine;
use crate::outcome::{Effect, Outcome};
use crate::place::{DELAYED, Place, QueueId, Run, stream_id, stream_of};
use crate::plane::Plane;
use crate::timetable::Slot;

/// Chunks of due times that one call of [`crate::Plane::list_scheduled`] looks at: some 65 thousand messages, which takes a
/// fraction of a millisecond.
const CHUNKS_MAX: usize = 64;

/// A message that is not due yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheduled {
    /// The message.
    pub place: Place,
    /// When it is due.
    pub due: Millis,
    /// 0-9.
    pub priority: u8,
}

/// Why a message can be neither cancelled nor rescheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// It is done, or there never was one, or this node does not lead.
    #[error("there is no such message: it was delivered and acknowledged, it expired, or it was cancelled or purged")]
    NotFound,
    /// It is due, or it never was delayed.
    #[error("it waits for no due time: it is ready, being delivered, or being settled; acknowledge it to be rid of it")]
    NotScheduled,
}

/// Looks for the messages of a queue that are due next, a part of them at a time, so that nobody has to wait for all of it.
/// What comes or goes meanwhile is seen or not.
#[derive(Debug)]
pub struct Listing {
    after: Option<(Millis, Seq)>,
    max: usize,
    /// Those that are due first, the last of them on top; one more than are wanted.
    found: BinaryHeap<(Millis, u64, u8)>,
    next_chunk: u64,
}

impl Listing {
    /// Messages behind one that is due then, `max` at most.
    #[must_use]
    pub fn new(after: Option<(Millis, Seq)>, max: usize) -> Self {
        Self {
            after,
            max,
            found: BinaryHeap::new(),
            next_chunk: 0,
        }
    }

    /// Whether a message belongs among those that were found so far.
    fn wants(&self, due: Millis, seq: u64) -> bool {
        let behind = self.after.is_none_or(|after| (due, Seq(seq)) > after);
        let room = self.found.len() <= self.max;
        behind && (room || self.found.peek().is_some_and(|(at, last, _)| (due, seq) < (*at, *last)))
    }

    fn add(&mut self, due: Due, seq: u64) {
        self.found.push((due.at(), seq, due.priority()));
        if self.found.len() > self.max + 1 {
            self.found.pop();
        }
    }

    /// The messages in the order of their due times, and whether there are more.
    #[must_use]
    pub fn finish(self, queue: QueueId) -> (Vec<Scheduled>, bool) {
        let more = self.found.len() > self.max;
        let stream = stream_id(queue, DELAYED);
        let found = self.found.into_sorted_vec().into_iter().take(self.max);
        let scheduled = found.map(|(due, seq, priority)| Scheduled {
            place: Place::new(stream, seq),
            due,
            priority,
        });
        (scheduled.collect(), more)
    }
}

impl Plane {
    /// Takes a message that is not due for a command that cancels or reschedules it; as with [`Plane::claim`], until that is
    /// applied, or [`Plane::unclaim`].
    ///
    /// # Errors
    /// See [`ScheduleError`].
    pub fn claim_scheduled(&mut self, place: Place) -> Result<(), ScheduleError> {
        let dispatch = self.dispatch.as_mut().ok_or(ScheduleError::NotFound)?;
        dispatch.claim_scheduled(&self.machine, place)
    }

    /// Goes on with a listing of the messages of a queue that are not due; false if that was the last part of it. A node that does
    /// not lead lists none.
    pub fn list_scheduled(&self, queue: QueueId, listing: &mut Listing) -> bool {
        let dispatch = self.dispatch.as_ref();
        dispatch.is_some_and(|dispatch| dispatch.list_scheduled(&self.machine, queue, listing))
    }

    /// When a message was or is due; none if it was not delayed, or is done.
    #[must_use]
    pub fn due(&self, place: Place) -> Option<Millis> {
        self.machine.due(place)
    }
}

impl Dispatch {
    /// Looks at a part of the messages; false if that was the last one.
    pub(crate) fn list_scheduled(&self, machine: &Machine, id: QueueId, listing: &mut Listing) -> bool {
        let state = self.queues.get(id.0 as usize);
        let delayed = state.and_then(|state| state.delayed.as_ref());
        let (Some(queue), Some(delayed)) = (machine.queue_at(id), delayed) else {
            return false;
        };
        let mut chunks = queue.due.chunk_numbers(listing.next_chunk);
        for chunk in chunks.by_ref().take(CHUNKS_MAX) {
            for (seq, due) in queue.due.in_chunk(chunk) {
                if !self.was_due(due) && listing.wants(due.at(), seq) && delayed.sleeping.contains(seq) {
                    listing.add(due, seq);
                }
            }
        }
        let next = chunks.next();
        listing.next_chunk = next.unwrap_or(u64::MAX);
        next.is_some()
    }

    /// Takes a message that is not due for a command.
    pub(crate) fn claim_scheduled(&mut self, machine: &Machine, place: Place) -> Result<(), ScheduleError> {
        let (queue, ..) = open(machine, place).map_err(|_| ScheduleError::NotFound)?;
        let was_due = queue.due.get(place.seq.0).is_some_and(|due| self.was_due(due));
        if was_due || !self.take_sleeping(place) {
            return Err(ScheduleError::NotScheduled);
        }
        if let Some((_, lane, state)) = self.state_mut(place.stream) {
            state.holds_new(lane).claimed.insert(place.seq.0..place.seq.0 + 1);
        }
        Ok(())
    }
}

impl Machine {
    /// When a message was or is due; none if it was not delayed, or is done.
    pub(crate) fn due(&self, place: Place) -> Option<Millis> {
        let (queue, lane, _) = self.stream(place.stream)?;
        let due = queue.due.get(place.seq.0).filter(|_| lane == DELAYED)?;
        Some(due.at())
    }

    /// Removes what is not done of messages that were delayed.
    pub(crate) fn cancel(&mut self, items: &Items<'_>, applied: &mut Applied<Effect>) -> Outcome {
        let (mut done, mut missing) = (0, Vec::new());
        for run in items.runs() {
            match stream_of(run.stream) {
                Some((_, DELAYED)) => done += self.finish(run, applied, |run| missing.push(run)),
                _ => missing.push(run),
            }
        }
        self.totals.purged += done;
        Outcome::Settled { done, missing }
    }

    /// Gives delayed messages that are not done another due time.
    pub(crate) fn reschedule(&mut self, items: &Items<'_>, applied: &mut Applied<Effect>) -> Outcome {
        let (mut done, mut missing) = (0, Vec::new());
        for (place, at) in items.times() {
            let queue = match stream_of(place.stream) {
                Some((id, DELAYED)) => self.queues.get_mut(id.0 as usize),
                _ => None,
            };
            let due = queue.and_then(|queue| Some((queue.due.get(place.seq.0)?, &mut queue.due)));
            if let Some((before, table)) = due {
                table.insert(place.seq.0, Due::new(at, before.priority()));
                applied.effects.push(Effect::Rescheduled { place });
                done += 1;
            } else {
                missing.push(Run::from(place));
            }
        }
        Outcome::Settled { done, missing }
    }
}
