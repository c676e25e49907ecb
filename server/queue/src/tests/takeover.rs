//! A leader that begins with many messages that have times does a bounded part of the work in each turn, and hands them out in the
//! order of their due times all the same.

use boltq_core::Millis;
use proptest::prelude::*;

use super::fixture::{ANN, BOB, Fixture, Message, token};
use super::scheduled::{cancel, reschedule};
use crate::gathered::GATHERED_MAX;
use crate::timetable::CHUNK;
use crate::waking::{TURN_CHUNKS, TURN_MESSAGES};
use crate::{Handle, Listing, Place, ScheduleError};

/// One after the other in an order that has nothing to do with that of publishing.
fn shuffled(count: usize) -> impl Iterator<Item = u64> {
    // The factor has no divisor in common with the counts here.
    (0..count).map(move |n| (n * 7_919 % count) as u64)
}

/// Delayed messages that were due a while ago, in the order of their due times. Nobody has woken them.
fn publish_overdue(fixture: &mut Fixture, count: usize) -> Vec<Place> {
    let first = fixture.now.plus(1);
    // Some are due at the same time: then the order is that of publishing.
    let dues: Vec<_> = shuffled(count).map(|n| first.plus(n / 3)).collect();
    let message = |due: &Millis| Message {
        due: Some(*due),
        ..Message::default()
    };
    let places = fixture.publish("q", &dues.iter().map(message).collect::<Vec<_>>());
    let mut order: Vec<_> = dues.into_iter().zip(places).collect();
    order.sort_unstable();
    fixture.now = fixture.now.plus(2 * count as u64);
    order.into_iter().map(|(_, place)| place).collect()
}

/// One turn of the timer.
fn turn(fixture: &mut Fixture) {
    fixture.plane.tick(fixture.now, &mut Vec::new(), TURN_MESSAGES);
    fixture.plane.check();
}

fn ready(fixture: &Fixture) -> usize {
    usize::try_from(fixture.stats("q").0).unwrap()
}

#[test]
fn what_is_due_becomes_ready_in_bounded_portions_and_in_the_order_of_due_times() {
    let mut fixture = Fixture::new();
    let count = 4 * TURN_MESSAGES + 500;
    let order = publish_overdue(&mut fixture, count);
    fixture.fail_over();
    assert_eq!(ready(&fixture), TURN_MESSAGES);
    assert_eq!(fixture.woken(), [fixture.queue("q")]);
    let mut got = Vec::new();
    while got.len() < count {
        let before = ready(&fixture);
        assert!(fixture.plane.next_tick().is_none_or(|next| next <= fixture.now) || got.len() + before == count);
        turn(&mut fixture);
        assert!(ready(&fixture) - before <= TURN_MESSAGES);
        got.extend(fixture.lease_places("q", ANN, 700));
    }
    assert!(got == order, "another order");
    assert_eq!(fixture.stats("q"), (0, count as u64, 0));
}

#[test]
fn a_turn_looks_at_few_times_and_what_is_due_comes_after_all_were_seen() {
    let mut fixture = Fixture::new();
    let chunks = 2 * TURN_CHUNKS + 5;
    let (far, over) = (fixture.now.plus(1_000_000), fixture.now.plus(2_000_000));
    let mut messages = vec![
        Message {
            due: Some(far),
            expires: Some(over),
            ..Message::default()
        };
        chunks * usize::try_from(CHUNK).unwrap() - 1
    ];
    let last = messages.last_mut().unwrap();
    last.due = Some(fixture.now.plus(1));
    last.expires = Some(fixture.now.plus(1));
    let places = fixture.publish("q", &messages);
    fixture.now = fixture.now.plus(1);
    fixture.fail_over();
    assert_eq!(fixture.plane.unseen_chunks(), [chunks - TURN_CHUNKS, chunks]);
    assert!(fixture.plane.next_tick().is_some_and(|next| next <= fixture.now));
    turn(&mut fixture);
    assert_eq!(fixture.plane.unseen_chunks()[0], chunks - 2 * TURN_CHUNKS);
    assert_eq!(ready(&fixture), 0);
    turn(&mut fixture);
    assert_eq!((fixture.plane.unseen_chunks()[0], ready(&fixture)), (0, 1));
    assert_eq!(fixture.plane.next_tick(), Some(far));
    for seen in 1..=2 {
        assert_eq!(fixture.claim_expired(9), []);
        assert_eq!(fixture.plane.unseen_chunks()[1], chunks - seen * TURN_CHUNKS);
        assert!(fixture.plane.next_expiry().is_some_and(|next| next <= fixture.now));
    }
    assert_eq!(fixture.claim_expired(9), places[places.len() - 1..]);
    assert_eq!(fixture.plane.next_expiry(), Some(over));
}

/// To look at a chunk for each message of it, as long as the times are in no order, would take more than a thousand turns here.
#[test]
fn messages_that_are_due_in_no_order_take_turns_by_their_number() {
    let mut fixture = Fixture::new();
    let chunks = 40;
    let count = chunks * usize::try_from(CHUNK).unwrap() - 1;
    let order = publish_overdue(&mut fixture, count);
    fixture.fail_over();
    let (mut got, mut turns) = (fixture.lease_places("q", ANN, count), 1);
    while got.len() < count {
        fixture.plane.tick(fixture.now, &mut Vec::new(), TURN_MESSAGES);
        turns += 1;
        got.extend(fixture.lease_places("q", ANN, count));
    }
    assert!(got == order, "another order");
    assert!(fixture.plane.next_tick().is_none_or(|next| next > fixture.now));
    // Each pass looks at all chunks, and the first two come upon all messages.
    let passes = count.div_ceil(GATHERED_MAX);
    let turns_max = count / TURN_MESSAGES + 2 * passes * chunks.div_ceil(TURN_CHUNKS) + 2 * chunks / 4;
    assert!(turns <= turns_max, "{turns} turns, and not {turns_max}");
}

/// Those of one moment are more than are gathered at a time.
#[test]
fn many_that_are_due_at_one_moment_come_in_the_order_of_publishing() {
    let mut fixture = Fixture::new();
    let message = Message {
        due: Some(fixture.now.plus(1)),
        ..Message::default()
    };
    let places = fixture.publish("q", &vec![message; 3 * GATHERED_MAX]);
    fixture.now = fixture.now.plus(1);
    fixture.fail_over();
    let mut got = Vec::new();
    while got.len() < places.len() {
        fixture.plane.tick(fixture.now, &mut Vec::new(), TURN_MESSAGES);
        got.extend(fixture.lease_places("q", ANN, places.len()));
    }
    assert!(got == places, "another order");
    fixture.plane.check();
}

#[test]
fn what_was_gathered_and_is_settled_or_rescheduled_does_not_come() {
    let mut fixture = Fixture::new();
    fixture.fail_over();
    let order = publish_overdue(&mut fixture, 40);
    fixture.plane.tick(fixture.now, &mut Vec::new(), 10);
    fixture.plane.check();
    let (cancelled, later, sooner) = (order[20], order[21], order[39]);
    cancel(&mut fixture, cancelled);
    let far = fixture.now.plus(1_000);
    reschedule(&mut fixture, later, far);
    reschedule(&mut fixture, sooner, Millis(1));
    fixture.plane.check();
    turn(&mut fixture);
    let mut wanted: Vec<_> = order
        .iter()
        .copied()
        .filter(|place| ![cancelled, later, sooner].contains(place))
        .collect();
    // It is due before all others now.
    wanted.insert(0, sooner);
    assert_eq!(fixture.lease_places("q", ANN, 99), wanted);
    fixture.now = far;
    turn(&mut fixture);
    assert_eq!(fixture.lease_places("q", ANN, 99), [later]);
}

/// A new leader, and the message that was due last, which that has not woken yet.
fn with_one_asleep() -> (Fixture, Vec<Place>, Place) {
    let mut fixture = Fixture::new();
    let order = publish_overdue(&mut fixture, 2 * TURN_MESSAGES);
    fixture.fail_over();
    assert_eq!(ready(&fixture), TURN_MESSAGES);
    let last = order[order.len() - 1];
    (fixture, order, last)
}

#[test]
fn what_an_earlier_leader_handed_out_is_settled_before_its_turn_has_come() {
    let (mut fixture, order, last) = with_one_asleep();
    fixture.ack(Handle::Place(last));
    turn(&mut fixture);
    assert_eq!(fixture.lease_places("q", ANN, order.len()), order[..order.len() - 1]);
}

#[test]
fn a_failure_before_its_turn_has_come_counts_and_is_waited_for() {
    let (mut fixture, order, last) = with_one_asleep();
    fixture.nack(Handle::Place(last));
    fixture.fail_over();
    turn(&mut fixture);
    assert_eq!(fixture.lease_places("q", ANN, order.len()), order[..order.len() - 1]);
    fixture.pass(100);
    let again = fixture.lease("q", BOB, 9);
    assert_eq!((again.len(), again[0].place, again[0].attempts), (1, last, 1));
    fixture.ack(token(again[0]));
}

#[test]
fn what_was_due_is_neither_listed_nor_cancelled_before_its_turn_has_come() {
    let (mut fixture, _, last) = with_one_asleep();
    assert_eq!(fixture.plane.claim_scheduled(last), Err(ScheduleError::NotScheduled));
    let mut listing = Listing::new(None, 9);
    while fixture.plane.list_scheduled(fixture.queue("q"), &mut listing) {}
    assert_eq!(listing.finish(fixture.queue("q")), (Vec::new(), false));
    fixture.plane.check();
}

#[test]
fn a_purge_takes_what_was_due_before_its_turn_has_come() {
    let (mut fixture, order, _) = with_one_asleep();
    let later = Message {
        due: Some(fixture.now.plus(1)),
        ..Message::default()
    };
    let later = fixture.publish("q", &[later]);
    let runs = fixture.plane.begin_purge(fixture.queue("q"));
    fixture.plane.check();
    assert_eq!(runs.iter().map(|run| run.count).sum::<u64>(), order.len() as u64);
    assert_eq!(fixture.stats("q"), (0, 0, 1));
    turn(&mut fixture);
    assert_eq!(ready(&fixture), 0);
    fixture.plane.abort_purge(&runs, fixture.now);
    fixture.plane.check();
    assert_eq!(fixture.lease_places("q", ANN, order.len() + 1), order);
    fixture.pass(1);
    assert_eq!(fixture.lease_places("q", ANN, 9), later);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Turns of any size, consumers, acknowledgements of what an earlier leader had delivered, and messages that come meanwhile.
    #[test]
    fn whatever_happens_meanwhile_the_order_is_that_of_due_times(
        steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>(), 1usize..60), 1..120),
    ) {
        let mut fixture = Fixture::new();
        let mut order = publish_overdue(&mut fixture, TURN_MESSAGES + 400);
        fixture.fail_over();
        let (mut got, mut overdue) = (Vec::new(), order.len());
        for (what, which, count) in steps {
            match what {
                0 => fixture.plane.tick(fixture.now, &mut Vec::new(), count),
                1 => got.extend(fixture.lease_places("q", ANN, count)),
                2 if got.len() < overdue => {
                    let at = got.len() + which.index(overdue - got.len());
                    fixture.ack(Handle::Place(order.remove(at)));
                    overdue -= 1;
                }
                _ => {
                    // Due after all others.
                    fixture.now = fixture.now.plus(1);
                    let later = Message { due: Some(fixture.now.plus(1)), ..Message::default() };
                    order.extend(fixture.publish("q", &[later]));
                }
            }
        }
        fixture.now = fixture.now.plus(1);
        while fixture.plane.next_tick().is_some_and(|next| next <= fixture.now) {
            turn(&mut fixture);
        }
        got.extend(fixture.lease_places("q", ANN, order.len()));
        prop_assert!(got == order);
    }
}
