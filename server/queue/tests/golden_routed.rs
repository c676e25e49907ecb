//! Recorded bytes of publishes to topics and exchanges since copies have the time to live of their queue, and of those with a key, as
//! `golden.rs` has them of the others: what is written today is what was written then, and still means the same.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use boltq_core::{MessageId, Origin, RecordBuilder, Seq, StateMachine, StreamId};
use boltq_queue::command::{self, PublishWriter};
use boltq_queue::{ExchangeKind, HeaderRule, Machine, Outcome, Place, Plane, QueueOptions};
use bytes::BytesMut;

mod recorded;

use recorded::{SETTINGS, TIME, apply, assert_written, hex, recorded, unhex, write};

const COMMANDS: &str = include_str!("../../../tests/vectors/queue/commands-routed.txt");
const SNAPSHOT: &str = include_str!("../../../tests/vectors/queue/snapshot-routed.txt");

fn record(out: &mut BytesMut, id: u8, (exchange, routing_key): (&str, &str)) {
    let builder = RecordBuilder {
        json: true,
        priority: 4,
        published_ns: 1_767_225_600_000_000_000,
        expires: None,
        due: None,
        ordering_key: "",
        id: None,
        payload: br#"{"n":2}"#,
    };
    let origin = Origin {
        id: MessageId([id; 16]),
        exchange,
        routing_key,
    };
    builder.write_routed(Some(origin), [("k", "v")].into_iter(), out);
}

fn commands() -> Vec<(&'static str, BytesMut)> {
    let until = TIME.plus(600_000);
    vec![
        ("attach", write(|out| command::attach(out, "prices", "edge", true))),
        (
            "create_queue",
            write(|out| {
                let options = QueueOptions {
                    default_ttl_ms: Some(90_000),
                    ..QueueOptions::default()
                };
                command::create_queue(out, "jobs", &options);
            }),
        ),
        (
            "declare_exchange",
            write(|out| command::declare_exchange(out, "orders", ExchangeKind::Topic, true, None)),
        ),
        (
            "bind",
            write(|out| command::bind(out, "orders", "jobs", "größe.#", &HeaderRule::default())),
        ),
        (
            "publish_topic",
            write(|out| {
                let writer = PublishWriter::begin_topic(out, "prices");
                record(out, 1, ("", ""));
                record(out, 2, ("", ""));
                writer.finish(out, 2);
            }),
        ),
        (
            "publish_exchange",
            write(|out| {
                command::begin_publish_exchange(out, "orders", "größe.new");
                record(out, 3, ("orders", "größe.new"));
            }),
        ),
        ("topic_once", {
            let mut out = BytesMut::new();
            command::begin_publish_topic_once(&mut out, until, "prices", "order-17");
            record(&mut out, 4, ("", ""));
            out
        }),
        ("exchange_once", {
            let mut out = BytesMut::new();
            command::begin_publish_exchange_once(&mut out, until, "orders", "größe.new", "order-17");
            record(&mut out, 5, ("orders", "größe.new"));
            out
        }),
        ("default_exchange_once", {
            let mut out = BytesMut::new();
            command::begin_publish_exchange_once(&mut out, until, "", "jobs", "order-17");
            record(&mut out, 6, ("", "jobs"));
            out
        }),
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
            "publish_topic" | "topic_once" => assert_eq!(outcome, Outcome::PublishedTopic { queues: 1 }),
            "publish_exchange" | "exchange_once" | "default_exchange_once" => {
                assert_eq!(outcome, Outcome::Routed { queues: 1, full: 0 });
            }
            _ => {}
        }
    }
    assert_eq!(hex(&machine.snapshot()), SNAPSHOT.trim());
}

#[test]
fn the_recorded_snapshot_means_what_it_meant() {
    let mut machine = Machine::restore(&unhex(SNAPSHOT)).unwrap();
    assert_eq!(hex(&machine.snapshot()), SNAPSHOT.trim());
    assert_eq!(machine.keys_remembered(), 3);
    for (name, command) in recorded(COMMANDS).filter(|(name, _)| name.ends_with("once")) {
        let outcome = apply(&mut machine, &command);
        let id = match name {
            "topic_once" => 4,
            "exchange_once" => 5,
            _ => 6,
        };
        let id = MessageId([id; 16]);
        assert_eq!(outcome, Outcome::RoutedBefore { id, queues: 1 }, "{name}");
    }
    let plane = Plane::new(machine, SETTINGS);
    // The second queue, and of it the lane of priority 4.
    let copies = [1, 2, 3].map(|seq| Place {
        stream: StreamId(32 + 4),
        seq: Seq(seq),
    });
    let ends = copies.map(|place| plane.expires(place));
    assert_eq!(ends, [Some(TIME.plus(90_000)); 3]);
}
