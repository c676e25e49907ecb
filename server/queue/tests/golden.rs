//! Bytes of version 1 that lie in logs and checkpoints: what is written today is what was written then, and still means
//! the same. The files in `tests/vectors/queue` are added to, never edited.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use boltq_core::{Applied, IdSalt, MessageId, Millis, RecordBuilder, Seq, StateMachine, StorageEffect, StreamId};
use boltq_queue::command::{self, FailWriter, PublishWriter, Settle, SettleWriter};
use boltq_queue::{Handle, Machine, Outcome, Place, Plane, Run, Settings};
use bytes::BytesMut;

const COMMANDS: &str = include_str!("../../../tests/vectors/queue/commands-v1.txt");
const SNAPSHOT: &str = include_str!("../../../tests/vectors/queue/snapshot-v1.txt");
/// When the commands were applied.
const TIME: Millis = Millis(1_767_225_600_000);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    text.trim().as_bytes().chunks(2).map(digits).collect()
}

fn place(stream: u64, seq: u64) -> Place {
    Place {
        stream: StreamId(stream),
        seq: Seq(seq),
    }
}

fn record(out: &mut BytesMut, priority: u8, due: Option<Millis>, id: Option<MessageId>) {
    let builder = RecordBuilder {
        json: true,
        priority,
        published_ns: 1_767_225_600_000_000_000,
        expires: None,
        due,
        id,
        payload: br#"{"n":1}"#,
    };
    builder.write([("k", "v")].into_iter(), out);
}

/// Every command once, each with something to act on.
fn commands() -> Vec<(&'static str, BytesMut)> {
    let write = |write: fn(&mut BytesMut)| {
        let mut out = BytesMut::new();
        write(&mut out);
        out
    };
    vec![
        ("init", write(|out| command::init(out, IdSalt(0x0123_4567_89AB_CDEF)))),
        ("declare", write(|out| command::declare(out, "größe"))),
        (
            "publish",
            write(|out| {
                let writer = PublishWriter::begin(out, "jobs");
                (0..8).for_each(|_| record(out, 0, None, None));
                record(out, 9, None, None);
                record(out, 5, Some(TIME.plus(60_000)), None);
                record(out, 5, Some(TIME.plus(30_000)), None);
                writer.finish(out, 11);
            }),
        ),
        (
            "ack",
            write(|out| {
                let mut writer = SettleWriter::begin(out, Settle::Ack);
                [1, 3, 4].into_iter().for_each(|seq| writer.push(out, place(32, seq)));
                writer.finish(out);
            }),
        ),
        (
            "expire",
            write(|out| {
                let mut writer = SettleWriter::begin(out, Settle::Expire);
                writer.push(out, place(42, 2));
                writer.finish(out);
            }),
        ),
        (
            "fail",
            write(|out| {
                let mut writer = FailWriter::begin(out);
                writer.push(out, place(32, 5), TIME.plus(100));
                writer.push(out, place(32, 5), TIME.plus(200));
                writer.finish(out);
            }),
        ),
        (
            "dead_letter",
            write(|out| {
                command::begin_dead_letter(out, place(32, 6), "jobs_dead_letter");
                record(out, 2, None, Some(MessageId([0xAB; 16])));
            }),
        ),
        (
            "purge",
            write(|out| {
                let run = Run {
                    stream: StreamId(32),
                    first: Seq(8),
                    count: 1,
                };
                command::purge(out, &[run]);
            }),
        ),
    ]
}

fn recorded_commands() -> Vec<(&'static str, Vec<u8>)> {
    let command = |line: &'static str| {
        let (name, bytes) = line.split_once(' ').unwrap();
        (name, unhex(bytes))
    };
    COMMANDS.lines().map(command).collect()
}

#[test]
fn commands_are_written_as_they_were() {
    let written: Vec<_> = commands()
        .iter()
        .map(|(name, bytes)| format!("{name} {}", hex(bytes)))
        .collect();
    assert_eq!(written, COMMANDS.lines().collect::<Vec<_>>());
}

#[test]
fn recorded_commands_lead_to_the_recorded_snapshot() {
    let mut machine = Machine::default();
    for (name, command) in recorded_commands() {
        let mut applied = Applied::default();
        let outcome = machine.apply(TIME, &command, 100, &mut applied).unwrap();
        if name == "dead_letter" {
            assert_eq!(outcome, Outcome::DeadLettered(Some(place(50, 1))));
            let freed = StorageEffect::Freed {
                stream: StreamId(32),
                first: Seq(6),
                count: 1,
            };
            assert_eq!(applied.storage.first(), Some(&freed));
        }
    }
    assert_eq!(hex(&machine.snapshot()), SNAPSHOT.trim());
}

#[test]
fn the_recorded_snapshot_means_what_it_meant() {
    let machine = Machine::restore(&unhex(SNAPSHOT)).unwrap();
    assert_eq!(
        (machine.now(), machine.salt()),
        (TIME, Some(IdSalt(0x0123_4567_89AB_CDEF)))
    );
    let names: Vec<_> = machine.queues().map(|(name, id)| (name.to_owned(), id.0)).collect();
    assert_eq!(
        names,
        [("größe".into(), 0), ("jobs".into(), 1), ("jobs_dead_letter".into(), 2)]
    );
    let totals = machine.totals();
    assert_eq!((totals.published, totals.acked, totals.nacked), (11, 3, 2));
    assert_eq!((totals.expired, totals.dead_lettered, totals.purged), (1, 1, 1));

    let settings = Settings {
        max_retry: 5,
        backoff_first_ms: 100,
        backoff_max_ms: 30_000,
        ack_timeout_ms: 30_000,
    };
    let mut plane = Plane::new(machine, settings);
    plane.lead(boltq_core::Term(1), TIME);
    let jobs = plane.queue("jobs").unwrap();
    let mut ready = Vec::new();
    plane.peek(jobs, 99, TIME, &mut ready);
    assert_eq!(ready, [place(41, 1), place(32, 2), place(32, 7)]);
    plane.tick(TIME.plus(60_000), &mut Vec::new(), 99);
    plane.peek(jobs, 99, TIME, &mut ready);
    assert_eq!(
        ready[3..],
        [place(41, 1), place(42, 1), place(32, 2), place(32, 5), place(32, 7)]
    );
    let claim = plane.claim(Handle::Place(place(32, 5)), TIME).unwrap();
    assert_eq!(claim.attempts, 2);
}
