//! Leases, acknowledgements, failures, dead letters, expiry.

use boltq_core::{MessageId, Millis, StorageEffect};

use super::fixture::{ANN, BOB, Fixture, LEASE_MS, Message, dead_letter, done, fail, settle, token};
use crate::command::Settle;
use crate::{Claim, ClaimError, Handle, LeaseNo, Outcome, Run};

#[test]
fn a_message_is_leased_to_one_consumer_at_a_time() {
    let mut fixture = Fixture::new();
    let places = fixture.publish_plain("q", 3);
    assert_eq!(fixture.lease_places("q", ANN, 2), places[..2]);
    assert_eq!(fixture.lease_places("q", BOB, 9), places[2..]);
    assert_eq!((fixture.plane.held_by(ANN), fixture.plane.held_by(BOB)), (2, 1));
    assert_eq!(fixture.stats("q"), (0, 3, 0));
}

#[test]
fn an_acknowledged_message_is_gone_and_its_record_freed_once() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("q", 1);
    let leased = fixture.lease("q", ANN, 1)[0];
    fixture.ack(token(leased));
    let freed = StorageEffect::Freed {
        stream: leased.place.stream,
        first: leased.place.seq,
        count: 1,
    };
    assert_eq!(fixture.storage, [freed]);
    assert_eq!(
        fixture.plane.claim(token(leased), fixture.now),
        Err(ClaimError::NotFound)
    );
    let again = Outcome::Settled {
        done: 0,
        missing: vec![Run::from(leased.place)],
    };
    assert_eq!(fixture.apply(&settle(Settle::Ack, &[leased.place])), again);
    assert_eq!((fixture.storage.len(), fixture.plane.totals().acked), (0, 1));
}

#[test]
fn a_failed_message_waits_for_its_backoff_and_is_then_first() {
    let mut fixture = Fixture::new();
    let places = fixture.publish_plain("q", 3);
    let leased = fixture.lease("q", ANN, 1)[0];
    fixture.woken();
    fixture.nack(token(leased));
    assert_eq!((fixture.stats("q"), fixture.woken()), ((3, 0, 0), vec![]));
    assert_eq!(fixture.lease_places("q", BOB, 1), places[1..2]);
    fixture.pass(99);
    assert_eq!(fixture.woken(), []);
    fixture.pass(1);
    assert_eq!(fixture.woken(), [fixture.queue("q")]);
    let again = fixture.lease("q", BOB, 1)[0];
    assert_eq!((again.place, again.attempts), (places[0], 1));
    fixture.nack(token(again));
    fixture.pass(199);
    assert_eq!(fixture.lease_places("q", BOB, 1), places[2..3]);
}

#[test]
fn after_the_last_retry_the_message_is_a_dead_letter() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("q", 1);
    for attempts in 0..3 {
        let leased = fixture.lease("q", ANN, 1)[0];
        assert_eq!(leased.attempts, attempts);
        let claim = fixture.claim(token(leased));
        assert_eq!(
            fixture.plane.settings(claim.queue).exhausted(claim.attempts + 1),
            attempts == 2
        );
        if attempts < 2 {
            fixture.apply(&fail(&[claim.place], fixture.now));
        } else {
            let message = Message { priority: 4, due: None };
            let outcome = fixture.apply(&dead_letter(claim.place, "q_dead_letter", message));
            assert!(matches!(outcome, Outcome::DeadLettered(Some(_))));
        }
    }
    assert_eq!(fixture.lease_places("q", ANN, 1), []);
    assert_eq!(
        (fixture.stats("q"), fixture.stats("q_dead_letter")),
        ((0, 0, 0), (1, 0, 0))
    );
    // Across a failover it stays where it is, and is consumed like any message.
    fixture.fail_over();
    assert_eq!(fixture.stats("q_dead_letter"), (1, 0, 0));
    let leased = fixture.lease("q_dead_letter", ANN, 9);
    assert_eq!((leased.len(), leased[0].attempts), (1, 0));
    let totals = fixture.plane.totals();
    assert_eq!((totals.published, totals.nacked, totals.dead_lettered), (1, 2, 1));
}

#[test]
fn a_message_that_is_done_does_not_become_a_dead_letter() {
    let mut fixture = Fixture::new();
    let places = fixture.publish_plain("q", 1);
    fixture.ack(Handle::Place(places[0]));
    let outcome = fixture.apply(&dead_letter(places[0], "q_dead_letter", Message::default()));
    assert_eq!(
        (outcome, fixture.plane.queue("q_dead_letter")),
        (Outcome::DeadLettered(None), None)
    );
}

#[test]
fn a_lease_that_ends_is_a_failed_attempt_and_frees_the_prefetch() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("q", 2);
    let leased = fixture.lease("q", ANN, 2);
    assert!(fixture.pass(LEASE_MS - 1).is_empty());
    let timed_out = fixture.pass(1);
    let expected: Vec<_> = leased
        .iter()
        .map(|leased| Claim {
            place: leased.place,
            queue: fixture.queue("q"),
            attempts: 0,
            consumer: Some(ANN),
            held_ms: None,
            expired: false,
        })
        .collect();
    assert_eq!((timed_out, fixture.plane.held_by(ANN)), (expected, 0));
    // Claimed: neither leased nor settled by anybody until the failure is applied.
    assert_eq!(fixture.lease_places("q", BOB, 9), []);
    assert_eq!(
        fixture.plane.claim(token(leased[0]), fixture.now),
        Err(ClaimError::LeaseLost)
    );
    assert!(fixture.pass(LEASE_MS).is_empty());
    fixture.apply(&fail(&[leased[0].place, leased[1].place], fixture.now));
    let again = fixture.lease("q", BOB, 9);
    assert_eq!(again.iter().map(|leased| leased.attempts).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn the_acknowledgement_of_an_ended_lease_counts_while_nobody_else_holds_the_message() {
    let mut fixture = Fixture::new();
    let places = fixture.publish_plain("q", 2);
    let leased = fixture.lease("q", ANN, 2);
    let timed_out = fixture.pass(LEASE_MS);
    fixture.apply(&fail(&places, fixture.now.plus(50)));
    assert_eq!(timed_out.len(), 2);
    // In backoff.
    let claim = fixture.claim(token(leased[0]));
    assert_eq!((claim.consumer, claim.attempts), (None, 1));
    assert_eq!(fixture.plane.alarm_count(), 1);
    assert_eq!(fixture.apply(&settle(Settle::Ack, &[claim.place])), done(1));
    // With somebody else.
    fixture.pass(50);
    let other = fixture.lease("q", BOB, 1)[0];
    let never_given = Handle::Token {
        place: other.place,
        lease: LeaseNo(other.lease.0 + 1),
    };
    assert_eq!(
        fixture.plane.claim(never_given, fixture.now),
        Err(ClaimError::LeaseLost)
    );
    assert_eq!(
        fixture.plane.claim(token(leased[1]), fixture.now),
        Err(ClaimError::LeaseLost)
    );
    assert_eq!(
        fixture.plane.extend(token(leased[1]), LEASE_MS, fixture.now),
        Err(ClaimError::LeaseLost)
    );
    fixture.ack(token(other));
}

#[test]
fn a_claim_that_is_given_back_is_available_at_once_without_an_attempt() {
    let mut fixture = Fixture::new();
    let places = fixture.publish_plain("q", 3);
    let leased = fixture.lease("q", ANN, 2);
    fixture.woken();
    fixture.claim(token(leased[1]));
    assert_eq!((fixture.plane.held_by(ANN), fixture.stats("q")), (1, (1, 2, 0)));
    fixture.plane.unclaim(leased[1].place, fixture.now);
    // A second time it is nobody's.
    fixture.plane.unclaim(leased[1].place, fixture.now);
    fixture.plane.unclaim(leased[0].place, fixture.now);
    assert_eq!(fixture.woken(), [fixture.queue("q")]);
    let again = fixture.lease("q", BOB, 9);
    assert_eq!(again.iter().map(|leased| leased.place).collect::<Vec<_>>(), places[1..]);
    assert_eq!(again[0].attempts, 0);
}

#[test]
fn a_claim_in_backoff_that_is_given_back_is_in_backoff_again() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("q", 1);
    let leased = fixture.lease("q", ANN, 1)[0];
    fixture.nack(token(leased));
    fixture.claim(Handle::Place(leased.place));
    fixture.plane.unclaim(leased.place, fixture.now);
    assert_eq!(fixture.lease_places("q", ANN, 1), []);
    fixture.pass(100);
    assert_eq!(fixture.lease_places("q", ANN, 1), [leased.place]);
}

#[test]
fn the_leases_of_a_consumer_that_leaves_are_released_without_an_attempt() {
    let mut fixture = Fixture::new();
    let places = fixture.publish_plain("q", 100);
    let other = fixture.publish_plain("other", 3);
    fixture.lease("q", ANN, 50);
    fixture.lease("q", BOB, 10);
    fixture.lease("other", ANN, 3);
    let claimed = fixture.claim(Handle::Place(places[7]));
    fixture.woken();
    assert_eq!(fixture.plane.release_consumer(ANN, fixture.now), 52);
    fixture.plane.check();
    assert_eq!((fixture.plane.held_by(ANN), fixture.plane.held_by(BOB)), (0, 10));
    assert_eq!(fixture.woken(), [fixture.queue("q"), fixture.queue("other")]);
    let again = fixture.lease("q", BOB, 49);
    assert!(
        again
            .iter()
            .all(|leased| leased.attempts == 0 && leased.place != claimed.place)
    );
    assert_eq!(again.last().map(|leased| leased.place), Some(places[49]));
    assert_eq!(fixture.lease_places("other", BOB, 3), other);
    assert_eq!(fixture.plane.release_consumer(ANN, fixture.now), 0);
}

#[test]
fn a_crashing_consumer_costs_the_neighbours_of_a_bad_message_no_attempts() {
    let mut fixture = Fixture::new();
    let places = fixture.publish_plain("q", 50);
    for _ in 0..5 {
        assert_eq!(fixture.lease_places("q", ANN, 50), places);
        fixture.plane.release_consumer(ANN, fixture.now);
    }
    assert!(fixture.lease("q", ANN, 50).iter().all(|leased| leased.attempts == 0));
}

#[test]
fn an_extended_lease_ends_later_and_only_that_one() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("q", 3);
    let leased = fixture.lease("q", ANN, 3);
    fixture
        .plane
        .extend(token(leased[1]), 2 * LEASE_MS, fixture.now)
        .unwrap();
    fixture
        .plane
        .extend(Handle::Place(leased[2].place), u64::MAX, fixture.now)
        .unwrap();
    let ended: Vec<_> = fixture.pass(LEASE_MS).iter().map(|claim| claim.place).collect();
    assert_eq!(ended, [leased[0].place]);
    assert_eq!(fixture.pass(LEASE_MS).len(), 1);
    assert_eq!(fixture.pass(1 << 60).len(), 0);
    fixture.ack(token(leased[2]));
}

#[test]
fn what_was_never_published_or_is_not_due_is_not_found() {
    let mut fixture = Fixture::new();
    let now = fixture.now;
    let due = Message {
        priority: 0,
        due: Some(now.plus(10)),
    };
    let places = fixture.publish("q", &[due]);
    let mut absent = places[0];
    absent.seq = absent.seq.next();
    let foreign = fixture.plane.find(MessageId([9; 16]));
    for place in [places[0], absent, foreign] {
        let token = Handle::Token {
            place,
            lease: LeaseNo(1),
        };
        for handle in [Handle::Place(place), token] {
            assert_eq!(fixture.plane.claim(handle, now), Err(ClaimError::NotFound));
            assert!(fixture.plane.extend(handle, 1, now).is_err());
        }
        fixture.plane.release(place, now);
        fixture.plane.unclaim(place, now);
        fixture.plane.check();
    }
    assert_eq!(fixture.stats("q"), (0, 0, 1));
}

#[test]
fn a_message_that_expires_while_leased_is_claimed_to_be_expired() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("q", 2);
    let leased = fixture.lease("q", ANN, 2);
    for leased in &leased {
        fixture.plane.note(leased.place, Some(fixture.now.plus(100)), None);
    }
    fixture.pass(99);
    fixture.claim(token(leased[0]));
    fixture.plane.unclaim(leased[0].place, fixture.now);
    fixture.pass(1);
    let Err(ClaimError::Expired(claim)) = fixture.plane.claim(token(leased[1]), fixture.now) else {
        panic!("not expired");
    };
    assert_eq!(claim.consumer, Some(ANN));
    assert_eq!(fixture.apply(&settle(Settle::Expire, &[claim.place])), done(1));
    assert_eq!(
        fixture.plane.claim(token(leased[1]), fixture.now),
        Err(ClaimError::NotFound)
    );
    assert_eq!((fixture.plane.totals().expired, fixture.plane.totals().acked), (1, 0));
    // One rule for all: it is told of a lease that ends, too.
    fixture.lease("q", BOB, 1);
    assert!(fixture.pass(LEASE_MS)[0].expired);
}

#[test]
fn a_moved_record_is_found_by_its_own_id_until_it_is_done() {
    let mut fixture = Fixture::new();
    let places = fixture.publish_plain("q", 2);
    let salt = fixture.plane.machine().salt().unwrap();
    let id = salt.id(places[0].stream, places[0].seq);
    assert_eq!(fixture.plane.find(id), places[0]);
    let outcome = fixture.apply(&dead_letter(places[0], "dead", Message::default()));
    let leased = fixture.lease("dead", ANN, 1)[0];
    assert_eq!(outcome, Outcome::DeadLettered(Some(leased.place)));
    fixture.plane.note(leased.place, None, Some(id));
    assert_eq!(fixture.plane.find(id), leased.place);
    fixture.ack(Handle::Place(leased.place));
    assert_eq!(fixture.plane.find(id), places[0]);
    assert_eq!(
        fixture.plane.claim(Handle::Place(places[0]), fixture.now),
        Err(ClaimError::NotFound)
    );
    // A note about what is done is not kept.
    fixture.plane.note(leased.place, Some(Millis(0)), Some(id));
    assert_eq!(fixture.plane.find(id), places[0]);
}

#[test]
fn the_first_salt_counts() {
    let mut fixture = Fixture::new();
    let salt = fixture.plane.machine().salt();
    let mut out = bytes::BytesMut::new();
    crate::command::init(&mut out, boltq_core::IdSalt(8));
    assert_eq!(fixture.apply(&out), Outcome::Done);
    assert_eq!(
        (fixture.plane.machine().salt(), salt),
        (salt, Some(boltq_core::IdSalt(7)))
    );
}
