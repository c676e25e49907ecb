//! The leader's view of what can be handed out.
//!
//! Built from the machine when leadership begins, kept in step with every command that is applied, and dropped when
//! leadership ends. `lane`, `delayed` and `leases` say which message is where. What waits for a time is found by it:
//! `alarms` has the end of each backoff; `dues` and `expiries` say when to look at which messages that sleep, or that have a time
//! to live and are held by nobody. All of them are checked when their time comes, so that one which is out of date does no harm.

use std::collections::BTreeSet;
use std::ops::Range;

use boltq_core::{Millis, StorageEffect, StreamId};

use crate::calendar::Calendar;
use crate::due::Due;
use crate::gathered::Gathered;
use crate::leases::Leases;
use crate::machine::{Machine, Queue};
use crate::notes::Notes;
use crate::outcome::{Effect, QueueStats};
use crate::place::{ConsumerId, DELAYED, KEYED, LeaseNo, Place, QueueId, STREAMS, stream_id, stream_of};
use crate::queue_state::QueueState;
use crate::single::Singles;
use crate::slots::Slots;
use crate::timetable::Slot;
use crate::waking::TURN_MESSAGES;
use crate::window::Window;

#[derive(Debug)]
pub(crate) struct Dispatch {
    /// When the leadership began.
    pub(crate) began: Millis,
    pub(crate) queues: Slots<QueueState>,
    pub(crate) leases: Leases,
    /// When the backoff of a message ends.
    pub(crate) alarms: BTreeSet<(Millis, Place)>,
    /// When messages that sleep are due.
    pub(crate) dues: Calendar,
    /// Those of them that are due and were seen.
    pub(crate) gathered: Gathered,
    /// When messages expire that are neither leased nor held for a command.
    pub(crate) expiries: Calendar,
    pub(crate) notes: Notes,
    /// Of queues that serve one consumer at a time.
    pub(crate) singles: Singles,
    woken: Vec<QueueId>,
    /// Consumers that hold less than before without having settled anything.
    relieved: Vec<ConsumerId>,
}

impl Dispatch {
    /// Everything that is not done is available, if it is due and not in backoff; of what is due, the first messages at once and the
    /// others in the turns of the timer.
    pub(crate) fn new(machine: &Machine, now: Millis, next: LeaseNo) -> Self {
        let mut dispatch = Self {
            began: now,
            queues: Slots::default(),
            leases: Leases::new(next),
            alarms: BTreeSet::new(),
            dues: Calendar::default(),
            gathered: Gathered::default(),
            expiries: Calendar::default(),
            notes: Notes::default(),
            singles: Singles::default(),
            woken: Vec::new(),
            relieved: Vec::new(),
        };
        dispatch.grow(machine);
        for (_, id) in machine.queues() {
            for lane in 0..STREAMS {
                let stream = stream_id(id, lane);
                let Some((queue, lane, window)) = machine.stream(stream) else {
                    continue;
                };
                dispatch.expiries.arm_unseen(stream, &window.expires);
                match lane {
                    DELAYED => dispatch.start_delayed(id, queue, window),
                    KEYED => dispatch.start_keyed(id, window),
                    _ => dispatch.start_lane(machine, id, lane, window, now),
                }
            }
        }
        dispatch.wake_due(machine, now, TURN_MESSAGES);
        dispatch
    }

    /// Whether a message was due when the leadership began. An earlier leader may have handed it out, so it counts as one that is
    /// ready, also while it sleeps because its turn has not come.
    pub(crate) fn was_due(&self, due: Due) -> bool {
        due.at() <= self.began
    }

    fn grow(&mut self, machine: &Machine) {
        self.queues.follow(&machine.queues, QueueState::default);
    }

    fn start_lane(&mut self, machine: &Machine, id: QueueId, lane: usize, window: &Window, now: Millis) {
        // Behind all that is done or failed, messages are as they were published.
        let done = window.finished.last().map_or(0, |range| range.end);
        let failed = window.failed.last_key_value().map_or(0, |(seq, _)| seq + 1);
        let cursor = window.base.max(done).max(failed);
        self.queues[id.0 as usize].lanes[lane]
            .get_or_insert_default()
            .start_at(cursor);
        for open in window.open_parts(window.base..cursor) {
            self.give_back(machine, stream_id(id, lane), &open, now);
        }
        if cursor < window.head {
            self.wake(id);
        }
    }

    /// All of them sleep, until somebody has looked at their due times.
    fn start_delayed(&mut self, id: QueueId, queue: &Queue, window: &Window) {
        let delayed = self.queues[id.0 as usize].delayed.get_or_insert_default();
        for open in window.open_parts(window.base..window.head) {
            delayed.sleeping.insert(open);
        }
        self.dues.arm_unseen(stream_id(id, DELAYED), &queue.due);
    }

    /// When something that sleeps is or was due, at the earliest.
    pub(crate) fn next_due(&self) -> Option<Millis> {
        let firsts = [self.dues.first(), self.gathered.first()];
        firsts.into_iter().flatten().map(|(at, _)| at).min()
    }

    /// Lets messages sleep that are not due.
    fn sleep(&mut self, queue: &Queue, stream: StreamId, range: Range<u64>) {
        let Some((_, _, state)) = self.state_mut(stream) else {
            return;
        };
        state.delayed.get_or_insert_default().sleeping.insert(range.clone());
        self.dues.arm_all(stream, &queue.due, range);
    }

    /// Queue and lane of a stream that the machine knows.
    pub(crate) fn state_mut(&mut self, stream: StreamId) -> Option<(QueueId, usize, &mut QueueState)> {
        let (id, lane) = stream_of(stream)?;
        Some((id, lane, self.queues.get_mut(id.0 as usize)?))
    }

    /// Notes that a queue has something ready.
    pub(crate) fn wake(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(id.0 as usize)
            && !std::mem::replace(&mut queue.woken, true)
        {
            self.woken.push(id);
        }
    }

    pub(crate) fn take_woken(&mut self, out: &mut Vec<QueueId>) {
        for id in &self.woken {
            if let Some(queue) = self.queues.get_mut(id.0 as usize) {
                queue.woken = false;
            }
        }
        out.append(&mut self.woken);
    }

    pub(crate) fn take_relieved(&mut self, out: &mut Vec<ConsumerId>) {
        out.append(&mut self.relieved);
    }

    /// Whether a consumer of a queue gets messages now.
    pub(crate) fn serves(&mut self, queue: &Queue, id: QueueId, consumer: ConsumerId) -> bool {
        let Some(options) = queue.options.as_deref() else {
            return true;
        };
        if options.paused {
            return false;
        }
        if !options.single_active_consumer || consumer == ConsumerId::SWEEPER {
            return true;
        }
        let idle = self.queues.get(id.0 as usize).is_none_or(QueueState::is_idle);
        self.singles.serves(id, consumer, idle)
    }

    /// Fewer messages of a queue are leased or being settled than before: somebody may have waited for that.
    pub(crate) fn relax(&mut self, id: QueueId) {
        if self.singles.is_empty() || !self.singles.is_awaited(id) {
            return;
        }
        if self.queues.get(id.0 as usize).is_some_and(QueueState::is_idle) {
            self.wake(id);
        }
    }

    fn changed(&mut self, machine: &Machine, id: QueueId) {
        let single = machine
            .options(id)
            .is_some_and(|options| options.single_active_consumer);
        if !single {
            self.singles.forget(id);
        }
        // It may have been paused, or others may have had to wait.
        self.wake(id);
    }

    fn deleted(&mut self, id: QueueId) {
        self.singles.forget(id);
        for stream in (0..STREAMS).map(|lane| stream_id(id, lane)) {
            self.dues.forget_stream(stream);
            self.expiries.forget_stream(stream);
        }
        self.queues.remove(id.0 as usize);
    }

    pub(crate) fn stats(&self, id: QueueId, queue: &Queue) -> QueueStats {
        let state = self.queues.get(id.0 as usize);
        state.map_or_else(QueueStats::default, |state| state.stats(queue))
    }

    /// Makes messages that are not done and that nobody holds available, or lets them wait for their due time or the end of their
    /// backoff. Each goes to its old position.
    pub(crate) fn give_back(&mut self, machine: &Machine, stream: StreamId, range: &Range<u64>, now: Millis) {
        let Some((queue, lane, window)) = machine.stream(stream) else {
            return;
        };
        // It may have expired while it was held.
        self.expiries.arm_all(stream, &window.expires, range.clone());
        if lane == DELAYED {
            return self.give_back_delayed(queue, window, stream, range, now);
        }
        if lane == KEYED {
            return self.give_back_keyed(stream, window, range, now);
        }
        let mut at = range.start;
        if !window.failed.is_empty() {
            for (&seq, failure) in window.failed.range(range.clone()) {
                if failure.not_before > now {
                    self.put_back(stream, at..seq);
                    self.back_off(stream, lane, seq, failure.not_before);
                    at = seq + 1;
                }
            }
        }
        self.put_back(stream, at..range.end);
    }

    fn give_back_delayed(&mut self, queue: &Queue, window: &Window, stream: StreamId, range: &Range<u64>, now: Millis) {
        for (seq, due) in queue.due.range(range.clone()) {
            if due.at() > now {
                self.sleep(queue, stream, seq..seq + 1);
            } else if let Some(not_before) = window.rests(seq, now) {
                self.back_off(stream, DELAYED, seq, not_before);
            } else if let Some((id, _, state)) = self.state_mut(stream) {
                state.delayed.get_or_insert_default().put(seq, due);
                self.wake(id);
            }
        }
    }

    fn back_off(&mut self, stream: StreamId, lane: usize, seq: u64, not_before: Millis) {
        if let Some((_, _, state)) = self.state_mut(stream) {
            state.holds_new(lane).backoff.insert(seq..seq + 1);
            self.alarms.insert((not_before, Place::new(stream, seq)));
        }
    }

    /// Makes messages of a lane available.
    fn put_back(&mut self, stream: StreamId, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        if let Some((id, lane, state)) = self.state_mut(stream) {
            state.lanes[lane].get_or_insert_default().put_back(range);
            self.wake(id);
        }
    }

    /// Follows a command that the machine has applied.
    pub(crate) fn follow(&mut self, machine: &Machine, storage: &[StorageEffect], effects: &[Effect]) {
        self.grow(machine);
        for effect in storage {
            match *effect {
                StorageEffect::Placed {
                    stream, first, count, ..
                } => self.placed(machine, stream, first.0..first.0 + u64::from(count)),
                StorageEffect::Freed { stream, first, count } => {
                    self.freed(machine, stream, &(first.0..first.0 + count));
                }
                StorageEffect::Erased { stream, seq } => self.freed(machine, stream, &(seq.0..seq.0 + 1)),
            }
        }
        for effect in effects {
            match effect {
                Effect::Failed { place } | Effect::Rescheduled { place } => self.message_changed(machine, *place),
                Effect::QueueChanged { queue } => self.changed(machine, *queue),
                Effect::QueueDeleted { queue } => self.deleted(*queue),
                // Its places are among the storage effects.
                Effect::TopicPublished { .. } => {}
            }
        }
    }

    fn placed(&mut self, machine: &Machine, stream: StreamId, range: Range<u64>) {
        let Some((queue, lane, window)) = machine.stream(stream) else {
            return;
        };
        self.expiries.arm_all(stream, &window.expires, range.clone());
        if lane == DELAYED {
            self.sleep(queue, stream, range);
        } else if let Some((id, _, state)) = self.state_mut(stream) {
            if lane == KEYED {
                return self.placed_keyed(id);
            }
            state.lanes[lane].get_or_insert_default();
            self.wake(id);
        }
    }

    fn freed(&mut self, machine: &Machine, stream: StreamId, range: &Range<u64>) {
        self.notes.forget(stream, range);
        if let Some((queue, lane, window)) = machine.stream(stream) {
            self.expiries.forget_gone(stream, &window.expires, range);
            if lane == DELAYED {
                self.dues.forget_gone(stream, &queue.due, range);
            }
        }
        let Some((id, lane, state)) = self.state_mut(stream) else {
            return;
        };
        let Some(holds) = state.holds_mut(lane) else { return };
        let settled = holds.claimed.remove(range);
        if settled < range.end - range.start {
            self.detach(stream, range);
        }
        if lane == KEYED {
            self.finish_keyed(machine, id, range);
        }
        self.relax(id);
    }

    /// A message has failed, or is due at another time.
    fn message_changed(&mut self, machine: &Machine, place: Place) {
        let range = place.seq.0..place.seq.0 + 1;
        let claimed = self
            .state_mut(place.stream)
            .and_then(|(_, lane, state)| state.holds_mut(lane))
            .map_or(0, |holds| holds.claimed.remove(&range));
        if claimed == 0 {
            self.detach(place.stream, &range);
        }
        self.give_back(machine, place.stream, &range, machine.now());
        if let Some((id, _)) = stream_of(place.stream) {
            self.relax(id);
        }
    }

    /// Takes messages out of wherever they are. For purges, and for what an earlier leader had proposed: the rest goes
    /// through a claim.
    fn detach(&mut self, stream: StreamId, range: &Range<u64>) {
        let leased = self.leases.take_range(stream, range, &mut self.relieved);
        let Some((_, lane, state)) = self.state_mut(stream) else {
            return;
        };
        state.leased -= leased;
        let Some(holds) = state.holds_mut(lane) else { return };
        let mut found = leased + holds.purging.remove(range) + holds.backoff.remove(range);
        if let Some(delayed) = state.delayed.as_mut().filter(|_| lane == DELAYED) {
            found += delayed.sleeping.remove(range);
            if found < range.end - range.start {
                delayed.forget(range);
            }
        } else if let Some(keyed) = state.keyed.as_mut().filter(|_| lane == KEYED) {
            keyed.detach(range);
        } else if let Some(lane) = state.lanes.get_mut(lane).and_then(Option::as_mut) {
            lane.take(range);
        }
    }
}
