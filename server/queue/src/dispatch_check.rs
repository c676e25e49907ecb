//! Checks of what the dispatch promises, for tests.

use crate::Plane;
use crate::dispatch::Dispatch;
use crate::machine::{Machine, Queue};
use crate::place::{DELAYED, KEYED, Place, QueueId, stream_id};
use crate::queue_state::QueueState;
use crate::timetable::{Slot, chunk_of};

impl Plane {
    /// Messages with an ordering key of a queue that this leader has looked at and that are not done.
    pub(crate) fn looked_at(&self, queue: &str) -> usize {
        let state = self.queue(queue).zip(self.dispatch.as_ref());
        let keyed = state.and_then(|(id, dispatch)| dispatch.queues[id.0 as usize].keyed.as_deref());
        keyed.map_or(0, |keyed| keyed.looked_at())
    }
}

impl Plane {
    /// Chunks of due times, and of ends of lives, that this leader has not looked at.
    pub(crate) fn unseen_chunks(&self) -> [usize; 2] {
        let dispatch = self.dispatch.as_ref().unwrap();
        [&dispatch.dues, &dispatch.expiries].map(|calendar| calendar.unseen())
    }
}

impl Dispatch {
    /// Checks that every message that is not done is in exactly one place, no other is anywhere, and that each which
    /// waits for a time has an alarm.
    pub(crate) fn check(&self, machine: &Machine) {
        self.check_calendars(machine);
        self.gathered.check();
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
                    let found = self.whereabouts(state, lane, queue, place) + u32::from(is_leased);
                    assert_eq!(found, u32::from(window.is_open(seq)), "{place:?}");
                    self.check_alarms(state, lane, queue, place);
                }
            }
            assert_eq!(state.leased, leased_here - before);
            if let Some(delayed) = &state.delayed {
                delayed.check(&queue.due);
            }
            if let (Some(keyed), Some(stream)) = (&state.keyed, queue.keyed()) {
                keyed.check(stream);
            }
        }
        assert_eq!(leased.len() as u64, leased_here);
    }

    fn whereabouts(&self, state: &QueueState, lane: usize, queue: &Queue, place: Place) -> u32 {
        let seq = place.seq.0;
        let window = queue.window(lane).unwrap();
        let Some(holds) = state.holds(lane) else { return 0 };
        let ready = match lane {
            DELAYED => state
                .delayed
                .iter()
                .map(|delayed| delayed.count_of(seq, queue.due.get(seq)))
                .sum(),
            KEYED => state.keyed.iter().map(|keyed| keyed.count_of(seq, window)).sum(),
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

    fn check_alarms(&self, state: &QueueState, lane: usize, queue: &Queue, place: Place) {
        let seq = place.seq.0;
        let window = queue.window(lane).unwrap();
        if state.holds(lane).is_some_and(|holds| holds.backoff.contains(seq)) {
            assert!(
                self.alarms.contains(&(window.failed[&seq].not_before, place)),
                "{place:?}"
            );
        }
        let delayed = state.delayed.as_ref().filter(|_| lane == DELAYED);
        if delayed.is_some_and(|delayed| delayed.sleeping.contains(seq)) {
            let due = queue.due.get(seq).unwrap().at();
            let looked_at = self.dues.get((place.stream, chunk_of(seq)));
            let gathered = self.gathered.has(due, place);
            assert!(gathered || looked_at.is_some_and(|at| at <= due), "{place:?}");
        }
        let held = self.leases.get(place).is_some() || state.holds(lane).is_some_and(|holds| holds.settling(seq));
        if let Some(expires) = window.expires.get(seq).filter(|_| !held) {
            let looked_at = self.expiries.get((place.stream, chunk_of(seq)));
            assert!(looked_at.is_some_and(|at| at <= expires), "{place:?}");
        }
    }

    /// That each entry is of messages that there are.
    fn check_calendars(&self, machine: &Machine) {
        let queues = || machine.queues.iter();
        let due: usize = queues().map(|queue| queue.due.chunk_numbers(0).count()).sum();
        let windows = queues().flat_map(|queue| queue.windows.iter().flatten());
        let expires: usize = windows.map(|window| window.expires.chunk_numbers(0).count()).sum();
        assert!(self.dues.check() <= due && self.expiries.check() <= expires);
        for queue in machine.queues.iter() {
            queue.due.check();
            queue.windows.iter().flatten().for_each(|window| window.expires.check());
        }
    }
}
