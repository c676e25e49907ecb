//! What queues make of copies that several of them get.

use boltq_core::{Millis, StateMachine};

use super::fixture::{ANN, Fixture, Message, settle};
use super::routed_once::{exchange_once, record};
use super::routing::{attach, publish_topic, written};
use crate::command::{self, PublishWriter, Settle};
use crate::{ExchangeKind, HeaderRule, Machine, Outcome, QueueOption, QueueOptions};

fn living(default_ttl_ms: u64) -> QueueOptions {
    QueueOptions {
        default_ttl_ms: Some(default_ttl_ms),
        ..QueueOptions::default()
    }
}

/// Published a nanosecond after 0, so that an end is 1 ms and the time to live.
fn ends(fixture: &Fixture, queue: &str) -> Vec<Option<u64>> {
    let mut places = Vec::new();
    fixture.plane.peek(fixture.queue(queue), 99, fixture.now, &mut places);
    let ends = places.into_iter().map(|place| fixture.plane.expires(place));
    ends.map(|end| end.map(|end| end.0)).collect()
}

#[test]
fn copies_without_a_time_to_live_get_that_of_their_queue() {
    let mut fixture = Fixture::new();
    fixture.create("t:short", &living(2_000_000));
    fixture.create("t:long", &living(3_000_000));
    for subscription in ["short", "long", "plain"] {
        fixture.apply(&attach("t", subscription));
    }
    let messages = [None, Some(2_500_000), None].map(|expires| Message {
        expires: expires.map(Millis),
        ..Message::default()
    });
    fixture.apply(&publish_topic("t", &messages));
    assert_eq!(
        ends(&fixture, "t:short"),
        [Some(2_000_001), Some(2_500_000), Some(2_000_001)]
    );
    assert_eq!(
        ends(&fixture, "t:long"),
        [Some(3_000_001), Some(2_500_000), Some(3_000_001)]
    );
    assert_eq!(ends(&fixture, "t:plain"), [None, Some(2_500_000), None]);
    // It was said when they were published, and holds.
    fixture.create("other", &living(1));
    fixture.change("t:short", &QueueOption::ALL, &living(1));
    assert_eq!(ends(&fixture, "t:short")[0], Some(2_000_001));
}

#[test]
fn copies_expire_at_their_time_and_not_before_on_this_leader_and_the_next() {
    let mut fixture = Fixture::new();
    fixture.create("q", &living(2_000_000));
    fixture.apply(&written(|out| {
        command::declare_exchange(out, "e", ExchangeKind::Fanout, true, None);
    }));
    for queue in ["q", "p"] {
        fixture.apply(&written(|out| {
            command::bind(out, "e", queue, "", &HeaderRule::default());
        }));
    }
    let until = fixture.now.plus(60_000);
    fixture.apply(&exchange_once(until, ("e", ""), "k", 1));
    let held = fixture.lease("q", ANN, 1);
    assert_eq!(held[0].expires, Some(Millis(2_000_001)));
    fixture.apply(&exchange_once(until, ("e", ""), "l", 2));
    fixture.apply(&exchange_once(until, ("", "q"), "m", 3));
    let next = fixture.plane.next_expiry();
    assert_eq!(next, Some(Millis(2_000_001)));
    fixture.now = Millis(2_000_000);
    assert_eq!(fixture.claim_expired(9), []);
    fixture.fail_over();
    assert_eq!((fixture.claim_expired(9), fixture.plane.next_expiry()), (vec![], next));
    fixture.now = Millis(2_000_001);
    let over = fixture.claim_expired(9);
    assert_eq!(over.len(), 3, "nobody holds the first one after a failover");
    fixture.apply(&settle(Settle::Expire, &over));
    assert_eq!((fixture.stats("q"), fixture.stats("p")), ((0, 0, 0), (2, 0, 0)));
    assert_eq!(fixture.plane.totals().expired, 3);
}

#[test]
fn copies_that_there_is_no_room_for_have_no_end() {
    let mut fixture = Fixture::new();
    let options = QueueOptions {
        max_length: Some(2),
        ..living(2_000_000)
    };
    fixture.create("t:a", &options);
    fixture.apply(&attach("t", "a"));
    fixture.apply(&publish_topic("t", &[Message::default(); 3]));
    assert_eq!(ends(&fixture, "t:a"), [Some(2_000_001); 2]);
    assert_eq!(fixture.plane.totals().rejected, 1);
    let dropping = QueueOptions {
        drop_oldest: true,
        ..options
    };
    fixture.change("t:a", &QueueOption::ALL, &dropping);
    fixture.apply(&publish_topic("t", &[Message::default(); 3]));
    assert_eq!(ends(&fixture, "t:a"), [Some(2_000_001); 2]);
    let again = Machine::restore(&fixture.plane.machine().snapshot()).unwrap();
    assert_eq!(again.snapshot(), fixture.plane.machine().snapshot());
}

/// What was proposed by versions that did not know of it means what it meant.
#[test]
fn copies_of_an_earlier_version_live_as_their_record_says() {
    let mut fixture = Fixture::new();
    fixture.create("t:a", &living(2_000_000));
    fixture.apply(&attach("t", "a"));
    let mut topic = publish_topic("t", &[Message::default()]);
    assert_eq!(topic[0], 34);
    topic[0] = 9;
    assert_eq!(fixture.apply(&topic), Outcome::PublishedTopic { queues: 1 });
    let mut exchange = written(|out| {
        command::begin_publish_exchange(out, "", "t:a");
        record(out, 1, Message::default(), &[]);
    });
    assert_eq!(exchange[0], 35);
    exchange[0] = 16;
    assert_eq!(fixture.apply(&exchange), Outcome::Routed { queues: 1, full: 0 });
    assert_eq!(ends(&fixture, "t:a"), [None; 2]);
}

/// A message that is published to the queue by name has its end in its record.
#[test]
fn a_publish_to_the_queue_itself_is_as_its_record_says() {
    let mut fixture = Fixture::new();
    fixture.create("q", &living(2_000_000));
    let publish = written(|out| {
        let writer = PublishWriter::begin(out, "q");
        record(out, 1, Message::default(), &[]);
        writer.finish(out, 1);
    });
    fixture.apply(&publish);
    assert_eq!(ends(&fixture, "q"), [None]);
}

/// The rest of what a queue says is looked up when it is needed, whatever way a message came.
#[test]
fn copies_are_retried_and_held_as_their_queue_says() {
    let mut fixture = Fixture::new();
    let options = QueueOptions {
        max_retry: Some(0),
        single_active_consumer: true,
        ..QueueOptions::default()
    };
    fixture.create("t:a", &options);
    fixture.apply(&attach("t", "a"));
    fixture.apply(&publish_topic("t", &[Message::default(); 2]));
    assert_eq!(fixture.lease_places("t:a", ANN, 1).len(), 1);
    assert_eq!(fixture.lease_places("t:a", super::fixture::BOB, 1), []);
    let id = fixture.queue("t:a");
    assert!(fixture.plane.settings(id).exhausted(1));
    let paused = QueueOptions {
        paused: true,
        ..options
    };
    fixture.change("t:a", &QueueOption::ALL, &paused);
    assert_eq!(fixture.lease_places("t:a", ANN, 1), []);
}
