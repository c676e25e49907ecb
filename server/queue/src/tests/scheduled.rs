//! What time does to messages, and what can be done to those that wait for it.

use boltq_core::{Millis, Seq};
use bytes::BytesMut;

use super::fixture::{ANN, BOB, Fixture, LEASE_MS, Message, done, settle, token};
use crate::command::{self, Settle};
use crate::{Handle, Listing, Outcome, Place, ScheduleError};

fn until(expires: Millis) -> Message {
    Message {
        expires: Some(expires),
        ..Message::default()
    }
}

fn due(at: Millis) -> Message {
    Message {
        due: Some(at),
        ..Message::default()
    }
}

pub(super) fn cancel(fixture: &mut Fixture, place: Place) -> Outcome {
    let mut out = BytesMut::new();
    command::cancel(&mut out, &[place]);
    fixture.apply(&out)
}

pub(super) fn reschedule(fixture: &mut Fixture, place: Place, at: Millis) -> Outcome {
    let mut out = BytesMut::new();
    command::reschedule(&mut out, place, at);
    fixture.apply(&out)
}

fn claim(fixture: &mut Fixture, place: Place) -> Result<(), ScheduleError> {
    let claimed = fixture.plane.claim_scheduled(place);
    fixture.plane.check();
    claimed
}

#[test]
fn a_message_is_over_at_its_time_wherever_it_stands_unless_somebody_holds_it() {
    let mut fixture = Fixture::new();
    let ends = fixture.now.plus(500);
    fixture.publish_plain("q", 1);
    let places = fixture.publish("q", &[until(ends); 5]);
    let asleep = fixture.publish(
        "q",
        &[Message {
            due: Some(ends.plus(500)),
            ..until(ends)
        }],
    );
    // One stays leased, one rests after a failure, one came back, two never left.
    let leased = fixture.lease("q", ANN, 4);
    fixture.nack(token(leased[2]));
    fixture.plane.release(leased[3].place, fixture.now);
    fixture.pass(499);
    assert_eq!(fixture.claim_expired(9), []);
    assert_eq!(fixture.plane.next_expiry(), Some(ends));
    fixture.pass(1);
    let expired = fixture.claim_expired(9);
    assert_eq!(expired, [places[1], places[2], places[3], places[4], asleep[0]]);
    assert_eq!(fixture.stats("q"), (0, 7, 0));
    assert_eq!(fixture.apply(&settle(Settle::Expire, &expired)), done(5));
    assert_eq!((fixture.stats("q"), fixture.plane.totals().expired), ((0, 2, 0), 5));
    // The one that is held goes when it comes back.
    assert_eq!((fixture.claim_expired(9), fixture.plane.next_expiry()), (vec![], None));
    fixture.plane.release_consumer(ANN, fixture.now);
    assert_eq!(fixture.claim_expired(9), [places[0]]);
}

#[test]
fn what_could_not_be_expired_is_there_again_and_over_again() {
    let mut fixture = Fixture::new();
    let ends = fixture.now.plus(5);
    let places = fixture.publish("q", &[until(ends); 3]);
    fixture.pass(5);
    assert_eq!(fixture.claim_expired(2), places[..2]);
    assert_eq!(fixture.claim_expired(2), places[2..]);
    fixture.plane.unclaim(places[1], fixture.now);
    assert_eq!(fixture.stats("q"), (1, 2, 0));
    assert_eq!(fixture.claim_expired(2), places[1..2]);
    // Another leader claims all of them, and what it expires is not expired twice.
    fixture.fail_over();
    assert_eq!(fixture.claim_expired(9), places);
    assert_eq!(fixture.apply(&settle(Settle::Expire, &places)), done(3));
    let again = fixture.apply(&settle(Settle::Expire, &places[..1]));
    assert!(matches!(again, Outcome::Settled { done: 0, .. }));
    assert_eq!(fixture.plane.next_expiry(), None);
}

/// The leader that gave the lease had read when the message expires; this one has the machine only.
#[test]
fn an_acknowledgement_after_the_end_of_a_life_comes_too_late_at_a_new_leader_too() {
    let mut fixture = Fixture::new();
    let ends = fixture.now.plus(5);
    fixture.publish("q", &[until(ends)]);
    let leased = fixture.lease("q", ANN, 1)[0];
    fixture.fail_over();
    fixture.now = ends;
    let refused = fixture.plane.claim(token(leased), fixture.now).unwrap_err();
    assert!(matches!(refused, crate::ClaimError::Expired(_)), "{refused}");
}

#[test]
fn only_what_sleeps_can_be_cancelled_or_rescheduled_and_only_once_at_a_time() {
    let mut fixture = Fixture::new();
    let soon = fixture.now.plus(10);
    let places = fixture.publish("q", &[due(soon), due(soon.plus(1_000)), Message::default()]);
    fixture.pass(10);
    // Due, then leased; never delayed; unknown.
    assert_eq!(claim(&mut fixture, places[0]), Err(ScheduleError::NotScheduled));
    let leased = fixture.lease("q", ANN, 1)[0];
    assert_eq!(leased.due, Some(soon));
    assert_eq!(claim(&mut fixture, places[0]), Err(ScheduleError::NotScheduled));
    assert_eq!(claim(&mut fixture, places[2]), Err(ScheduleError::NotScheduled));
    let unknown = Place {
        seq: Seq(99),
        ..places[0]
    };
    assert_eq!(claim(&mut fixture, unknown), Err(ScheduleError::NotFound));
    // While one is being changed, nobody else can have it, and it is not woken.
    assert_eq!(claim(&mut fixture, places[1]), Ok(()));
    assert_eq!(claim(&mut fixture, places[1]), Err(ScheduleError::NotScheduled));
    fixture.pass(2_000);
    assert_eq!(fixture.lease("q", BOB, 9).len(), 1);
    assert_eq!(cancel(&mut fixture, places[1]), done(1));
    assert_eq!(claim(&mut fixture, places[1]), Err(ScheduleError::NotFound));
    assert_eq!((fixture.stats("q"), fixture.plane.totals().purged), ((0, 2, 0), 1));
}

#[test]
fn a_message_comes_at_its_new_time_earlier_or_later() {
    let mut fixture = Fixture::new();
    let at = |ms| Millis(1_000_000).plus(ms);
    let places = fixture.publish("q", &[due(at(500)), due(at(500)), due(at(500))]);
    for (place, ms) in [(places[0], 800), (places[1], 200)] {
        assert_eq!(claim(&mut fixture, place), Ok(()));
        assert_eq!(reschedule(&mut fixture, place, at(ms)), done(1));
    }
    fixture.fail_over();
    let mut came = Vec::new();
    while let Some(next) = fixture.plane.next_tick().filter(|next| *next < at(LEASE_MS)) {
        fixture.pass(next.since(fixture.now));
        came.extend(
            fixture
                .lease("q", ANN, 9)
                .into_iter()
                .map(|leased| (leased.place, fixture.now)),
        );
    }
    assert_eq!(came, [(places[1], at(200)), (places[2], at(500)), (places[0], at(800))]);
    // A time that is past makes it due at once; a claim that is given back sleeps on.
    let places = fixture.publish("q", &[due(at(5_000)), due(at(5_000))]);
    for place in &places {
        assert_eq!(claim(&mut fixture, *place), Ok(()));
    }
    fixture.plane.unclaim(places[0], fixture.now);
    assert_eq!(reschedule(&mut fixture, places[1], Millis(0)), done(1));
    assert_eq!(fixture.stats("q"), (1, 3, 1));
    assert_eq!(fixture.lease_places("q", ANN, 9), places[1..]);
}

/// More than one turn can wake: the order is that of the due times, and in it that of publishing.
#[test]
fn many_that_are_due_together_become_ready_in_order_turn_by_turn() {
    let mut fixture = Fixture::new();
    let at = |n: u64| fixture.now.plus(1 + n * 7_919 % 50);
    let messages: Vec<_> = (0..40_000).map(|n| due(at(n))).collect();
    let mut expected: Vec<_> = (0..40_000).map(|n| (at(n), n + 1)).collect();
    expected.sort_unstable();
    let now = fixture.now.plus(100);
    // Without the checks of the fixture, which look at every message each time.
    let command = super::fixture::publish("q", &messages);
    fixture
        .plane
        .apply(fixture.now, &command, 0, &mut Default::default())
        .unwrap();
    let queue = fixture.queue("q");
    let mut leased = Vec::new();
    while fixture.plane.next_tick().is_some_and(|next| next <= now) {
        fixture.plane.tick(now, &mut Vec::new(), 1_000);
        fixture.plane.lease(queue, ANN, 1_000, LEASE_MS, now, &mut leased);
    }
    let order: Vec<_> = leased
        .iter()
        .map(|leased| (leased.due.unwrap(), leased.place.seq.0))
        .collect();
    assert_eq!(order, expected);
}

#[test]
fn a_node_that_does_not_lead_changes_and_lists_nothing() {
    let mut fixture = Fixture::new();
    let places = fixture.publish("q", &[due(fixture.now.plus(5))]);
    let ends = fixture.now.plus(1);
    fixture.publish("q", &[until(ends)]);
    fixture.plane.follow();
    assert_eq!(claim(&mut fixture, places[0]), Err(ScheduleError::NotFound));
    fixture.now = ends;
    assert_eq!((fixture.claim_expired(9), fixture.plane.next_expiry()), (vec![], None));
    let mut listing = Listing::new(None, 9);
    assert!(!fixture.plane.list_scheduled(fixture.queue("q"), &mut listing));
    assert_eq!(listing.finish(fixture.queue("q")), (vec![], false));
    // What it applies is the same.
    assert_eq!(reschedule(&mut fixture, places[0], ends.plus(7)), done(1));
    assert_eq!(fixture.plane.due(places[0]), Some(ends.plus(7)));
    assert_eq!(cancel(&mut fixture, places[0]), done(1));
    assert_eq!(fixture.plane.claim(Handle::Place(places[0]), ends).ok(), None);
}
