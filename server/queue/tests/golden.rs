//! Bytes of version 1 that lie in logs and checkpoints: what is written today is what was written then, and still means
//! the same. The files in `tests/vectors/queue` are added to, never edited.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use boltq_core::{
    Applied, IdSalt, MessageId, Millis, Origin, RecordBuilder, Seq, StateMachine, StorageEffect, StreamId,
};
use boltq_queue::command::{self, FailWriter, PublishWriter, Settle, SettleWriter};
use boltq_queue::{ExchangeKind, Handle, HeaderRule, Machine, Outcome, Place, Plane, Run};
use bytes::BytesMut;

mod recorded;

use recorded::{SETTINGS, TIME, apply, apply_to, assert_written, hex, recorded, unhex, write};

const COMMANDS: &str = include_str!("../../../tests/vectors/queue/commands-v1.txt");
const SNAPSHOT: &str = include_str!("../../../tests/vectors/queue/snapshot-v1.txt");
/// Topics and exchanges, which came later.
const ROUTING_COMMANDS: &str = include_str!("../../../tests/vectors/queue/commands-v2.txt");
/// Of all commands, those of version 1 first.
const ROUTING_SNAPSHOT: &str = include_str!("../../../tests/vectors/queue/snapshot-v2.txt");
/// Publishes with a key, which came after them; the bytes of the snapshot are those of the one before with the key.
const ONCE_COMMAND: &str = include_str!("../../../tests/vectors/queue/commands-v3.txt");
const ONCE_SNAPSHOT: &str = include_str!("../../../tests/vectors/queue/snapshot-v3.txt");
/// Messages with a time to live, and changes of due times, which came after those. Since then due times are a section.
const TIMES_COMMANDS: &str = include_str!("../../../tests/vectors/queue/commands-times.txt");
const TIMES_SNAPSHOT: &str = include_str!("../../../tests/vectors/queue/snapshot-times.txt");
/// What the commands about topics and exchanges lead to since ends of lives are kept.
const ROUTING_TIMES_SNAPSHOT: &str = include_str!("../../../tests/vectors/queue/snapshot-v2-times.txt");

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
        ordering_key: "",
        id,
        payload: br#"{"n":1}"#,
    };
    builder.write([("k", "v")].into_iter(), out);
}

/// Every command once, each with something to act on.
fn commands() -> Vec<(&'static str, BytesMut)> {
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

/// Every command about topics and exchanges.
fn routing_commands() -> Vec<(&'static str, BytesMut)> {
    let origin = |exchange, routing_key| Origin {
        id: MessageId([0xCD; 16]),
        exchange,
        routing_key,
    };
    let routed = |out: &mut BytesMut, origin| {
        let builder = RecordBuilder {
            json: true,
            priority: 4,
            published_ns: 1_767_225_600_000_000_000,
            expires: Some(TIME.plus(90_000)),
            due: None,
            ordering_key: "",
            id: None,
            payload: br#"{"n":2}"#,
        };
        builder.write_routed(Some(origin), [("k", "v")].into_iter(), out);
    };
    let mut publish_topic = BytesMut::new();
    let writer = PublishWriter::begin_topic(&mut publish_topic, "prices");
    (0..2).for_each(|_| routed(&mut publish_topic, origin("", "")));
    writer.finish(&mut publish_topic, 2);
    // Its number at that time; what is written now is in `golden_routed.rs`.
    publish_topic[0] = 9;
    let mut publish_exchange = BytesMut::new();
    command::begin_publish_exchange(&mut publish_exchange, "orders", "eu.new");
    routed(&mut publish_exchange, origin("orders", "eu.new"));
    publish_exchange[0] = 16;
    vec![
        ("attach", write(|out| command::attach(out, "prices", "edge-3", true))),
        (
            "attach_other",
            write(|out| command::attach(out, "prices", "edge-4", true)),
        ),
        (
            "attach_again",
            write(|out| command::attach(out, "prices", "edge-4", false)),
        ),
        ("publish_topic", publish_topic),
        (
            "remove_subscription",
            write(|out| command::remove_subscription(out, "prices", "edge-4", TIME)),
        ),
        (
            "declare_direct",
            write(|out| command::declare_exchange(out, "gone", ExchangeKind::Direct, false, None)),
        ),
        (
            "declare_fanout",
            write(|out| command::declare_exchange(out, "all", ExchangeKind::Fanout, true, None)),
        ),
        (
            "declare_topic",
            write(|out| command::declare_exchange(out, "orders", ExchangeKind::Topic, true, Some("by headers"))),
        ),
        (
            "declare_headers",
            write(|out| command::declare_exchange(out, "by headers", ExchangeKind::Headers, true, None)),
        ),
        ("delete_exchange", write(|out| command::delete_exchange(out, "gone"))),
        (
            "bind_pattern",
            write(|out| command::bind(out, "orders", "jobs", "eu.#", &HeaderRule::default())),
        ),
        (
            "bind_all",
            write(|out| {
                let rule = HeaderRule::new(true, [("region", "eu"), ("kind", "")]);
                command::bind(out, "by headers", "jobs", "", &rule);
            }),
        ),
        (
            "bind_any",
            write(|out| {
                let rule = HeaderRule::new(false, [("region", "eu")]);
                command::bind(out, "by headers", "größe", "x", &rule);
            }),
        ),
        ("unbind", write(|out| command::unbind(out, "by headers", "größe", "x"))),
        ("publish_exchange", publish_exchange),
    ]
}

/// A snapshot of an earlier format as it is written since due times stand elsewhere.
fn written_now(snapshot: &str) -> String {
    hex(&Machine::restore(&unhex(snapshot)).unwrap().snapshot())
}

fn times_commands() -> Vec<(&'static str, BytesMut)> {
    let mut publish = BytesMut::new();
    let writer = PublishWriter::begin(&mut publish, "jobs");
    for (priority, delay_ms, ttl_ms) in [
        (0, 0, 5_000),
        (0, 0, 0),
        (3, 90_000, 0),
        (3, 70_000, 80_000),
        (0, 0, 6_000),
    ] {
        let after = |ms: u64| (ms > 0).then(|| TIME.plus(ms));
        let builder = RecordBuilder {
            json: false,
            priority,
            published_ns: 1_767_225_600_000_000_000,
            expires: after(ttl_ms),
            due: after(delay_ms),
            ordering_key: "",
            id: None,
            payload: b"x",
        };
        builder.write(std::iter::empty(), &mut publish);
    }
    writer.finish(&mut publish, 5);
    let (mut cancel, mut reschedule) = (BytesMut::new(), BytesMut::new());
    command::cancel(&mut cancel, &[place(42, 1)]);
    command::reschedule(&mut reschedule, place(42, 3), TIME.plus(95_000));
    vec![("publish", publish), ("cancel", cancel), ("reschedule", reschedule)]
}

#[test]
fn recorded_times_lead_to_their_snapshot_and_mean_what_they_meant() {
    let mut machine = Machine::restore(&unhex(SNAPSHOT)).unwrap();
    for (name, command) in recorded(TIMES_COMMANDS) {
        let outcome = apply(&mut machine, &command);
        let missing = matches!(&outcome, Outcome::Settled { missing, .. } if !missing.is_empty());
        assert!(!missing, "{name}: {outcome:?}");
    }
    assert_eq!(hex(&machine.snapshot()), TIMES_SNAPSHOT.trim());

    let machine = Machine::restore(&unhex(TIMES_SNAPSHOT)).unwrap();
    assert_eq!(hex(&machine.snapshot()), TIMES_SNAPSHOT.trim());
    assert_eq!(machine.totals().purged, 2);
    let mut plane = Plane::new(machine, SETTINGS);
    plane.lead(boltq_core::Term(1), TIME);
    assert_eq!(
        [3, 4].map(|seq| plane.due(place(42, seq))),
        [95_000, 70_000].map(|ms| Some(TIME.plus(ms)))
    );
    let expired = |plane: &mut Plane, ms: u64| {
        let mut expired = Vec::new();
        plane.claim_expired(TIME.plus(ms), 9, &mut expired);
        expired
    };
    assert_eq!(expired(&mut plane, 5_000), [place(32, 9)]);
    assert_eq!(expired(&mut plane, 80_000), [place(32, 11), place(42, 4)]);
}

fn once_command() -> Vec<(&'static str, BytesMut)> {
    let mut out = BytesMut::new();
    command::begin_publish_once(&mut out, TIME.plus(600_000), "jobs", "order-17");
    record(&mut out, 3, None, None);
    let mut redrive = BytesMut::new();
    command::begin_redrive(&mut redrive, place(50, 1), "jobs");
    record(&mut redrive, 2, None, Some(MessageId([0xAB; 16])));
    vec![("publish_once", out), ("redrive", redrive)]
}

#[test]
fn the_recorded_publish_with_a_key_leads_to_its_snapshot_and_is_found_there() {
    let mut machine = Machine::restore(&unhex(ROUTING_SNAPSHOT)).unwrap();
    let commands: Vec<_> = recorded(ONCE_COMMAND).collect();
    let (_, redrive) = &commands[1];
    for (_, command) in &commands[..1] {
        let outcome = apply(&mut machine, command);
        assert!(matches!(outcome, Outcome::Published(_)), "{outcome:?}");
        assert_eq!(hex(&machine.snapshot()), written_now(ONCE_SNAPSHOT));
        let mut machine = Machine::restore(&unhex(ONCE_SNAPSHOT)).unwrap();
        let outcome = apply(&mut machine, command);
        assert!(matches!(outcome, Outcome::PublishedBefore(_)), "{outcome:?}");
        let outcome = apply(&mut machine, redrive);
        assert!(matches!(outcome, Outcome::Redriven(Some(_))), "{outcome:?}");
        let outcome = apply(&mut machine, redrive);
        assert_eq!(outcome, Outcome::Redriven(None));
    }
}

#[test]
fn commands_are_written_as_they_were() {
    assert_written(&times_commands(), TIMES_COMMANDS);
    assert_written(&once_command(), ONCE_COMMAND);
    assert_written(&commands(), COMMANDS);
    assert_written(&routing_commands(), ROUTING_COMMANDS);
}

#[test]
fn recorded_commands_about_topics_and_exchanges_lead_to_their_snapshot() {
    let mut machine = Machine::restore(&unhex(SNAPSHOT)).unwrap();
    for (name, command) in recorded(ROUTING_COMMANDS) {
        let outcome = apply(&mut machine, &command);
        match name {
            "publish_topic" => assert_eq!(outcome, Outcome::PublishedTopic { queues: 2 }),
            "remove_subscription" => assert_eq!(outcome, Outcome::SubscriptionRemoved(Some(2))),
            "publish_exchange" => assert_eq!(outcome, Outcome::Routed { queues: 1, full: 0 }),
            _ => assert!(!matches!(outcome, Outcome::Refused(_)), "{name}"),
        }
    }
    assert_eq!(hex(&machine.snapshot()), ROUTING_TIMES_SNAPSHOT.trim());
}

#[test]
fn the_recorded_snapshot_with_topics_and_exchanges_means_what_it_meant() {
    let machine = Machine::restore(&unhex(ROUTING_SNAPSHOT)).unwrap();
    assert_eq!(machine.topics().collect::<Vec<_>>(), [("prices", 1)]);
    let (id, subscription) = machine.subscriptions("prices").next().unwrap();
    assert_eq!((id, subscription.attached), ("edge-3", TIME));
    assert_eq!(machine.queue_name(subscription.queue), Some("prices:edge-3"));
    let exchanges: Vec<_> = machine
        .exchanges()
        .map(|(name, exchange)| (name, exchange.kind(), exchange.alternate(), exchange.binding_count()))
        .collect();
    assert_eq!(
        exchanges,
        [
            ("all", ExchangeKind::Fanout, None, 0),
            ("by headers", ExchangeKind::Headers, None, 1),
            ("orders", ExchangeKind::Topic, Some("by headers"), 1),
        ]
    );
    let binding = machine.exchange("by headers").unwrap().bindings().next().unwrap();
    let rule = HeaderRule::new(true, [("kind", ""), ("region", "eu")]);
    assert_eq!(binding, ("", machine.queue("jobs").unwrap(), &rule));
}

#[test]
fn recorded_commands_lead_to_the_recorded_snapshot() {
    let mut machine = Machine::default();
    for (name, command) in recorded(COMMANDS) {
        let mut applied = Applied::default();
        let outcome = apply_to(&mut machine, &command, &mut applied);
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
    assert_eq!(hex(&machine.snapshot()), written_now(SNAPSHOT));
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

    let mut plane = Plane::new(machine, SETTINGS);
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
