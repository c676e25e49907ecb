//! Messages with an ordering key that expire: ready, resting, waiting for their key, or not looked at yet.

use boltq_core::{Millis, StateMachine, Term};
use bytes::BytesMut;

use super::fixture::{ANN, Fixture, Message, SETTINGS, dead_letter, fail, settle, token};
use super::ordering::{publish_until, record_until};
use crate::command::{self, Settle};
use crate::ordering::WAITING_MAX;
use crate::{Machine, Outcome, Place, Plane};

/// Publishes a message for each letter. Those of a capital letter have this key in lower case, and expire in a second.
fn put(fixture: &mut Fixture, keys: &str) -> Vec<Place> {
    let ends = fixture.now.plus(1_000);
    let message = |key: char| (key.to_ascii_lowercase(), key.is_ascii_uppercase().then_some(ends));
    let messages: Vec<_> = keys.chars().map(message).collect();
    match fixture.apply(&publish_until("q", &messages)) {
        Outcome::Published(runs) => runs.places().collect(),
        other => panic!("{other:?}"),
    }
}

/// What is over after a second, claimed.
fn over(fixture: &mut Fixture) -> Vec<Place> {
    fixture.now = fixture.now.plus(1_000);
    fixture.claim_expired(99)
}

fn expire(fixture: &mut Fixture, places: &[Place]) {
    fixture.apply(&settle(Settle::Expire, places));
}

fn take(fixture: &mut Fixture) -> Vec<Place> {
    fixture.lease_places("q", ANN, 99)
}

#[test]
fn a_message_that_is_over_frees_its_key_once_it_is_expired() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "Aa");
    assert_eq!(over(&mut fixture), [places[0]]);
    assert_eq!(take(&mut fixture), []);
    expire(&mut fixture, &places[..1]);
    assert_eq!(take(&mut fixture), [places[1]]);
}

#[test]
fn one_that_was_looked_at_and_came_back_expires() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "Aa");
    let leased = fixture.lease("q", ANN, 99);
    assert_eq!(leased.len(), 1);
    fixture.now = fixture.now.plus(1_000);
    // It is held: that it is over is noticed when that ends.
    assert_eq!(fixture.claim_expired(99), []);
    fixture.plane.release(places[0], fixture.now);
    assert_eq!(fixture.claim_expired(99), [places[0]]);
    // The command fails: it is ready again, and over.
    fixture.plane.unclaim(places[0], fixture.now);
    assert_eq!(fixture.claim_expired(99), [places[0]]);
}

#[test]
fn one_that_waits_for_its_key_expires_and_those_behind_it_follow_the_holder() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "aAa");
    let leased = fixture.lease("q", ANN, 99);
    assert_eq!(over(&mut fixture), [places[1]]);
    assert_eq!(fixture.stats("q"), (1, 2, 0));
    expire(&mut fixture, &places[1..2]);
    assert_eq!(take(&mut fixture), []);
    fixture.ack(token(leased[0]));
    assert_eq!(take(&mut fixture), [places[2]]);
}

#[test]
fn one_whose_turn_comes_while_it_is_claimed_blocks_its_key_until_that_is_over() {
    for applied in [true, false] {
        let mut fixture = Fixture::new();
        let places = put(&mut fixture, "aAa");
        let leased = fixture.lease("q", ANN, 99);
        assert_eq!(over(&mut fixture), [places[1]]);
        fixture.ack(token(leased[0]));
        assert_eq!(take(&mut fixture), []);
        if applied {
            expire(&mut fixture, &places[1..2]);
            assert_eq!(take(&mut fixture), [places[2]]);
        } else {
            fixture.plane.unclaim(places[1], fixture.now);
            assert_eq!(take(&mut fixture), [places[1]]);
        }
    }
}

#[test]
fn one_that_rests_after_a_failure_expires() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "Aa");
    assert_eq!(take(&mut fixture), [places[0]]);
    let later = fixture.now.plus(60_000);
    fixture.apply(&fail(&places[..1], later));
    assert_eq!(take(&mut fixture), []);
    assert_eq!(over(&mut fixture), [places[0]]);
    assert_eq!(fixture.plane.next_tick(), None);
    expire(&mut fixture, &places[..1]);
    assert_eq!(take(&mut fixture), [places[1]]);
}

#[test]
fn those_that_a_leader_does_not_look_at_expire_and_let_it_look_further() {
    let mut fixture = Fixture::new();
    let waiting = "A".repeat(WAITING_MAX);
    let places = put(&mut fixture, &format!("a{waiting}aBb"));
    let [.., beyond, last] = places[..] else { unreachable!() };
    assert_eq!(take(&mut fixture), [places[0]]);
    let mut claimed = over(&mut fixture);
    claimed.sort_unstable();
    let mut expected = places[1..=WAITING_MAX].to_vec();
    expected.push(beyond);
    assert_eq!(claimed, expected);
    expire(&mut fixture, &claimed);
    assert_eq!(take(&mut fixture), [last]);
}

#[test]
fn one_that_is_claimed_before_it_is_looked_at_holds_its_key_when_it_is() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "aBb");
    assert_eq!(over(&mut fixture), [places[1]]);
    assert_eq!(take(&mut fixture), [places[0]]);
    fixture.plane.unclaim(places[1], fixture.now);
    assert_eq!(take(&mut fixture), [places[1]]);
}

#[test]
fn a_purge_leaves_those_that_are_being_expired() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "aAa");
    assert_eq!(over(&mut fixture), [places[1]]);
    let queue = fixture.queue("q");
    let runs = fixture.plane.begin_purge(queue);
    let taken: Vec<_> = runs.iter().flat_map(|run| run.places()).collect();
    assert_eq!(taken, [places[0], places[2]]);
    // What a purge has taken is not expired.
    assert_eq!(over(&mut fixture), []);
}

#[test]
fn ends_are_known_to_a_new_leader_and_to_those_that_come_back_from_the_dead_letters() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "Aaa");
    let Outcome::DeadLettered(Some(dead)) = fixture.apply(&dead_letter(places[1], "q_dead_letter", Message::default()))
    else {
        panic!("not moved");
    };
    let ends = fixture.now.plus(1_000);
    let mut out = BytesMut::new();
    command::begin_redrive(&mut out, dead, "q");
    record_until(&mut out, 'a', 0, Some(ends));
    let Outcome::Redriven(Some(back)) = fixture.apply(&out) else {
        panic!("nothing came back");
    };
    let machine = Machine::restore(&fixture.plane.machine().snapshot()).unwrap();
    let mut plane = Plane::new(machine, SETTINGS);
    plane.lead(Term(2), fixture.now);
    let mut claimed = Vec::new();
    plane.claim_expired(Millis(ends.0 - 1), 99, &mut claimed);
    assert_eq!((claimed.len(), plane.next_expiry()), (0, Some(ends)));
    plane.claim_expired(ends, 99, &mut claimed);
    assert_eq!(claimed, [places[0], back]);
}
