//! Settings and the end of queues.

use boltq_core::Millis;

use super::super::fixture::Message;
use super::{Model, State};
use crate::place::{DELAYED, stream_of};
use crate::{ConsumerId, Place, QueueId, QueueOptionSet, QueueOptions};

impl Model {
    fn options(&self, queue: QueueId) -> QueueOptions {
        self.options.get(&queue).cloned().unwrap_or_default()
    }

    /// Messages that are not done, those that are dropped first in front.
    fn oldest(&self, queue: QueueId) -> Vec<Place> {
        let open = self
            .entries
            .iter()
            .filter(|entry| entry.queue == queue && entry.state != State::Done);
        let mut places: Vec<_> = open.map(|entry| entry.place).collect();
        places.sort_by_key(|place| (stream_of(place.stream).unwrap().1, place.seq));
        assert!(places.iter().all(|place| stream_of(place.stream).unwrap().1 <= DELAYED));
        places
    }

    /// Where the messages are that there was room for, and the number of the others.
    pub(in super::super) fn publish(&mut self, queue: QueueId, messages: &[Message], now: Millis) -> (Vec<Place>, u64) {
        let options = self.options(queue);
        let open = self.oldest(queue).len() as u64;
        let room = match options.max_length.filter(|_| !options.drop_oldest) {
            Some(max) => usize::try_from(max.saturating_sub(open)).unwrap(),
            None => usize::MAX,
        };
        let taken = &messages[..messages.len().min(room)];
        let refused = (messages.len() - taken.len()) as u64;
        let places: Vec<_> = taken.iter().map(|message| self.append(queue, *message, now)).collect();
        self.totals.published += places.len() as u64;
        self.totals.rejected += refused;
        (places, refused)
    }

    /// What is dropped because it is too much.
    pub(in super::super) fn make_room(&mut self, queue: QueueId) -> Vec<Place> {
        let options = self.options(queue);
        let Some(max) = options.max_length.filter(|_| options.drop_oldest) else {
            return Vec::new();
        };
        let oldest = self.oldest(queue);
        let excess = oldest.len().saturating_sub(usize::try_from(max).unwrap());
        let (dropped, _) = self.finish(&oldest[..excess]);
        self.totals.dropped += dropped.len() as u64;
        dropped
    }

    pub(in super::super) fn change(&mut self, queue: QueueId, which: QueueOptionSet, to: QueueOptions) {
        let options = self.options(queue).with(which, to);
        if !options.single_active_consumer {
            self.turns.remove(&queue);
        }
        self.options.insert(queue, options);
    }

    /// Returns what was in it.
    pub(in super::super) fn delete(&mut self, queue: QueueId) -> Vec<Place> {
        self.options.remove(&queue);
        self.turns.remove(&queue);
        self.keys.retain(|(of, ..)| *of != queue);
        let oldest = self.oldest(queue);
        let (removed, _) = self.finish(&oldest);
        self.totals.purged += removed.len() as u64;
        removed
    }

    pub(in super::super) fn serves(&mut self, queue: QueueId, consumer: ConsumerId) -> bool {
        let options = self.options(queue);
        if options.paused || !options.single_active_consumer || consumer == ConsumerId::SWEEPER {
            return !options.paused;
        }
        let held = |state| matches!(state, State::Leased { .. } | State::Claimed);
        let idle = !self
            .entries
            .iter()
            .any(|entry| entry.queue == queue && held(entry.state));
        let turn = self.turns.get(&queue).copied();
        let served = match turn {
            None => true,
            Some((whose, ended)) if whose == consumer && !ended => true,
            Some((whose, ended)) => (ended || whose == ConsumerId::DETACHED) && idle,
        };
        if served {
            self.turns.insert(queue, (consumer, false));
        }
        served
    }

    pub(in super::super) fn end_turns(&mut self, consumer: ConsumerId) {
        for (_, ended) in self.turns.values_mut().filter(|(whose, _)| *whose == consumer) {
            *ended = true;
        }
    }
}
