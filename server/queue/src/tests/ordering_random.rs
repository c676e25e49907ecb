//! Random commands and calls on a queue of messages with and without keys. After every step: of each key at most one message is
//! held, and it is the oldest; what can be leased, and what is over, is what a simple model says; the state survives a snapshot,
//! and a new leader hands out the same. In the end everything is delivered: no key is stuck.

mod model;
mod steps;

use std::collections::BTreeSet;

use bytes::BytesMut;
use proptest::prelude::*;
use proptest::sample::Index;

use self::model::{Entry, Messages, State, keyed, lane};
use self::steps::{How, Step, step};
use super::fixture::{fail, settle};
use super::nodes::{Nodes, pick};
use super::ordering::{publish_until, record, record_until};
use crate::command::{self, Settle};
use crate::{ClaimError, ConsumerId, Handle, Leased, Outcome, Place, QueueId, Run};

const QUEUE: QueueId = QueueId(0);
const KEYS: [char; 5] = ['a', 'b', 'c', 'd', '-'];

struct World {
    nodes: Nodes,
    messages: Messages,
    dead: Vec<(Place, char)>,
    lane_first: bool,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            nodes: Nodes::new(),
            messages: Messages::default(),
            dead: Vec::new(),
            lane_first: false,
        };
        // So that both streams are there from the beginning.
        world.publish(&[(0, None), (4, None)]);
        world
    }

    fn apply(&mut self, command: &[u8]) -> Outcome {
        self.nodes.apply(command).0
    }

    fn step(&mut self, step: Step) {
        let any_place = |index| pick(&self.messages.places(), index);
        match step {
            Step::Publish(messages) => self.publish(&messages),
            Step::Lease { consumer, max, ms } => self.lease(consumer, max, ms),
            Step::Claim(index, by_place) => {
                if let Some(handle) = self.nodes.delivery(index, by_place) {
                    self.claim(handle);
                }
            }
            Step::ClaimAny(index) => any_place(index)
                .into_iter()
                .for_each(|place| self.claim(Handle::Place(place))),
            Step::Settle(how, count) => {
                let places = self.nodes.take_claims(count);
                self.settle(how, &places);
            }
            Step::Unclaim(index) => {
                if let Some(place) = self.nodes.unclaim(index) {
                    let claimed = |state| matches!(state, State::Claimed | State::Expiring);
                    self.messages.give_back(|at, entry| at == place && claimed(entry.state));
                }
            }
            Step::Release(index) => {
                if let Some(place) = any_place(index) {
                    self.nodes.plane.release(place, self.nodes.now);
                    self.messages
                        .give_back(|at, entry| at == place && matches!(entry.state, State::Leased { .. }));
                }
            }
            Step::ReleaseConsumer(gone) => {
                self.nodes.plane.release_consumer(ConsumerId(gone), self.nodes.now);
                self.messages
                    .give_back(|_, entry| matches!(entry.state, State::Leased { consumer, .. } if consumer == gone));
            }
            Step::Pass(ms) => self.pass(ms),
            Step::ClaimExpired(max) => self.claim_expired(max),
            Step::BeginPurge => self.begin_purge(),
            Step::EndPurge(apply) => self.end_purge(apply),
            Step::Foreign(how, index) => {
                if let Some(place) = pick(&self.messages.holders(), index) {
                    self.settle(how, &[place]);
                }
            }
            Step::Redrive(index, ttl) => self.redrive(index, ttl),
            Step::Lead => {
                self.nodes.lead();
                self.begin_again();
            }
            Step::FailOver => {
                self.nodes.fail_over();
                self.begin_again();
            }
        }
    }

    fn begin_again(&mut self) {
        self.lane_first = false;
        self.messages.give_back(|_, entry| entry.state.is_open());
    }

    fn publish(&mut self, messages: &[(usize, Option<u64>)]) {
        let message = |(key, ttl): &(usize, Option<u64>)| (KEYS[*key], ttl.map(|ms| self.nodes.now.plus(ms)));
        let messages: Vec<_> = messages.iter().map(message).collect();
        let Outcome::Published(runs) = self.apply(&publish_until("q", &messages)) else {
            panic!("not published");
        };
        let places: Vec<_> = runs.places().collect();
        assert_eq!(places.len(), messages.len());
        for (place, (key, expires)) in places.into_iter().zip(messages) {
            assert_eq!(place.stream, if key == '-' { lane() } else { keyed() });
            self.messages.add(place, key, expires);
        }
    }

    fn lease(&mut self, consumer: u64, max: usize, ms: u64) {
        let shown = self.nodes.peek(QUEUE, max);
        let leased = self.nodes.lease(QUEUE, ConsumerId(consumer), max, ms);
        let places: Vec<_> = leased.iter().map(|leased| leased.place).collect();
        assert_eq!(places, shown);
        if self.messages.is_purging() {
            // It hands out less, and nothing else.
            assert!(
                places
                    .iter()
                    .all(|place| self.messages.ready(place.stream, self.nodes.now).contains(place))
            );
        } else {
            assert_eq!(places, self.messages.next(max, self.lane_first, self.nodes.now));
        }
        self.lane_first ^= max > 0;
        let ends = self.nodes.now.plus(ms);
        for Leased { place, lease, .. } in &leased {
            self.assert_in_order(*place);
            let lease = *lease;
            self.messages.get(*place).state = State::Leased { consumer, lease, ends };
        }
    }

    /// A delivery never goes back behind a message of its key that is done, and never overtakes one that is not. A purge and an
    /// expiry leave what somebody has, and take what comes after it.
    fn assert_in_order(&self, place: Place) {
        let key = self.messages.0[&place].key;
        for (at, entry) in self
            .messages
            .0
            .iter()
            .filter(|(_, entry)| entry.key == key && key != '-')
        {
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
        let claim = self.nodes.plane.claim(handle, self.nodes.now);
        let holds = self.messages.holders().contains(&place);
        let entry = self.messages.get(place);
        let (claim, expired) = match claim {
            Err(ClaimError::Expired(claim)) => (Ok(claim), true),
            other => (other, false),
        };
        assert_eq!(expired, claim.is_ok() && entry.is_over(self.nodes.now));
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
            self.nodes.claims.push(place);
        }
        // While a purge is on its way, it looks no further.
        if !(stands && self.messages.is_purging()) {
            assert_eq!(claim.map(|claim| assert_eq!(claim.place, place)), wanted);
        }
    }

    fn pass(&mut self, ms: u64) {
        let timed_out = self.nodes.pass(ms);
        let mut expected = BTreeSet::new();
        for (place, entry) in &mut self.messages.0 {
            if matches!(entry.state, State::Leased { ends, .. } if ends <= self.nodes.now) {
                entry.state = State::Claimed;
                expected.insert(*place);
            }
        }
        let timed_out: BTreeSet<_> = timed_out.iter().map(|claim| claim.place).collect();
        assert_eq!(timed_out, expected);
    }

    /// Whatever nobody has: ready, resting, waiting for its key, or too far off to be looked at.
    fn claim_expired(&mut self, max: usize) {
        let now = self.nodes.now;
        let over = |entry: &Entry| entry.state == State::Idle && entry.is_over(now);
        let there = self.messages.0.values().filter(|entry| over(entry)).count();
        for place in self.nodes.claim_expired(max, there) {
            let entry = self.messages.get(place);
            assert!(over(entry), "{place:?} is not over");
            entry.state = State::Expiring;
        }
    }

    fn settle(&mut self, how: How, places: &[Place]) {
        match how {
            How::Ack => drop(self.apply(&settle(Settle::Ack, places))),
            How::Expire => drop(self.apply(&settle(Settle::Expire, places))),
            How::Fail(ms) => {
                let not_before = self.nodes.now.plus(ms);
                self.apply(&fail(places, not_before));
                for place in places {
                    let entry = self.messages.get(*place);
                    if entry.state.is_open() {
                        (entry.state, entry.not_before) = (State::Idle, not_before);
                    }
                }
                return;
            }
            How::DeadLetter => {
                for place in places {
                    let key = self.messages.get(*place).key;
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
            self.messages.get(*place).finish();
        }
    }

    fn redrive(&mut self, index: Index, ttl: Option<u64>) {
        let Some((dead, key)) = pick(&self.dead, index) else {
            return;
        };
        self.dead.retain(|(place, _)| *place != dead);
        let mut out = BytesMut::new();
        command::begin_redrive(&mut out, dead, "q");
        let expires = ttl.map(|ms| self.nodes.now.plus(ms));
        record_until(&mut out, key, 0, expires);
        let Outcome::Redriven(Some(place)) = self.apply(&out) else {
            panic!("nothing came back");
        };
        self.messages.add(place, key, expires);
    }

    fn begin_purge(&mut self) {
        let runs = self.nodes.plane.begin_purge(QUEUE);
        let mut taken = BTreeSet::new();
        for (place, entry) in &mut self.messages.0 {
            if entry.state == State::Idle {
                entry.state = State::Purging;
                taken.insert(*place);
            }
        }
        assert_eq!(
            runs.iter().copied().flat_map(Run::places).collect::<BTreeSet<_>>(),
            taken
        );
        self.nodes.purges.push(runs);
    }

    fn end_purge(&mut self, apply: bool) {
        let Some(runs) = self.nodes.purges.pop() else { return };
        let is_in = |place| runs.iter().any(|run| run.contains(place));
        if apply {
            let mut out = BytesMut::new();
            command::purge(&mut out, &runs);
            self.apply(&out);
            for (_, entry) in self.messages.0.iter_mut().filter(|(place, _)| is_in(**place)) {
                if entry.state.is_open() {
                    entry.state = State::Gone;
                }
            }
        } else {
            self.nodes.plane.abort_purge(&runs, self.nodes.now);
            self.messages
                .give_back(|place, entry| entry.state == State::Purging && is_in(place));
        }
    }

    fn check(&self) {
        self.nodes.check();
        let mut held = BTreeSet::new();
        for (place, entry) in self.messages.open().filter(|(_, entry)| entry.key != '-') {
            if matches!(entry.state, State::Leased { .. } | State::Claimed) {
                assert!(held.insert(entry.key), "two of a key are held: {place:?}");
                assert!(self.messages.holders().contains(&place));
            }
        }
        let mut all_given_back = self.messages.holders();
        all_given_back.retain(|place| self.messages.0[place].not_before <= self.nodes.now);
        let shown = self.nodes.peek_replica(QUEUE, 99);
        assert_eq!(
            shown.into_iter().collect::<BTreeSet<_>>(),
            all_given_back.into_iter().collect()
        );
    }

    /// Everything comes, if all that is out comes back or is settled.
    fn drain(&mut self) {
        while !self.nodes.purges.is_empty() {
            self.end_purge(false);
        }
        let mut rounds = self.messages.0.len() + 1;
        while self.messages.open().next().is_some() {
            self.pass(1_000);
            let claims = std::mem::take(&mut self.nodes.claims);
            self.settle(How::Ack, &claims);
            let before = self.nodes.deliveries.len();
            self.lease(0, 99, 300);
            let leased: Vec<_> = self.nodes.deliveries[before..]
                .iter()
                .map(|leased| leased.place)
                .collect();
            assert!(
                !leased.is_empty() || self.messages.open().next().is_none(),
                "a key is stuck"
            );
            self.settle(How::Ack, &leased);
            self.check();
            rounds -= 1;
            assert!(rounds > 0);
        }
    }
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
