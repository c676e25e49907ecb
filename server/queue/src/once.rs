//! Publishes that may be repeated: the keys that publishers gave, and where the message with each is.
//!
//! A publisher that got no answer cannot know whether its message is stored. With a key it asks again, and the state machine,
//! which is the same on all replicas, answers with the place of the first message instead of storing a second one. So it holds
//! over failover and restart, for as long as the key is remembered. What became of the message does not matter: that it was
//! acknowledged in the meantime is no reason to do the work twice.
//!
//! A key belongs to a queue. What a publish says about how long it is remembered is part of its command, so that nodes may
//! differ in their settings. Keys whose time is over are forgotten a few at a time, with each publish that has one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use boltq_core::codec::{self, Reader};
use boltq_core::limits::IDEMPOTENCY_KEY_BYTES_MAX;
use boltq_core::{DecodeError, Millis, StreamId};
use bytes::{BufMut, BytesMut};

use crate::machine::Machine;
use crate::place::{Place, QueueId, stream_of};
use crate::snapshot::check;

/// Keys that one publish forgets at most: more than it adds, so that they become fewer, and few, so that none takes long.
const FORGET_MAX: usize = 4;

/// The first message with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct First {
    place: Place,
    /// When the key is forgotten.
    until: Millis,
}

/// The keys of a group.
#[derive(Debug, Default)]
pub(crate) struct Once {
    firsts: BTreeMap<QueueId, BTreeMap<Arc<str>, First>>,
    /// The same keys by the end of their time.
    ends: BTreeSet<(Millis, QueueId, Arc<str>)>,
}

impl Once {
    /// Keys that are remembered, those included whose time is over.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no room for one more: as many are remembered, and the time of none of them is over.
    pub(crate) fn is_full(&self, keys_max: usize, now: Millis) -> bool {
        let lives = |(until, ..): &(Millis, QueueId, Arc<str>)| *until > now;
        self.len() >= keys_max && self.ends.first().is_none_or(lives)
    }

    /// The message that was published with this key, if it is remembered.
    pub(crate) fn find(&self, queue: QueueId, key: &str, now: Millis) -> Option<Place> {
        let first = self.firsts.get(&queue)?.get(key)?;
        (first.until > now).then_some(first.place)
    }

    /// Remembers a message until then. One with the same key is forgotten.
    pub(crate) fn remember(&mut self, queue: QueueId, key: &str, place: Place, until: Millis) {
        let key: Arc<str> = key.into();
        let keys = self.firsts.entry(queue).or_default();
        if let Some(before) = keys.insert(Arc::clone(&key), First { place, until }) {
            self.ends.remove(&(before.until, queue, Arc::clone(&key)));
        }
        self.ends.insert((until, queue, key));
    }

    /// Forgets some of those whose time is over.
    pub(crate) fn forget_some(&mut self, now: Millis) {
        for _ in 0..FORGET_MAX {
            match self.ends.first() {
                Some((until, ..)) if *until <= now => {}
                _ => return,
            }
            let Some((_, queue, key)) = self.ends.pop_first() else {
                return;
            };
            let Some(keys) = self.firsts.get_mut(&queue) else {
                return;
            };
            keys.remove(&key);
            if keys.is_empty() {
                self.firsts.remove(&queue);
            }
        }
    }

    /// Forgets all keys of a queue.
    pub(crate) fn forget_queue(&mut self, queue: QueueId) {
        for (key, first) in self.firsts.remove(&queue).unwrap_or_default() {
            self.ends.remove(&(first.until, queue, key));
        }
    }

    /// ```text
    /// u32 number of keys; each, in the order of queue and key:
    ///     u32 queue, str key, u64 stream, u64 sequence, u64 until (Unix milliseconds)
    /// ```
    pub(crate) fn write(&self, out: &mut BytesMut) {
        codec::put_len(out, self.len());
        let all = self
            .firsts
            .iter()
            .flat_map(|(queue, keys)| keys.iter().map(move |key| (queue, key)));
        for (queue, (key, First { place, until })) in all {
            out.put_u32_le(queue.0);
            codec::put_bytes(out, key.as_bytes());
            out.put_u64_le(place.stream.0);
            out.put_u64_le(place.seq.0);
            out.put_u64_le(until.0);
        }
    }

    /// Reads the keys of a machine that has its queues.
    pub(crate) fn read(machine: &Machine, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "keys of publishes";
        let mut once = Self::default();
        let count = reader.count(32, WHAT)?;
        let mut before = None;
        for _ in 0..count {
            let queue = QueueId(reader.u32(WHAT)?);
            let key = reader.str(WHAT)?;
            check(is_key(key), WHAT, "one is empty or too long")?;
            let place = Place::new(StreamId(reader.u64(WHAT)?), reader.u64(WHAT)?);
            let until = Millis(reader.u64(WHAT)?);
            let there = machine.stream(place.stream).is_some_and(|(.., window)| {
                let of_queue = stream_of(place.stream).is_some_and(|(id, _)| id == queue);
                of_queue && (1..window.head).contains(&place.seq.0)
            });
            check(there, WHAT, "one is of a message that never was")?;
            check(before < Some((queue, key)), WHAT, "they are not in order")?;
            before = Some((queue, key));
            once.remember(queue, key, place, until);
        }
        Ok(once)
    }
}

/// Whether a key can be remembered.
pub(crate) fn is_key(key: &str) -> bool {
    (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(seq: u64) -> Place {
        Place::new(StreamId(16), seq)
    }

    #[test]
    fn a_key_is_remembered_until_its_time_is_over() {
        let mut once = Once::default();
        let (here, there) = (QueueId(0), QueueId(1));
        once.remember(here, "a", place(1), Millis(10));
        assert_eq!(once.find(here, "a", Millis(9)), Some(place(1)));
        assert_eq!(once.find(here, "a", Millis(10)), None);
        assert_eq!(once.find(there, "a", Millis(0)), None);
        assert_eq!(once.find(here, "b", Millis(0)), None);
    }

    #[test]
    fn there_is_room_again_when_the_time_of_the_first_is_over() {
        let mut once = Once::default();
        assert!(!once.is_full(2, Millis(0)));
        for (key, until) in [("a", 10), ("b", 20)] {
            once.remember(QueueId(0), key, place(1), Millis(until));
        }
        assert!(once.is_full(2, Millis(9)) && !once.is_full(3, Millis(9)));
        assert!(!once.is_full(2, Millis(10)));
    }

    #[test]
    fn a_key_that_is_used_again_has_one_end() {
        let mut once = Once::default();
        once.remember(QueueId(0), "a", place(1), Millis(10));
        once.remember(QueueId(0), "a", place(2), Millis(30));
        once.forget_some(Millis(20));
        assert_eq!(once.find(QueueId(0), "a", Millis(20)), Some(place(2)));
        once.forget_some(Millis(30));
        assert_eq!((once.firsts.len(), once.ends.len()), (0, 0));
    }

    #[test]
    fn the_keys_of_one_queue_are_forgotten_together() {
        let mut once = Once::default();
        for queue in [0, 1] {
            once.remember(QueueId(queue), "a", place(1), Millis(10));
            once.remember(QueueId(queue), "b", place(2), Millis(20));
        }
        once.forget_queue(QueueId(0));
        once.forget_queue(QueueId(7));
        assert_eq!((once.firsts.len(), once.ends.len()), (1, 2));
        assert_eq!(once.find(QueueId(0), "a", Millis(0)), None);
        assert_eq!(once.find(QueueId(1), "b", Millis(0)), Some(place(2)));
    }

    #[test]
    fn keys_are_forgotten_faster_than_they_come() {
        let mut once = Once::default();
        for seq in 1..=100 {
            once.remember(QueueId(0), &format!("old {seq}"), place(seq), Millis(5));
        }
        let publishes = (0..).take_while(|seq| {
            once.forget_some(Millis(5));
            once.remember(QueueId(0), &format!("new {seq}"), place(200 + seq), Millis(50));
            once.ends.first().is_some_and(|(until, ..)| *until == Millis(5))
        });
        assert_eq!(publishes.count(), 24);
        assert_eq!((once.firsts[&QueueId(0)].len(), once.len()), (25, 25));
    }
}
