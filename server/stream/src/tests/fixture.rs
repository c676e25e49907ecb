//! A machine with a store beside it that believes nothing.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use boltq_core::{Applied, Millis, Record, RecordBuilder, StateMachine, StorageEffect};
use bytes::{Bytes, BytesMut};

use crate::command::{self, AppendWriter, ClaimRequest, CommitWriter, CursorOf, Target};
use crate::{Appended, ClaimKey, Commit, Effect, Machine, Outcome, PartitionView, Retention, Settings, Terms, Version};

pub(super) const NOW: u64 = 1_767_225_600_000;
/// What stands in front of a command in its entry.
const BEFORE: usize = 13;

pub(super) fn settings(partitions: u32, max_age_ms: u64, max_bytes: u64) -> Settings {
    Settings {
        partitions,
        retention: Retention { max_age_ms, max_bytes },
    }
}

/// A topic with one partition that keeps everything.
pub(super) const ONE: Settings = Settings {
    partitions: 1,
    retention: Retention {
        max_age_ms: 0,
        max_bytes: 0,
    },
};

/// The topic that is there.
pub(super) fn here(topic: &str) -> Target<'_> {
    Target {
        topic,
        created: Version::NONE,
    }
}

/// One of ana's devices.
pub(super) fn reader<'a>(topic: &'a str, partition: u32, member: &'a str) -> CursorOf<'a> {
    CursorOf {
        target: here(topic),
        partition,
        group: "user:ana",
        member,
    }
}

/// That of a message of ana, for ten seconds.
pub(super) fn claim(client_msg_id: &str, claims_max: u32) -> Option<ClaimRequest> {
    Some(ClaimRequest {
        key: ClaimKey::of("ana", client_msg_id),
        ttl_ms: 10_000,
        claims_max,
    })
}

/// A record: Unix nanoseconds, and its content.
pub(super) type Said = (u64, Vec<u8>);

pub(super) fn append_bytes(
    topic: &str,
    partition: u32,
    terms: &Terms,
    claim: Option<ClaimRequest>,
    records: &[Said],
) -> BytesMut {
    let mut out = BytesMut::new();
    let writer = AppendWriter::begin(&mut out, topic, partition, terms, claim);
    for (stamp_ns, payload) in records {
        let record = RecordBuilder {
            json: false,
            priority: 0,
            published_ns: *stamp_ns,
            expires: None,
            due: None,
            ordering_key: "",
            id: None,
            payload,
        };
        record.write(std::iter::empty(), &mut out);
    }
    writer.finish(
        &mut out,
        NonZeroU32::new(u32::try_from(records.len()).unwrap()).unwrap(),
    );
    out
}

/// What is stored: by stream and sequence, the record as it stands in its entry.
#[derive(Debug, Default)]
pub(super) struct Store(pub(super) BTreeMap<(u64, u64), Bytes>);

impl Store {
    fn follow(&mut self, effects: &[StorageEffect], entry: &Bytes) {
        for effect in effects {
            match *effect {
                StorageEffect::Placed {
                    stream,
                    first,
                    count,
                    offset,
                    bytes,
                } => {
                    let mut at = offset as usize;
                    for seq in first.0..first.0 + u64::from(count) {
                        let length = u32::from_le_bytes(entry[at..at + 4].try_into().unwrap()) as usize + 4;
                        let record = entry.slice(at..at + length);
                        assert!(self.0.insert((stream.0, seq), record).is_none(), "placed twice");
                        at += length;
                    }
                    assert_eq!(at, (offset + bytes) as usize);
                }
                StorageEffect::Erased { stream, seq } => {
                    assert!(self.0.remove(&(stream.0, seq.0)).is_some(), "erased what was not there");
                }
                StorageEffect::Freed { stream, first, count } => {
                    assert!(count > 0);
                    for seq in first.0..first.0 + count {
                        assert!(self.0.remove(&(stream.0, seq)).is_some(), "freed what was not there");
                    }
                }
            }
        }
    }

    pub(super) fn record(&self, stream: u64, seq: u64) -> Record {
        Record::read(&self.0[&(stream, seq)]).unwrap()
    }
}

#[derive(Debug, Default)]
pub(super) struct Fixture {
    pub(super) machine: Machine,
    pub(super) store: Store,
    pub(super) effects: Vec<Effect>,
}

impl Fixture {
    pub(super) fn apply(&mut self, now: u64, command: &[u8]) -> Outcome {
        let mut applied = Applied::default();
        let entry: Bytes = [&[0xff; BEFORE][..], command].concat().into();
        let offset = u32::try_from(BEFORE).unwrap();
        let outcome = self
            .machine
            .apply(Millis(now), &entry[BEFORE..], offset, &mut applied)
            .unwrap();
        self.store.follow(&applied.storage, &entry);
        self.effects = applied.effects;
        outcome
    }

    pub(super) fn run(&mut self, now: u64, write: impl FnOnce(&mut BytesMut)) -> Outcome {
        let mut out = BytesMut::new();
        write(&mut out);
        self.apply(now, &out)
    }

    /// As [`Fixture::apply`], of an append that is not refused.
    pub(super) fn send(&mut self, now: u64, append: &[u8]) -> Appended {
        match self.apply(now, append) {
            Outcome::Appended(appended) => appended,
            other => panic!("not appended: {other:?}"),
        }
    }

    /// Appends records with the time `now` and so many bytes of content.
    pub(super) fn append(&mut self, now: u64, topic: &str, terms: &Terms, payload_bytes: &[usize]) -> Appended {
        let records: Vec<Said> = payload_bytes
            .iter()
            .map(|bytes| (now * 1_000_000, vec![7; *bytes]))
            .collect();
        self.send(now, &append_bytes(topic, 0, terms, None, &records))
    }

    pub(super) fn commit(&mut self, cursor: &CursorOf<'_>, to: u64) -> Commit {
        self.commits(100, &[(*cursor, to)])[0]
    }

    pub(super) fn commits(&mut self, cursors_max: u32, commits: &[(CursorOf<'_>, u64)]) -> Vec<Commit> {
        let outcome = self.run(NOW, |out| {
            let mut writer = CommitWriter::begin(out, cursors_max);
            commits.iter().for_each(|(cursor, to)| writer.push(out, cursor, *to));
            writer.finish(out);
        });
        match outcome {
            Outcome::Committed(commits) => commits,
            other => panic!("not committed: {other:?}"),
        }
    }

    pub(super) fn trim(&mut self, now: u64, topic: &str) -> Outcome {
        self.run(now, |out| command::trim(out, [topic].into_iter()))
    }

    pub(super) fn redact(&mut self, topic: &str, seq: u64) -> Outcome {
        self.run(NOW, |out| command::redact(out, here(topic), 0, seq))
    }

    /// Partition 0.
    pub(super) fn partition(&self, topic: &str) -> PartitionView<'_> {
        self.machine.topic(topic).unwrap().partition(0).unwrap()
    }

    /// First and next sequence of partition 0.
    pub(super) fn range(&self, topic: &str) -> (u64, u64) {
        let partition = self.partition(topic);
        (partition.first_seq().0, partition.next_seq().0)
    }
}
