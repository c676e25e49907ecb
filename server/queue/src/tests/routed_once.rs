//! Publishes to topics and exchanges that may be repeated.

use boltq_core::{Applied, MessageId, Millis, Origin, RecordBuilder, StateMachine};
use bytes::BytesMut;

use super::fixture::{ANN, Fixture, Message, publish_once, settle};
use super::managing::limited;
use super::routing::{attach, written};
use crate::command::{self, PublishWriter, Settle};
use crate::{ExchangeKind, HeaderRule, Machine, Outcome, RoutingRefusal};

/// A message whose publish has an id.
pub(super) fn record(out: &mut BytesMut, id: u8, message: Message, headers: &[(&str, &str)]) {
    let builder = RecordBuilder {
        json: false,
        priority: message.priority,
        published_ns: 1,
        expires: message.expires,
        due: None,
        ordering_key: "",
        id: None,
        payload: b"payload",
    };
    let origin = Origin {
        id: MessageId([id; 16]),
        exchange: "",
        routing_key: "",
    };
    builder.write_routed(Some(origin), headers.iter().copied(), out);
}

pub(super) fn topic_once(until: Millis, topic: &str, key: &str, id: u8) -> BytesMut {
    written(|out| {
        command::begin_publish_topic_once(out, until, topic, key);
        record(out, id, Message::default(), &[]);
    })
}

pub(super) fn exchange_once(until: Millis, (exchange, routing_key): (&str, &str), key: &str, id: u8) -> BytesMut {
    written(|out| {
        command::begin_publish_exchange_once(out, until, exchange, routing_key, key);
        record(out, id, Message::default(), &[]);
    })
}

fn before(id: u8, queues: u32) -> Outcome {
    Outcome::RoutedBefore {
        id: MessageId([id; 16]),
        queues,
    }
}

fn routed(queues: usize) -> Outcome {
    Outcome::Routed { queues, full: 0 }
}

/// A fixture with a fanout exchange `e` to the queues `q` and `p`.
fn with_exchange() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.apply(&written(|out| {
        command::declare_exchange(out, "e", ExchangeKind::Fanout, true, None);
    }));
    for queue in ["q", "p"] {
        bind(&mut fixture, queue);
    }
    fixture
}

fn bind(fixture: &mut Fixture, queue: &str) {
    fixture.apply(&written(|out| {
        command::bind(out, "e", queue, "", &HeaderRule::default());
    }));
}

#[test]
fn a_repeated_publish_to_a_topic_answers_what_the_first_one_did_and_tells_nobody() {
    let mut fixture = Fixture::new();
    fixture.apply(&attach("t", "a"));
    let until = fixture.now.plus(100);
    assert_eq!(
        fixture.apply(&topic_once(until, "t", "k", 1)),
        Outcome::PublishedTopic { queues: 1 }
    );
    // Subscribers that came later change nothing, as they got nothing.
    fixture.apply(&attach("t", "b"));
    fixture.pass(99);
    let mut applied = Applied::default();
    let again = topic_once(until, "t", "k", 2);
    let outcome = fixture.plane.apply(fixture.now, &again, 0, &mut applied).unwrap();
    assert_eq!(outcome, before(1, 1));
    assert!(applied.storage.is_empty() && applied.effects.is_empty());
    assert_eq!(fixture.stats("t:a").0 + fixture.stats("t:b").0, 1);
    fixture.pass(1);
    let until = fixture.now.plus(100);
    assert_eq!(
        fixture.apply(&topic_once(until, "t", "k", 3)),
        Outcome::PublishedTopic { queues: 2 }
    );
}

#[test]
fn a_topic_that_nobody_has_subscribed_to_remembers_too() {
    let mut fixture = Fixture::new();
    let until = fixture.now.plus(100);
    assert_eq!(
        fixture.apply(&topic_once(until, "t", "k", 1)),
        Outcome::PublishedTopic { queues: 0 }
    );
    assert_eq!(fixture.apply(&topic_once(until, "t", "k", 2)), before(1, 0));
}

#[test]
fn who_listens_is_told_where_name_and_message_are() {
    let mut fixture = Fixture::new();
    let command = topic_once(fixture.now.plus(100), "topic", "k", 1);
    let mut applied = Applied::default();
    fixture.plane.apply(fixture.now, &command, 7, &mut applied).unwrap();
    let [
        crate::Effect::TopicPublished {
            topic,
            topic_bytes,
            count: 1,
            records,
            records_bytes,
        },
    ] = applied.effects[..]
    else {
        panic!("{:?}", applied.effects);
    };
    let part = |at: u32, bytes: u32| &command[(at - 7) as usize..(at - 7 + bytes) as usize];
    assert_eq!(part(topic, topic_bytes), b"topic");
    let mut message = BytesMut::new();
    record(&mut message, 1, Message::default(), &[]);
    assert_eq!(part(records, records_bytes), &message[..]);
}

#[test]
fn a_repeated_publish_to_an_exchange_answers_the_number_of_queues_that_got_the_first() {
    let mut fixture = with_exchange();
    let until = fixture.now.plus(100);
    assert_eq!(fixture.apply(&exchange_once(until, ("e", ""), "k", 1)), routed(2));
    bind(&mut fixture, "third");
    let leased = fixture.lease_places("q", ANN, 1);
    fixture.apply(&settle(Settle::Ack, &leased));
    assert_eq!(fixture.apply(&exchange_once(until, ("e", ""), "k", 2)), before(1, 2));
    assert!(fixture.storage.is_empty());
    assert_eq!(["q", "p", "third"].map(|queue| fixture.stats(queue).0), [0, 1, 0]);
}

#[test]
fn a_key_belongs_to_what_the_message_is_addressed_to() {
    let mut fixture = with_exchange();
    let until = fixture.now.plus(100);
    let topic = topic_once(until, "e", "k", 1);
    let exchange = exchange_once(until, ("e", ""), "k", 2);
    let routing_key = exchange_once(until, ("e", "other"), "k", 3);
    let default = exchange_once(until, ("", "e"), "k", 4);
    let queue = publish_once(until, "e", "k", Message::default());
    let first = [&topic, &exchange, &routing_key, &default].map(|command| fixture.apply(command));
    assert_eq!(
        first,
        [Outcome::PublishedTopic { queues: 0 }, routed(2), routed(2), routed(1)]
    );
    assert!(matches!(fixture.apply(&queue), Outcome::Published(_)));
    let again = [&topic, &exchange, &routing_key, &default].map(|command| fixture.apply(command));
    assert_eq!(again, [before(1, 0), before(2, 2), before(3, 2), before(4, 1)]);
    assert!(matches!(fixture.apply(&queue), Outcome::PublishedBefore(_)));
    assert_eq!(fixture.plane.machine().keys_remembered(), 5);
}

#[test]
fn what_nobody_got_can_be_published_again() {
    let mut fixture = Fixture::new();
    let until = fixture.now.plus(100);
    let publish = |id| exchange_once(until, ("e", ""), "k", id);
    assert_eq!(fixture.apply(&publish(1)), Outcome::Refused(RoutingRefusal::NoExchange));
    fixture.apply(&written(|out| {
        command::declare_exchange(out, "e", ExchangeKind::Fanout, true, None);
    }));
    assert_eq!(fixture.apply(&publish(2)), routed(0));
    fixture.create("q", &limited(1));
    bind(&mut fixture, "q");
    fixture.publish_plain("q", 1);
    assert_eq!(fixture.apply(&publish(3)), Outcome::Routed { queues: 0, full: 1 });
    assert_eq!(fixture.plane.machine().keys_remembered(), 0);
    let leased = fixture.lease_places("q", ANN, 1);
    fixture.apply(&settle(Settle::Ack, &leased));
    assert_eq!(fixture.apply(&publish(4)), routed(1));
    assert_eq!(fixture.apply(&publish(5)), before(4, 1));
}

#[test]
fn keys_go_with_their_exchange_and_stay_with_others() {
    let mut fixture = with_exchange();
    let until = fixture.now.plus(100);
    fixture.apply(&exchange_once(until, ("e", "x"), "k", 1));
    fixture.apply(&exchange_once(until, ("", "q"), "k", 2));
    fixture.apply(&written(|out| command::delete_exchange(out, "e")));
    assert_eq!(fixture.plane.machine().keys_remembered(), 1);
    assert_eq!(fixture.apply(&exchange_once(until, ("", "q"), "k", 3)), before(2, 1));
    Machine::restore(&fixture.plane.machine().snapshot()).unwrap();
}

#[test]
fn keys_survive_a_snapshot_and_are_gone_from_it_when_they_are_forgotten() {
    let mut fixture = with_exchange();
    let without = fixture.plane.machine().snapshot();
    let until = fixture.now.plus(100);
    fixture.apply(&topic_once(until, "t", "k", 1));
    fixture.apply(&exchange_once(until, ("e", "x"), "k", 2));
    let snapshot = fixture.plane.machine().snapshot();
    assert_eq!((without[0], snapshot[0]), (2, 4));
    fixture.fail_over();
    assert_eq!(fixture.plane.machine().snapshot(), snapshot);
    assert_eq!(fixture.apply(&topic_once(until, "t", "k", 3)), before(1, 0));
    assert_eq!(fixture.apply(&exchange_once(until, ("e", "x"), "k", 4)), before(2, 2));
    fixture.pass(100);
    // One that is not remembered at all forgets the others.
    fixture.apply(&topic_once(fixture.now, "t", "other", 5));
    assert_eq!(fixture.plane.machine().keys_remembered(), 0);
    assert_eq!(fixture.plane.machine().snapshot()[0], 2);
}

#[test]
fn a_snapshot_with_keys_that_no_commands_lead_to_is_refused() {
    let mut fixture = with_exchange();
    let until = fixture.now.plus(100);
    fixture.apply(&exchange_once(until, ("e", "x"), "k", 1));
    fixture.apply(&exchange_once(until, ("e", "x"), "l", 2));
    let whole = fixture.plane.machine().snapshot();
    Machine::restore(&whole).unwrap();
    for end in 0..whole.len() {
        assert!(Machine::restore(&whole[..end]).is_err(), "{end}");
    }
    // From its end: two keys of an exchange; each u8, str, str, str, and 28 bytes.
    let one = 1 + 5 + 5 + 5 + 28;
    let (first, second) = (whole.len() - 2 * one, whole.len() - one);
    assert_eq!((whole[first], whole[second], whole[second + 15]), (1, 1, b'l'));
    for (at, value) in [
        (first, 2),
        // There is no exchange of that name.
        (first + 5, b'f'),
        (first + 11, 0),
        // The same twice, and out of order.
        (second + 15, b'k'),
        (second + 15, b'a'),
    ] {
        let mut bytes = whole.clone();
        bytes[at] = value;
        assert!(Machine::restore(&bytes).is_err(), "{} {value}", at - first);
    }
}

#[test]
fn only_one_routed_message_with_an_origin_can_have_a_key() {
    let until = Millis(5_000_000);
    let whole = topic_once(until, "t", "k", 1);
    let head = 1 + 8 + 5;
    let command = |publish: &[u8]| [&whole[..head], publish].concat();
    let mut machine = Machine::default();
    let mut refused = |command: &[u8]| {
        let before = machine.snapshot();
        let error = machine
            .apply(Millis(9), command, 0, &mut Applied::default())
            .unwrap_err();
        assert_eq!(machine.snapshot(), before);
        error.to_string()
    };
    let two = written(|out| {
        let writer = PublishWriter::begin_topic(out, "t");
        (0..2).for_each(|id| record(out, id, Message::default(), &[]));
        writer.finish(out, 2);
    });
    let one_of_two = [&two[..1], &1u32.to_le_bytes(), &two[5..]].concat();
    let plain = written(|out| {
        let writer = PublishWriter::begin_topic(out, "t");
        super::fixture::record(out, Message::default());
        writer.finish(out, 1);
    });
    let other = "publish with a key: it is no publish of one message to a topic or an exchange";
    assert_eq!(refused(&command(&two)), other);
    assert_eq!(refused(&command(&written(|out| command::declare(out, "q")))), other);
    assert_eq!(refused(&command(&attach("t", "a"))), other);
    assert_eq!(refused(&command(&whole)), other);
    let mut as_it_is = whole[head..].to_vec();
    as_it_is[0] = 9;
    assert_eq!(refused(&command(&as_it_is)), other);
    assert_eq!(
        refused(&command(&plain)),
        "publish with a key: its message has no origin"
    );
    assert!(refused(&command(&one_of_two)).contains("more bytes than their count"));
    for end in 0..whole.len() {
        refused(&whole[..end]);
    }
    let no_key = [&whole[..9], &[0; 4], &whole[head..]].concat();
    assert!(refused(&no_key).contains("empty or too long"));
}
