//! Publishes that may be repeated: the keys that publishers gave, and what the first publish with each was answered.
//!
//! A publisher that got no answer cannot know whether its message is stored. With a key it asks again, and the state machine,
//! which is the same on all replicas, answers what it answered first instead of storing a second message. So it holds
//! over failover and restart, for as long as the key is remembered. What became of the message does not matter: that it was
//! acknowledged in the meantime is no reason to do the work twice.
//!
//! A key belongs to what the message is addressed to: a queue, a topic, or an exchange with a routing key. The same key
//! elsewhere is another one, also where the names are the same. It is forgotten with its queue or its exchange.
//!
//! What a publish says about how long its key is remembered is part of its command, so that nodes may
//! differ in their settings. Keys whose time is over are forgotten a few at a time, with each publish that has one.

mod kept;
mod routed;

use std::sync::Arc;

use boltq_core::codec::{self, Reader};
use boltq_core::limits::IDEMPOTENCY_KEY_BYTES_MAX;
use boltq_core::{DecodeError, Millis, StreamId};
use bytes::{BufMut, BytesMut};

use crate::machine::Machine;
use crate::place::{Place, QueueId, stream_of};
use crate::snapshot::check;
use kept::Results;
pub(crate) use routed::{Destination, FirstRouted, is_empty, read_section, write_section};

/// Keys that one publish forgets at most: more than it adds, so that they become fewer, and few, so that none takes long.
const FORGET_MAX: usize = 4;

/// What a key belongs to: what its message is addressed to.
#[derive(Debug, Clone, Copy)]
pub enum KeyScope<'a> {
    /// A queue, which need not be there yet.
    Queue(&'a str),
    /// A topic.
    Topic(&'a str),
    /// An exchange together with a routing key. The default one has no name.
    Exchange {
        /// Its name.
        exchange: &'a str,
        /// The routing key.
        routing_key: &'a str,
    },
}

/// The keys of a group.
#[derive(Debug, Default)]
pub(crate) struct Once {
    /// Where the first message is.
    pub(crate) queues: Results<QueueId, Place>,
    /// Of topics and exchanges.
    pub(crate) routed: Results<Arc<Destination>, FirstRouted>,
}

impl Once {
    /// Keys that are remembered, those included whose time is over.
    pub(crate) fn len(&self) -> usize {
        self.queues.len() + self.routed.len()
    }

    /// Whether there is no room for one more: as many are remembered, and the time of none of them is over.
    pub(crate) fn is_full(&self, keys_max: usize, now: Millis) -> bool {
        let ends = [self.queues.first_end(), self.routed.first_end()];
        self.len() >= keys_max && ends.into_iter().flatten().all(|until| until > now)
    }

    /// Forgets some of those whose time is over, the earliest first.
    pub(crate) fn forget_some(&mut self, now: Millis) {
        for _ in 0..FORGET_MAX {
            let over = |end: Option<Millis>| end.filter(|until| *until <= now);
            match (over(self.queues.first_end()), over(self.routed.first_end())) {
                (None, None) => return,
                (Some(of_queue), Some(of_routed)) if of_queue > of_routed => self.routed.forget_first(),
                (None, Some(_)) => self.routed.forget_first(),
                (Some(_), _) => self.queues.forget_first(),
            }
        }
    }

    /// Whether none of a queue is remembered.
    pub(crate) fn has_none_of_queues(&self) -> bool {
        self.queues.len() == 0
    }

    /// Those of queues:
    ///
    /// ```text
    /// u32 number of keys; each, in the order of queue and key:
    ///     u32 queue, str key, u64 stream, u64 sequence, u64 until (Unix milliseconds)
    /// ```
    pub(crate) fn write(&self, out: &mut BytesMut) {
        codec::put_len(out, self.queues.len());
        for (queue, key, kept) in self.queues.iter() {
            out.put_u32_le(queue.0);
            codec::put_bytes(out, key.as_bytes());
            out.put_u64_le(kept.result.stream.0);
            out.put_u64_le(kept.result.seq.0);
            out.put_u64_le(kept.until.0);
        }
    }

    /// Reads the keys of the queues of a machine, which it has already.
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
            once.queues.keep(queue, key, place, until);
        }
        Ok(once)
    }
}

impl Machine {
    /// Keys of publishes that are remembered, those included whose time is over and that take memory still.
    #[must_use]
    pub fn keys_remembered(&self) -> usize {
        self.once.len()
    }

    /// Whether publishes with a new key have to be refused, as so many are remembered.
    #[must_use]
    pub fn keys_full(&self, keys_max: usize, now: Millis) -> bool {
        self.once.is_full(keys_max, now.max(self.now()))
    }

    /// Whether a publish with this key would be answered as the first one was.
    #[must_use]
    pub fn remembers(&self, scope: KeyScope<'_>, key: &str, now: Millis) -> bool {
        let (once, now) = (&self.once, now.max(self.now()));
        let destination = match scope {
            KeyScope::Queue(name) => {
                let queue = self.queue(name);
                return queue.is_some_and(|id| once.queues.find(&id, key, now).is_some());
            }
            KeyScope::Topic(name) => Destination::Topic(name.into()),
            KeyScope::Exchange { exchange, routing_key } => Destination::exchange(exchange, routing_key),
        };
        once.routed.find(&Arc::new(destination), key, now).is_some()
    }
}

/// Whether a key can be remembered.
pub(crate) fn is_key(key: &str) -> bool {
    (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use boltq_core::MessageId;

    fn place(seq: u64) -> Place {
        Place::new(StreamId(16), seq)
    }

    fn first(queues: u32) -> FirstRouted {
        FirstRouted {
            id: MessageId([7; 16]),
            queues,
        }
    }

    fn topic(name: &str) -> Arc<Destination> {
        Arc::new(Destination::Topic(name.into()))
    }

    #[test]
    fn a_key_is_remembered_until_its_time_is_over() {
        let mut once = Once::default();
        let (here, there) = (QueueId(0), QueueId(1));
        once.queues.keep(here, "a", place(1), Millis(10));
        assert_eq!(once.queues.find(&here, "a", Millis(9)), Some(place(1)));
        assert_eq!(once.queues.find(&here, "a", Millis(10)), None);
        assert_eq!(once.queues.find(&there, "a", Millis(0)), None);
        assert_eq!(once.queues.find(&here, "b", Millis(0)), None);
    }

    #[test]
    fn there_is_room_again_when_the_time_of_the_first_is_over() {
        let mut once = Once::default();
        assert!(!once.is_full(2, Millis(0)));
        once.queues.keep(QueueId(0), "a", place(1), Millis(20));
        once.routed.keep(topic("t"), "b", first(1), Millis(10));
        assert!(once.is_full(2, Millis(9)) && !once.is_full(3, Millis(9)));
        assert!(!once.is_full(2, Millis(10)));
        once.forget_some(Millis(10));
        assert_eq!((once.queues.len(), once.routed.len()), (1, 0));
        once.routed.keep(topic("t"), "b", first(1), Millis(30));
        assert!(once.is_full(2, Millis(19)) && !once.is_full(2, Millis(20)));
    }

    #[test]
    fn a_key_that_is_used_again_has_one_end() {
        let mut once = Once::default();
        once.queues.keep(QueueId(0), "a", place(1), Millis(10));
        once.queues.keep(QueueId(0), "a", place(2), Millis(30));
        once.forget_some(Millis(20));
        assert_eq!(once.queues.find(&QueueId(0), "a", Millis(20)), Some(place(2)));
        once.forget_some(Millis(30));
        assert_eq!((once.queues.scopes_from(&QueueId(0)).count(), once.len()), (0, 0));
    }

    #[test]
    fn the_keys_of_one_queue_are_forgotten_together() {
        let mut once = Once::default();
        for queue in [0, 1] {
            once.queues.keep(QueueId(queue), "a", place(1), Millis(10));
            once.queues.keep(QueueId(queue), "b", place(2), Millis(20));
        }
        once.queues.forget_scope(&QueueId(0));
        once.queues.forget_scope(&QueueId(7));
        assert_eq!((once.queues.scopes_from(&QueueId(0)).count(), once.len()), (1, 2));
        assert_eq!(once.queues.find(&QueueId(0), "a", Millis(0)), None);
        assert_eq!(once.queues.find(&QueueId(1), "b", Millis(0)), Some(place(2)));
    }

    #[test]
    fn the_keys_of_one_exchange_are_forgotten_together() {
        let mut once = Once::default();
        let all = [("e", ""), ("e", "x"), ("ea", ""), ("", "e"), ("", "x")];
        let at = |(exchange, key)| Arc::new(Destination::exchange(exchange, key));
        all.iter()
            .for_each(|one| once.routed.keep(at(*one), "k", first(1), Millis(10)));
        once.routed.keep(topic("e"), "k", first(1), Millis(10));
        once.forget_exchange("e");
        let left = |one| once.routed.find(&at(one), "k", Millis(0)).is_some();
        assert_eq!(all.map(left), [false, false, true, true, true]);
        assert!(once.routed.find(&topic("e"), "k", Millis(0)).is_some());
        assert_eq!(once.len(), 4);
    }

    #[test]
    fn keys_are_forgotten_faster_than_they_come_and_in_the_order_of_their_ends() {
        let mut once = Once::default();
        for seq in 1..=100 {
            let until = Millis(5 - seq % 2);
            match seq % 2 {
                0 => once.queues.keep(QueueId(0), &format!("old {seq}"), place(seq), until),
                _ => once.routed.keep(topic("t"), &format!("old {seq}"), first(0), until),
            }
        }
        let publishes = (0..).take_while(|seq| {
            once.forget_some(Millis(5));
            once.queues
                .keep(QueueId(0), &format!("new {seq}"), place(200 + seq), Millis(50));
            let routed_first = once.routed.len() == 0 || once.queues.first_end() == Some(Millis(5));
            assert!(routed_first, "one that ends later went first");
            once.queues.first_end() == Some(Millis(5))
        });
        assert_eq!(publishes.count(), 24);
        assert_eq!((once.queues.scopes_from(&QueueId(0)).count(), once.len()), (1, 25));
    }
}
