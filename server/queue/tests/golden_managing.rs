//! Bytes of the commands that set and delete queues, which came with sections of snapshots: see `golden.rs`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use boltq_core::StateMachine;
use boltq_queue::{Machine, Outcome, QueueId, QueueOption, QueueOptionSet, QueueOptions, command};
use bytes::BytesMut;

mod recorded;

use recorded::{TIME, apply, assert_written, hex, recorded, unhex, write};

const COMMANDS: &str = include_str!("../../../tests/vectors/queue/commands-managing.txt");
const SNAPSHOT: &str = include_str!("../../../tests/vectors/queue/snapshot-managing.txt");

fn every_option() -> QueueOptions {
    QueueOptions {
        max_retry: Some(3),
        backoff_first_ms: Some(250),
        backoff_max_ms: Some(60_000),
        ack_timeout_ms: Some(45_000),
        default_ttl_ms: Some(86_400_000),
        max_length: Some(2),
        max_length_bytes: Some(1 << 30),
        drop_oldest: true,
        dead_letter_queue: Some("größe".into()),
        dedup_ttl_ms: Some(5_000),
        single_active_consumer: true,
        paused: true,
    }
}

fn publish(out: &mut BytesMut, queue: &str, count: u32) {
    let writer = command::PublishWriter::begin(out, queue);
    for _ in 0..count {
        let builder = boltq_core::RecordBuilder {
            json: true,
            priority: 0,
            published_ns: 1_767_225_600_000_000_000,
            expires: None,
            due: None,
            ordering_key: "",
            id: None,
            payload: br#"{"n":1}"#,
        };
        builder.write([("k", "v")].into_iter(), out);
    }
    writer.finish(out, count);
}

fn commands() -> Vec<(&'static str, BytesMut)> {
    let mut which = QueueOptionSet::default();
    which.insert(QueueOption::MaxLength);
    which.insert(QueueOption::DropOldest);
    let limited = QueueOptions {
        max_length: Some(1),
        ..QueueOptions::default()
    };
    vec![
        (
            "create",
            write(|out| command::create_queue(out, "jobs", &every_option())),
        ),
        (
            "create_plain",
            write(|out| command::create_queue(out, "plain", &QueueOptions::default())),
        ),
        ("publish", write(|out| publish(out, "jobs", 3))),
        (
            "change",
            write(|out| command::change_queue(out, "jobs", which, &limited)),
        ),
        ("publish_more", write(|out| publish(out, "jobs", 2))),
        (
            "delete_if_empty",
            write(|out| command::delete_queue(out, "plain", true)),
        ),
        ("delete_not", write(|out| command::delete_queue(out, "jobs", true))),
        ("attach", write(|out| command::attach(out, "prices", "edge-3", true))),
        (
            "delete_subscription",
            write(|out| command::delete_subscription(out, "prices", "edge-3", TIME)),
        ),
    ]
}

#[test]
fn commands_are_written_as_they_were() {
    assert_written(&commands(), COMMANDS);
}

#[test]
fn recorded_commands_lead_to_the_recorded_snapshot_which_means_what_it_meant() {
    let mut machine = Machine::default();
    for (name, command) in recorded(COMMANDS) {
        let outcome = apply(&mut machine, &command);
        let refused = matches!(outcome, Outcome::QueueRefused(_));
        assert_eq!(refused, name == "delete_not", "{name}: {outcome:?}");
    }
    assert_eq!(hex(&machine.snapshot()), SNAPSHOT.trim());
    let machine = Machine::restore(&unhex(SNAPSHOT)).unwrap();
    let totals = machine.totals();
    assert_eq!((totals.published, totals.dropped, totals.rejected), (3, 1, 2));
    assert_eq!(
        (machine.queue("jobs"), machine.queue("plain")),
        (Some(QueueId(0)), None)
    );
    assert_eq!(machine.deleted_count(), 2);
    let changed = QueueOptions {
        max_length: Some(1),
        drop_oldest: false,
        ..every_option()
    };
    assert_eq!(machine.options(QueueId(0)), Some(&changed));
    assert_eq!(machine.dead_letter_queue("jobs"), "größe");
}
