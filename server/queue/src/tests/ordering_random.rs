//! Random commands and calls on a queue of messages with and without keys. After every step: of each key at most one message is
//! held, and it is the oldest; what can be leased, and what is over, is what a simple model says; the state survives a snapshot,
//! and a new leader hands out the same. In the end everything is delivered: no key is stuck.

use std::collections::{BTreeMap, BTreeSet};

use boltq_core::{Applied, Millis, StateMachine, StreamId, Term};
use bytes::BytesMut;
use proptest::prelude::*;
use proptest::sample::Index;

use super::fixture::{SETTINGS, fail, settle};
use super::ordering::{publish_until, record, record_until};
use crate::command::{self, Settle};
use crate::ordering::WAITING_MAX;
use crate::place::{KEYED, stream_id};
use crate::{ClaimError, ConsumerId, Handle, LeaseNo, Leased, Machine, Outcome, Place, Plane, QueueId, Run};

const QUEUE: QueueId = QueueId(0);
const KEYS: [char; 5] = ['a', 'b', 'c', 'd', '-'];

#[derive(Debug, Clone)]
enum Step {
    /// Keys, and times to live.
    Publish(Vec<(usize, Option<u64>)>),
    Lease {
        consumer: u64,
        max: usize,
        ms: u64,
    },
    /// A delivery, by its token or by its place.
    Claim(Index, bool),
    /// Any message, whether it was delivered or not.
    ClaimAny(Index),
    /// The command that the oldest claims were made for is applied.
    Settle(How, usize),
    Unclaim(Index),
    Release(Index),
    ReleaseConsumer(u64),
    Pass(u64),
    /// Messages that are over are claimed, so many at most.
    ClaimExpired(usize),
    BeginPurge,
    EndPurge(bool),
    /// What an earlier leader had proposed for a message that it had handed out.
    Foreign(How, Index),
    /// With a time to live.
    Redrive(Index, Option<u64>),
    Lead,
    FailOver,
}

#[derive(Debug, Clone, Copy)]
enum How {
    Ack,
    Expire,
    Fail(u64),
    DeadLetter,
}

fn step() -> impl Strategy<Value = Step> {
    let how = || {
        prop_oneof![
            4 => Just(How::Ack),
            1 => Just(How::Expire),
            3 => (0u64..200).prop_map(How::Fail),
            1 => Just(How::DeadLetter),
        ]
    };
    let ttl = || prop::option::weighted(0.3, 0u64..300);
    prop_oneof![
        6 => prop::collection::vec((0..KEYS.len(), ttl()), 1..8).prop_map(Step::Publish),
        8 => (0u64..3, 0usize..9, 0u64..300).prop_map(|(consumer, max, ms)| Step::Lease { consumer, max, ms }),
        12 => any::<(Index, bool)>().prop_map(|(delivery, by_place)| Step::Claim(delivery, by_place)),
        2 => any::<Index>().prop_map(Step::ClaimAny),
        10 => (how(), 1usize..5).prop_map(|(how, count)| Step::Settle(how, count)),
        2 => any::<Index>().prop_map(Step::Unclaim),
        2 => any::<Index>().prop_map(Step::Release),
        1 => (0u64..3).prop_map(Step::ReleaseConsumer),
        5 => (0u64..150).prop_map(Step::Pass),
        4 => prop_oneof![Just(usize::MAX), 0usize..4].prop_map(Step::ClaimExpired),
        1 => Just(Step::BeginPurge),
        2 => any::<bool>().prop_map(Step::EndPurge),
        1 => (how(), any::<Index>()).prop_map(|(how, message)| Step::Foreign(how, message)),
        1 => (any::<Index>(), ttl()).prop_map(|(dead, ttl)| Step::Redrive(dead, ttl)),
        1 => Just(Step::Lead),
        1 => Just(Step::FailOver),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Leased {
        consumer: u64,
        lease: LeaseNo,
        ends: Millis,
    },
    Claimed,
    /// Claimed because it is over, wherever it stood.
    Expiring,
    Purging,
    /// When it was its turn.
    Done,
    /// Purged, or done before its turn because it was over.
    Gone,
}

impl State {
    fn is_open(self) -> bool {
        !matches!(self, Self::Done | Self::Gone)
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    key: char,
    not_before: Millis,
    expires: Option<Millis>,
    state: State,
}

impl Entry {
    fn is_over(&self, now: Millis) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// A command that ends it was applied.
    fn finish(&mut self) {
        self.state = match self.state {
            State::Expiring | State::Gone => State::Gone,
            _ => State::Done,
        };
    }
}

struct World {
    plane: Plane,
    term: Term,
    now: Millis,
    /// In the order of publishing, those without a key apart.
    messages: BTreeMap<Place, Entry>,
    deliveries: Vec<Leased>,
    claims: Vec<Place>,
    purges: Vec<Vec<Run>>,
    dead: Vec<(Place, char)>,
    lane_first: bool,
}

fn pick<T: Copy>(items: &[T], index: Index) -> Option<T> {
    (!items.is_empty()).then(|| *index.get(items))
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            plane: Plane::new(Machine::default(), SETTINGS),
            term: Term(1),
            now: Millis(1_000),
            messages: BTreeMap::new(),
            deliveries: Vec::new(),
            claims: Vec::new(),
            purges: Vec::new(),
            dead: Vec::new(),
            lane_first: false,
        };
        world.plane.lead(world.term, world.now);
        // So that both streams are there from the beginning.
        world.publish(&[(0, None), (4, None)]);
        world
    }

    fn apply(&mut self, command: &[u8]) -> Outcome {
        let outcome = self.plane.apply(self.now, command, 0, &mut Applied::default());
        outcome.unwrap()
    }

    fn add(&mut self, place: Place, key: char, expires: Option<Millis>) {
        let entry = Entry {
            key,
            not_before: Millis(0),
            expires,
            state: State::Idle,
        };
        assert!(self.messages.insert(place, entry).is_none());
    }

    fn open(&self) -> impl Iterator<Item = (Place, &Entry)> {
        let open = self.messages.iter().filter(|(_, entry)| entry.state.is_open());
        open.map(|(place, entry)| (*place, entry))
    }

    /// Those that hold their keys, or have none, as far as a leader looks.
    fn holders(&self) -> Vec<Place> {
        let mut keys = BTreeSet::new();
        let mut waiting = 0;
        let mut holders = Vec::new();
        for (place, entry) in self.open() {
            if entry.key == '-' || keys.insert(entry.key) {
                holders.push(place);
            } else {
                waiting += 1;
                if waiting > WAITING_MAX {
                    break;
                }
            }
        }
        holders
    }

    fn is_purging(&self) -> bool {
        self.open()
            .any(|(place, entry)| place.stream == keyed() && entry.state == State::Purging)
    }

    /// What can be leased of one of both streams.
    fn ready(&self, stream: StreamId) -> Vec<Place> {
        let mut holders = self.holders();
        holders.retain(|place| {
            let entry = &self.messages[place];
            place.stream == stream && entry.state == State::Idle && entry.not_before <= self.now
        });
        holders
    }

    /// What a consumer would get.
    fn next(&self, max: usize) -> Vec<Place> {
        let mut streams = [self.ready(keyed()), self.ready(lane())];
        let order = if self.lane_first { [1, 0, 1] } else { [0, 1, 0] };
        let mut next = Vec::new();
        for (stream, most) in order.into_iter().zip([max.div_ceil(2), max, max]) {
            let count = most.min(max - next.len()).min(streams[stream].len());
            next.extend(streams[stream].drain(..count));
        }
        next
    }

    fn step(&mut self, step: Step) {
        let any_place = |index| pick(&self.messages.keys().copied().collect::<Vec<_>>(), index);
        match step {
            Step::Publish(messages) => self.publish(&messages),
            Step::Lease { consumer, max, ms } => self.lease(consumer, max, ms),
            Step::Claim(index, by_place) => {
                if let Some(Leased { place, lease, .. }) = pick(&self.deliveries, index) {
                    self.claim(if by_place {
                        Handle::Place(place)
                    } else {
                        Handle::Token { place, lease }
                    });
                }
            }
            Step::ClaimAny(index) => any_place(index)
                .into_iter()
                .for_each(|place| self.claim(Handle::Place(place))),
            Step::Settle(how, count) => {
                let places: Vec<_> = self.claims.drain(..count.min(self.claims.len())).collect();
                self.settle(how, &places);
            }
            Step::Unclaim(index) => {
                if let Some(place) = pick(&self.claims, index) {
                    self.claims.retain(|claim| *claim != place);
                    self.plane.unclaim(place, self.now);
                    let claimed = |state| matches!(state, State::Claimed | State::Expiring);
                    self.give_back(|at, entry| at == place && claimed(entry.state));
                }
            }
            Step::Release(index) => {
                if let Some(place) = any_place(index) {
                    self.plane.release(place, self.now);
                    self.give_back(|at, entry| at == place && matches!(entry.state, State::Leased { .. }));
                }
            }
            Step::ReleaseConsumer(gone) => {
                self.plane.release_consumer(ConsumerId(gone), self.now);
                self.give_back(|_, entry| matches!(entry.state, State::Leased { consumer, .. } if consumer == gone));
            }
            Step::Pass(ms) => self.pass(ms),
            Step::ClaimExpired(max) => self.claim_expired(max),
            Step::BeginPurge => self.begin_purge(),
            Step::EndPurge(apply) => self.end_purge(apply),
            Step::Foreign(how, index) => {
                if let Some(place) = pick(&self.holders(), index) {
                    self.settle(how, &[place]);
                }
            }
            Step::Redrive(index, ttl) => self.redrive(index, ttl),
            Step::Lead => {
                self.plane.lead(self.term, self.now);
                self.begin_again();
            }
            Step::FailOver => {
                self.term.0 += 1;
                let machine = Machine::restore(&self.plane.machine().snapshot()).unwrap();
                self.plane = Plane::new(machine, SETTINGS);
                self.plane.lead(self.term, self.now);
                self.begin_again();
            }
        }
    }

    fn begin_again(&mut self) {
        self.claims.clear();
        self.purges.clear();
        self.lane_first = false;
        self.give_back(|_, entry| entry.state.is_open());
    }

    fn give_back(&mut self, which: impl Fn(Place, &Entry) -> bool) {
        for (place, entry) in &mut self.messages {
            if which(*place, entry) {
                entry.state = State::Idle;
            }
        }
    }

    fn publish(&mut self, messages: &[(usize, Option<u64>)]) {
        let message = |(key, ttl): &(usize, Option<u64>)| (KEYS[*key], ttl.map(|ms| self.now.plus(ms)));
        let messages: Vec<_> = messages.iter().map(message).collect();
        let Outcome::Published(runs) = self.apply(&publish_until("q", &messages)) else {
            panic!("not published");
        };
        let places: Vec<_> = runs.places().collect();
        assert_eq!(places.len(), messages.len());
        for (place, (key, expires)) in places.into_iter().zip(messages) {
            assert_eq!(place.stream, if key == '-' { lane() } else { keyed() });
            self.add(place, key, expires);
        }
    }

    fn lease(&mut self, consumer: u64, max: usize, ms: u64) {
        let mut shown = Vec::new();
        self.plane.peek(QUEUE, max, self.now, &mut shown);
        let mut leased = Vec::new();
        self.plane
            .lease(QUEUE, ConsumerId(consumer), max, ms, self.now, &mut leased);
        let places: Vec<_> = leased.iter().map(|leased| leased.place).collect();
        assert_eq!(places, shown);
        if self.is_purging() {
            // It hands out less, and nothing else.
            assert!(places.iter().all(|place| self.ready(place.stream).contains(place)));
        } else {
            assert_eq!(places, self.next(max));
        }
        self.lane_first ^= max > 0;
        let ends = self.now.plus(ms);
        for Leased { place, lease, .. } in &leased {
            self.assert_in_order(*place);
            if let Some(entry) = self.messages.get_mut(place) {
                let lease = *lease;
                entry.state = State::Leased { consumer, lease, ends };
            }
        }
        self.deliveries.extend(leased);
    }

    /// A delivery never goes back behind a message of its key that is done, and never overtakes one that is not. A purge and an
    /// expiry leave what somebody has, and take what comes after it.
    fn assert_in_order(&self, place: Place) {
        let key = self.messages[&place].key;
        for (at, entry) in self.messages.iter().filter(|(_, entry)| entry.key == key && key != '-') {
            let turn = match entry.state {
                State::Done => *at < place,
                State::Gone => true,
                _ => *at >= place,
            };
            assert!(turn, "{place:?} and {at:?}");
        }
    }

    fn claim(&mut self, handle: Handle) {
        let place = handle.place();
        let claim = self.plane.claim(handle, self.now);
        let holds = self.holders().contains(&place);
        let entry = self.messages.get_mut(&place).unwrap();
        let (claim, expired) = match claim {
            Err(ClaimError::Expired(claim)) => (Ok(claim), true),
            other => (other, false),
        };
        assert_eq!(expired, claim.is_ok() && entry.is_over(self.now));
        let wanted = match (entry.state, handle) {
            (State::Done | State::Gone, _) => Err(ClaimError::NotFound),
            (State::Claimed | State::Expiring | State::Purging, _) => Err(ClaimError::LeaseLost),
            (State::Leased { lease: held, .. }, Handle::Token { lease, .. }) if held != lease => {
                Err(ClaimError::LeaseLost)
            }
            (State::Leased { .. }, _) => Ok(()),
            (State::Idle, _) if holds => Ok(()),
            (State::Idle, _) => Err(ClaimError::NotFound),
        };
        let stands = matches!((entry.state, claim), (State::Idle, Err(ClaimError::NotFound)));
        if claim.is_ok() {
            entry.state = State::Claimed;
            self.claims.push(place);
        }
        // While a purge is on its way, it looks no further.
        if !(stands && self.is_purging()) {
            assert_eq!(claim.map(|claim| assert_eq!(claim.place, place)), wanted);
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
        let mut timed_out = Vec::new();
        self.plane.tick(self.now, &mut timed_out, usize::MAX);
        let mut expected = BTreeSet::new();
        for (place, entry) in &mut self.messages {
            if matches!(entry.state, State::Leased { ends, .. } if ends <= self.now) {
                entry.state = State::Claimed;
                expected.insert(*place);
            }
        }
        let timed_out: BTreeSet<_> = timed_out.iter().map(|claim| claim.place).collect();
        assert_eq!(timed_out, expected);
        self.claims.extend(timed_out);
    }

    /// Whatever nobody has: ready, resting, waiting for its key, or too far off to be looked at.
    fn claim_expired(&mut self, max: usize) {
        let mut claimed = Vec::new();
        self.plane.claim_expired(self.now, max, &mut claimed);
        let over = |entry: &Entry| entry.state == State::Idle && entry.is_over(self.now);
        let expected = self.messages.values().filter(|entry| over(entry)).count();
        assert_eq!(claimed.len(), expected.min(max));
        for place in &claimed {
            let entry = self.messages.get_mut(place).unwrap();
            assert!(
                entry.state == State::Idle && entry.is_over(self.now),
                "{place:?} is not over"
            );
            entry.state = State::Expiring;
        }
        if max > expected {
            assert!(self.plane.next_expiry().is_none_or(|next| next > self.now));
        }
        self.claims.extend(claimed);
    }

    fn settle(&mut self, how: How, places: &[Place]) {
        match how {
            How::Ack => drop(self.apply(&settle(Settle::Ack, places))),
            How::Expire => drop(self.apply(&settle(Settle::Expire, places))),
            How::Fail(ms) => {
                let not_before = self.now.plus(ms);
                self.apply(&fail(places, not_before));
                for place in places {
                    let entry = self.messages.get_mut(place).unwrap();
                    if entry.state.is_open() {
                        (entry.state, entry.not_before) = (State::Idle, not_before);
                    }
                }
                return;
            }
            How::DeadLetter => {
                for place in places {
                    let key = self.messages[place].key;
                    let mut out = BytesMut::new();
                    command::begin_dead_letter(&mut out, *place, "q_dead_letter");
                    record(&mut out, key, 0);
                    if let Outcome::DeadLettered(Some(dead)) = self.apply(&out) {
                        self.dead.push((dead, key));
                    }
                }
            }
        }
        for place in places {
            let entry = self.messages.get_mut(place).unwrap();
            entry.finish();
        }
    }

    fn redrive(&mut self, index: Index, ttl: Option<u64>) {
        let Some((dead, key)) = pick(&self.dead, index) else {
            return;
        };
        self.dead.retain(|(place, _)| *place != dead);
        let mut out = BytesMut::new();
        command::begin_redrive(&mut out, dead, "q");
        let expires = ttl.map(|ms| self.now.plus(ms));
        record_until(&mut out, key, 0, expires);
        let Outcome::Redriven(Some(place)) = self.apply(&out) else {
            panic!("nothing came back");
        };
        self.add(place, key, expires);
    }

    fn begin_purge(&mut self) {
        let runs = self.plane.begin_purge(QUEUE);
        let mut taken = BTreeSet::new();
        for (place, entry) in &mut self.messages {
            if entry.state == State::Idle {
                entry.state = State::Purging;
                taken.insert(*place);
            }
        }
        assert_eq!(
            runs.iter().copied().flat_map(Run::places).collect::<BTreeSet<_>>(),
            taken
        );
        self.purges.push(runs);
    }

    fn end_purge(&mut self, apply: bool) {
        let Some(runs) = self.purges.pop() else { return };
        let is_in = |place| runs.iter().any(|run| run.contains(place));
        if apply {
            let mut out = BytesMut::new();
            command::purge(&mut out, &runs);
            self.apply(&out);
            for (_, entry) in self.messages.iter_mut().filter(|(place, _)| is_in(**place)) {
                if entry.state.is_open() {
                    entry.state = State::Gone;
                }
            }
        } else {
            self.plane.abort_purge(&runs, self.now);
            self.give_back(|place, entry| entry.state == State::Purging && is_in(place));
        }
    }

    fn check(&self) {
        self.plane.check();
        let snapshot = self.plane.machine().snapshot();
        let machine = Machine::restore(&snapshot).unwrap();
        assert_eq!(machine.snapshot(), snapshot);
        let mut held = BTreeSet::new();
        for (place, entry) in self.open().filter(|(_, entry)| entry.key != '-') {
            if matches!(entry.state, State::Leased { .. } | State::Claimed) {
                assert!(held.insert(entry.key), "two of a key are held: {place:?}");
                assert!(self.holders().contains(&place));
            }
        }
        let mut replica = Plane::new(machine, SETTINGS);
        let look = |plane: &Plane| {
            let mut shown = Vec::new();
            plane.peek(QUEUE, 99, self.now, &mut shown);
            shown
        };
        let shown = look(&replica);
        replica.lead(self.term, self.now);
        assert_eq!(look(&replica), shown);
        let mut all_given_back: Vec<_> = self.holders();
        all_given_back.retain(|place| self.messages[place].not_before <= self.now);
        assert_eq!(
            shown.into_iter().collect::<BTreeSet<_>>(),
            all_given_back.into_iter().collect()
        );
    }

    /// Everything comes, if all that is out comes back or is settled.
    fn drain(&mut self) {
        while !self.purges.is_empty() {
            self.end_purge(false);
        }
        let mut rounds = self.messages.len() + 1;
        while self.open().next().is_some() {
            self.pass(1_000);
            let claims = std::mem::take(&mut self.claims);
            self.settle(How::Ack, &claims);
            let before = self.deliveries.len();
            self.lease(0, 99, 300);
            let leased: Vec<_> = self.deliveries[before..].iter().map(|leased| leased.place).collect();
            assert!(!leased.is_empty() || self.open().next().is_none(), "a key is stuck");
            self.settle(How::Ack, &leased);
            self.check();
            rounds -= 1;
            assert!(rounds > 0);
        }
    }
}

fn keyed() -> StreamId {
    stream_id(QUEUE, KEYED)
}

fn lane() -> StreamId {
    stream_id(QUEUE, 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn keys_hold_in_whatever_order_things_happen(steps in prop::collection::vec(step(), 1..300)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
        world.drain();
    }
}
