//! Random commands and calls against the model. After every step: nobody holds what another holds, messages are
//! conserved, order and figures are those of the model, records are freed once, and the state survives a snapshot.

mod managing;
mod scheduled;
mod steps;

use boltq_core::Millis;
use bytes::BytesMut;
use proptest::prelude::*;

use self::steps::{How, Step, step};
use super::fixture::{Message, dead_letter, fail, publish, publish_once, settle};
use super::model::{Model, State};
use super::nodes::{Nodes, pick};
use crate::command::{self, Settle};
use crate::{ClaimError, ConsumerId, Handle, Outcome, Place, QueueId, Run};

const QUEUES: [&str; 3] = ["a", "b", "a_dead_letter"];
/// Those without a connection and the sweeper are the first two.
const CONSUMERS: u64 = 4;

struct World {
    nodes: Nodes,
    /// Of the queues.
    ids: [QueueId; 3],
    model: Model,
    /// Claims of messages that are to be cancelled or rescheduled.
    scheduled: Vec<Place>,
}

impl World {
    fn new() -> Self {
        let mut nodes = Nodes::new();
        for name in QUEUES {
            let mut out = BytesMut::new();
            command::declare(&mut out, name);
            nodes.apply(&out);
        }
        Self {
            nodes,
            ids: [QueueId(0), QueueId(1), QueueId(2)],
            model: Model::default(),
            scheduled: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        let now = self.nodes.now;
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
                if let Some(handle) = self.nodes.delivery(index, by_place) {
                    self.claim(handle);
                }
            }
            Step::ClaimAny(index) => {
                if let Some(place) = any_place(index) {
                    self.claim(Handle::Place(place));
                }
            }
            Step::Settle(how, count) => {
                let places = self.nodes.take_claims(count);
                self.settle(how, &places);
            }
            Step::Foreign(how, indexes) => {
                let places: Vec<_> = indexes.into_iter().filter_map(any_place).collect();
                self.settle(how, &places);
            }
            Step::Unclaim(index) => {
                if let Some(place) = self.nodes.unclaim(index) {
                    self.model
                        .give_back(now, |entry| entry.place == place && entry.state == State::Claimed);
                }
            }
            Step::Extend(index, ms) => {
                if let Some(handle) = self.nodes.delivery(index, false) {
                    let extended = self.nodes.plane.extend(handle, ms, now);
                    assert_eq!(extended, self.model.extend(handle, now.plus(ms)));
                }
            }
            Step::Release(index) => {
                if let Some(place) = any_place(index) {
                    self.nodes.plane.release(place, now);
                    self.model.give_back(now, |entry| {
                        entry.place == place && matches!(entry.state, State::Leased { .. })
                    });
                }
            }
            Step::ReleaseConsumer(consumer) => {
                self.model.end_turns(ConsumerId(consumer));
                let released = self.nodes.plane.release_consumer(ConsumerId(consumer), now);
                let held = self.model.give_back(
                    now,
                    |entry| matches!(entry.state, State::Leased { consumer: holder, .. } if holder.0 == consumer),
                );
                assert_eq!(released, held);
            }
            Step::Note(index, ms) => {
                if let Some(Handle::Place(place)) = self.nodes.delivery(index, true) {
                    self.nodes.plane.note(place, Some(now.plus(ms)), None);
                    if let Some(entry) = self.model.get(place) {
                        entry.noted = Some(now.plus(ms));
                    }
                }
            }
            Step::Pass(ms) => self.pass(ms),
            Step::ClaimExpired(max) => self.claim_expired(max),
            Step::ClaimScheduled(index) => {
                if let Some(place) = any_place(index) {
                    self.claim_scheduled(place);
                }
            }
            Step::EndScheduled(how) => {
                if let Some(place) = self.scheduled.pop() {
                    self.end_scheduled(place, how);
                }
            }
            Step::ForeignScheduled(how, index) => {
                if let Some(place) = any_place(index) {
                    self.foreign_scheduled(place, how);
                }
            }
            Step::BeginPurge(queue) => self.begin_purge(self.ids[queue]),
            Step::EndPurge(apply) => self.end_purge(apply),
            Step::Change(queue, which, options) => self.change(queue, which, options),
            Step::Renew(queue) => self.renew(queue),
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
        self.model.lead(self.nodes.now);
        self.scheduled.clear();
    }

    fn publish(&mut self, queue: usize, messages: &[(u8, Option<u64>, Option<u64>)]) {
        let message = |&(priority, delay, ttl): &(u8, Option<u64>, Option<u64>)| Message {
            priority,
            due: delay.map(|ms| self.nodes.now.plus(ms)),
            expires: ttl.map(|ms| self.nodes.now.plus(ms)),
        };
        let messages: Vec<_> = messages.iter().map(message).collect();
        let (outcome, freed) = self.nodes.apply(&publish(QUEUES[queue], &messages));
        self.published(self.ids[queue], &messages, &outcome, &freed);
    }

    /// Compares what a publish has answered and freed, and returns where the messages are.
    fn published(&mut self, id: QueueId, messages: &[Message], outcome: &Outcome, freed: &[Place]) -> Vec<Place> {
        let (places, refused) = self.model.publish(id, messages, self.nodes.now);
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
        let (priority, due) = (0, delay.map(|ms| self.nodes.now.plus(ms)));
        let message = Message {
            priority,
            due,
            expires: None,
        };
        let until = self.nodes.now.plus(remembered_ms);
        let (outcome, freed) = self.nodes.apply(&publish_once(until, QUEUES[queue], key, message));
        let id = self.ids[queue];
        if let Some(place) = self.model.published_with(id, key, self.nodes.now) {
            assert_eq!(outcome, Outcome::PublishedBefore(place));
            return;
        }
        if let [place] = self.published(id, &[message], &outcome, &freed)[..] {
            self.model.keys.push((id, key, place, until));
        }
    }

    fn lease(&mut self, queue: QueueId, consumer: ConsumerId, max: usize, ms: u64) {
        let leased = self.nodes.lease(queue, consumer, max, ms);
        let mut expected = self.model.ready(queue);
        let served = self.model.serves(queue, consumer);
        expected.truncate(if served { max } else { 0 });
        assert_eq!(leased.iter().map(|leased| leased.place).collect::<Vec<_>>(), expected);
        let (began, ends) = (self.nodes.now, self.nodes.now.plus(ms));
        self.model.lease(&leased, consumer, (began, ends));
    }

    fn claim(&mut self, handle: Handle) {
        let claim = self.nodes.plane.claim(handle, self.nodes.now);
        assert_eq!(claim, self.model.claim(handle, self.nodes.now));
        if let Ok(claim) | Err(ClaimError::Expired(claim)) = claim {
            self.nodes.claims.push(claim.place);
        }
    }

    fn pass(&mut self, ms: u64) {
        let timed_out = self.nodes.pass(ms);
        let mut expected = self.model.tick(self.nodes.now);
        expected.sort_by_key(|claim| claim.place);
        assert_eq!(timed_out, expected);
    }

    fn claim_expired(&mut self, max: usize) {
        let expired = self.model.expired(self.nodes.now);
        for place in self.nodes.claim_expired(max, expired.len()) {
            assert!(expired.contains(&place), "{place:?} is not over");
            self.model.get(place).unwrap().state = State::Claimed;
        }
    }

    fn settle(&mut self, how: How, places: &[Place]) {
        match how {
            How::Ack => self.finish(&settle(Settle::Ack, places), how, places),
            How::Expire => self.finish(&settle(Settle::Expire, places), how, places),
            How::Fail(ms) => self.fail(places, self.nodes.now.plus(ms)),
            How::DeadLetter => places.iter().for_each(|place| self.dead_letter(*place)),
            How::Purge => {
                let runs: Vec<_> = places.iter().map(|place| Run::from(*place)).collect();
                self.purge(&runs);
            }
        }
    }

    fn finish(&mut self, command: &[u8], how: How, places: &[Place]) {
        let (outcome, freed) = self.nodes.apply(command);
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
        let (outcome, freed) = self.nodes.apply(&fail(places, not_before));
        let (done, missing) = self.model.fail(places, not_before, self.nodes.now);
        let missing = missing.into_iter().map(Run::from).collect();
        assert_eq!((outcome, freed), (Outcome::Settled { done, missing }, Vec::new()));
    }

    fn dead_letter(&mut self, place: Place) {
        let message = Message {
            priority: 3,
            ..Message::default()
        };
        let (outcome, freed) = self.nodes.apply(&dead_letter(place, QUEUES[2], message));
        let (done, _) = self.model.finish(&[place]);
        let moved = done
            .first()
            .map(|_| self.model.append(self.ids[2], message, self.nodes.now));
        assert_eq!((outcome, freed), (Outcome::DeadLettered(moved), done));
        self.model.totals.dead_lettered += u64::from(moved.is_some());
    }

    fn begin_purge(&mut self, queue: QueueId) {
        let runs = self.nodes.plane.begin_purge(queue);
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
        self.nodes.purges.push(runs);
    }

    fn end_purge(&mut self, apply: bool) {
        let Some(runs) = self.nodes.purges.pop() else { return };
        if apply {
            self.purge(&runs);
            return;
        }
        self.nodes.plane.abort_purge(&runs, self.nodes.now);
        let now = self.nodes.now;
        self.model.give_back(now, |entry| {
            entry.state == State::Purging && runs.iter().any(|run| run.contains(entry.place))
        });
    }

    fn purge(&mut self, runs: &[Run]) {
        let mut out = BytesMut::new();
        command::purge(&mut out, runs);
        let (outcome, freed) = self.nodes.apply(&out);
        let places: Vec<_> = runs.iter().copied().flat_map(Run::places).collect();
        let (done, _) = self.model.finish(&places);
        assert_eq!((outcome, &freed), (Outcome::Purged(done.len() as u64), &done));
        self.model.totals.purged += done.len() as u64;
    }

    fn check(&self) {
        self.nodes.check();
        let totals = self.nodes.plane.totals();
        assert_eq!(totals, self.model.totals);
        let open = self.nodes.plane.machine().open_count();
        assert_eq!(open, self.model.open_count());
        assert_eq!(
            totals.published - open,
            totals.acked + totals.expired + totals.purged + totals.dropped
        );
        for (_, id, stats) in self.nodes.plane.queues() {
            assert_eq!(stats, self.model.stats(id));
            assert_eq!(self.nodes.peek(id, 1_000), self.model.ready(id));
            self.check_listing(id);
        }
        for consumer in (0..CONSUMERS).map(ConsumerId) {
            assert_eq!(self.nodes.plane.held_by(consumer), self.model.held_by(consumer));
        }
        // It may ring for nothing, but not too late.
        if let Some(wanted) = self.model.next_tick() {
            assert!(self.nodes.plane.next_tick().is_some_and(|next| next <= wanted));
        }
        if let Some(wanted) = self.model.next_expiry() {
            assert!(self.nodes.plane.next_expiry().is_some_and(|next| next <= wanted));
        }
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
