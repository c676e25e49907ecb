//! Recorded bytes of messages with an ordering key, as `golden.rs` has them of the others: what is written today is what was
//! written then, and still means the same.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use boltq_core::{IdSalt, MessageId, Record, RecordBuilder, Seq, StateMachine, StreamId, Term};
use boltq_queue::command::{self, PublishWriter, Settle, SettleWriter};
use boltq_queue::{ConsumerId, Machine, Outcome, Place, Plane};
use bytes::{Bytes, BytesMut};

mod recorded;

use recorded::{SETTINGS, TIME, apply, assert_written, hex, recorded, unhex, write};

const COMMANDS: &str = include_str!("../../../tests/vectors/queue/commands-keys.txt");
const SNAPSHOT: &str = include_str!("../../../tests/vectors/queue/snapshot-keys.txt");
/// That of the messages with an ordering key of the first queue.
const KEYED: StreamId = StreamId(16 + 11);

fn place(stream: StreamId, seq: u64) -> Place {
    Place { stream, seq: Seq(seq) }
}

fn record(out: &mut BytesMut, ordering_key: &str, id: Option<MessageId>) {
    let builder = RecordBuilder {
        json: true,
        priority: 0,
        published_ns: 1_767_225_600_000_000_000,
        expires: Some(TIME.plus(60_000)),
        due: None,
        ordering_key,
        id,
        payload: br#"{"n":1}"#,
    };
    builder.write([("k", "v")].into_iter(), out);
}

fn commands() -> Vec<(&'static str, BytesMut)> {
    vec![
        (
            "keyed_init",
            write(|out| command::init(out, IdSalt(0x0123_4567_89AB_CDEF))),
        ),
        (
            "keyed_publish",
            write(|out| {
                let writer = PublishWriter::begin(out, "jobs");
                for key in ["größe", "größe", "", "ann", "größe", "bob"] {
                    record(out, key, None);
                }
                writer.finish(out, 6);
            }),
        ),
        (
            "keyed_publish_once",
            write(|out| {
                command::begin_publish_once(out, TIME.plus(1), "jobs", "order-17");
                record(out, "ann", None);
            }),
        ),
        (
            "keyed_ack",
            write(|out| {
                let mut writer = SettleWriter::begin(out, Settle::Ack);
                writer.push(out, place(KEYED, 1));
                writer.finish(out);
            }),
        ),
        (
            "keyed_dead_letter",
            write(|out| {
                command::begin_dead_letter(out, place(KEYED, 3), "jobs_dead_letter");
                record(out, "ann", Some(MessageId([0xAB; 16])));
            }),
        ),
        (
            "keyed_redrive",
            write(|out| {
                command::begin_redrive(out, place(StreamId(32), 1), "jobs");
                record(out, "ann", Some(MessageId([0xAB; 16])));
            }),
        ),
    ]
}

#[test]
fn commands_are_written_as_they_were() {
    assert_written(&commands(), COMMANDS);
}

#[test]
fn recorded_commands_lead_to_the_recorded_snapshot() {
    let mut machine = Machine::default();
    for (name, command) in recorded(COMMANDS) {
        let outcome = apply(&mut machine, &command);
        match name {
            "keyed_dead_letter" => assert_eq!(outcome, Outcome::DeadLettered(Some(place(StreamId(32), 1)))),
            "keyed_redrive" => assert_eq!(outcome, Outcome::Redriven(Some(place(KEYED, 7)))),
            _ => {}
        }
    }
    assert_eq!(hex(&machine.snapshot()), SNAPSHOT.trim());
}

#[test]
fn the_recorded_snapshot_means_what_it_meant() {
    let mut plane = Plane::new(Machine::restore(&unhex(SNAPSHOT)).unwrap(), SETTINGS);
    plane.lead(Term(1), TIME);
    let jobs = plane.queue("jobs").unwrap();
    let mut leased = Vec::new();
    plane.lease(jobs, ConsumerId(1), 9, 30_000, TIME, &mut leased);
    let mut places: Vec<_> = leased.into_iter().map(|leased| leased.place).collect();
    places.sort();
    // The second of "größe", "bob", and the second of "ann"; that which came back waits.
    let keyed = [2, 5, 6].map(|seq| place(KEYED, seq));
    assert_eq!(places, [&[place(StreamId(16), 1)], &keyed[..]].concat());
}

#[test]
fn a_recorded_message_has_its_key() {
    let (_, publish) = recorded(COMMANDS).find(|(name, _)| *name == "keyed_publish").unwrap();
    let bytes = Bytes::from(publish);
    let record = Record::read(&bytes.slice(command::publish_records_at("jobs")..)).unwrap();
    assert_eq!(
        (record.ordering_key(), &record.payload[..]),
        ("größe", &br#"{"n":1}"#[..])
    );
    assert_eq!(record.headers().collect::<Vec<_>>(), [("k", "v")]);
}
