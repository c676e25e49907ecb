//! A leading plane with a clock that stands still until it is told to move.

use boltq_core::{Applied, IdSalt, Millis, RecordBuilder, StateMachine, StorageEffect, Term};
use bytes::BytesMut;

use crate::command::{self, FailWriter, PublishWriter, Settle, SettleWriter};
use crate::{Claim, ConsumerId, Effect, Handle, Leased, Machine, Outcome, Place, Plane, QueueId, QueueStats, Settings};

pub(super) const ANN: ConsumerId = ConsumerId(11);
pub(super) const BOB: ConsumerId = ConsumerId(12);
/// Length of the leases in the rules.
pub(super) const LEASE_MS: u64 = 30_000;

pub(super) const SETTINGS: Settings = Settings {
    max_retry: 2,
    backoff_first_ms: 100,
    backoff_max_ms: 30_000,
    ack_timeout_ms: LEASE_MS,
    dedup_ttl_ms: 600_000,
    dedup_keys_max: 100,
};

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Message {
    pub(super) priority: u8,
    pub(super) due: Option<Millis>,
    pub(super) expires: Option<Millis>,
}

pub(super) fn record(out: &mut BytesMut, message: Message) {
    let builder = RecordBuilder {
        json: false,
        priority: message.priority,
        published_ns: 1,
        expires: message.expires,
        due: message.due,
        ordering_key: "",
        id: None,
        payload: b"payload",
    };
    builder.write(std::iter::empty(), out);
}

pub(super) fn publish(queue: &str, messages: &[Message]) -> BytesMut {
    let mut out = BytesMut::new();
    let writer = PublishWriter::begin(&mut out, queue);
    messages.iter().for_each(|message| record(&mut out, *message));
    writer.finish(&mut out, u32::try_from(messages.len()).unwrap());
    out
}

pub(super) fn publish_once(until: Millis, queue: &str, key: &str, message: Message) -> BytesMut {
    let mut out = BytesMut::new();
    command::begin_publish_once(&mut out, until, queue, key);
    record(&mut out, message);
    out
}

pub(super) fn settle(how: Settle, places: &[Place]) -> BytesMut {
    let mut out = BytesMut::new();
    let mut writer = SettleWriter::begin(&mut out, how);
    places.iter().for_each(|place| writer.push(&mut out, *place));
    writer.finish(&mut out);
    out
}

pub(super) fn fail(places: &[Place], not_before: Millis) -> BytesMut {
    let mut out = BytesMut::new();
    let mut writer = FailWriter::begin(&mut out);
    places
        .iter()
        .for_each(|place| writer.push(&mut out, *place, not_before));
    writer.finish(&mut out);
    out
}

pub(super) fn dead_letter(place: Place, queue: &str, message: Message) -> BytesMut {
    let mut out = BytesMut::new();
    command::begin_dead_letter(&mut out, place, queue);
    record(&mut out, message);
    out
}

pub(super) fn token(leased: Leased) -> Handle {
    Handle::Token {
        place: leased.place,
        lease: leased.lease,
    }
}

pub(super) struct Fixture {
    pub(super) plane: Plane,
    pub(super) term: Term,
    pub(super) now: Millis,
    /// What the store was told by the last command.
    pub(super) storage: Vec<StorageEffect>,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let mut plane = Plane::new(Machine::default(), SETTINGS);
        let now = Millis(1_000_000);
        let term = Term(1);
        plane.lead(term, now);
        let mut fixture = Self {
            plane,
            term,
            now,
            storage: Vec::new(),
        };
        let mut out = BytesMut::new();
        command::init(&mut out, IdSalt(7));
        assert_eq!(fixture.apply(&out), Outcome::Done);
        fixture
    }

    pub(super) fn apply(&mut self, command: &[u8]) -> Outcome {
        let mut applied: Applied<Effect> = Applied::default();
        let outcome = self.plane.apply(self.now, command, 0, &mut applied).unwrap();
        self.plane.check();
        self.storage = applied.storage;
        outcome
    }

    /// The same state on a node that starts to lead.
    pub(super) fn fail_over(&mut self) {
        let machine = Machine::restore(&self.plane.machine().snapshot()).unwrap();
        self.plane = Plane::new(machine, SETTINGS);
        self.term.0 += 1;
        self.plane.lead(self.term, self.now);
        self.plane.check();
    }

    pub(super) fn queue(&self, name: &str) -> QueueId {
        self.plane.queue(name).unwrap()
    }

    pub(super) fn publish(&mut self, queue: &str, messages: &[Message]) -> Vec<Place> {
        match self.apply(&publish(queue, messages)) {
            Outcome::Published(runs) => runs.places().collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Messages of priority 0.
    pub(super) fn publish_plain(&mut self, queue: &str, count: usize) -> Vec<Place> {
        self.publish(queue, &vec![Message::default(); count])
    }

    pub(super) fn lease(&mut self, queue: &str, consumer: ConsumerId, max: usize) -> Vec<Leased> {
        let mut out = Vec::new();
        let id = self.queue(queue);
        self.plane.lease(id, consumer, max, LEASE_MS, self.now, &mut out);
        self.plane.check();
        out
    }

    pub(super) fn lease_places(&mut self, queue: &str, consumer: ConsumerId, max: usize) -> Vec<Place> {
        self.lease(queue, consumer, max)
            .into_iter()
            .map(|leased| leased.place)
            .collect()
    }

    pub(super) fn claim(&mut self, handle: Handle) -> Claim {
        let claim = self.plane.claim(handle, self.now).unwrap();
        self.plane.check();
        claim
    }

    pub(super) fn ack(&mut self, handle: Handle) {
        let claim = self.claim(handle);
        let outcome = self.apply(&settle(Settle::Ack, &[claim.place]));
        assert_eq!(outcome, done(1));
    }

    /// Fails a delivery; it may come back after the backoff.
    pub(super) fn nack(&mut self, handle: Handle) {
        let claim = self.claim(handle);
        let not_before = self
            .plane
            .settings(claim.queue)
            .not_before(claim.attempts + 1, self.now, 0);
        let outcome = self.apply(&fail(&[claim.place], not_before));
        assert_eq!(outcome, done(1));
    }

    pub(super) fn pass(&mut self, ms: u64) -> Vec<Claim> {
        self.now = self.now.plus(ms);
        let mut timed_out = Vec::new();
        self.plane.tick(self.now, &mut timed_out, usize::MAX);
        self.plane.check();
        timed_out
    }

    /// Messages that are over, claimed to be expired.
    pub(super) fn claim_expired(&mut self, max: usize) -> Vec<Place> {
        let mut expired = Vec::new();
        self.plane.claim_expired(self.now, max, &mut expired);
        self.plane.check();
        expired
    }

    pub(super) fn stats(&self, queue: &str) -> (u64, u64, u64) {
        let QueueStats { ready, leased, delayed } = self.plane.stats(self.queue(queue)).unwrap();
        (ready, leased, delayed)
    }

    pub(super) fn woken(&mut self) -> Vec<QueueId> {
        let mut woken = Vec::new();
        self.plane.take_woken(&mut woken);
        woken
    }
}

pub(super) fn done(count: u64) -> Outcome {
    Outcome::Settled {
        done: count,
        missing: Vec::new(),
    }
}
