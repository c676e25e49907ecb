//! The state over the log that it is made for: what one says the other takes, and records are read back where they are said to be.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::num::NonZeroU32;
use std::sync::Arc;

use boltq_core::{Applied, GroupId, LogIndex, Millis, NodeId, Record, RecordBuilder, Seq, StateMachine, Term};
use boltq_log::testing::SimFiles;
use boltq_log::{Entry, EntryId, GroupLog, Log, LogConfig, ReadMode};
use boltq_stream::command::{self, AppendWriter, Target};
use boltq_stream::{Machine, Outcome, Retention, Settings, Terms, Version};
use bytes::{Bytes, BytesMut};

const TOPICS: u64 = 40;
const NOW: u64 = 1_767_225_600_000;
/// Three records of a command have more than a row.
const ROW_BYTES: u32 = 400;

/// A group with its log, in memory.
struct Group {
    log: Log,
    group: GroupLog,
    machine: Machine,
    index: u64,
}

impl Group {
    fn new() -> Self {
        let config = LogConfig {
            row_bytes: ROW_BYTES,
            ..LogConfig::default()
        };
        let log = Log::open(config, Arc::new(SimFiles::new())).unwrap();
        let group = log.group(GroupId(1));
        Self {
            log,
            group,
            machine: Machine::default(),
            index: 0,
        }
    }

    fn apply(&mut self, now: u64, write: impl FnOnce(&mut BytesMut)) -> Outcome {
        let mut out = BytesMut::from(&b"head"[..]);
        write(&mut out);
        let data: Bytes = out.freeze();
        self.index += 1;
        let id = EntryId {
            term: Term(1),
            leader: NodeId(1),
            index: LogIndex(self.index),
        };
        let entry = Entry {
            id,
            kind: 1,
            data: data.clone(),
        };
        self.group.append(vec![entry], Box::new(|outcome| outcome.unwrap()));
        let mut applied = Applied::default();
        let outcome = self.machine.apply(Millis(now), &data[4..], 4, &mut applied).unwrap();
        self.group.place(LogIndex(self.index), &applied.storage).unwrap();
        self.group.purge(id);
        outcome
    }

    /// What is told by a record's content: its topic and sequence.
    fn check(&self) {
        for (name, topic) in self.machine.topics_after(None) {
            let partition = topic.partition(0).unwrap();
            let sequences = partition.first_seq().0..partition.next_seq().0;
            let kept = sequences.map(Seq).filter(|seq| !partition.is_redacted(*seq));
            let places: Vec<_> = kept.map(|seq| (partition.stream(), seq)).collect();
            let mut records = Vec::new();
            assert!(self.group.read(&places, ReadMode::Disk, &mut records).unwrap());
            for ((_, seq), record) in places.iter().zip(&records) {
                let record = Record::read(record).unwrap();
                assert!(record.payload.starts_with(format!("{name} {seq} ").as_bytes()));
            }
        }
    }
}

fn target(topic: &str) -> Target<'_> {
    Target {
        topic,
        created: Version::NONE,
    }
}

fn append(out: &mut BytesMut, topic: &str, first: u64, count: u64, now: u64) {
    let settings = Settings {
        partitions: 1,
        retention: Retention {
            max_age_ms: 4_000,
            max_bytes: 4_000,
        },
    };
    let writer = AppendWriter::begin(out, topic, 0, &Terms::at_home(settings), None);
    for seq in first..first + count {
        let payload = format!("{topic} {seq} {}", "x".repeat(150));
        let record = RecordBuilder {
            json: false,
            priority: 0,
            published_ns: now * 1_000_000,
            expires: None,
            due: None,
            ordering_key: "key",
            id: None,
            payload: payload.as_bytes(),
        };
        record.write(std::iter::empty(), out);
    }
    let count = u32::try_from(count).unwrap();
    writer.finish(out, NonZeroU32::new(count).unwrap());
}

#[test]
fn the_log_takes_what_the_state_says_and_has_what_it_promises() {
    let mut group = Group::new();
    for step in 0..4_000_u64 {
        let now = NOW + step * 3;
        let topic = format!("t{}", step * 7_919 % TOPICS);
        let there = group.machine.topic(&topic).and_then(|topic| topic.partition(0));
        let next = there.map_or(1, |partition| partition.next_seq().0);
        match step % 13 {
            0 => group.apply(now, |out| command::redact(out, target(&topic), 0, next - next.min(3))),
            1 => group.apply(now, |out| command::trim(out, std::iter::once(topic.as_str()))),
            2 if step % 5 == 0 => group.apply(now, |out| command::delete(out, target(&topic))),
            _ => group.apply(now, |out| append(out, &topic, next, 1 + step % 5, now)),
        };
        if step % 100 == 0 {
            group.check();
        }
    }
    let totals = group.machine.totals();
    assert!(
        totals.trimmed > 0 && totals.deleted > 0 && totals.redacted > 0,
        "{totals:?}"
    );
    assert!(group.machine.record_count() > 0 && group.log.usage().rows > 0);
    for topic in 0..TOPICS {
        group.apply(NOW, |out| command::delete(out, target(&format!("t{topic}"))));
    }
    assert_eq!((group.machine.record_count(), group.log.usage().rows), (0, 0));
}
