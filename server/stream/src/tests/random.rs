//! Random commands, of which the model knows what becomes of them.

use std::collections::BTreeSet;

use boltq_core::StateMachine;
use bytes::BytesMut;

use super::compare::{KINDS, compare, kinds};
use super::fixture::{Fixture, NOW, Said, append_bytes, settings};
use super::model::Model;
use crate::command::{self, ClaimRequest, CommitWriter, CursorOf, Target};
use crate::{ClaimKey, Machine, Outcome, Retention, Settings, Terms, Version};

const TOPICS: [&str; 5] = ["a", "b", "chat.direct.ana:ben", "größe", "z"];
const READERS: [(&str, &str); 5] = [
    ("g", "m"),
    ("g", ""),
    ("user:ana", "phone"),
    ("user:ana", "tablet"),
    ("gm", ""),
];
const SEEDS: u64 = 200;
const STEPS: u64 = 5_000;

struct Random(u64);

impl Random {
    /// Less than `below`. SplitMix64.
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    fn number(&mut self, below: u32) -> u32 {
        u32::try_from(self.below(u64::from(below))).unwrap()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// The same commands for a machine that is written and read in between, one that is not, and the model.
struct Run {
    random: Random,
    model: Model,
    restored: Fixture,
    other: Fixture,
    now: u64,
    /// Goes into each record, so that no two are the same.
    records: u64,
    /// Kinds of outcomes that there were.
    seen: BTreeSet<&'static str>,
}

impl Run {
    fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            model: Model::default(),
            restored: Fixture::default(),
            other: Fixture::default(),
            now: NOW,
            records: 0,
            seen: BTreeSet::new(),
        }
    }

    fn apply(&mut self, write: impl FnOnce(&mut BytesMut)) -> Outcome {
        let mut out = BytesMut::new();
        write(&mut out);
        let outcome = self.restored.apply(self.now, &out);
        assert_eq!(self.other.apply(self.now, &out), outcome);
        self.seen.extend(kinds(&outcome));
        outcome
    }

    fn retention(&mut self) -> Retention {
        Retention {
            max_age_ms: self.random.one_of(&[0, 0, 1, 80, 800]),
            max_bytes: self.random.one_of(&[0, 0, 1, 300, 2_000]),
        }
    }

    fn settings(&mut self) -> Settings {
        let retention = self.retention();
        let partitions = 1 + self.random.number(3);
        settings(partitions, retention.max_age_ms, retention.max_bytes)
    }

    /// Versions that there are, that were, and that may come.
    fn created(&mut self, topic: &str) -> Version {
        let there = self
            .model
            .topics
            .get(topic)
            .map_or(self.now << 20, |topic| topic.terms.created.0);
        match self.random.below(12) {
            0..6 => Version::NONE,
            6..10 => Version(there),
            10 => Version(there - 1),
            _ => Version(there + 1),
        }
    }

    fn terms(&mut self, topic: &str) -> Terms {
        let created = self.created(topic);
        let there = self
            .model
            .topics
            .get(topic)
            .map_or(created, |topic| topic.terms.changed);
        let changed = Version(there.0.max(created.0).saturating_add(self.random.below(2)));
        let settings = self.settings();
        Terms {
            created,
            changed,
            settings,
        }
    }

    fn said(&mut self) -> Vec<Said> {
        let count = 1 + self.random.below(4);
        let mut stamp = self.now * 1_000_000 - self.random.below(30_000_000);
        let mut said = Vec::new();
        for _ in 0..count {
            self.records += 1;
            let filling = usize::try_from(self.random.below(40)).unwrap();
            said.push((stamp, [&self.records.to_le_bytes()[..], &vec![0; filling]].concat()));
            if self.random.one_in(4) {
                stamp = self.now * 1_000_000 - self.random.below(3_000_000);
            }
        }
        said
    }

    fn append(&mut self) {
        let topic = self.random.one_of(&TOPICS);
        let partition = self.random.number(3);
        let terms = self.terms(topic);
        let said = self.said();
        let claim = self.random.one_in(2).then(|| ClaimRequest {
            key: ClaimKey(u128::from(self.random.below(40))),
            ttl_ms: self.random.below(5_000),
            claims_max: 20 + self.random.number(20),
        });
        let bytes = append_bytes(topic, partition, &terms, claim, &said);
        let outcome = self.apply(|out| out.extend_from_slice(&bytes));
        assert_eq!(outcome, self.model.append((topic, partition), &terms, claim, &said));
    }

    fn commit(&mut self) {
        let cursors_max = self.random.one_of(&[3, 20, 1_000]);
        let mut wanted = Vec::new();
        for _ in 0..self.random.below(4) {
            let topic = self.random.one_of(&TOPICS);
            let created = self.created(topic);
            let (partition, reader, to) = (
                self.random.number(4),
                self.random.one_of(&READERS),
                self.random.one_of(&[0, 1, 2, 5, 20, 100, u64::MAX]),
            );
            wanted.push((cursor(topic, created, partition, reader), to));
        }
        let outcome = self.apply(|out| {
            let mut writer = CommitWriter::begin(out, cursors_max);
            wanted.iter().for_each(|(cursor, to)| writer.push(out, cursor, *to));
            writer.finish(out);
        });
        let mut expected = Vec::new();
        for (cursor, to) in &wanted {
            let at = (cursor.target.topic, cursor.target.created, cursor.partition);
            let names = (cursor.group, cursor.member);
            expected.push(self.model.commit(at, names, *to, cursors_max as usize));
        }
        assert_eq!(outcome, Outcome::Committed(expected));
    }

    fn forget(&mut self) {
        let topic = self.random.one_of(&TOPICS);
        let (created, partition, reader) = (self.created(topic), self.random.number(3), self.random.one_of(&READERS));
        let twice = [cursor(topic, created, partition, reader); 2];
        let outcome = self.apply(|out| command::forget(out, twice.into_iter()));
        let there = self.model.forget((topic, created, partition), reader);
        assert_eq!(outcome, Outcome::Forgotten(u32::from(there)));
    }

    fn change(&mut self) {
        let topic = self.random.one_of(&TOPICS);
        let created = self.created(topic);
        let target = Target { topic, created };
        match self.random.below(8) {
            0..3 => {
                let settings = self.settings();
                let outcome = self.apply(|out| command::create(out, topic, &settings));
                assert_eq!(outcome, self.model.create(topic, settings));
            }
            3..5 => {
                let retention = self.retention();
                let outcome = self.apply(|out| command::update(out, target, retention));
                assert_eq!(outcome, self.model.update(topic, created, retention));
            }
            5..7 => {
                let terms = self.terms(topic);
                let outcome = self.apply(|out| command::adopt(out, topic, &terms));
                assert_eq!(outcome, self.model.adopt(topic, &terms));
            }
            _ => {
                let outcome = self.apply(|out| command::delete(out, target));
                assert_eq!(outcome, self.model.delete(topic, created));
            }
        }
    }

    fn trim(&mut self) {
        let topics: Vec<&str> = TOPICS.into_iter().filter(|_| self.random.one_in(2)).collect();
        let outcome = self.apply(|out| command::trim(out, topics.iter().copied()));
        assert_eq!(outcome, self.model.trim(&topics));
    }

    fn redact(&mut self) {
        let topic = self.random.one_of(&TOPICS);
        let (created, partition) = (self.created(topic), self.random.number(3));
        let next = self
            .model
            .topics
            .get(topic)
            .and_then(|topic| topic.partitions.get(&partition));
        let seq = next
            .map_or(1, |partition| partition.next)
            .saturating_sub(self.random.below(30));
        let target = Target { topic, created };
        let outcome = self.apply(|out| command::redact(out, target, partition, seq));
        assert_eq!(outcome, self.model.redact((topic, created, partition), seq));
    }

    fn step(&mut self) {
        self.now = match self.random.below(40) {
            0 => self.now - self.random.below(50),
            1 => self.now + self.random.below(2_000),
            _ => self.now + self.random.below(10),
        };
        self.model.begin(self.now);
        match self.random.below(40) {
            0 => self.change(),
            1..5 => self.trim(),
            5..10 => self.redact(),
            10..18 => self.commit(),
            18 => self.forget(),
            _ => self.append(),
        }
    }

    fn restore(&mut self) {
        let bytes = self.restored.machine.snapshot();
        assert_eq!(self.other.machine.snapshot(), bytes, "replicas differ");
        self.restored.machine = Machine::restore(&bytes).unwrap();
        self.restored.machine.scatter(self.random.0);
        assert_eq!(self.restored.machine.snapshot(), bytes);
    }
}

fn cursor<'a>(topic: &'a str, created: Version, partition: u32, (group, member): (&'a str, &'a str)) -> CursorOf<'a> {
    CursorOf {
        target: Target { topic, created },
        partition,
        group,
        member,
    }
}

/// A million commands. Sequences without gaps, the order and content of records, timestamps, what is repeated, positions, what
/// retention keeps, what the log is told, and equal replicas with and without a restart: the model has all of it as rows.
#[test]
fn random_commands_do_what_the_model_does() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        for step in 0..STEPS {
            run.step();
            if step % 200 == 0 {
                compare(&run.restored, &run.model);
            }
            if step % 500 == 0 {
                run.restore();
            }
        }
        seen.append(&mut run.seen);
    }
    assert_eq!(seen.len(), KINDS, "something never happened: {seen:?}");
}
