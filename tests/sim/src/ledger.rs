//! What clients did and were told, and what of it can never be otherwise.
//!
//! Each message carries a number of its own. Every event has a number too, so that "began after it was answered" is a
//! comparison; nothing is inferred from times of day, which jump.

mod checks;
mod copies;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::BTreeMap;

use boltq_core::MessageId;
use boltq_server::service::Delivery;
use parking_lot::Mutex;

use crate::clocks;
use crate::random::hash;
use crate::trace::{Checker, Trace, note};

const DEAD_LETTER_SUFFIX: &str = boltq_server::service::DEAD_LETTER_SUFFIX;

/// What a client was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// It is done.
    Done,
    /// It was not done, and will not be.
    Refused,
    /// Nothing, or that nobody knows.
    Unknown,
}

impl Told {
    /// What two attempts together say of a message that is stored once.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Done, _) | (_, Self::Done) => Self::Done,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Refused, Self::Refused) => Self::Refused,
        }
    }
}

/// A lease that a client was given.
#[derive(Debug, Clone, Copy)]
struct Lease {
    number: u64,
    node: usize,
    /// By the clock of the node; none if that was set back meanwhile.
    end_ms: Option<u64>,
    /// Somebody began to settle it, or whoever held it went away.
    over: bool,
    answered: u64,
}

/// A message, from when somebody began to publish it.
#[derive(Debug, Clone)]
struct Message {
    queue: String,
    body: u64,
    told: Told,
    /// What was told of it before it was published again.
    told_before: Option<Told>,
    id: Option<MessageId>,
    expires: bool,
    /// By the clock of the node that got it; none if that was set back.
    due_ms: Option<u64>,
    begun: Begun,
    /// When it was answered that it is acknowledged.
    acked: Option<u64>,
    /// An acknowledgement was begun whose outcome is not known.
    may_be_acked: bool,
    leases: Vec<Lease>,
    ordering_key: String,
    idempotent: bool,
    /// It is one of several copies.
    routed: bool,
}

/// When a request began: by its number, and by the clock of the node that it went to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) event: u64,
    pub(crate) node: usize,
    /// Of the leadership at which it was.
    first_lease: u64,
    clock_ms: u64,
    set_back: u32,
}

impl Begun {
    /// The earliest that the node's clock can have shown while the request was carried out; none if it was set back.
    fn earliest_ms(&self) -> Option<u64> {
        (clocks::set_back(self.node) == self.set_back).then_some(self.clock_ms)
    }
}

/// What is to be known of time at a delivery.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Of the lease that was asked for.
    pub(crate) lease_ms: u64,
    /// Leases with smaller numbers ended with an earlier leadership.
    pub(crate) first_lease: u64,
    /// The latest time of an entry that the node has applied: a leader whose clock is behind goes by that.
    pub(crate) cluster_ms: u64,
}

/// What a client publishes.
#[derive(Debug, Clone)]
pub(crate) struct Publish {
    pub(crate) tag: u64,
    pub(crate) queue: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) priority: i64,
    pub(crate) delay_ms: u64,
    pub(crate) ttl_ms: u64,
    /// Empty: none.
    pub(crate) ordering_key: String,
    /// Empty: none.
    pub(crate) idempotency_key: String,
    /// It was published before, with the same key.
    pub(crate) again: bool,
}

#[derive(Debug, Default)]
struct Inner {
    event: u64,
    tags: u64,
    messages: BTreeMap<u64, Message>,
    ids: BTreeMap<MessageId, u64>,
    turns: turns::Turns,
    /// Of what was published to several queues, by its number and the queue, the numbers of the copies.
    copies: BTreeMap<(u64, String), u64>,
    /// Purges that may have been carried out: queue and the number of their last event.
    purges: Vec<(String, u64)>,
    purged: (u64, bool),
    /// The last entry that any node has applied.
    applied: u64,
}

/// See the module.
pub(crate) struct Ledger {
    inner: Mutex<Inner>,
    trace: Trace,
}

/// What clients know of figures that the cluster counts too.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Known {
    pub(crate) published: (u64, u64),
    pub(crate) acked: (u64, u64),
    /// At least so many, and whether that is all.
    pub(crate) purged: (u64, bool),
}

/// The number in a payload.
fn tag_of(payload: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(payload.get(..8)?.try_into().ok()?))
}

impl Ledger {
    pub(crate) fn new(trace: Trace) -> Self {
        Self {
            inner: Mutex::default(),
            trace,
        }
    }

    /// A number for a message that nobody else has.
    pub(crate) fn tag(&self) -> u64 {
        let mut inner = self.inner.lock();
        inner.tags += 1;
        inner.tags
    }

    /// A request begins.
    pub(crate) fn begin(&self, node: usize, first_lease: u64) -> Begun {
        let mut inner = self.inner.lock();
        inner.event += 1;
        Begun {
            event: inner.event,
            node,
            first_lease,
            clock_ms: clocks::read_ms(node),
            set_back: clocks::set_back(node),
        }
    }

    pub(crate) fn publishing(&self, begun: Begun, publishes: &[Publish]) {
        let mut inner = self.inner.lock();
        for publish in publishes {
            if let Some(message) = inner.messages.get_mut(&publish.tag).filter(|_| publish.again) {
                message.told_before = Some(message.told);
                message.told = message.told.and(Told::Unknown);
                continue;
            }
            let message = Message {
                queue: publish.queue.clone(),
                body: hash(0, &publish.payload),
                told: Told::Unknown,
                told_before: None,
                id: None,
                expires: publish.ttl_ms > 0,
                due_ms: (publish.delay_ms > 0).then_some(begun.clock_ms + publish.delay_ms),
                begun,
                acked: None,
                may_be_acked: false,
                leases: Vec::new(),
                ordering_key: publish.ordering_key.clone(),
                idempotent: !publish.idempotency_key.is_empty(),
                routed: false,
            };
            inner.messages.insert(publish.tag, message);
        }
    }

    pub(crate) fn published(&self, begun: Begun, publishes: &[Publish], told: Told, ids: &[MessageId]) {
        let mut inner = self.inner.lock();
        inner.event += 1;
        for (n, publish) in publishes.iter().enumerate() {
            let Some(message) = inner.messages.get_mut(&publish.tag) else {
                continue;
            };
            message.told = message.told_before.map_or(told, |before| before.and(told));
            if begun.earliest_ms().is_none() {
                message.due_ms = None;
            }
            if let Some(id) = ids.get(n) {
                self.identify(&mut inner, publish.tag, *id);
            }
        }
        self.trace.count(match told {
            Told::Done => "publishes",
            Told::Refused => "publishes refused",
            Told::Unknown => "publishes unknown",
        });
        let tags = (publishes.first().map(|p| p.tag), publishes.len());
        note!(self.trace, "n{} publish {tags:?}: {told:?}", begun.node);
        if told == Told::Done && ids.len() != publishes.len() {
            let what = format!("{} ids for {} messages", ids.len(), publishes.len());
            self.trace.violation(Checker::OneBody, what);
        }
    }

    fn identify(&self, inner: &mut Inner, tag: u64, id: MessageId) {
        let other = *inner.ids.entry(id).or_insert(tag);
        let Some(message) = inner.messages.get_mut(&tag) else {
            return;
        };
        let known = *message.id.get_or_insert(id);
        if other != tag {
            let what = format!("messages {tag} and {other} both have the id {id}");
            self.trace.violation(Checker::OneBody, what);
        }
        if known != id {
            let checker = match message.idempotent {
                true => Checker::Once,
                false => Checker::OneBody,
            };
            let what = format!("message {tag} has the ids {known} and {id}: it was stored twice");
            self.trace.violation(checker, what);
        }
    }

    /// A client got a message; its number, if it has one.
    pub(crate) fn delivered(&self, begun: Begun, queue: &str, delivery: &Delivery, times: Times) -> Option<u64> {
        let mut inner = self.inner.lock();
        inner.event += 1;
        let event = inner.event;
        let number = lease_of(delivery);
        let tag = tag_of(&delivery.record.payload).map(|tag| inner.copy(tag, queue));
        let Some(tag) = tag.filter(|tag| inner.messages.contains_key(tag)) else {
            let what = format!(
                "a message in {queue} that nobody published: {:?}",
                delivery.record.payload
            );
            let is_copy = tag.is_some_and(|tag| inner.is_of_copies(tag));
            let checker = if is_copy { Checker::Routing } else { Checker::NoPhantom };
            self.trace.violation(checker, what);
            return None;
        };
        note!(
            self.trace,
            "n{} delivers {tag} from {queue}, lease {number:x}, attempts {}",
            begun.node,
            delivery.attempts
        );
        self.trace.count("deliveries");
        if delivery.attempts > 0 {
            self.trace.count("redeliveries");
        }
        if queue.ends_with(DEAD_LETTER_SUFFIX) {
            self.trace.count("dead letters");
        }
        self.identify(&mut inner, tag, delivery.id);
        self.check_turn(&mut inner, tag, begun, queue, delivery, times);
        let message = inner.messages.get_mut(&tag)?;
        self.check_delivery(tag, message, begun, queue, delivery, times);
        self.check_exclusive(tag, message, begun.node, number, times.first_lease);
        let end_ms = begun.earliest_ms().map(|clock_ms| clock_ms + times.lease_ms);
        message.leases.push(Lease {
            number,
            node: begun.node,
            end_ms,
            over: false,
            answered: event,
        });
        Some(tag)
    }

    /// Somebody begins to settle a lease, or whoever holds it goes away: from now on it may end at any moment.
    pub(crate) fn lets_go(&self, tag: u64, number: u64) {
        self.lease(tag, number, |lease| lease.over = true);
    }

    /// The end of a lease was moved, or perhaps.
    pub(crate) fn extended(&self, begun: Begun, tag: u64, number: u64, lease_ms: u64, told: Told) {
        let end_ms = begun.earliest_ms().map(|clock_ms| clock_ms + lease_ms);
        self.lease(tag, number, |lease| match told {
            Told::Refused => {}
            Told::Done => lease.end_ms = end_ms,
            Told::Unknown => lease.end_ms = lease.end_ms.min(end_ms),
        });
    }

    fn lease(&self, tag: u64, number: u64, change: impl FnOnce(&mut Lease)) {
        let mut inner = self.inner.lock();
        let message = inner.messages.get_mut(&tag);
        let lease = message.and_then(|message| message.leases.iter_mut().find(|lease| lease.number == number));
        if let Some(lease) = lease {
            change(lease);
        }
    }

    /// Somebody begins to acknowledge a message.
    pub(crate) fn acking(&self, tag: u64) {
        if let Some(message) = self.inner.lock().messages.get_mut(&tag) {
            message.may_be_acked = true;
        }
    }

    /// What came of a settlement of a lease, at the leadership that the node has now.
    pub(crate) fn settled(&self, begun: Begun, tag: u64, number: u64, ack: bool, told: Told, first_lease: u64) {
        let mut inner = self.inner.lock();
        inner.event += 1;
        let event = inner.event;
        note!(
            self.trace,
            "n{} settles {tag}, lease {number:x}, ack {ack}: {told:?}",
            begun.node
        );
        let Some(message) = inner.messages.get_mut(&tag).filter(|_| told == Told::Done) else {
            return;
        };
        if ack {
            self.trace.count("acknowledgements");
            message.acked.get_or_insert(event);
        }
        self.check_fencing(tag, message, begun, number, first_lease);
    }

    /// A purge came to its end.
    pub(crate) fn purged(&self, queue: &str, told: Told, count: u64) {
        let mut inner = self.inner.lock();
        inner.event += 1;
        let event = inner.event;
        note!(self.trace, "purge of {queue}: {told:?}, {count} messages");
        if told != Told::Refused {
            inner.purges.push((queue.to_owned(), event));
        }
        inner.purged.0 += count;
        inner.purged.1 |= told == Told::Unknown;
    }

    /// A node was seen to have applied entries up to this one.
    pub(crate) fn has_applied(&self, index: u64) {
        let mut inner = self.inner.lock();
        inner.applied = inner.applied.max(index);
    }

    /// The last entry that any node was seen to have applied.
    pub(crate) fn applied(&self) -> u64 {
        self.inner.lock().applied
    }

    pub(crate) fn known(&self) -> Known {
        let inner = self.inner.lock();
        let count = |wanted: &dyn Fn(&Message) -> bool| inner.messages.values().filter(|m| wanted(m)).count() as u64;
        Known {
            published: (
                count(&|message| message.told == Told::Done),
                count(&|message| message.told != Told::Refused),
            ),
            acked: (
                count(&|message| message.acked.is_some()),
                count(&|message| message.may_be_acked),
            ),
            purged: (inner.purged.0, !inner.purged.1),
        }
    }
}

/// The number of the lease in a token.
pub(crate) fn lease_of(delivery: &Delivery) -> u64 {
    let token = delivery.token.to_bytes();
    let mut number = [0; 8];
    number.copy_from_slice(&token[16..]);
    u64::from_be_bytes(number)
}
