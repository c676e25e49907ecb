//! A leader that begins goes past many messages that cannot be had in steps of a bounded number.

use boltq_core::RecordBuilder;
use bytes::BytesMut;

use super::fixture::{ANN, Fixture, LEASE_MS, done, fail};
use crate::command::PublishWriter;
use crate::ordering::LOOKS_MAX;
use crate::{ClaimError, Handle, Leased, Outcome, Place};

/// Messages with these ordering keys.
fn put(fixture: &mut Fixture, keys: impl ExactSizeIterator<Item = String>) -> Vec<Place> {
    let mut out = BytesMut::new();
    let count = u32::try_from(keys.len()).unwrap();
    let writer = PublishWriter::begin(&mut out, "q");
    for ordering_key in keys {
        let builder = RecordBuilder {
            json: false,
            priority: 0,
            published_ns: 1,
            expires: None,
            due: None,
            ordering_key: &ordering_key,
            id: None,
            payload: b"payload",
        };
        builder.write(std::iter::empty(), &mut out);
    }
    writer.finish(&mut out, count);
    match fixture.apply(&out) {
        Outcome::Published(runs) => runs.places().collect(),
        other => panic!("{other:?}"),
    }
}

fn lease(fixture: &mut Fixture, max: usize) -> (Vec<Leased>, bool) {
    let (id, mut leased) = (fixture.queue("q"), Vec::new());
    let more = fixture.plane.lease(id, ANN, max, LEASE_MS, fixture.now, &mut leased);
    (leased, more)
}

#[test]
fn what_rests_is_passed_in_bounded_steps() {
    let mut fixture = Fixture::new();
    let resting = 3 * LOOKS_MAX + 1;
    let places = put(&mut fixture, (0..resting).map(|n| n.to_string()));
    let not_before = fixture.now.plus(60_000);
    assert_eq!(fixture.apply(&fail(&places, not_before)), done(resting as u64));
    let free = put(&mut fixture, ["free".to_owned()].into_iter());
    fixture.fail_over();
    // Each step looks at so many, and says that there may be more. The fourth looks at the last that rests, and finds it.
    for step in 0..3 {
        let (leased, more) = lease(&mut fixture, 9);
        assert!(leased.is_empty() && more, "step {step}");
        assert_eq!(fixture.plane.looked_at("q"), (step + 1) * LOOKS_MAX);
    }
    let (leased, more) = lease(&mut fixture, 9);
    let found: Vec<_> = leased.iter().map(|leased| leased.place).collect();
    assert_eq!((found, more), (free, false));
    fixture.plane.check();
    assert_eq!(lease(&mut fixture, 9), (Vec::new(), false));
}

#[test]
fn what_is_found_before_the_end_of_a_step_is_had_at_once() {
    let mut fixture = Fixture::new();
    put(&mut fixture, (0..2 * LOOKS_MAX).map(|n| n.to_string()));
    fixture.fail_over();
    let (leased, more) = lease(&mut fixture, 5);
    assert_eq!((leased.len(), more), (5, false));
    let (leased, more) = lease(&mut fixture, 2 * LOOKS_MAX);
    assert_eq!((leased.len(), more), (LOOKS_MAX, true));
    let (leased, more) = lease(&mut fixture, 2 * LOOKS_MAX);
    assert_eq!((leased.len(), more), (LOOKS_MAX - 5, false));
}

#[test]
fn a_message_of_an_earlier_leader_is_looked_for_in_bounded_steps() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, (0..3 * LOOKS_MAX + 1).map(|n| n.to_string()));
    fixture.fail_over();
    let last = Handle::Place(places[places.len() - 1]);
    for step in 1..=3 {
        assert_eq!(fixture.plane.claim(last, fixture.now), Err(ClaimError::Later));
        assert_eq!(fixture.plane.looked_at("q"), step * LOOKS_MAX);
        fixture.plane.check();
    }
    fixture.ack(last);
    // What is in front of it was looked at, and is there in its order.
    let (leased, more) = lease(&mut fixture, places.len());
    let leased: Vec<_> = leased.into_iter().map(|leased| leased.place).collect();
    assert!(leased == places[..places.len() - 1] && !more);
    // One that is not there is not looked for.
    let beyond = Place::new(places[0].stream, places.len() as u64 + 1);
    assert_eq!(
        fixture.plane.claim(Handle::Place(beyond), fixture.now),
        Err(ClaimError::NotFound)
    );
}
