//! Handing messages out, and taking them back unharmed.
//!
//! Order: the highest priority first. Within a priority first what was delayed and is due, by due time and then as
//! published; then the lane, in the order of publishing, so that a message which came back stands where it stood.

use std::ops::Range;

use boltq_core::limits::PRIORITY_MAX;
use boltq_core::{Millis, Seq, StreamId};

use crate::delivery::Leased;
use crate::dispatch::Dispatch;
use crate::leases::Leases;
use crate::machine::Machine;
use crate::place::{ConsumerId, DELAYED, LeaseNo, Place, QueueId, stream_id, stream_of};
use crate::window::Window;

/// A call that leases: for whom, until when, and what it got so far.
struct Loan<'a> {
    leases: &'a mut Leases,
    consumer: ConsumerId,
    /// From when until when.
    time: (Millis, Millis),
    left: usize,
    out: &'a mut Vec<Leased>,
}

impl Loan<'_> {
    fn add(&mut self, stream: StreamId, window: &Window, range: &Range<u64>) {
        let LeaseNo(first) = self.leases.add(stream, range, self.consumer, self.time);
        let failed = !window.failed.is_empty();
        self.out.extend(range.clone().zip(first..).map(|(seq, number)| Leased {
            place: Place::new(stream, seq),
            lease: LeaseNo(number),
            attempts: if failed { window.attempts(seq) } else { 0 },
        }));
        self.left = self
            .left
            .saturating_sub(usize::try_from(range.end - range.start).unwrap_or(usize::MAX));
    }
}

impl Dispatch {
    /// Leases at most `max` messages in delivery order.
    pub(crate) fn lease(
        &mut self,
        machine: &Machine,
        id: QueueId,
        consumer: ConsumerId,
        time: (Millis, Millis),
        max: usize,
        out: &mut Vec<Leased>,
    ) {
        let Some(queue) = machine.queue_at(id).filter(|queue| self.serves(queue, id, consumer)) else {
            return;
        };
        let Some(state) = self.queues.get_mut(id.0 as usize) else {
            return;
        };
        let mut loan = Loan {
            leases: &mut self.leases,
            consumer,
            time,
            left: max,
            out,
        };
        for priority in (0..=PRIORITY_MAX).rev() {
            if let (Some(delayed), Some(window)) = (state.delayed.as_mut(), queue.window(DELAYED)) {
                while loan.left > 0
                    && let Some(seq) = delayed.take_first(priority)
                {
                    loan.add(stream_id(id, DELAYED), window, &(seq..seq + 1));
                }
            }
            let lane = usize::from(priority);
            if let (Some(ready), Some(window)) = (state.lanes[lane].as_mut(), queue.window(lane)) {
                while loan.left > 0
                    && let Some(range) = ready.take_first(window.head, loan.left as u64)
                {
                    loan.add(stream_id(id, lane), window, &range);
                }
            }
        }
        state.leased += (max - loan.left) as u64;
    }

    /// The first messages in delivery order, at most `max`.
    pub(crate) fn peek(&self, machine: &Machine, id: QueueId, max: usize, out: &mut Vec<Place>) {
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
            out.extend(ready.take(wanted - out.len()));
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
