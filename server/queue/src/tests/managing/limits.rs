//! Queues that hold only so much.

use super::*;

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
    let mixed = [0, 0, 9, 9, 0].map(|priority| Message {
        priority,
        ..Message::default()
    });
    fixture.apply(&publish("q", &mixed));
    let mut record = BytesMut::new();
    super::super::fixture::record(&mut record, Message::default());
    let one = u32::try_from(record.len()).unwrap();
    let placed = fixture.storage.iter().map(|effect| match effect {
        StorageEffect::Placed { count, bytes, .. } => (*count, *bytes),
        StorageEffect::Freed { .. } | StorageEffect::Erased { .. } => panic!("{effect:?}"),
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
fn the_oldest_of_the_lowest_priority_make_room_leased_or_not() {
    let mut fixture = Fixture::new();
    fixture.create("q", &dropping(4));
    let high = Message {
        priority: 5,
        ..Message::default()
    };
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
        ..Message::default()
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
    super::super::fixture::record(&mut record, Message::default());
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
    super::super::fixture::record(&mut redrive, Message::default());
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
        command::declare_exchange(out, "e", ExchangeKind::Fanout, true, None);
    }));
    for queue in ["t:full", "t:other"] {
        fixture.apply(&written(|out| command::bind(out, "e", queue, "", &key)));
    }
    let routed = fixture.apply(&publish_exchange("e", "", &[], 0));
    assert_eq!(routed, Outcome::Routed { queues: 1, full: 1 });
    let totals = fixture.plane.totals();
    assert_eq!((totals.published, totals.rejected), (6, 2));
}
