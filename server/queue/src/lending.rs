//! Handing messages out, and taking them back unharmed.
//!
//! Order: the highest priority first. Within a priority first what was delayed and is due, by due time and then as
//! published; then the lane, in the order of publishing, so that a message which came back stands where it stood. Messages with
//! an ordering key have the lowest priority, and share it with the others of that priority.

use std::collections::BTreeSet;
use std::ops::Range;

use boltq_core::limits::PRIORITY_MAX;
use boltq_core::{Millis, Seq, StreamId};

use crate::delivery::Leased;
use crate::dispatch::Dispatch;
use crate::due::Due;
use crate::lane::Lane;
use crate::leases::Leases;
use crate::machine::Machine;
use crate::ordering::LOOKS_MAX;
use crate::place::{ConsumerId, DELAYED, KEYED, LeaseNo, Place, QueueId, stream_id, stream_of};
use crate::timetable::Slot;
use crate::window::Window;

/// The lane of the priority that messages with an ordering key have.
pub(crate) const KEYED_LANE: usize = 0;

/// What a consumer asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) consumer: ConsumerId,
    /// Messages at most.
    pub(crate) max: usize,
    pub(crate) lease_ms: u64,
}

/// A call that leases: for whom, until when, and what it got so far.
pub(crate) struct Loan<'a> {
    leases: &'a mut Leases,
    pub(crate) alarms: &'a mut BTreeSet<(Millis, Place)>,
    consumer: ConsumerId,
    pub(crate) now: Millis,
    ends: Millis,
    pub(crate) left: usize,
    /// Messages with an ordering key that it may look at still.
    pub(crate) looks: usize,
    /// Whether it has not looked at all of them for that reason.
    pub(crate) more: bool,
    out: &'a mut Vec<Leased>,
}

impl Loan<'_> {
    /// `due` is when they were due, if they were delayed.
    pub(crate) fn add(&mut self, stream: StreamId, window: &Window, range: &Range<u64>, due: Option<Due>) {
        let LeaseNo(first) = self.leases.add(stream, range, self.consumer, (self.now, self.ends));
        let failed = !window.failed.is_empty();
        self.out.extend(range.clone().zip(first..).map(|(seq, number)| Leased {
            place: Place::new(stream, seq),
            lease: LeaseNo(number),
            attempts: if failed { window.attempts(seq) } else { 0 },
            due: due.map(Slot::at),
            expires: window.expires.get(seq),
        }));
        self.left = self
            .left
            .saturating_sub(usize::try_from(range.end - range.start).unwrap_or(usize::MAX));
    }

    /// At most `most`.
    fn lend_lane(&mut self, stream: StreamId, window: &Window, lane: &mut Lane, most: usize) {
        let least = self.left.saturating_sub(most);
        while self.left > least
            && let Some(range) = lane.take_first(window.head, (self.left - least) as u64)
        {
            self.add(stream, window, &range, None);
        }
    }
}

impl Dispatch {
    /// Leases at most `max` messages in delivery order. Returns whether it did not look at all that there may be.
    pub(crate) fn lease(
        &mut self,
        machine: &Machine,
        id: QueueId,
        wanted: Wanted,
        now: Millis,
        out: &mut Vec<Leased>,
    ) -> bool {
        let Wanted {
            consumer,
            max,
            lease_ms,
        } = wanted;
        let Some(queue) = machine.queue_at(id).filter(|queue| self.serves(queue, id, consumer)) else {
            return false;
        };
        let Some(state) = self.queues.get_mut(id.0 as usize) else {
            return false;
        };
        let mut loan = Loan {
            leases: &mut self.leases,
            alarms: &mut self.alarms,
            consumer,
            now,
            ends: now.plus(lease_ms),
            left: max,
            looks: LOOKS_MAX,
            more: false,
            out,
        };
        for priority in (0..=PRIORITY_MAX).rev() {
            if let (Some(delayed), Some(window)) = (state.delayed.as_mut(), queue.window(DELAYED)) {
                while loan.left > 0
                    && let Some(seq) = delayed.take_first(priority)
                {
                    loan.add(stream_id(id, DELAYED), window, &(seq..seq + 1), queue.due.get(seq));
                }
            }
            let lane = usize::from(priority);
            let mut ready = state.lanes[lane].as_mut().zip(queue.window(lane));
            let mut lend_lane = |loan: &mut Loan<'_>, most| {
                if let Some((ready, window)) = &mut ready {
                    loan.lend_lane(stream_id(id, lane), window, ready, most);
                }
            };
            match state.keyed.as_mut().filter(|_| lane == KEYED_LANE) {
                Some(keyed) if loan.left > 0 => loan.lend_in_turn(id, queue, keyed, lend_lane),
                _ => lend_lane(&mut loan, usize::MAX),
            }
        }
        state.leased += (max - loan.left) as u64;
        loan.more && loan.left > 0
    }

    /// The first messages in delivery order, at most `max`.
    pub(crate) fn peek(&self, machine: &Machine, id: QueueId, max: usize, now: Millis, out: &mut Vec<Place>) {
        let (Some(queue), Some(state)) = (machine.queue_at(id), self.queues.get(id.0 as usize)) else {
            return;
        };
        let wanted = out.len().saturating_add(max);
        for priority in (0..=PRIORITY_MAX).rev() {
            let due = state.delayed.iter().flat_map(|delayed| delayed.ready(priority));
            let due = due.map(|seq| Place::new(stream_id(id, DELAYED), seq));
            out.extend(due.take(wanted - out.len()));
            let lane = usize::from(priority);
            let head = queue.window(lane).map_or(Seq::FIRST.0, |window| window.head);
            let ready = state.lanes[lane].iter().flat_map(|lane| lane.ready(head)).flatten();
            let ready = ready.map(|seq| Place::new(stream_id(id, lane), seq));
            let left = wanted - out.len();
            match (&state.keyed, queue.keyed()) {
                (Some(keyed), Some(stream)) if lane == KEYED_LANE => {
                    let upcoming = keyed.upcoming(stream, now);
                    let upcoming = upcoming.map(|seq| Place::new(stream_id(id, KEYED), seq));
                    keyed.show(left, upcoming, ready, out);
                }
                _ => out.extend(ready.take(left)),
            }
        }
    }

    /// Ends a lease without counting an attempt. Does nothing if nobody holds the message.
    pub(crate) fn release(&mut self, machine: &Machine, place: Place, now: Millis) {
        if let Some(lease) = self.leases.get(place) {
            self.leases.end(&lease);
            self.back_from_lease(machine, place.stream, &(place.seq.0..place.seq.0 + 1), now);
        }
    }

    /// Ends all leases of a consumer without counting attempts, and returns their number.
    pub(crate) fn release_consumer(&mut self, machine: &Machine, consumer: ConsumerId, now: Millis) -> usize {
        let held = self.leases.held_by(consumer);
        while let Some((stream, range)) = self.leases.take_of(consumer) {
            self.back_from_lease(machine, stream, &range, now);
        }
        if !self.singles.is_empty() {
            for id in self.singles.end(consumer) {
                self.wake(id);
            }
        }
        held
    }

    fn back_from_lease(&mut self, machine: &Machine, stream: StreamId, range: &Range<u64>, now: Millis) {
        if let Some((_, _, state)) = self.state_mut(stream) {
            state.leased -= range.end - range.start;
        }
        self.give_back(machine, stream, range, now);
        if let Some((id, _)) = stream_of(stream) {
            self.relax(id);
        }
    }
}
