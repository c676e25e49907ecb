//! Bytes of version 1 that lie in logs and checkpoints: what is written today is what was written then, and still means
//! the same. The files in `tests/vectors/stream` are added to, never edited.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::num::NonZeroU32;

use boltq_core::{Applied, Millis, RecordBuilder, Seq, StateMachine, StorageEffect, StreamId};
use boltq_stream::command::{self, AppendWriter, ClaimRequest, CommitWriter, CursorOf, Target};
use boltq_stream::{
    AppendRefusal, Appended, ClaimKey, Commit, Machine, Outcome, Retention, Settings, Terms, Totals, Version,
};
use bytes::BytesMut;

const COMMANDS: &str = include_str!("../../../tests/vectors/stream/commands-v1.txt");
const SNAPSHOT: &str = include_str!("../../../tests/vectors/stream/snapshot-v1.txt");
/// When the commands were applied.
const TIME: Millis = Millis(1_767_225_600_000);
const NS: u64 = TIME.0 * 1_000_000;
/// The first version that a group gives at that time.
const FIRST: Version = Version(TIME.0 << 20);
const SETTINGS: Settings = Settings {
    partitions: 4,
    retention: Retention {
        max_age_ms: 8_000,
        max_bytes: 400,
    },
};
const CHANGED: Retention = Retention {
    max_age_ms: 16_000,
    max_bytes: 0,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    text.trim().as_bytes().chunks(2).map(digits).collect()
}

fn here(topic: &str) -> Target<'_> {
    Target {
        topic,
        created: Version::NONE,
    }
}

fn cursor<'a>(topic: &'a str, group: &'a str, member: &'a str) -> CursorOf<'a> {
    CursorOf {
        target: here(topic),
        partition: 0,
        group,
        member,
    }
}

/// So many milliseconds after the time of the commands, and content.
fn append(
    topic: &str,
    partition: u32,
    terms: &Terms,
    claim: Option<ClaimRequest>,
    records: &[(u64, &str)],
) -> BytesMut {
    let mut out = BytesMut::new();
    let writer = AppendWriter::begin(&mut out, topic, partition, terms, claim);
    for (ms, payload) in records {
        let record = RecordBuilder {
            json: false,
            priority: 0,
            published_ns: NS + ms * 1_000_000,
            expires: None,
            due: None,
            ordering_key: "key",
            id: None,
            payload: payload.as_bytes(),
        };
        record.write([("h", "v")].into_iter(), &mut out);
    }
    writer.finish(
        &mut out,
        NonZeroU32::new(u32::try_from(records.len()).unwrap()).unwrap(),
    );
    out
}

fn appended(stream: u64, first: u64, count: u32, ms: u64) -> Appended {
    Appended {
        stream: StreamId(stream),
        first: Seq(first),
        count,
        timestamp_ns: NS + ms * 1_000_000,
        duplicate: false,
    }
}

/// Every command, each with something to act on, and what becomes of it.
fn commands() -> Vec<(&'static str, BytesMut, Outcome)> {
    let write = |write: &dyn Fn(&mut BytesMut)| {
        let mut out = BytesMut::new();
        write(&mut out);
        out
    };
    let terms = |created, changed, settings| Terms {
        created: Version(created),
        changed: Version(changed),
        settings,
    };
    let claim = Some(ClaimRequest {
        key: ClaimKey::of("ana", "m-1"),
        ttl_ms: 60_000,
        claims_max: 9,
    });
    let home = Terms::at_home(SETTINGS);
    let chat = "chat.direct.ana:ben";
    let change_it = |out: &mut BytesMut| command::update(out, here("größe"), CHANGED);
    let changed = Settings {
        retention: CHANGED,
        ..SETTINGS
    };
    vec![
        (
            "create",
            write(&|out| command::create(out, "größe", &SETTINGS)),
            Outcome::Topic {
                new: true,
                terms: terms(FIRST.0, FIRST.0, SETTINGS),
            },
        ),
        (
            "update",
            write(&change_it),
            Outcome::Topic {
                new: false,
                terms: terms(FIRST.0, FIRST.0 + 1, changed),
            },
        ),
        (
            "append",
            append(chat, 0, &home, None, &[(0, "one"), (5, "two"), (3, "three")]),
            Outcome::Appended(appended(2, 1, 3, 5)),
        ),
        (
            "append_once",
            append(chat, 0, &home, claim, &[(9, "four")]),
            Outcome::Appended(appended(2, 4, 1, 9)),
        ),
        (
            "append_again",
            append(chat, 0, &home, claim, &[(10, "other")]),
            Outcome::Appended(Appended {
                duplicate: true,
                ..appended(2, 4, 1, 9)
            }),
        ),
        (
            "append_later",
            append(chat, 0, &home, None, &[(2_000, "five")]),
            Outcome::Appended(appended(2, 5, 1, 2_000)),
        ),
        (
            "append_away",
            append("away", 3, &terms(77, 77, SETTINGS), None, &[(0, "")]),
            Outcome::Appended(appended(3, 1, 1, 0)),
        ),
        (
            "append_nowhere",
            append("away", 4, &terms(77, 77, SETTINGS), None, &[(0, "")]),
            Outcome::Refused(AppendRefusal::NoPartition { partitions: 4 }),
        ),
        (
            "adopt",
            write(&|out| command::adopt(out, "away", &terms(77, 78, changed))),
            Outcome::Adopted,
        ),
        (
            "append_old",
            append("old", 0, &Terms::at_home(changed), None, &[(0, "x"), (0, "y")]),
            Outcome::Appended(appended(4, 1, 2, 0)),
        ),
        (
            "commit",
            write(&|out| {
                let mut writer = CommitWriter::begin(out, 9);
                writer.push(out, &cursor(chat, "user:ana", "phone"), 3);
                writer.push(out, &cursor(chat, "push-dispatcher", ""), 99);
                writer.push(out, &cursor("old", "user:ana", "phone"), 1);
                writer.push(out, &cursor("none", "user:ana", "phone"), 1);
                writer.finish(out);
            }),
            Outcome::Committed(vec![
                Commit::At(Seq(3)),
                Commit::At(Seq(6)),
                Commit::At(Seq(1)),
                Commit::NoPartition,
            ]),
        ),
        (
            "forget",
            write(&|out| command::forget(out, [cursor(chat, "user:ana", "tablet")].into_iter())),
            Outcome::Forgotten(0),
        ),
        (
            "redact",
            write(&|out| command::redact(out, here(chat), 0, 2)),
            Outcome::Redacted(true),
        ),
        (
            "trim",
            write(&|out| command::trim(out, [chat, "none"].into_iter())),
            Outcome::Trimmed {
                records: 0,
                more: false,
            },
        ),
        (
            "delete",
            write(&|out| command::delete(out, here("old"))),
            Outcome::Deleted(2),
        ),
    ]
}

#[test]
fn commands_are_written_as_they_were() {
    let written: Vec<_> = commands()
        .iter()
        .map(|(name, bytes, _)| format!("{name} {}", hex(bytes)))
        .collect();
    assert_eq!(written, COMMANDS.lines().collect::<Vec<_>>());
}

#[test]
fn recorded_commands_lead_to_the_recorded_snapshot() {
    let mut machine = Machine::default();
    let mut storage = Vec::new();
    for (line, (_, _, wanted)) in COMMANDS.lines().zip(commands()) {
        let (name, bytes) = line.split_once(' ').unwrap();
        let mut applied = Applied::default();
        let outcome = machine.apply(TIME, &unhex(bytes), 100, &mut applied).unwrap();
        assert_eq!(outcome, wanted, "{name}");
        storage.append(&mut applied.storage);
    }
    assert_eq!(hex(&machine.snapshot()), SNAPSHOT.trim());
    let placed = storage
        .iter()
        .filter(|effect| matches!(effect, StorageEffect::Placed { .. }));
    assert_eq!((placed.count(), storage.len()), (5, 7));
}

#[test]
fn the_recorded_snapshot_means_what_it_meant() {
    let machine = Machine::restore(&unhex(SNAPSHOT)).unwrap();
    let names: Vec<&str> = machine.topics_after(None).map(|(name, _)| name).collect();
    assert_eq!(names, ["away", "chat.direct.ana:ben", "größe"]);
    let chat = machine.topic("chat.direct.ana:ben").unwrap().partition(0).unwrap();
    assert_eq!(
        (chat.first_seq(), chat.next_seq(), chat.bytes()),
        (Seq(1), Seq(6), 5 * 31 + 19)
    );
    assert_eq!(chat.redacted(Seq(1)..Seq(9)).collect::<Vec<_>>(), [Seq(2)..Seq(3)]);
    assert_eq!(chat.timestamp_ns(Seq(3), NS), NS + 5_000_000);
    assert_eq!(chat.around(NS + 10_000_000), Seq(5)..Seq(6));
    assert_eq!(machine.cursor(chat.stream(), "user:ana", "phone"), Some(Seq(3)));
    assert_eq!(machine.cursor(chat.stream(), "push-dispatcher", ""), Some(Seq(6)));
    let totals = Totals {
        appended: 8,
        deleted: 2,
        redacted: 1,
        duplicates: 1,
        ..Totals::default()
    };
    assert_eq!(
        (machine.totals(), machine.claim_count(), machine.cursor_count()),
        (totals, 1, 3)
    );
    assert_eq!(hex(&machine.snapshot()), SNAPSHOT.trim());
}
