//! Random commands and calls against the model. After every step: nobody holds what another holds, messages are
//! conserved, order and figures are those of the model, records are freed once, and the state survives a snapshot.

mod managing;

use boltq_core::{Applied, Millis, StateMachine, Term};
use bytes::{BufMut, BytesMut};
use proptest::prelude::*;
use proptest::sample::Index;

use super::fixture::{Message, SETTINGS, dead_letter, fail, publish, publish_once, settle};
use super::model::{Model, State, Store};
use crate::command::{self, Settle};
use crate::{
    ClaimError, ConsumerId, Handle, Leased, Machine, Outcome, Place, Plane, QueueId, QueueOptionSet, QueueOptions, Run,
};

const QUEUES: [&str; 3] = ["a", "b", "a_dead_letter"];
/// Those without a connection and the sweeper are the first two.
const CONSUMERS: u64 = 4;
/// Bytes of the entry in front of the command.
const OFFSET: u32 = 11;

#[derive(Debug, Clone)]
enum Step {
    Publish(usize, Vec<(u8, Option<u64>)>),
    PublishOnce {
        queue: usize,
        key: usize,
        delay: Option<u64>,
        remembered_ms: u64,
    },
    Lease {
        queue: usize,
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
    Extend(Index, u64),
    Release(Index),
    ReleaseConsumer(u64),
    Note(Index, u64),
    Pass(u64),
    BeginPurge(usize),
    EndPurge(bool),
    /// What an earlier leader had proposed is applied.
    Foreign(How, Vec<Index>),
    /// Some settings of a queue change.
    Change(usize, QueueOptionSet, QueueOptions),
    /// A queue is deleted, and there is a new one of its name.
    Renew(usize),
    Lead,
    FailOver,
}

#[derive(Debug, Clone, Copy)]
enum How {
    Ack,
    Expire,
    Fail(u64),
    DeadLetter,
    Purge,
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        4 => Just(How::Ack),
        1 => Just(How::Expire),
        3 => (0u64..200).prop_map(How::Fail),
        1 => Just(How::DeadLetter),
        1 => Just(How::Purge),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let priority = prop_oneof![3 => Just(0u8), 1 => 0u8..=9];
    let message = (priority, prop::option::weighted(0.25, 0u64..300));
    let messages = prop::collection::vec(message, 0..8);
    let some = prop::collection::vec(any::<Index>(), 1..4);
    prop_oneof![
        8 => (0usize..3, messages).prop_map(|(queue, messages)| Step::Publish(queue, messages)),
        4 => (0usize..3, 0usize..4, prop::option::weighted(0.25, 0u64..300), 0u64..400)
            .prop_map(|(queue, key, delay, remembered_ms)| Step::PublishOnce { queue, key, delay, remembered_ms }),
        10 => (0usize..3, 0..CONSUMERS, 0usize..12, 0u64..300)
            .prop_map(|(queue, consumer, max, ms)| Step::Lease { queue, consumer, max, ms }),
        14 => any::<(Index, bool)>().prop_map(|(delivery, by_place)| Step::Claim(delivery, by_place)),
        2 => any::<Index>().prop_map(Step::ClaimAny),
        8 => (how(), 1usize..6).prop_map(|(how, count)| Step::Settle(how, count)),
        2 => any::<Index>().prop_map(Step::Unclaim),
        2 => (any::<Index>(), 0u64..300).prop_map(|(delivery, ms)| Step::Extend(delivery, ms)),
        3 => any::<Index>().prop_map(Step::Release),
        1 => (0..CONSUMERS).prop_map(Step::ReleaseConsumer),
        2 => (any::<Index>(), 0u64..300).prop_map(|(delivery, ms)| Step::Note(delivery, ms)),
        6 => (0u64..150).prop_map(Step::Pass),
        2 => (0usize..3).prop_map(Step::BeginPurge),
        2 => any::<bool>().prop_map(Step::EndPurge),
        1 => (how(), some).prop_map(|(how, messages)| Step::Foreign(how, messages)),
        2 => managing::change(),
        1 => (0usize..3).prop_map(Step::Renew),
        1 => Just(Step::Lead),
        1 => Just(Step::FailOver),
    ]
}

struct World {
    plane: Plane,
    /// Of the queues.
    ids: [QueueId; 3],
    /// Another replica. It is snapshotted and restored before every command.
    replica: Machine,
    model: Model,
    store: Store,
    term: Term,
    now: Millis,
    deliveries: Vec<Leased>,
    claims: Vec<Place>,
    purges: Vec<Vec<Run>>,
}

fn pick<T: Copy>(items: &[T], index: Index) -> Option<T> {
    (!items.is_empty()).then(|| *index.get(items))
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            plane: Plane::new(Machine::default(), SETTINGS),
            ids: [QueueId(0), QueueId(1), QueueId(2)],
            replica: Machine::default(),
            model: Model::default(),
            store: Store::default(),
            term: Term(1),
            now: Millis(1_000),
            deliveries: Vec::new(),
            claims: Vec::new(),
            purges: Vec::new(),
        };
        for name in QUEUES {
            let mut out = BytesMut::new();
            command::declare(&mut out, name);
            world.apply(&out);
        }
        world.plane.lead(world.term, world.now);
        world
    }

    /// Applies a command on both replicas and returns what it answered and freed.
    fn apply(&mut self, command: &[u8]) -> (Outcome, Vec<Place>) {
        let (mut applied, mut again) = (Applied::default(), Applied::default());
        let outcome = self.plane.apply(self.now, command, OFFSET, &mut applied).unwrap();
        self.replica = Machine::restore(&self.replica.snapshot()).unwrap();
        let outcome_again = self.replica.apply(self.now, command, OFFSET, &mut again).unwrap();
        assert_eq!(outcome, outcome_again);
        assert_eq!((&applied.storage, &applied.effects), (&again.storage, &again.effects));
        assert_eq!(self.plane.machine().snapshot(), self.replica.snapshot());
        let mut entry = BytesMut::new();
        entry.put_bytes(0xEE, OFFSET as usize);
        entry.put_slice(command);
        (outcome, self.store.follow(&entry, &applied.storage))
    }

    fn step(&mut self, step: Step) {
        let now = self.now;
        let delivery = |index| pick(&self.deliveries, index);
        let any_place = |index| {
            pick(
                &self.model.entries.iter().map(|entry| entry.place).collect::<Vec<_>>(),
                index,
            )
        };
        match step {
            Step::Publish(queue, messages) => self.publish(queue, &messages),
            Step::PublishOnce {
                queue,
                key,
                delay,
                remembered_ms,
            } => self.publish_once(queue, ["a", "b", "c", "d"][key], delay, remembered_ms),
            Step::Lease {
                queue,
                consumer,
                max,
                ms,
            } => self.lease(self.ids[queue], ConsumerId(consumer), max, ms),
            Step::Claim(index, by_place) => {
                if let Some(Leased { place, lease, .. }) = delivery(index) {
                    self.claim(if by_place {
                        Handle::Place(place)
                    } else {
                        Handle::Token { place, lease }
                    });
                }
            }
            Step::ClaimAny(index) => {
                if let Some(place) = any_place(index) {
                    self.claim(Handle::Place(place));
                }
            }
            Step::Settle(how, count) => {
                let places: Vec<_> = self.claims.drain(..count.min(self.claims.len())).collect();
                self.settle(how, &places);
            }
            Step::Foreign(how, indexes) => {
                let places: Vec<_> = indexes.into_iter().filter_map(any_place).collect();
                self.settle(how, &places);
            }
            Step::Unclaim(index) => {
                if let Some(place) = pick(&self.claims, index) {
                    self.claims.retain(|claim| *claim != place);
                    self.plane.unclaim(place, now);
                    self.model
                        .give_back(now, |entry| entry.place == place && entry.state == State::Claimed);
                }
            }
            Step::Extend(index, ms) => {
                if let Some(Leased { place, lease, .. }) = delivery(index) {
                    let handle = Handle::Token { place, lease };
                    let extended = self.plane.extend(handle, ms, now);
                    assert_eq!(extended, self.model.extend(handle, now.plus(ms)));
                }
            }
            Step::Release(index) => {
                if let Some(place) = any_place(index) {
                    self.plane.release(place, now);
                    self.model.give_back(now, |entry| {
                        entry.place == place && matches!(entry.state, State::Leased { .. })
                    });
                }
            }
            Step::ReleaseConsumer(consumer) => {
                self.model.end_turns(ConsumerId(consumer));
                let released = self.plane.release_consumer(ConsumerId(consumer), now);
                let held = self.model.give_back(
                    now,
                    |entry| matches!(entry.state, State::Leased { consumer: holder, .. } if holder.0 == consumer),
                );
                assert_eq!(released, held);
            }
            Step::Note(index, ms) => {
                if let Some(Leased { place, .. }) = delivery(index) {
                    self.plane.note(place, Some(now.plus(ms)), None);
                    if let Some(entry) = self.model.get(place) {
                        entry.expires = Some(now.plus(ms));
                    }
                }
            }
            Step::Pass(ms) => self.pass(ms),
            Step::BeginPurge(queue) => self.begin_purge(self.ids[queue]),
            Step::EndPurge(apply) => self.end_purge(apply),
            Step::Change(queue, which, options) => self.change(queue, which, options),
            Step::Renew(queue) => self.renew(queue),
            Step::Lead => {
                self.plane.lead(self.term, now);
                self.model.lead(now);
                self.forget_promises();
            }
            Step::FailOver => {
                // The clock of another node may be behind, its term is not.
                self.term.0 += 1;
                let machine = Machine::restore(&self.plane.machine().snapshot()).unwrap();
                self.plane = Plane::new(machine, SETTINGS);
                self.plane.lead(self.term, self.now);
                self.model.lead(self.now);
                self.forget_promises();
            }
        }
    }

    fn forget_promises(&mut self) {
        self.claims.clear();
        self.purges.clear();
    }

    fn publish(&mut self, queue: usize, messages: &[(u8, Option<u64>)]) {
        let message = |&(priority, delay): &(u8, Option<u64>)| Message {
            priority,
            due: delay.map(|ms| self.now.plus(ms)),
        };
        let messages: Vec<_> = messages.iter().map(message).collect();
        let (outcome, freed) = self.apply(&publish(QUEUES[queue], &messages));
        self.published(self.ids[queue], &messages, &outcome, &freed);
    }

    /// Compares what a publish has answered and freed, and returns where the messages are.
    fn published(&mut self, id: QueueId, messages: &[Message], outcome: &Outcome, freed: &[Place]) -> Vec<Place> {
        let (places, refused) = self.model.publish(id, messages, self.now);
        let (runs, told) = match outcome {
            Outcome::Published(runs) => (runs, 0),
            Outcome::Full {
                queue,
                published,
                refused,
            } => {
                assert!(*queue == id && *refused > 0);
                (published, *refused)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!((runs.places().collect::<Vec<_>>(), told), (places.clone(), refused));
        assert_eq!(freed, self.model.make_room(id));
        places
    }

    fn publish_once(&mut self, queue: usize, key: &'static str, delay: Option<u64>, remembered_ms: u64) {
        let (priority, due) = (0, delay.map(|ms| self.now.plus(ms)));
        let message = Message { priority, due };
        let until = self.now.plus(remembered_ms);
        let (outcome, freed) = self.apply(&publish_once(until, QUEUES[queue], key, message));
        let id = self.ids[queue];
        if let Some(place) = self.model.published_with(id, key, self.now) {
            assert_eq!(outcome, Outcome::PublishedBefore(place));
            return;
        }
        if let [place] = self.published(id, &[message], &outcome, &freed)[..] {
            self.model.keys.push((id, key, place, until));
        }
    }

    fn lease(&mut self, queue: QueueId, consumer: ConsumerId, max: usize, ms: u64) {
        let mut leased = Vec::new();
        self.plane.lease(queue, consumer, max, ms, self.now, &mut leased);
        let mut expected = self.model.ready(queue);
        let served = self.model.serves(queue, consumer);
        expected.truncate(if served { max } else { 0 });
        assert_eq!(leased.iter().map(|leased| leased.place).collect::<Vec<_>>(), expected);
        let numbers = self.deliveries.iter().chain(&leased).map(|leased| leased.lease);
        assert!(numbers.clone().zip(numbers.skip(1)).all(|(one, next)| one < next));
        self.model.lease(&leased, consumer, (self.now, self.now.plus(ms)));
        self.deliveries.extend(leased);
    }

    fn claim(&mut self, handle: Handle) {
        let claim = self.plane.claim(handle, self.now);
        assert_eq!(claim, self.model.claim(handle, self.now));
        if let Ok(claim) | Err(ClaimError::Expired(claim)) = claim {
            self.claims.push(claim.place);
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
        let mut timed_out = Vec::new();
        self.plane.tick(self.now, &mut timed_out, usize::MAX);
        timed_out.sort_by_key(|claim| claim.place);
        let mut expected = self.model.tick(self.now);
        expected.sort_by_key(|claim| claim.place);
        assert_eq!(timed_out, expected);
        self.claims.extend(timed_out.iter().map(|claim| claim.place));
        assert!(self.plane.next_tick().is_none_or(|next| next > self.now));
    }

    fn settle(&mut self, how: How, places: &[Place]) {
        match how {
            How::Ack => self.finish(&settle(Settle::Ack, places), how, places),
            How::Expire => self.finish(&settle(Settle::Expire, places), how, places),
            How::Fail(ms) => self.fail(places, self.now.plus(ms)),
            How::DeadLetter => places.iter().for_each(|place| self.dead_letter(*place)),
            How::Purge => {
                let runs: Vec<_> = places.iter().map(|place| Run::from(*place)).collect();
                self.purge(&runs);
            }
        }
    }

    fn finish(&mut self, command: &[u8], how: How, places: &[Place]) {
        let (outcome, freed) = self.apply(command);
        let (done, missing) = self.model.finish(places);
        let Outcome::Settled {
            done: count,
            missing: runs,
        } = outcome
        else {
            panic!("{outcome:?}");
        };
        assert_eq!((count, &freed), (done.len() as u64, &done));
        assert_eq!(runs.into_iter().flat_map(Run::places).collect::<Vec<_>>(), missing);
        match how {
            How::Expire => self.model.totals.expired += count,
            _ => self.model.totals.acked += count,
        }
    }

    fn fail(&mut self, places: &[Place], not_before: Millis) {
        let (outcome, freed) = self.apply(&fail(places, not_before));
        let (done, missing) = self.model.fail(places, not_before, self.now);
        let missing = missing.into_iter().map(Run::from).collect();
        assert_eq!((outcome, freed), (Outcome::Settled { done, missing }, Vec::new()));
    }

    fn dead_letter(&mut self, place: Place) {
        let message = Message { priority: 3, due: None };
        let (outcome, freed) = self.apply(&dead_letter(place, QUEUES[2], message));
        let (done, _) = self.model.finish(&[place]);
        let moved = done.first().map(|_| self.model.append(self.ids[2], message, self.now));
        assert_eq!((outcome, freed), (Outcome::DeadLettered(moved), done));
        self.model.totals.dead_lettered += u64::from(moved.is_some());
    }

    fn begin_purge(&mut self, queue: QueueId) {
        let runs = self.plane.begin_purge(queue);
        let mut places: Vec<_> = runs.iter().copied().flat_map(Run::places).collect();
        places.sort();
        let mut expected = Vec::new();
        for entry in self.model.entries.iter_mut().filter(|entry| entry.queue == queue) {
            if matches!(entry.state, State::Ready | State::Backoff) {
                entry.state = State::Purging;
                expected.push(entry.place);
            }
        }
        expected.sort();
        assert_eq!(places, expected);
        self.purges.push(runs);
    }

    fn end_purge(&mut self, apply: bool) {
        let Some(runs) = self.purges.pop() else { return };
        if apply {
            self.purge(&runs);
            return;
        }
        self.plane.abort_purge(&runs, self.now);
        let now = self.now;
        self.model.give_back(now, |entry| {
            entry.state == State::Purging && runs.iter().any(|run| run.contains(entry.place))
        });
    }

    fn purge(&mut self, runs: &[Run]) {
        let mut out = BytesMut::new();
        command::purge(&mut out, runs);
        let (outcome, freed) = self.apply(&out);
        let places: Vec<_> = runs.iter().copied().flat_map(Run::places).collect();
        let (done, _) = self.model.finish(&places);
        assert_eq!((outcome, &freed), (Outcome::Purged(done.len() as u64), &done));
        self.model.totals.purged += done.len() as u64;
    }

    fn check(&self) {
        self.plane.check();
        let totals = self.plane.totals();
        assert_eq!(totals, self.model.totals);
        let open = self.plane.machine().open_count();
        assert_eq!((open, self.store.live_count()), (self.model.open_count(), open));
        assert_eq!(
            totals.published - open,
            totals.acked + totals.expired + totals.purged + totals.dropped
        );
        for (_, id, stats) in self.plane.queues() {
            assert_eq!(stats, self.model.stats(id));
            let mut peeked = Vec::new();
            self.plane.peek(id, 1_000, self.now, &mut peeked);
            assert_eq!(peeked, self.model.ready(id));
        }
        for consumer in (0..CONSUMERS).map(ConsumerId) {
            assert_eq!(self.plane.held_by(consumer), self.model.held_by(consumer));
        }
        self.check_replica();
        // It may ring for nothing, but not too late.
        if let Some(wanted) = self.model.next_tick() {
            assert!(self.plane.next_tick().is_some_and(|next| next <= wanted));
        }
    }

    /// A replica shows what it would hand out if it began to lead now.
    fn check_replica(&self) {
        let machine = Machine::restore(&self.replica.snapshot()).unwrap();
        let mut replica = Plane::new(machine, SETTINGS);
        let ids: Vec<QueueId> = replica.queues().map(|(_, id, _)| id).collect();
        let look = |replica: &Plane| -> Vec<Vec<Place>> {
            let looks = ids.iter().flat_map(|id| [1, 3, 1_000].map(|max| (*id, max)));
            let places = looks.map(|(id, max)| {
                let mut peeked = Vec::new();
                replica.peek(id, max, self.now, &mut peeked);
                peeked
            });
            places.collect()
        };
        let shown = look(&replica);
        replica.lead(self.term, self.now);
        assert_eq!(shown, look(&replica));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_plane_does_what_the_model_does(steps in prop::collection::vec(step(), 1..400)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
    }
}
