//! The queue plane as one would write it without a thought for cost: a list of messages, looked through for everything.

use std::collections::BTreeMap;

use boltq_core::{Millis, StorageEffect};

mod managing;

use super::fixture::Message;
use crate::place::{DELAYED, stream_id};
use crate::{
    Claim, ClaimError, ConsumerId, Handle, LeaseNo, Leased, Place, QueueId, QueueOptions, QueueStats, Run,
    ScheduleError, Scheduled, Totals,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    Sleeping,
    Backoff,
    Leased {
        consumer: ConsumerId,
        lease: LeaseNo,
        began: Millis,
        ends: Millis,
    },
    Claimed,
    Purging,
    Done,
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) queue: QueueId,
    pub(super) priority: u8,
    /// Of a delayed message.
    pub(super) due: Option<Millis>,
    pub(super) attempts: u32,
    pub(super) not_before: Millis,
    /// That of its record, and what was noted of that on the leader.
    pub(super) expires: Option<Millis>,
    pub(super) noted: Option<Millis>,
    pub(super) state: State,
}

impl Entry {
    fn idle_state(&self, now: Millis) -> State {
        if self.due > Some(now) {
            State::Sleeping
        } else if self.not_before > now {
            State::Backoff
        } else {
            State::Ready
        }
    }

    fn claim(&self, consumer: Option<ConsumerId>, held_ms: Option<u64>, now: Millis) -> Claim {
        Claim {
            place: self.place,
            queue: self.queue,
            attempts: self.attempts,
            consumer,
            held_ms,
            expired: self.is_over(now),
        }
    }

    fn is_over(&self, now: Millis) -> bool {
        let ends = self.expires.into_iter().chain(self.noted);
        ends.min().is_some_and(|ends| ends <= now)
    }

    /// Nobody holds it, and no command is about it.
    fn is_idle(&self) -> bool {
        matches!(self.state, State::Ready | State::Sleeping | State::Backoff)
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) entries: Vec<Entry>,
    pub(super) totals: Totals,
    heads: BTreeMap<(u32, usize), u64>,
    /// Keys of publishes, with their messages and how long they are remembered.
    pub(super) keys: Vec<(QueueId, &'static str, Place, Millis)>,
    options: BTreeMap<QueueId, QueueOptions>,
    /// Of a queue that serves one consumer at a time, the one whose turn it is, and whether that has ended.
    turns: BTreeMap<QueueId, (ConsumerId, bool)>,
}

impl Model {
    pub(super) fn get(&mut self, place: Place) -> Option<&mut Entry> {
        let open = |entry: &&mut Entry| entry.place == place && entry.state != State::Done;
        self.entries.iter_mut().find(open)
    }

    /// The message that was published with this key, if that is remembered.
    pub(super) fn published_with(&self, queue: QueueId, key: &str, now: Millis) -> Option<Place> {
        let known = |(at, name, place, until): &(QueueId, &str, Place, Millis)| {
            (*at == queue && *name == key && *until > now).then_some(*place)
        };
        self.keys.iter().find_map(known)
    }

    pub(super) fn append(&mut self, queue: QueueId, message: Message, now: Millis) -> Place {
        let due = message.due.filter(|due| *due > now);
        let lane = if due.is_some() {
            DELAYED
        } else {
            usize::from(message.priority)
        };
        let head = self.heads.entry((queue.0, lane)).or_insert(1);
        let place = Place::new(stream_id(queue, lane), *head);
        *head += 1;
        self.entries.push(Entry {
            place,
            queue,
            priority: message.priority,
            due,
            attempts: 0,
            not_before: Millis(0),
            expires: message.expires,
            noted: None,
            state: if due.is_some() { State::Sleeping } else { State::Ready },
        });
        place
    }

    /// Ready messages in delivery order.
    pub(super) fn ready(&self, queue: QueueId) -> Vec<Place> {
        let ready = |entry: &&Entry| entry.queue == queue && entry.state == State::Ready;
        let mut ready: Vec<_> = self.entries.iter().filter(ready).collect();
        ready.sort_by_key(|entry| {
            let lane = entry.due.is_none();
            (9 - entry.priority, lane, entry.due, entry.place.seq)
        });
        ready.into_iter().map(|entry| entry.place).collect()
    }

    /// Takes over what the plane has leased; the caller has compared it with `ready`.
    pub(super) fn lease(&mut self, leased: &[Leased], consumer: ConsumerId, (began, ends): (Millis, Millis)) {
        for leased in leased {
            let lease = leased.lease;
            let entry = self.get(leased.place).unwrap();
            assert_eq!(leased.attempts, entry.attempts);
            entry.state = State::Leased {
                consumer,
                lease,
                began,
                ends,
            };
        }
    }

    pub(super) fn claim(&mut self, handle: Handle, now: Millis) -> Result<Claim, ClaimError> {
        let entry = self.get(handle.place()).ok_or(ClaimError::NotFound)?;
        let held = match (entry.state, handle) {
            (State::Done | State::Sleeping, _) => return Err(ClaimError::NotFound),
            (State::Claimed | State::Purging, _) => return Err(ClaimError::LeaseLost),
            (State::Leased { lease: held, .. }, Handle::Token { lease, .. }) if held != lease => {
                return Err(ClaimError::LeaseLost);
            }
            (State::Leased { consumer, began, .. }, _) => Some((consumer, now.since(began))),
            (State::Ready | State::Backoff, _) => None,
        };
        entry.state = State::Claimed;
        let claim = entry.claim(held.map(|held| held.0), held.map(|held| held.1), now);
        if claim.expired {
            Err(ClaimError::Expired(claim))
        } else {
            Ok(claim)
        }
    }

    pub(super) fn extend(&mut self, handle: Handle, to: Millis) -> Result<(), ClaimError> {
        let entry = self.get(handle.place()).ok_or(ClaimError::NotFound)?;
        match (&mut entry.state, handle) {
            (State::Leased { lease: held, .. }, Handle::Token { lease, .. }) if *held != lease => {
                Err(ClaimError::LeaseLost)
            }
            (State::Leased { ends, .. }, _) => {
                *ends = to;
                Ok(())
            }
            _ => Err(ClaimError::LeaseLost),
        }
    }

    /// Gives back what is in the given state.
    pub(super) fn give_back(&mut self, now: Millis, which: impl Fn(&Entry) -> bool) -> usize {
        let mut count = 0;
        for entry in self.entries.iter_mut().filter(|entry| which(entry)) {
            entry.state = entry.idle_state(now);
            count += 1;
        }
        count
    }

    /// Returns the claims of the leases that ended, in the order of the messages.
    pub(super) fn tick(&mut self, now: Millis) -> Vec<Claim> {
        let mut timed_out = Vec::new();
        for entry in &mut self.entries {
            match entry.state {
                State::Sleeping if entry.due <= Some(now) => entry.state = entry.idle_state(now),
                State::Backoff if entry.not_before <= now => entry.state = entry.idle_state(now),
                State::Leased { consumer, ends, .. } if ends <= now => {
                    entry.state = State::Claimed;
                    timed_out.push(entry.claim(Some(consumer), None, now));
                }
                _ => {}
            }
        }
        timed_out
    }

    pub(super) fn next_tick(&self) -> Option<Millis> {
        let times = self.entries.iter().filter_map(|entry| match entry.state {
            State::Sleeping => entry.due,
            State::Backoff => Some(entry.not_before),
            State::Leased { ends, .. } => Some(ends),
            _ => None,
        });
        times.min()
    }

    /// Messages that can be expired.
    pub(super) fn expired(&self, now: Millis) -> Vec<Place> {
        let over = |entry: &&Entry| entry.is_idle() && entry.expires.is_some_and(|expires| expires <= now);
        self.entries.iter().filter(over).map(|entry| entry.place).collect()
    }

    pub(super) fn next_expiry(&self) -> Option<Millis> {
        let idle = self.entries.iter().filter(|entry| entry.is_idle());
        idle.filter_map(|entry| entry.expires).min()
    }

    /// Messages that wait to be due, in that order.
    pub(super) fn scheduled(&self, queue: QueueId) -> Vec<Scheduled> {
        let asleep = |entry: &&Entry| entry.queue == queue && entry.state == State::Sleeping;
        let scheduled = self.entries.iter().filter(asleep).map(|entry| Scheduled {
            place: entry.place,
            due: entry.due.unwrap(),
            priority: entry.priority,
        });
        let mut scheduled: Vec<_> = scheduled.collect();
        scheduled.sort_by_key(|scheduled| (scheduled.due, scheduled.place));
        scheduled
    }

    pub(super) fn claim_scheduled(&mut self, place: Place) -> Result<(), ScheduleError> {
        let entry = self.get(place).ok_or(ScheduleError::NotFound)?;
        if entry.state != State::Sleeping {
            return Err(ScheduleError::NotScheduled);
        }
        entry.state = State::Claimed;
        Ok(())
    }

    /// Returns whether there is such a message.
    pub(super) fn reschedule(&mut self, place: Place, due: Millis, now: Millis) -> bool {
        let entry = self.get(place).filter(|entry| entry.due.is_some());
        entry.is_some_and(|entry| {
            entry.due = Some(due);
            entry.state = entry.idle_state(now);
            true
        })
    }

    /// Finishes messages; returns which were done by this, and which were done before or are not known.
    pub(super) fn finish(&mut self, places: &[Place]) -> (Vec<Place>, Vec<Place>) {
        let (mut done, mut missing) = (Vec::new(), Vec::new());
        for place in places {
            match self.get(*place) {
                Some(entry) => {
                    entry.state = State::Done;
                    done.push(*place);
                }
                None => missing.push(*place),
            }
        }
        (done, missing)
    }

    pub(super) fn fail(&mut self, places: &[Place], not_before: Millis, now: Millis) -> (u64, Vec<Place>) {
        let (mut done, mut missing) = (0, Vec::new());
        for place in places {
            let Some(entry) = self.get(*place) else {
                missing.push(*place);
                continue;
            };
            entry.attempts += 1;
            entry.not_before = not_before;
            entry.state = entry.idle_state(now);
            done += 1;
        }
        self.totals.nacked += done;
        (done, missing)
    }

    /// A new leader: leases and claims are gone.
    pub(super) fn lead(&mut self, now: Millis) {
        self.turns.clear();
        for entry in &mut self.entries {
            entry.noted = None;
            if entry.state != State::Done {
                entry.state = entry.idle_state(now);
            }
        }
    }

    pub(super) fn stats(&self, queue: QueueId) -> QueueStats {
        let count = |states: fn(State) -> bool| {
            let counted = |entry: &&Entry| entry.queue == queue && states(entry.state);
            self.entries.iter().filter(counted).count() as u64
        };
        QueueStats {
            ready: count(|state| matches!(state, State::Ready | State::Backoff)),
            leased: count(|state| matches!(state, State::Leased { .. } | State::Claimed)),
            delayed: count(|state| state == State::Sleeping),
        }
    }

    pub(super) fn held_by(&self, consumer: ConsumerId) -> usize {
        let held = |entry: &&Entry| matches!(entry.state, State::Leased { consumer: holder, .. } if holder == consumer);
        self.entries.iter().filter(held).count()
    }

    pub(super) fn open_count(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.state != State::Done).count() as u64
    }
}

/// The store: what it was told to keep, and what it may forget.
#[derive(Debug, Default)]
pub(super) struct Store {
    live: BTreeMap<Place, ()>,
    heads: BTreeMap<u64, u64>,
}

impl Store {
    /// Follows a command and returns what it freed. Checks that streams have no gaps, that each record is placed where
    /// it lies in the entry, and that only what is there is freed.
    pub(super) fn follow(&mut self, entry: &[u8], storage: &[StorageEffect]) -> Vec<Place> {
        let mut freed = Vec::new();
        for effect in storage {
            match *effect {
                StorageEffect::Placed {
                    stream,
                    first,
                    count,
                    offset,
                    bytes,
                } => {
                    let head = self.heads.entry(stream.0).or_insert(1);
                    assert_eq!(*head, first.0);
                    *head += u64::from(count);
                    let mut records = &entry[offset as usize..(offset + bytes) as usize];
                    for seq in first.0..*head {
                        let head = boltq_core::RecordHead::read(records).unwrap();
                        records = &records[head.bytes..];
                        assert!(self.live.insert(Place::new(stream, seq), ()).is_none());
                    }
                    assert!(records.is_empty());
                }
                StorageEffect::Erased { .. } => panic!("nothing of a queue is erased"),
                StorageEffect::Freed { stream, first, count } => {
                    for place in (Run { stream, first, count }).places() {
                        assert!(
                            self.live.remove(&place).is_some(),
                            "{place:?} freed twice, or never placed"
                        );
                        freed.push(place);
                    }
                }
            }
        }
        freed
    }

    pub(super) fn live_count(&self) -> u64 {
        self.live.len() as u64
    }
}
