//! Order, delay, priority, wake-ups, purge, peek and figures.

use boltq_core::Millis;

use super::fixture::{ANN, BOB, Fixture, LEASE_MS, Message, token};
use crate::command;
use crate::{Outcome, Run};
use bytes::BytesMut;

fn priorities(priorities: &[u8]) -> Vec<Message> {
    let message = |priority: &u8| Message {
        priority: *priority,
        due: None,
        ..Message::default()
    };
    priorities.iter().map(message).collect()
}

fn due(priority: u8, at: Millis) -> Message {
    Message {
        priority,
        due: Some(at),
        ..Message::default()
    }
}

#[test]
fn the_highest_priority_comes_first_then_the_order_of_publishing() {
    let mut fixture = Fixture::new();
    let places = fixture.publish("q", &priorities(&[1, 9, 1]));
    assert_eq!(fixture.lease_places("q", ANN, 9), [places[1], places[0], places[2]]);
}

#[test]
fn one_publish_of_one_priority_is_one_run() {
    let mut fixture = Fixture::new();
    let Outcome::Published(runs) = fixture.apply(&super::fixture::publish("q", &priorities(&[3; 100]))) else {
        panic!("not published");
    };
    assert_eq!((runs.len(), runs[0].count, fixture.storage.len()), (1, 100, 1));
    let Outcome::Published(runs) = fixture.apply(&super::fixture::publish("q", &priorities(&[3, 4, 4, 3]))) else {
        panic!("not published");
    };
    let seqs: Vec<_> = runs.iter().map(|run| (run.first.0, run.count)).collect();
    assert_eq!(seqs, [(101, 1), (1, 2), (102, 1)]);
}

#[test]
fn a_delayed_message_is_not_delivered_before_it_is_due() {
    let mut fixture = Fixture::new();
    let places = fixture.publish("q", &[due(0, fixture.now.plus(200))]);
    assert_eq!(fixture.lease_places("q", ANN, 1), []);
    assert_eq!(fixture.stats("q"), (0, 0, 1));
    assert_eq!(fixture.plane.next_tick(), Some(fixture.now.plus(200)));
    fixture.woken();
    fixture.pass(199);
    assert_eq!((fixture.stats("q"), fixture.woken()), ((0, 0, 1), vec![]));
    fixture.pass(1);
    assert_eq!(
        (fixture.stats("q"), fixture.woken()),
        ((1, 0, 0), vec![fixture.queue("q")])
    );
    assert_eq!(fixture.lease_places("q", ANN, 1), places);
    assert_eq!(fixture.plane.next_tick(), Some(fixture.now.plus(LEASE_MS)));
}

#[test]
fn a_due_time_that_is_past_counts_as_none() {
    let mut fixture = Fixture::new();
    let places = fixture.publish(
        "q",
        &[due(4, fixture.now), due(4, Millis(0)), due(4, fixture.now.plus(1))],
    );
    assert_eq!(places[0].stream, places[1].stream);
    assert_eq!(fixture.lease_places("q", ANN, 9), places[..2]);
}

#[test]
fn time_does_not_run_backwards_in_the_machine() {
    let mut fixture = Fixture::new();
    let latest = fixture.now;
    fixture.now = Millis(latest.0 - 100);
    let places = fixture.publish("q", &[due(0, Millis(latest.0 - 50)), due(0, latest)]);
    assert_eq!(fixture.plane.machine().now(), latest);
    assert_eq!(fixture.lease_places("q", ANN, 9), places);
}

#[test]
fn a_due_time_beyond_all_times_is_never() {
    let mut fixture = Fixture::new();
    fixture.publish("q", &[due(0, Millis::MAX)]);
    fixture.pass(1 << 50);
    assert_eq!(fixture.stats("q"), (0, 0, 1));
}

#[test]
fn due_messages_come_in_due_order_before_the_lane_of_their_priority() {
    let mut fixture = Fixture::new();
    let (soon, later) = (fixture.now.plus(10), fixture.now.plus(20));
    let lane = fixture.publish("q", &priorities(&[5, 0]));
    let delayed = fixture.publish("q", &[due(5, later), due(5, soon), due(0, soon), due(5, soon)]);
    fixture.pass(20);
    let expected = [delayed[1], delayed[3], delayed[0], lane[0], delayed[2], lane[1]];
    let mut peeked = Vec::new();
    fixture.plane.peek(fixture.queue("q"), 99, fixture.now, &mut peeked);
    assert_eq!(peeked, expected);
    assert_eq!(fixture.lease_places("q", ANN, 9), expected);
}

#[test]
fn what_comes_back_takes_its_old_place_whether_its_lease_had_ended_or_not() {
    for ended in [false, true] {
        let mut fixture = Fixture::new();
        let places = fixture.publish_plain("q", 20);
        let leased = fixture.lease("q", ANN, 10);
        if ended {
            assert_eq!(fixture.pass(LEASE_MS).len(), 10);
            for leased in leased {
                fixture.plane.unclaim(leased.place, fixture.now);
            }
        } else {
            for leased in leased.iter().rev() {
                fixture.plane.release(leased.place, fixture.now);
            }
        }
        assert_eq!(fixture.lease_places("q", BOB, 20), places);
    }
}

#[test]
fn peek_shows_what_the_next_lease_gets_and_changes_nothing() {
    let mut fixture = Fixture::new();
    fixture.publish("q", &priorities(&[0, 3, 0, 3]));
    fixture.lease("q", ANN, 1);
    for max in [0, 1, 3, 9] {
        let mut peeked = Vec::new();
        fixture.plane.peek(fixture.queue("q"), max, fixture.now, &mut peeked);
        assert_eq!(peeked.len(), max.min(3));
    }
    let mut peeked = Vec::new();
    fixture.plane.peek(fixture.queue("q"), 9, fixture.now, &mut peeked);
    assert_eq!(fixture.lease_places("q", ANN, 9), peeked);
}

#[test]
fn a_publish_wakes_its_queue_once() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("a", 1);
    fixture.publish_plain("b", 1);
    fixture.publish_plain("a", 1);
    assert_eq!(fixture.woken(), [fixture.queue("a"), fixture.queue("b")]);
    assert_eq!(fixture.woken(), []);
}

#[test]
fn a_queue_that_exists_is_declared_without_a_change() {
    let mut fixture = Fixture::new();
    let mut out = BytesMut::new();
    command::declare(&mut out, "q");
    let first = fixture.apply(&out);
    assert_eq!(first, Outcome::Declared(fixture.queue("q")));
    assert_eq!(fixture.apply(&out), first);
    assert_eq!(fixture.plane.queues().count(), 1);
    assert_eq!((fixture.stats("q"), fixture.woken()), ((0, 0, 0), vec![]));
    assert_eq!(fixture.lease_places("q", ANN, 1), []);
}

#[test]
fn queues_are_listed_by_name() {
    let mut fixture = Fixture::new();
    for name in ["b", "a_dead_letter", "a"] {
        fixture.publish_plain(name, 1);
    }
    let names: Vec<_> = fixture
        .plane
        .queues()
        .map(|(name, _, stats)| (name, stats.ready))
        .collect();
    assert_eq!(names, [("a", 1), ("a_dead_letter", 1), ("b", 1)]);
}

/// Purge with the runs that the plane gave, and return what was removed.
fn purge(fixture: &mut Fixture, runs: &[Run]) -> u64 {
    let mut out = BytesMut::new();
    command::purge(&mut out, runs);
    match fixture.apply(&out) {
        Outcome::Purged(count) => count,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_purge_spares_what_is_leased_or_not_due() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("q", 10);
    fixture.publish("q", &[due(0, fixture.now.plus(500)), due(7, fixture.now.plus(1))]);
    fixture.pass(1);
    let leased = fixture.lease("q", ANN, 4);
    fixture.nack(token(leased[1]));
    assert_eq!((fixture.stats("q"), fixture.plane.alarm_count()), ((8, 3, 1), 2));

    let runs = fixture.plane.begin_purge(fixture.queue("q"));
    fixture.plane.check();
    assert_eq!((fixture.stats("q"), fixture.plane.alarm_count()), ((0, 3, 1), 1));
    assert_eq!(fixture.lease_places("q", BOB, 9), []);
    assert_eq!(purge(&mut fixture, &runs), 8);
    assert_eq!(fixture.stats("q"), (0, 3, 1));
    // Leased ones can still be settled or come back.
    fixture.ack(token(leased[0]));
    fixture.plane.release(leased[2].place, fixture.now);
    assert_eq!(fixture.lease_places("q", BOB, 9), [leased[2].place]);
    assert_eq!(fixture.plane.totals().purged, 8);
}

#[test]
fn an_aborted_purge_leaves_everything_as_it_was() {
    let mut fixture = Fixture::new();
    let places = fixture.publish_plain("q", 10);
    let leased = fixture.lease("q", ANN, 2);
    fixture.nack(token(leased[0]));
    let runs = fixture.plane.begin_purge(fixture.queue("q"));
    assert!(fixture.plane.begin_purge(fixture.queue("q")).is_empty());
    fixture.plane.abort_purge(&runs, fixture.now);
    fixture.plane.check();
    assert_eq!(fixture.stats("q"), (9, 1, 0));
    assert_eq!(fixture.lease_places("q", BOB, 99), places[2..]);
    fixture.pass(100);
    assert_eq!(fixture.lease_places("q", BOB, 99), places[..1]);
}

#[test]
fn a_backlog_of_ten_million_is_a_few_numbers_and_its_purge_one_run() {
    let mut fixture = Fixture::new();
    let batch = super::fixture::publish("q", &priorities(&[0; 1_000]));
    let mut applied = boltq_core::Applied::default();
    for _ in 0..10_000 {
        fixture.plane.apply(fixture.now, &batch, 0, &mut applied).unwrap();
        applied.storage.clear();
    }
    assert_eq!(fixture.stats("q"), (10_000_000, 0, 0));
    assert!(fixture.plane.machine().open_count() == 10_000_000);
    assert!(boltq_core::StateMachine::snapshot(fixture.plane.machine()).len() < 200);
    let runs = fixture.plane.begin_purge(fixture.queue("q"));
    assert_eq!(runs.iter().map(|run| run.count).collect::<Vec<_>>(), [10_000_000]);
    fixture.plane.abort_purge(&runs, fixture.now);
    let runs = fixture.plane.begin_purge(fixture.queue("q"));
    let mut out = BytesMut::new();
    command::purge(&mut out, &runs);
    let outcome = fixture.plane.apply(fixture.now, &out, 0, &mut applied).unwrap();
    assert_eq!((outcome, applied.storage.len()), (Outcome::Purged(10_000_000), 1));
    assert_eq!(fixture.stats("q"), (0, 0, 0));
}

#[test]
fn a_tick_does_no_more_than_it_is_asked_and_shows_what_is_left() {
    let mut fixture = Fixture::new();
    let soon = fixture.now.plus(10);
    fixture.publish("q", &[due(0, soon), due(0, soon), due(0, soon)]);
    fixture.publish_plain("q", 3);
    fixture.lease("q", ANN, 3);
    fixture.now = fixture.now.plus(LEASE_MS);
    let mut timed_out = Vec::new();
    for round in 1..=2 {
        fixture.plane.tick(fixture.now, &mut timed_out, 2);
        assert_eq!(
            (timed_out.len(), fixture.stats("q").2),
            ([2, 3][round - 1], [1, 0][round - 1])
        );
        assert_eq!(fixture.plane.next_tick().is_some(), round == 1);
    }
}

#[test]
fn what_is_due_wakes_while_ended_leases_are_left_alone() {
    let mut fixture = Fixture::new();
    let soon = fixture.now.plus(10);
    fixture.publish("q", &[due(0, soon), due(0, soon)]);
    fixture.publish_plain("q", 1);
    fixture.lease("q", ANN, 1);
    fixture.now = fixture.now.plus(LEASE_MS);
    fixture.plane.wake_due(fixture.now, 1);
    assert_eq!(fixture.stats("q"), (1, 1, 1), "no more than it is asked");
    fixture.plane.wake_due(fixture.now, 9);
    assert_eq!(fixture.stats("q"), (2, 1, 0));
    let mut timed_out = Vec::new();
    fixture.plane.tick(fixture.now, &mut timed_out, 9);
    assert_eq!(timed_out.len(), 1);
}
