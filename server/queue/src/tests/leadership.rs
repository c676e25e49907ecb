//! What survives a change of leaders, and what an earlier leader can still do.

use super::fixture::{ANN, BOB, Fixture, LEASE_MS, Message, SETTINGS, fail, settle, token};
use boltq_core::{Millis, Term};

use crate::command::Settle;
use crate::{ClaimError, Handle, Machine, Plane};

#[test]
fn a_new_leader_knows_what_is_done_and_hands_out_the_rest_in_order() {
    let mut fixture = Fixture::new();
    let places = fixture.publish_plain("q", 6);
    let leased = fixture.lease("q", ANN, 5);
    fixture.ack(token(leased[1]));
    fixture.nack(token(leased[3]));
    fixture.fail_over();
    assert_eq!(fixture.stats("q"), (5, 0, 0));
    assert_eq!(
        fixture.lease_places("q", BOB, 9),
        [places[0], places[2], places[4], places[5]]
    );
    // The failed one keeps its backoff and its attempts.
    fixture.pass(100);
    let again = fixture.lease("q", BOB, 9);
    assert_eq!((again.len(), again[0].place, again[0].attempts), (1, places[3], 1));
}

#[test]
fn delayed_messages_stay_delayed_across_a_failover() {
    let mut fixture = Fixture::new();
    let due = Message {
        priority: 2,
        due: Some(fixture.now.plus(50)),
        ..Message::default()
    };
    let places = fixture.publish("q", &[due, due]);
    fixture.fail_over();
    assert_eq!(fixture.stats("q"), (0, 0, 2));
    fixture.pass(50);
    let leased = fixture.lease("q", ANN, 1)[0];
    fixture.nack(token(leased));
    fixture.fail_over();
    assert_eq!(fixture.stats("q"), (2, 0, 0));
    assert_eq!(fixture.lease_places("q", ANN, 9), places[1..]);
    fixture.pass(100);
    assert_eq!(fixture.lease_places("q", ANN, 9), places[..1]);
}

#[test]
fn a_lease_of_an_earlier_leader_settles_only_what_nobody_else_holds() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("q", 2);
    let old = fixture.lease("q", ANN, 2);
    fixture.now = fixture.now.plus(1);
    fixture.fail_over();
    let new = fixture.lease("q", BOB, 1)[0];
    assert_eq!(new.place, old[0].place);
    assert!(new.lease > old[1].lease);
    assert_eq!(
        fixture.plane.claim(token(old[0]), fixture.now),
        Err(ClaimError::LeaseLost)
    );
    fixture.ack(token(old[1]));
    fixture.ack(token(new));
}

#[test]
fn numbers_of_leases_rise_on_a_node_that_leads_again_even_if_its_clock_stood_still() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("q", 1);
    let old = fixture.lease("q", ANN, 1)[0];
    fixture.plane.lead(Term(1), fixture.now);
    let new = fixture.lease("q", BOB, 1)[0];
    assert!(new.lease > old.lease);
    let first = fixture.plane.first_lease();
    assert!(first > old.lease && first <= new.lease, "{first:?}");
    fixture.plane.follow();
    fixture.plane.lead(Term(1), Millis(0));
    let last = fixture.lease("q", BOB, 1)[0];
    assert!(last.lease > new.lease);
    // What a node gives that leads the next term, whatever it gave before.
    let mut other = Fixture::new();
    other.publish_plain("q", 1);
    other.plane.lead(Term(2), Millis(0));
    assert!(other.lease("q", BOB, 1)[0].lease > last.lease);
    fixture.plane.lead(Term(u64::MAX), Millis::MAX);
    assert_eq!(fixture.lease("q", BOB, 1).len(), 1);
}

/// Raft as openraft has it may elect two in a term.
#[test]
fn a_lease_of_another_leader_of_the_term_is_an_earlier_one_too() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("q", 1);
    fixture.plane.lead_by_chance(Term(7), fixture.now, 3 << 40);
    let old = fixture.lease("q", ANN, 1)[0];
    let mut other = Fixture::new();
    other.publish_plain("q", 1);
    other.plane.lead_by_chance(Term(7), other.now, 5 << 40);
    let new = other.lease("q", BOB, 1)[0];
    assert_eq!(new.place, old.place);
    assert_eq!(other.plane.claim(token(old), other.now), Err(ClaimError::LeaseLost));
    other.ack(token(new));
    // Wherever they begin, they are below those of the next term.
    other.plane.lead_by_chance(Term(7), other.now, u64::MAX);
    let last = other.plane.first_lease();
    other.plane.lead_by_chance(Term(8), other.now, 0);
    assert!(other.plane.first_lease() > last);
}

#[test]
fn commands_of_an_earlier_leader_take_messages_out_of_every_state() {
    let mut fixture = Fixture::new();
    let due = Message {
        priority: 0,
        due: Some(fixture.now.plus(50)),
        ..Message::default()
    };
    let delayed = fixture.publish("q", &[due, due, due, due]);
    let places = fixture.publish_plain("q", 10);
    let leased = fixture.lease("q", ANN, 4);
    fixture.nack(token(leased[1]));
    fixture.plane.release(leased[2].place, fixture.now);
    // Leased, in backoff, returned, never handed out, asleep.
    let settled = [places[0], places[1], places[2], places[6], delayed[1]];
    fixture.apply(&settle(Settle::Ack, &settled));
    fixture.apply(&fail(&[places[3], places[8], delayed[0]], fixture.now.plus(500)));
    // What failed before it was due waits for that first.
    assert_eq!((fixture.stats("q"), fixture.plane.held_by(ANN)), ((6, 0, 3), 0));
    let ready = [places[4], places[5], places[7], places[9]];
    assert_eq!(fixture.lease_places("q", BOB, 99), ready);
    fixture.pass(50);
    fixture.apply(&settle(Settle::Ack, &[delayed[2]]));
    assert_eq!(fixture.lease_places("q", BOB, 99), [delayed[3]]);
    fixture.pass(450);
    assert_eq!(fixture.lease_places("q", BOB, 99), [delayed[0], places[3], places[8]]);
}

#[test]
fn a_node_that_does_not_lead_hands_out_nothing() {
    let mut fixture = Fixture::new();
    let places = fixture.publish_plain("q", 2);
    let leased = fixture.lease("q", ANN, 1)[0];
    fixture.plane.follow();
    assert!(!fixture.plane.is_leading());
    fixture.publish_plain("q", 1);
    assert_eq!(fixture.stats("q"), (3, 0, 0));
    assert_eq!(fixture.lease_places("q", ANN, 9), []);
    assert_eq!(
        fixture.plane.claim(token(leased), fixture.now),
        Err(ClaimError::NotFound)
    );
    assert_eq!(
        fixture.plane.extend(token(leased), 1, fixture.now),
        Err(ClaimError::NotFound)
    );
    assert!(fixture.plane.begin_purge(fixture.queue("q")).is_empty());
    assert!(fixture.pass(LEASE_MS).is_empty());
    assert_eq!((fixture.plane.next_tick(), fixture.woken()), (None, vec![]));
    assert_eq!(
        fixture.plane.find(
            fixture
                .plane
                .machine()
                .salt()
                .unwrap()
                .id(places[1].stream, places[1].seq)
        ),
        places[1]
    );
    fixture.plane.lead(Term(1), fixture.now);
    assert_eq!(fixture.woken(), [fixture.queue("q")]);
    fixture.ack(Handle::Place(places[0]));
    assert_eq!(fixture.lease("q", ANN, 9).len(), 2);
}

#[test]
fn an_acknowledgement_that_fails_as_the_lease_ends_leaves_the_message_available() {
    let mut fixture = Fixture::new();
    let places = fixture.publish_plain("q", 1);
    let leased = fixture.lease("q", ANN, 1)[0];
    fixture.now = fixture.now.plus(LEASE_MS);
    // The acknowledgement comes first: the timer finds nothing, and its failure gives the message back.
    fixture.claim(token(leased));
    assert!(fixture.pass(0).is_empty());
    fixture.plane.unclaim(places[0], fixture.now);
    let leased = fixture.lease("q", ANN, 1)[0];
    // The timer comes first: the acknowledgement is refused, and the failure that cannot be proposed is given back.
    assert_eq!(fixture.pass(LEASE_MS).len(), 1);
    assert_eq!(
        fixture.plane.claim(token(leased), fixture.now),
        Err(ClaimError::LeaseLost)
    );
    fixture.plane.unclaim(places[0], fixture.now);
    fixture.ack(token(leased));
    assert_eq!(fixture.stats("q"), (0, 0, 0));
}

#[test]
fn an_empty_machine_leads_and_follows() {
    let mut plane = Plane::new(Machine::default(), SETTINGS);
    plane.lead(Term(1), Millis(5));
    plane.lead(Term(1), Millis(4));
    plane.check();
    plane.follow();
    assert_eq!((plane.queues().count(), plane.next_tick()), (0, None));
}
