//! Settings of queues, and their end.

use boltq_core::{Applied, StateMachine, StorageEffect};
use bytes::BytesMut;

use super::fixture::{ANN, BOB, Fixture, Message, dead_letter, publish, publish_once, settle, token};
use super::routing::{attach, publish_exchange, publish_topic, written};
use crate::command::{self, Settle};
use crate::{
    ClaimError, ConsumerId, ExchangeKind, HeaderRule, Machine, Outcome, QueueOption, QueueOptionSet, QueueOptions,
    QueueRefusal,
};

fn limited(max_length: u64) -> QueueOptions {
    QueueOptions {
        max_length: Some(max_length),
        ..QueueOptions::default()
    }
}

fn dropping(max_length: u64) -> QueueOptions {
    QueueOptions {
        drop_oldest: true,
        ..limited(max_length)
    }
}

fn single() -> QueueOptions {
    QueueOptions {
        single_active_consumer: true,
        ..QueueOptions::default()
    }
}

fn dead_letters_to(queue: &str) -> QueueOptions {
    QueueOptions {
        dead_letter_queue: Some(queue.into()),
        ..QueueOptions::default()
    }
}

impl Fixture {
    fn create(&mut self, queue: &str, options: &QueueOptions) -> Outcome {
        self.apply(&written(|out| command::create_queue(out, queue, options)))
    }

    fn change(&mut self, queue: &str, which: &[QueueOption], options: &QueueOptions) -> Outcome {
        let mut set = QueueOptionSet::default();
        which.iter().for_each(|option| set.insert(*option));
        self.apply(&written(|out| command::change_queue(out, queue, set, options)))
    }

    fn delete(&mut self, queue: &str, only_if_empty: bool) -> Outcome {
        self.apply(&written(|out| command::delete_queue(out, queue, only_if_empty)))
    }

    fn pause(&mut self, queue: &str, paused: bool) {
        let options = QueueOptions {
            paused,
            ..QueueOptions::default()
        };
        self.change(queue, &[QueueOption::Paused], &options);
    }

    /// How many were taken and refused.
    fn fill(&mut self, queue: &str, count: usize) -> (u64, u64) {
        match self.apply(&publish(queue, &vec![Message::default(); count])) {
            Outcome::Published(runs) => (runs.places().count() as u64, 0),
            Outcome::Full { published, refused, .. } => (published.places().count() as u64, refused),
            other => panic!("{other:?}"),
        }
    }
}

fn refused(refusal: QueueRefusal) -> Outcome {
    Outcome::QueueRefused(refusal)
}

#[test]
fn creating_again_is_harmless_unless_something_else_is_asked_for() {
    let mut fixture = Fixture::new();
    let created = fixture.create("q", &limited(3));
    let queue = fixture.queue("q");
    assert_eq!(created, Outcome::QueueSet { queue, new: true });
    assert_eq!(
        fixture.create("q", &limited(3)),
        Outcome::QueueSet { queue, new: false }
    );
    assert_eq!(fixture.create("q", &limited(4)), refused(QueueRefusal::Exists));
    fixture.publish_plain("plain", 1);
    assert_eq!(fixture.create("plain", &limited(3)), refused(QueueRefusal::Exists));
    assert!(matches!(
        fixture.create("plain", &QueueOptions::default()),
        Outcome::QueueSet { .. }
    ));
}

#[test]
fn a_change_is_about_what_it_names_and_back_to_the_server_if_that_has_no_value() {
    let mut fixture = Fixture::new();
    let nothing = QueueOptions::default();
    assert_eq!(
        fixture.change("q", &[QueueOption::MaxLength], &limited(1)),
        refused(QueueRefusal::NotFound)
    );
    fixture.create("q", &limited(3));
    let retries = QueueOptions {
        max_retry: Some(7),
        ..dropping(9)
    };
    fixture.change("q", &[QueueOption::MaxRetry], &retries);
    let queue = fixture.queue("q");
    let expected = QueueOptions {
        max_retry: Some(7),
        ..limited(3)
    };
    assert_eq!(fixture.plane.machine().options(queue), Some(&expected));
    assert_eq!(fixture.plane.settings(queue).max_retry, 7);
    fixture.fail_over();
    assert_eq!(fixture.plane.machine().options(queue), Some(&expected));
    fixture.change("q", &[QueueOption::MaxRetry, QueueOption::MaxLength], &nothing);
    assert_eq!(fixture.plane.machine().options(queue), None);
    assert_eq!(
        fixture.plane.settings(queue).max_retry,
        super::fixture::SETTINGS.max_retry
    );
}

#[test]
fn the_first_messages_are_taken_and_those_without_room_refused() {
    let mut fixture = Fixture::new();
    fixture.create("q", &limited(5));
    assert_eq!(fixture.fill("q", 3), (3, 0));
    assert_eq!(fixture.fill("q", 4), (2, 2));
    assert_eq!(fixture.fill("q", 1), (0, 1));
    let totals = fixture.plane.totals();
    assert_eq!((totals.published, totals.rejected, totals.dropped), (5, 3, 0));
    // A leased message is still there.
    let leased = fixture.lease("q", ANN, 1);
    assert_eq!(fixture.fill("q", 1), (0, 1));
    fixture.ack(token(leased[0]));
    assert_eq!(fixture.fill("q", 2), (1, 1));
}

#[test]
fn only_the_bytes_of_what_is_taken_are_placed() {
    let mut fixture = Fixture::new();
    fixture.create("q", &limited(3));
    let mixed = [0, 0, 9, 9, 0].map(|priority| Message { priority, due: None });
    fixture.apply(&publish("q", &mixed));
    let mut record = BytesMut::new();
    super::fixture::record(&mut record, Message::default());
    let one = u32::try_from(record.len()).unwrap();
    let placed = fixture.storage.iter().map(|effect| match effect {
        StorageEffect::Placed { count, bytes, .. } => (*count, *bytes),
        StorageEffect::Freed { .. } => panic!("{effect:?}"),
    });
    let placed: Vec<_> = placed.collect();
    assert_eq!(placed, [(2, 2 * one), (1, one)]);
}

#[test]
fn a_key_without_room_is_not_remembered_and_a_known_one_needs_none() {
    let mut fixture = Fixture::new();
    fixture.create("q", &limited(1));
    let until = fixture.now.plus(100);
    let first = publish_once(until, "q", "a", Message::default());
    let other = publish_once(until, "q", "b", Message::default());
    let Outcome::Published(runs) = fixture.apply(&first) else {
        panic!("not published");
    };
    let place = runs.places().next().unwrap();
    assert!(matches!(fixture.apply(&other), Outcome::Full { refused: 1, .. }));
    assert_eq!(fixture.apply(&first), Outcome::PublishedBefore(place));
    fixture.apply(&settle(Settle::Ack, &[place]));
    assert!(matches!(fixture.apply(&other), Outcome::Published(_)));
}

#[test]
fn keys_are_remembered_as_long_as_the_queue_says() {
    let mut fixture = Fixture::new();
    let options = QueueOptions {
        dedup_ttl_ms: Some(50),
        ..QueueOptions::default()
    };
    fixture.create("q", &options);
    for (pass, stored) in [(0, true), (49, false), (1, true)] {
        fixture.pass(pass);
        let outcome = fixture.apply(&publish_once(fixture.now.plus(9_000), "q", "a", Message::default()));
        assert_eq!(matches!(outcome, Outcome::Published(_)), stored, "{outcome:?}");
    }
}

#[test]
fn the_oldest_of_the_lowest_priority_make_room_leased_or_not() {
    let mut fixture = Fixture::new();
    fixture.create("q", &dropping(4));
    let high = Message { priority: 5, due: None };
    let kept = fixture.publish("q", &[high]);
    let low = fixture.publish_plain("q", 3);
    let leased = fixture.lease("q", ANN, 2);
    assert_eq!(leased[1].place, low[0]);
    let newest = fixture.publish_plain("q", 2);
    assert_eq!(
        fixture.plane.claim(token(leased[1]), fixture.now),
        Err(ClaimError::NotFound)
    );
    assert_eq!(fixture.plane.held_by(ANN), 1);
    let mut relieved = Vec::new();
    fixture.plane.take_relieved(&mut relieved);
    assert_eq!(relieved, [ANN]);
    assert_eq!(fixture.lease_places("q", BOB, 9), [low[2], newest[0], newest[1]]);
    fixture.claim(token(leased[0]));
    fixture.apply(&settle(Settle::Ack, &kept));
    let totals = fixture.plane.totals();
    assert_eq!((totals.published, totals.dropped, totals.rejected), (6, 2, 0));
}

#[test]
fn a_batch_that_is_longer_than_the_queue_leaves_its_end() {
    let mut fixture = Fixture::new();
    fixture.create("q", &dropping(3));
    let places = fixture.publish_plain("q", 10);
    assert_eq!(fixture.lease_places("q", ANN, 99), places[7..]);
    assert_eq!(fixture.plane.totals().dropped, 7);
    fixture.fail_over();
    assert_eq!(fixture.plane.totals().dropped, 7);
}

#[test]
fn delayed_messages_make_room_last() {
    let mut fixture = Fixture::new();
    fixture.create("q", &dropping(2));
    let delayed = Message {
        priority: 0,
        due: Some(fixture.now.plus(1_000)),
    };
    fixture.publish("q", &[delayed, delayed]);
    fixture.publish_plain("q", 1);
    assert_eq!(fixture.stats("q"), (0, 0, 2));
    fixture.publish("q", &[delayed]);
    assert_eq!(fixture.stats("q"), (0, 0, 2));
    assert_eq!(fixture.plane.totals().dropped, 2);
}

#[test]
fn bytes_are_limited_as_messages_are() {
    let mut record = BytesMut::new();
    super::fixture::record(&mut record, Message::default());
    let one = record.len() as u64;
    let mut fixture = Fixture::new();
    let options = QueueOptions {
        max_length_bytes: Some(5 * one + 3),
        ..QueueOptions::default()
    };
    fixture.create("q", &options);
    assert_eq!(fixture.fill("q", 7), (5, 2));
    let leased = fixture.lease("q", ANN, 2);
    leased.iter().for_each(|leased| fixture.ack(token(*leased)));
    fixture.fail_over();
    assert_eq!(fixture.fill("q", 3), (2, 1));
    fixture.change(
        "q",
        &[QueueOption::DropOldest],
        &QueueOptions {
            drop_oldest: true,
            ..QueueOptions::default()
        },
    );
    assert_eq!(fixture.fill("q", 4), (4, 0));
    assert_eq!(fixture.stats("q"), (5, 0, 0));
    fixture.change("q", &[QueueOption::MaxLengthBytes], &QueueOptions::default());
    assert_eq!(fixture.fill("q", 100), (100, 0));
    assert_eq!(fixture.plane.machine().open_count(), 105);
}

#[test]
fn dead_letters_and_what_is_redriven_are_never_refused() {
    let mut fixture = Fixture::new();
    fixture.create("dead", &limited(1));
    fixture.create("q", &limited(1));
    fixture.publish_plain("dead", 1);
    let places = fixture.publish_plain("q", 1);
    let outcome = fixture.apply(&dead_letter(places[0], "dead", Message::default()));
    let Outcome::DeadLettered(Some(moved)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(fixture.fill("dead", 1), (0, 1));
    fixture.publish_plain("q", 1);
    let mut redrive = BytesMut::new();
    command::begin_redrive(&mut redrive, moved, "q");
    super::fixture::record(&mut redrive, Message::default());
    assert!(matches!(fixture.apply(&redrive), Outcome::Redriven(Some(_))));
    assert_eq!(fixture.stats("q"), (2, 0, 0));
}

#[test]
fn a_copy_for_a_full_queue_is_refused_and_the_others_are_not() {
    let mut fixture = Fixture::new();
    fixture.create("t:full", &limited(2));
    fixture.apply(&attach("t", "full"));
    fixture.apply(&attach("t", "other"));
    let published = fixture.apply(&publish_topic("t", &[Message::default(); 3]));
    assert_eq!(published, Outcome::PublishedTopic { queues: 1 });
    assert_eq!((fixture.stats("t:full").0, fixture.stats("t:other").0), (2, 3));
    let key = HeaderRule::default();
    fixture.apply(&written(|out| {
        command::declare_exchange(out, "e", ExchangeKind::Fanout, true, None)
    }));
    for queue in ["t:full", "t:other"] {
        fixture.apply(&written(|out| command::bind(out, "e", queue, "", &key)));
    }
    let routed = fixture.apply(&publish_exchange("e", "", &[], 0));
    assert_eq!(routed, Outcome::Routed { queues: 1, full: 1 });
    let totals = fixture.plane.totals();
    assert_eq!((totals.published, totals.rejected), (6, 2));
}

#[test]
fn a_deleted_queue_takes_all_that_it_has_with_it() {
    let mut fixture = Fixture::new();
    let delayed = Message {
        priority: 1,
        due: Some(fixture.now.plus(1_000)),
    };
    fixture.create("q", &single());
    let places = fixture.publish("q", &[Message::default(), Message::default(), delayed]);
    let leased = fixture.lease("q", ANN, 1);
    let until = fixture.now.plus(9_000);
    fixture.apply(&publish_once(until, "q", "key", Message::default()));
    fixture.apply(&written(|out| {
        command::declare_exchange(out, "e", ExchangeKind::Topic, true, None)
    }));
    fixture.apply(&written(|out| {
        command::bind(out, "e", "q", "a.#", &HeaderRule::default())
    }));
    let before = fixture.queue("q");
    assert_eq!(fixture.delete("q", true), refused(QueueRefusal::NotEmpty(4)));
    assert_eq!(fixture.delete("q", false), Outcome::QueueDeleted(4));
    assert_eq!(fixture.delete("q", false), refused(QueueRefusal::NotFound));
    assert_eq!(
        (fixture.plane.queue("q"), fixture.plane.queue_name(before)),
        (None, None)
    );
    assert_eq!(
        fixture.plane.claim(token(leased[0]), fixture.now),
        Err(ClaimError::NotFound)
    );
    assert_eq!(
        (fixture.plane.held_by(ANN), fixture.plane.machine().keys_remembered()),
        (0, 0)
    );
    assert_eq!(fixture.plane.machine().exchange("e").unwrap().binding_count(), 0);
    assert_eq!(fixture.pass(10_000), []);
    // The next one of its name has nothing in common with it.
    assert!(matches!(
        fixture.apply(&publish_once(until, "q", "key", Message::default())),
        Outcome::Published(_)
    ));
    assert!(fixture.queue("q") > before);
    assert_eq!(fixture.plane.machine().options(fixture.queue("q")), None);
    assert_eq!(fixture.apply(&settle(Settle::Ack, &places[..1])), {
        let missing = vec![places[0].into()];
        Outcome::Settled { done: 0, missing }
    });
    assert_eq!((fixture.plane.totals().purged, fixture.stats("q")), (4, (1, 0, 0)));
}

#[test]
fn what_was_about_to_be_settled_or_purged_may_go_with_the_queue() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("q", 3);
    let leased = fixture.lease("q", ANN, 1);
    let claim = fixture.claim(token(leased[0]));
    let runs = fixture.plane.begin_purge(fixture.queue("q"));
    fixture.delete("q", false);
    fixture.plane.unclaim(claim.place, fixture.now);
    fixture.plane.abort_purge(&runs, fixture.now);
    fixture.plane.release(claim.place, fixture.now);
    fixture.plane.check();
    fixture.woken();
    let moved = fixture.apply(&dead_letter(claim.place, "dead", Message::default()));
    assert_eq!(moved, Outcome::DeadLettered(None));
}

#[test]
fn a_backlog_is_not_deleted_but_with_its_subscription() {
    let mut fixture = Fixture::new();
    fixture.apply(&attach("t", "x"));
    let backlog = QueueRefusal::Backlog {
        topic: "t".into(),
        subscription: "x".into(),
    };
    assert_eq!(fixture.delete("t:x", false), refused(backlog));
    fixture.apply(&written(|out| {
        command::remove_subscription(out, "t", "x", boltq_core::Millis::MAX)
    }));
    assert_eq!(fixture.delete("t:x", true), Outcome::QueueDeleted(0));
}

#[test]
fn deleted_queues_leave_nothing_but_their_number() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("kept", 1);
    let before = fixture.plane.machine().snapshot().len();
    for n in 0..1_000 {
        let name = format!("temporary {n}");
        fixture.create(&name, &limited(5));
        fixture.publish_plain(&name, 2);
        fixture.delete(&name, false);
    }
    fixture.publish_plain("kept too", 1);
    assert_eq!(fixture.plane.machine().deleted_count(), 1_000);
    let after = fixture.plane.machine().snapshot();
    assert!(after.len() < before + 150, "{} bytes after {before}", after.len());
    let restored = Machine::restore(&after).unwrap();
    assert_eq!(restored.queue("kept too"), Some(crate::QueueId(1_001)));
    assert_eq!(restored.snapshot(), after);
}

#[test]
fn a_paused_queue_takes_messages_and_gives_none_until_it_goes_on() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("q", 2);
    let leased = fixture.lease("q", ANN, 1);
    fixture.pause("q", true);
    fixture.publish_plain("q", 1);
    assert_eq!(fixture.lease("q", BOB, 9), []);
    fixture.ack(token(leased[0]));
    fixture.fail_over();
    assert_eq!(fixture.lease("q", BOB, 9), []);
    fixture.woken();
    fixture.pause("q", false);
    let queue = fixture.queue("q");
    assert_eq!(fixture.woken(), [queue]);
    assert_eq!(fixture.lease("q", BOB, 9).len(), 2);
}

#[test]
fn the_next_consumer_waits_until_the_first_has_ended_and_is_settled() {
    let mut fixture = Fixture::new();
    fixture.create("q", &single());
    fixture.publish_plain("q", 4);
    let queue = fixture.queue("q");
    let leased = fixture.lease("q", ANN, 2);
    assert_eq!(fixture.lease("q", BOB, 2), []);
    assert!(fixture.plane.wakes_all(queue));
    let claim = fixture.claim(token(leased[0]));
    assert_eq!(fixture.plane.release_consumer(ANN, fixture.now), 1);
    fixture.woken();
    assert_eq!(fixture.lease("q", BOB, 2), []);
    fixture.apply(&settle(Settle::Ack, &[claim.place]));
    assert_eq!(fixture.woken(), [queue]);
    assert_eq!(fixture.lease_places("q", BOB, 1), [leased[1].place]);
    assert_eq!(fixture.lease("q", ANN, 9), []);
    // Then all of them again.
    fixture.change("q", &[QueueOption::SingleActiveConsumer], &QueueOptions::default());
    assert!(!fixture.plane.wakes_all(queue));
    assert_eq!(fixture.lease("q", ANN, 1).len(), 1);
}

#[test]
fn calls_without_a_connection_are_one_consumer_that_gives_way() {
    let mut fixture = Fixture::new();
    fixture.create("q", &single());
    fixture.publish_plain("q", 3);
    let queue = fixture.queue("q");
    let leased = fixture.lease("q", ConsumerId::DETACHED, 1);
    assert_eq!(fixture.lease("q", ConsumerId::DETACHED, 0), []);
    assert_eq!(fixture.lease("q", ANN, 1), []);
    fixture.woken();
    fixture.nack(token(leased[0]));
    assert_eq!(fixture.woken(), [queue]);
    assert_eq!(fixture.lease("q", ANN, 1).len(), 1);
    assert_eq!(fixture.lease("q", ConsumerId::DETACHED, 1), []);
}

#[test]
fn dead_letters_go_where_the_queue_says_and_never_in_a_circle() {
    let mut fixture = Fixture::new();
    let to = |fixture: &Fixture, queue: &str| fixture.plane.machine().dead_letter_queue(queue).into_owned();
    fixture.create("q", &dead_letters_to("morgue"));
    assert_eq!(to(&fixture, "q"), "morgue");
    assert_eq!(to(&fixture, "morgue"), "morgue_dead_letter");
    assert_eq!(to(&fixture, "morgue_dead_letter"), "morgue_dead_letter");
    let returns = refused(QueueRefusal::DeadLettersReturn);
    assert_eq!(fixture.create("self", &dead_letters_to("self")), returns);
    assert_eq!(fixture.create("morgue_dead_letter", &dead_letters_to("q")), returns);
    assert_eq!(fixture.create("morgue", &dead_letters_to("q")), returns);
    assert_eq!(fixture.create("other_dead_letter", &dead_letters_to("other")), returns);
    assert!(fixture.plane.queue("morgue").is_none());
    let created = fixture.create("morgue", &dead_letters_to("cemetery"));
    assert!(matches!(created, Outcome::QueueSet { new: true, .. }));
    let which = [QueueOption::DeadLetterQueue];
    assert_eq!(fixture.change("morgue", &which, &dead_letters_to("q")), returns);
    assert_eq!(to(&fixture, "morgue"), "cemetery");
}

#[test]
fn settings_that_contradict_their_queues_are_not_read() {
    let mut fixture = Fixture::new();
    fixture.create("q", &limited(0x0101_0101));
    fixture.publish_plain("gone", 1);
    fixture.delete("gone", false);
    let snapshot = fixture.plane.machine().snapshot();
    let mut machine = Machine::restore(&snapshot).unwrap();
    let refusal = |from: &[u8], to: &[u8]| {
        let at = snapshot.windows(from.len()).rposition(|part| part == from).unwrap();
        let mut bytes = snapshot.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        Machine::restore(&bytes).unwrap_err().to_string()
    };
    // One deleted queue, one queue with settings: that is number 0, and has only option 5.
    let tail = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 32, 0, 1, 1, 1, 1];
    for (position, value, why) in [
        (0, 2, "deleted queues: there are not as many as there should be"),
        (8, 1, "settings of queues: they are of a queue that does not exist"),
        (12, 0, "settings of queues: a queue has none"),
        (13, 255, "settings of a queue: 65312 is unknown to this version"),
    ] {
        let mut changed = tail;
        changed[position] = value;
        assert_eq!(refusal(&tail, &changed), why);
    }
    assert_eq!(machine.snapshot(), snapshot);
    let outcome = machine.apply(
        fixture.now,
        &publish("q", &[Message::default()]),
        0,
        &mut Applied::default(),
    );
    assert!(matches!(outcome, Ok(Outcome::Published(_))));
}
