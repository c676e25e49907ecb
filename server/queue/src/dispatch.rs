//! The leader's view of what can be handed out.
//!
//! Built from the machine when leadership begins, kept in step with every command that is applied, and dropped when
//! leadership ends. `lane`, `delayed` and `leases` say which message is where; `alarms` holds a time for every message
//! that waits for one. Alarms are checked when they ring, so that one which is out of date does no harm.

use std::collections::BTreeSet;
use std::ops::Range;

use boltq_core::{Millis, StorageEffect, StreamId};

use crate::delayed::Delayed;
use crate::lane::{Holds, Lane};
use crate::leases::Leases;
use crate::machine::{Machine, Queue};
use crate::notes::Notes;
use crate::outcome::{Effect, QueueStats};
use crate::place::{ConsumerId, DELAYED, LANES, LeaseNo, Place, QueueId, STREAMS, stream_id, stream_of};
use crate::single::Singles;
use crate::slots::Slots;
use crate::window::Window;

/// One queue. Streams that were never published to have nothing in here.
#[derive(Debug, Default)]
pub(crate) struct QueueState {
    pub(crate) lanes: [Option<Box<Lane>>; LANES],
    pub(crate) delayed: Option<Box<Delayed>>,
    /// Messages that are leased.
    pub(crate) leased: u64,
    woken: bool,
}

impl QueueState {
    pub(crate) fn holds(&self, lane: usize) -> Option<&Holds> {
        match lane {
            DELAYED => self.delayed.as_ref().map(|delayed| &delayed.holds),
            _ => self.lanes.get(lane)?.as_ref().map(|lane| &lane.holds),
        }
    }

    pub(crate) fn holds_mut(&mut self, lane: usize) -> Option<&mut Holds> {
        match lane {
            DELAYED => self.delayed.as_mut().map(|delayed| &mut delayed.holds),
            _ => self.lanes.get_mut(lane)?.as_mut().map(|lane| &mut lane.holds),
        }
    }

    /// As [`QueueState::holds_mut`], for a stream that may be new in here.
    pub(crate) fn holds_new(&mut self, lane: usize) -> &mut Holds {
        match lane {
            DELAYED => &mut self.delayed.get_or_insert_default().holds,
            _ => &mut self.lanes[lane].get_or_insert_default().holds,
        }
    }

    /// Whether nothing is leased or being settled.
    fn is_idle(&self) -> bool {
        let mut holds = (0..STREAMS).filter_map(|lane| self.holds(lane));
        self.leased == 0 && holds.all(|holds| holds.claimed.count() == 0)
    }

    fn stats(&self, queue: &Queue) -> QueueStats {
        let holds = (0..STREAMS).filter_map(|lane| self.holds(lane));
        let (claimed, purging) = holds.fold((0, 0), |(claimed, purging), holds| {
            (claimed + holds.claimed.count(), purging + holds.purging.count())
        });
        let leased = self.leased + claimed;
        let delayed = self.delayed.as_ref().map_or(0, |delayed| delayed.sleeping.count());
        QueueStats {
            // Saturating, because a figure is not worth a panic; they add up.
            ready: queue.open_count().saturating_sub(leased + delayed + purging),
            leased,
            delayed,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) queues: Slots<QueueState>,
    pub(crate) leases: Leases,
    /// When a message wakes from its delay, or its backoff ends.
    pub(crate) alarms: BTreeSet<(Millis, Place)>,
    pub(crate) notes: Notes,
    /// Of queues that serve one consumer at a time.
    pub(crate) singles: Singles,
    woken: Vec<QueueId>,
    /// Consumers that hold less than before without having settled anything.
    relieved: Vec<ConsumerId>,
}

impl Dispatch {
    /// Everything that is not done is available, if it is due and not in backoff.
    pub(crate) fn new(machine: &Machine, now: Millis, next: LeaseNo) -> Self {
        let mut dispatch = Self {
            queues: Slots::default(),
            leases: Leases::new(next),
            alarms: BTreeSet::new(),
            notes: Notes::default(),
            singles: Singles::default(),
            woken: Vec::new(),
            relieved: Vec::new(),
        };
        dispatch.grow(machine);
        for (_, id) in machine.queues() {
            for lane in 0..STREAMS {
                let stream = stream_id(id, lane);
                match machine.stream(stream) {
                    Some((queue, DELAYED, _)) => dispatch.start_delayed(machine, queue, stream, now),
                    Some((_, lane, window)) => dispatch.start_lane(machine, id, lane, window, now),
                    None => {}
                }
            }
        }
        dispatch
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

    fn start_delayed(&mut self, machine: &Machine, queue: &Queue, stream: StreamId, now: Millis) {
        for (&seq, due) in &queue.due {
            if due.at > now {
                self.sleep(stream, seq, due.at);
            } else {
                self.give_back(machine, stream, &(seq..seq + 1), now);
            }
        }
    }

    fn sleep(&mut self, stream: StreamId, seq: u64, due: Millis) {
        let Some((id, _)) = stream_of(stream) else { return };
        let delayed = self.queues[id.0 as usize].delayed.get_or_insert_default();
        delayed.sleeping.insert(seq..seq + 1);
        self.alarms.insert((due, Place::new(stream, seq)));
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
        self.queues.remove(id.0 as usize);
    }

    pub(crate) fn stats(&self, id: QueueId, queue: &Queue) -> QueueStats {
        let state = self.queues.get(id.0 as usize);
        state.map_or_else(QueueStats::default, |state| state.stats(queue))
    }

    /// Makes messages that are not done and that nobody holds available, or lets them wait for the end of their
    /// backoff. Each goes to its old position.
    pub(crate) fn give_back(&mut self, machine: &Machine, stream: StreamId, range: &Range<u64>, now: Millis) {
        let Some((queue, lane, window)) = machine.stream(stream) else {
            return;
        };
        let mut at = range.start;
        if !window.failed.is_empty() {
            for (&seq, failure) in window.failed.range(range.clone()) {
                if failure.not_before > now {
                    self.put_ready(queue, stream, at..seq);
                    self.back_off(stream, lane, seq, failure.not_before);
                    at = seq + 1;
                }
            }
        }
        self.put_ready(queue, stream, at..range.end);
    }

    fn back_off(&mut self, stream: StreamId, lane: usize, seq: u64, not_before: Millis) {
        if let Some((_, _, state)) = self.state_mut(stream) {
            state.holds_new(lane).backoff.insert(seq..seq + 1);
            self.alarms.insert((not_before, Place::new(stream, seq)));
        }
    }

    /// Makes messages available, whatever their backoff.
    pub(crate) fn put_ready(&mut self, queue: &Queue, stream: StreamId, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Some((id, lane, state)) = self.state_mut(stream) else {
            return;
        };
        if lane == DELAYED {
            let delayed = state.delayed.get_or_insert_default();
            for (&seq, due) in queue.due.range(range) {
                delayed.put(seq, *due);
            }
        } else {
            state.lanes[lane].get_or_insert_default().put_back(range);
        }
        self.wake(id);
    }

    /// Follows a command that the machine has applied.
    pub(crate) fn follow(&mut self, machine: &Machine, storage: &[StorageEffect], effects: &[Effect]) {
        self.grow(machine);
        for effect in storage {
            match *effect {
                StorageEffect::Placed {
                    stream, first, count, ..
                } => self.placed(machine, stream, first.0..first.0 + u64::from(count)),
                StorageEffect::Freed { stream, first, count } => self.freed(stream, &(first.0..first.0 + count)),
            }
        }
        for effect in effects {
            match effect {
                Effect::Failed { place } => self.failed(machine, *place),
                Effect::QueueChanged { queue } => self.changed(machine, *queue),
                Effect::QueueDeleted { queue } => self.deleted(*queue),
                // Its places are among the storage effects.
                Effect::TopicPublished { .. } => {}
            }
        }
    }

    fn placed(&mut self, machine: &Machine, stream: StreamId, range: Range<u64>) {
        let Some((queue, lane, _)) = machine.stream(stream) else {
            return;
        };
        if lane == DELAYED {
            for (&seq, due) in queue.due.range(range) {
                self.sleep(stream, seq, due.at);
            }
        } else if let Some((id, _, state)) = self.state_mut(stream) {
            state.lanes[lane].get_or_insert_default();
            self.wake(id);
        }
    }

    fn freed(&mut self, stream: StreamId, range: &Range<u64>) {
        self.notes.forget(stream, range);
        let Some((id, lane, state)) = self.state_mut(stream) else {
            return;
        };
        let Some(holds) = state.holds_mut(lane) else { return };
        let settled = holds.claimed.remove(range);
        if settled < range.end - range.start {
            self.detach(stream, range);
        }
        self.relax(id);
    }

    fn failed(&mut self, machine: &Machine, place: Place) {
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
        } else if let Some(lane) = state.lanes.get_mut(lane).and_then(Option::as_mut) {
            lane.take(range);
        }
    }
}

#[cfg(test)]
impl Dispatch {
    /// Checks that every message that is not done is in exactly one place, no other is anywhere, and that each which
    /// waits for a time has an alarm.
    pub(crate) fn check(&self, machine: &Machine) {
        let leased = self.leases.check();
        let mut leased_here = 0;
        for (index, queue) in machine.queues.numbered() {
            let id = QueueId(u32::try_from(index).unwrap());
            let state = &self.queues[index];
            let before = leased_here;
            for (lane, window) in queue.windows.iter().enumerate() {
                let Some(window) = window else { continue };
                for seq in 0..window.head + 2 {
                    let place = Place::new(stream_id(id, lane), seq);
                    let is_leased = leased.contains(&place);
                    leased_here += u64::from(is_leased);
                    let found = self.whereabouts(state, lane, window, place) + u32::from(is_leased);
                    assert_eq!(found, u32::from(window.is_open(seq)), "{place:?}");
                    let due = queue.due.get(&seq).map(|due| due.at);
                    self.check_alarms(state, lane, window, place, due);
                }
            }
            assert_eq!(state.leased, leased_here - before);
        }
        assert_eq!(leased.len() as u64, leased_here);
    }

    fn whereabouts(&self, state: &QueueState, lane: usize, window: &Window, place: Place) -> u32 {
        let seq = place.seq.0;
        let Some(holds) = state.holds(lane) else { return 0 };
        let ready = match lane {
            DELAYED => state.delayed.iter().map(|delayed| delayed.count_of(seq)).sum(),
            _ => state.lanes[lane]
                .iter()
                .flat_map(|lane| lane.ready(window.head))
                .flatten()
                .filter(|at| *at == seq)
                .count(),
        };
        let held = [&holds.claimed, &holds.purging, &holds.backoff]
            .into_iter()
            .filter(|set| set.contains(seq))
            .count();
        u32::try_from(ready + held).unwrap()
    }

    fn check_alarms(&self, state: &QueueState, lane: usize, window: &Window, place: Place, due: Option<Millis>) {
        let seq = place.seq.0;
        if state.holds(lane).is_some_and(|holds| holds.backoff.contains(seq)) {
            assert!(
                self.alarms.contains(&(window.failed[&seq].not_before, place)),
                "{place:?}"
            );
        }
        let delayed = state.delayed.as_ref().filter(|_| lane == DELAYED);
        if delayed.is_some_and(|delayed| delayed.sleeping.contains(seq)) {
            assert!(self.alarms.contains(&(due.unwrap(), place)), "{place:?}");
        }
    }
}
