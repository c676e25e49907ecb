//! Topics and exchanges, rule by rule.

use boltq_core::{Applied, Millis, RecordBuilder, StateMachine, StorageEffect};
use bytes::BytesMut;

use super::fixture::{ANN, Fixture, LEASE_MS, Message, SETTINGS, record, token};
use crate::command::{self, PublishWriter};
use crate::{Effect, ExchangeKind, HeaderRule, Machine, Outcome, Plane, RoutingRefusal};

/// Writes a command.
pub(super) fn written(write: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::new();
    write(&mut out);
    out
}

pub(super) fn publish_topic(topic: &str, messages: &[Message]) -> BytesMut {
    written(|out| {
        let writer = PublishWriter::begin_topic(out, topic);
        messages.iter().for_each(|message| record(out, *message));
        writer.finish(out, u32::try_from(messages.len()).unwrap());
    })
}

pub(super) fn attach(topic: &str, subscription: &str) -> BytesMut {
    written(|out| command::attach(out, topic, subscription, true))
}

pub(super) fn publish_exchange(exchange: &str, key: &str, headers: &[(&str, &str)], priority: u8) -> BytesMut {
    written(|out| {
        command::begin_publish_exchange(out, exchange, key);
        let builder = RecordBuilder {
            json: false,
            priority,
            published_ns: 1,
            expires: None,
            due: None,
            ordering_key: "",
            id: None,
            payload: b"payload",
        };
        builder.write(headers.iter().copied(), out);
    })
}

impl Fixture {
    fn attach(&mut self, topic: &str, subscription: &str) -> Outcome {
        self.apply(&attach(topic, subscription))
    }

    fn publish_topic(&mut self, topic: &str, count: usize) -> Outcome {
        self.apply(&publish_topic(topic, &vec![Message::default(); count]))
    }

    fn remove(&mut self, topic: &str, subscription: &str, attached_until: Millis) -> Outcome {
        self.apply(&written(|out| {
            command::remove_subscription(out, topic, subscription, attached_until);
        }))
    }

    fn declare(&mut self, name: &str, kind: ExchangeKind, alternate: Option<&str>) -> Outcome {
        self.apply(&written(|out| {
            command::declare_exchange(out, name, kind, true, alternate);
        }))
    }

    fn bind(&mut self, exchange: &str, queue: &str, key: &str) -> Outcome {
        self.bind_rule(exchange, queue, key, &HeaderRule::default())
    }

    fn bind_rule(&mut self, exchange: &str, queue: &str, key: &str, rule: &HeaderRule) -> Outcome {
        self.apply(&written(|out| command::bind(out, exchange, queue, key, rule)))
    }

    fn unbind(&mut self, exchange: &str, queue: &str, key: &str) -> Outcome {
        self.apply(&written(|out| command::unbind(out, exchange, queue, key)))
    }

    fn route(&mut self, exchange: &str, key: &str) -> Outcome {
        self.apply(&publish_exchange(exchange, key, &[], 0))
    }

    fn ready(&self, queue: &str) -> u64 {
        self.stats(queue).0
    }
}

fn routed(queues: usize) -> Outcome {
    Outcome::Routed { queues, full: 0 }
}

#[test]
fn a_topic_without_durable_subscriptions_keeps_nothing() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.publish_topic("t", 3), Outcome::PublishedTopic { queues: 0 });
    assert!(fixture.storage.is_empty());
    assert_eq!(fixture.plane.totals().published, 0);
    assert!(fixture.plane.queue("t").is_none());
}

#[test]
fn a_publish_to_a_topic_is_one_range_of_records_in_every_backlog() {
    let mut fixture = Fixture::new();
    for subscription in ["x", "y"] {
        assert!(matches!(fixture.attach("t", subscription), Outcome::Attached(Some(_))));
    }
    assert_eq!(fixture.publish_topic("t", 3), Outcome::PublishedTopic { queues: 2 });
    let [
        StorageEffect::Placed {
            stream: one,
            count: 3,
            offset,
            bytes,
            ..
        },
        StorageEffect::Placed {
            stream: two,
            count: 3,
            offset: same_offset,
            bytes: same_bytes,
            ..
        },
    ] = fixture.storage[..]
    else {
        panic!("{:?}", fixture.storage);
    };
    assert_ne!(one, two);
    assert_eq!((offset, bytes), (same_offset, same_bytes));
    assert_eq!((fixture.ready("t:x"), fixture.ready("t:y")), (3, 3));
    assert_eq!(fixture.plane.totals().published, 6);
}

#[test]
fn a_backlog_begins_with_its_subscription_and_keeps_the_order_of_publishing() {
    let mut fixture = Fixture::new();
    fixture.publish_topic("t", 5);
    fixture.attach("t", "x");
    let priority = |priority| Message {
        priority,
        ..Message::default()
    };
    fixture.apply(&publish_topic("t", &[priority(1), priority(9)]));
    fixture.apply(&publish_topic("t", &[priority(0), priority(5)]));
    let seqs: Vec<_> = fixture
        .lease_places("t:x", ANN, 9)
        .into_iter()
        .map(|place| place.seq.0)
        .collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
}

#[test]
fn listeners_are_told_where_topic_and_records_are() {
    let mut machine = Machine::default();
    let command = publish_topic("prices", &[Message::default(); 2]);
    let mut applied = Applied::default();
    machine.apply(Millis(1), &command, 100, &mut applied).unwrap();
    let [
        Effect::TopicPublished {
            topic,
            topic_bytes,
            count: 2,
            records,
            records_bytes,
        },
    ] = applied.effects[..]
    else {
        panic!("{:?}", applied.effects);
    };
    let part = |at: u32, bytes: u32| &command[at as usize - 100..][..bytes as usize];
    assert_eq!(part(topic, topic_bytes), b"prices");
    let mut both = BytesMut::new();
    (0..2).for_each(|_| record(&mut both, Message::default()));
    assert_eq!(part(records, records_bytes), both);
}

#[test]
fn attaching_again_changes_the_time_alone_and_only_who_creates_creates() {
    let mut fixture = Fixture::new();
    let touch = written(|out| command::attach(out, "t", "x", false));
    assert_eq!(fixture.apply(&touch), Outcome::Attached(None));
    let created = fixture.attach("t", "x");
    fixture.publish_topic("t", 1);
    fixture.pass(500);
    assert_eq!(fixture.apply(&touch), created);
    let subscription = fixture.plane.machine().subscription("t", "x").unwrap();
    assert_eq!((subscription.attached, fixture.ready("t:x")), (fixture.now, 1));
}

#[test]
fn a_subscription_goes_with_its_whole_backlog_whoever_holds_it() {
    let mut fixture = Fixture::new();
    fixture.attach("t", "x");
    fixture.attach("t", "y");
    fixture.publish_topic("t", 6);
    let leased = fixture.lease("t:x", ANN, 4);
    fixture.ack(token(leased[0]));
    fixture.nack(token(leased[1]));
    let claim = fixture.claim(token(leased[2]));
    assert_eq!(
        fixture.remove("t", "x", Millis::MAX),
        Outcome::SubscriptionRemoved(Some(5))
    );
    assert_eq!(fixture.stats("t:x"), (0, 0, 0));
    assert_eq!(fixture.plane.held_by(ANN), 0);
    // What was on its way finds nothing, and harms nothing.
    fixture.plane.unclaim(claim.place, fixture.now);
    assert_eq!(fixture.stats("t:x"), (0, 0, 0));
    fixture.pass(LEASE_MS + 1);
    assert_eq!((fixture.ready("t:y"), fixture.plane.totals().purged), (6, 5));
    assert_eq!(fixture.publish_topic("t", 1), Outcome::PublishedTopic { queues: 1 });
    assert_eq!(
        fixture.remove("t", "x", Millis::MAX),
        Outcome::SubscriptionRemoved(None)
    );
    // The same again begins anew.
    fixture.attach("t", "x");
    assert_eq!(
        (fixture.publish_topic("t", 1), fixture.ready("t:x")),
        (Outcome::PublishedTopic { queues: 2 }, 1)
    );
}

#[test]
fn who_was_attached_in_the_meantime_is_not_abandoned() {
    let mut fixture = Fixture::new();
    fixture.attach("t", "x");
    let seen = fixture.now;
    fixture.pass(1_000);
    fixture.attach("t", "x");
    assert_eq!(fixture.remove("t", "x", seen), Outcome::SubscriptionRemoved(None));
    assert_eq!(
        fixture.remove("t", "x", fixture.now),
        Outcome::SubscriptionRemoved(Some(0))
    );
}

#[test]
fn two_subscriptions_cannot_have_one_backlog() {
    let mut fixture = Fixture::new();
    fixture.attach("t:a", "x");
    let refusal = RoutingRefusal::BacklogTaken {
        topic: "t:a".into(),
        subscription: "x".into(),
    };
    assert_eq!(fixture.attach("t", "a:x"), Outcome::Refused(refusal));
    fixture.remove("t:a", "x", Millis::MAX);
    assert!(matches!(fixture.attach("t", "a:x"), Outcome::Attached(Some(_))));
}

#[test]
fn each_kind_of_exchange_chooses_its_way() {
    let mut fixture = Fixture::new();
    for (name, kind) in [
        ("d", ExchangeKind::Direct),
        ("f", ExchangeKind::Fanout),
        ("t", ExchangeKind::Topic),
    ] {
        assert_eq!(fixture.declare(name, kind, None), Outcome::ExchangeDeclared(true));
        for (queue, key) in [("a", "k.1"), ("b", "k.*"), ("c", "")] {
            assert_eq!(fixture.bind(name, queue, key), Outcome::Bound(true));
        }
    }
    for (exchange, key, wanted) in [
        ("d", "k.1", ["a"].as_slice()),
        ("d", "k.*", &["b"]),
        ("d", "", &["c"]),
        ("d", "K.1", &[]),
        ("f", "anything", &["a", "b", "c"]),
        ("t", "k.1", &["a", "b"]),
        ("t", "", &["c"]),
        ("t", "k", &[]),
    ] {
        let before = ["a", "b", "c"].map(|queue| (queue, fixture.ready(queue)));
        assert_eq!(fixture.route(exchange, key), routed(wanted.len()), "{exchange} {key}");
        let grown = before
            .into_iter()
            .filter(|(queue, before)| fixture.ready(queue) > *before);
        assert_eq!(
            grown.map(|(queue, _)| queue).collect::<Vec<_>>(),
            wanted,
            "{exchange} {key}"
        );
    }
}

#[test]
fn a_headers_exchange_looks_at_headers_alone() {
    let mut fixture = Fixture::new();
    fixture.declare("h", ExchangeKind::Headers, None);
    let pairs = [("region", "eu"), ("kind", "")];
    fixture.bind_rule("h", "all", "", &HeaderRule::new(true, pairs));
    fixture.bind_rule("h", "any", "", &HeaderRule::new(false, pairs));
    fixture.bind("h", "every", "k");
    for (headers, queues) in [
        (&[][..], 1),
        (&[("region", "eu")], 2),
        (&[("region", "eu"), ("kind", "x")], 2),
        (&[("kind", ""), ("x", "y"), ("region", "eu")], 3),
        (&[("region", "us"), ("region", "eu"), ("kind", "")], 3),
    ] {
        assert_eq!(
            fixture.apply(&publish_exchange("h", "no key", headers, 0)),
            routed(queues),
            "{headers:?}"
        );
    }
}

#[test]
fn a_queue_gets_one_copy_however_many_of_its_bindings_match() {
    let mut fixture = Fixture::new();
    fixture.declare("t", ExchangeKind::Topic, None);
    for key in ["a.*.c", "a.#", "#"] {
        fixture.bind("t", "q", key);
    }
    assert_eq!(fixture.route("t", "a.b.c"), routed(1));
    assert_eq!(fixture.ready("q"), 1);
}

#[test]
fn copies_keep_their_priority() {
    let mut fixture = Fixture::new();
    fixture.declare("f", ExchangeKind::Fanout, None);
    fixture.bind("f", "q", "");
    for priority in [1, 9, 5] {
        fixture.apply(&publish_exchange("f", "", &[], priority));
    }
    let lanes: Vec<_> = fixture
        .lease_places("q", ANN, 9)
        .into_iter()
        .map(|place| place.stream.0 % 16)
        .collect();
    assert_eq!(lanes, [9, 5, 1]);
}

#[test]
fn the_default_exchange_routes_to_the_queue_that_the_key_names() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.route("", "jobs"), routed(1));
    assert_eq!(fixture.route("", "jobs"), routed(1));
    assert_eq!(fixture.ready("jobs"), 2);
}

#[test]
fn an_exchange_is_declared_once() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.route("e", "k"), Outcome::Refused(RoutingRefusal::NoExchange));
    assert_eq!(
        fixture.bind("e", "q", "k"),
        Outcome::Refused(RoutingRefusal::NoExchange)
    );
    assert!(
        fixture.plane.queue("q").is_none(),
        "a refused binding created its queue"
    );
    fixture.declare("e", ExchangeKind::Direct, Some("other"));
    fixture.bind("e", "q", "k");
    assert_eq!(
        fixture.declare("e", ExchangeKind::Direct, None),
        Outcome::ExchangeDeclared(false)
    );
    let other = RoutingRefusal::OtherKind(ExchangeKind::Direct);
    assert_eq!(
        fixture.declare("e", ExchangeKind::Fanout, None),
        Outcome::Refused(other)
    );
    let exchange = fixture.plane.machine().exchange("e").unwrap();
    assert_eq!((exchange.alternate(), exchange.binding_count()), (Some("other"), 1));
}

#[test]
fn a_binding_is_there_once_and_goes_with_its_queue_and_key() {
    let mut fixture = Fixture::new();
    fixture.declare("e", ExchangeKind::Headers, None);
    let rule = |value| HeaderRule::new(true, [("k", value)]);
    assert_eq!(fixture.bind_rule("e", "q", "x", &rule("1")), Outcome::Bound(true));
    assert_eq!(fixture.bind_rule("e", "q", "x", &rule("1")), Outcome::Bound(false));
    assert_eq!(fixture.bind_rule("e", "q", "x", &rule("2")), Outcome::Bound(true));
    fixture.bind_rule("e", "q", "y", &rule("1"));
    fixture.bind_rule("e", "p", "x", &rule("1"));
    assert_eq!(fixture.unbind("e", "q", "x"), Outcome::Unbound(2));
    assert_eq!(fixture.unbind("e", "q", "x"), Outcome::Unbound(0));
    assert_eq!(fixture.unbind("e", "never there", "x"), Outcome::Unbound(0));
    assert_eq!(
        fixture.unbind("x", "q", "x"),
        Outcome::Refused(RoutingRefusal::NoExchange)
    );
    assert_eq!(fixture.plane.machine().exchange("e").unwrap().binding_count(), 2);
}

#[test]
fn deleting_an_exchange_leaves_the_queues() {
    let mut fixture = Fixture::new();
    fixture.declare("e", ExchangeKind::Fanout, None);
    fixture.bind("e", "q", "");
    fixture.route("e", "");
    let delete = written(|out| command::delete_exchange(out, "e"));
    assert_eq!(fixture.apply(&delete), Outcome::Done);
    assert_eq!(fixture.apply(&delete), Outcome::Refused(RoutingRefusal::NoExchange));
    assert_eq!(fixture.ready("q"), 1);
    // A new one of the name has no bindings.
    fixture.declare("e", ExchangeKind::Fanout, None);
    assert_eq!(fixture.route("e", ""), routed(0));
}

#[test]
fn what_matches_nothing_goes_to_the_alternate() {
    let mut fixture = Fixture::new();
    fixture.declare("first", ExchangeKind::Direct, Some("second"));
    fixture.declare("second", ExchangeKind::Direct, Some("first"));
    assert_eq!(fixture.route("first", "k"), routed(0), "alternates in a circle");
    fixture.bind("second", "q", "k");
    assert_eq!(fixture.route("first", "k"), routed(1));
    fixture.bind("first", "p", "k");
    assert_eq!(
        (fixture.route("first", "k"), fixture.ready("q"), fixture.ready("p")),
        (routed(1), 1, 1)
    );
    fixture.apply(&written(|out| command::delete_exchange(out, "second")));
    assert_eq!(fixture.route("first", "other"), routed(0));
}

#[test]
fn a_machine_without_topics_and_exchanges_is_written_as_it_always_was() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("q", 2);
    assert_eq!(fixture.plane.machine().snapshot()[0], 1);
    fixture.attach("t", "x");
    assert_eq!(fixture.plane.machine().snapshot()[0], 2);
    fixture.remove("t", "x", Millis::MAX);
    assert_eq!(fixture.plane.machine().snapshot()[0], 1);
}

#[test]
fn topics_and_exchanges_survive_a_snapshot() {
    let mut fixture = Fixture::new();
    fixture.attach("t", "x");
    fixture.declare("p", ExchangeKind::Topic, None);
    fixture.bind("p", "q", "a.#.b");
    fixture.declare("h", ExchangeKind::Headers, Some("p"));
    fixture.bind_rule("h", "q", "", &HeaderRule::new(true, [("k", "v")]));
    fixture.publish_topic("t", 2);
    fixture.fail_over();
    assert_eq!(fixture.publish_topic("t", 1), Outcome::PublishedTopic { queues: 1 });
    assert_eq!(fixture.ready("t:x"), 3);
    assert_eq!(fixture.route("p", "a.x.b"), routed(1));
    assert_eq!(fixture.route("h", "a.b"), routed(1), "by its alternate");
    assert_eq!(fixture.attach("t", "x"), Outcome::Attached(fixture.plane.queue("t:x")));
}

/// Snapshots whose topics and exchanges cannot be.
#[test]
fn topics_and_exchanges_that_commands_do_not_lead_to_are_refused() {
    let mut fixture = Fixture::new();
    fixture.attach("t", "x");
    fixture.declare("h", ExchangeKind::Headers, None);
    fixture.bind_rule("h", "q", "", &HeaderRule::new(true, [("a", "1"), ("b", "2")]));
    let good = fixture.plane.machine().snapshot();
    assert!(Machine::restore(&good).is_ok());
    let end = good.len();
    let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        Machine::restore(&bytes).unwrap_err().to_string()
    };
    // The last 20 bytes are the pairs: 4 + 1 bytes each of a, 1, b, 2; before them 4 bytes of count and 1 of "all".
    let error = damaged(&|bytes| bytes[end - 20..].rotate_left(10));
    assert!(
        error.starts_with("header rule: its headers are not in order"),
        "{error}"
    );
    let error = damaged(&|bytes| bytes[end - 25] = 7);
    assert!(error.starts_with("header rule: 7 is unknown"), "{error}");
    let error = damaged(&|bytes| bytes[end - 29] = 9);
    assert!(error.starts_with("bindings: one is to a queue"), "{error}");
    let error = damaged(&|bytes| {
        // A direct exchange has no rules.
        let kind = end - 33 - 4 - 4 - 1 - 1;
        assert_eq!(bytes[kind], 3);
        bytes[kind] = 0;
    });
    assert!(error.starts_with("bindings: one has a rule"), "{error}");
    let error = damaged(&|bytes| {
        let topic = bytes
            .windows(10)
            .position(|part| part == b"\x01\0\0\0t\x01\0\0\0\x01")
            .unwrap();
        bytes[topic + 4] = b'u';
    });
    assert!(error.starts_with("backlog: it is not the queue"), "{error}");
}

/// What a node says that begins to lead with what others have routed.
#[test]
fn a_new_leader_hands_out_what_was_routed() {
    let mut fixture = Fixture::new();
    fixture.attach("t", "x");
    let mut follower = Plane::new(Machine::restore(&fixture.plane.machine().snapshot()).unwrap(), SETTINGS);
    let publish = publish_topic("t", &[Message::default(); 3]);
    follower
        .apply(fixture.now, &publish, 0, &mut Applied::default())
        .unwrap();
    follower.lead(boltq_core::Term(2), fixture.now);
    let mut leased = Vec::new();
    let queue = follower.queue("t:x").unwrap();
    follower.lease(queue, ANN, 9, LEASE_MS, fixture.now, &mut leased);
    assert_eq!(leased.len(), 3);
}
