//! Publishes that may be repeated.

use boltq_core::StateMachine;

use super::fixture::{ANN, Fixture, Message, publish_once, settle};
use crate::command::Settle;
use crate::{Machine, Outcome, Place};

fn publish(fixture: &mut Fixture, queue: &str, key: &str, remembered_ms: u64) -> (Place, bool) {
    let until = fixture.now.plus(remembered_ms);
    match fixture.apply(&publish_once(until, queue, key, Message::default())) {
        Outcome::Published(runs) => (runs.places().next().unwrap(), true),
        Outcome::PublishedBefore(place) => (place, false),
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn a_repeated_publish_answers_with_the_first_message_and_stores_none() {
    let mut fixture = Fixture::new();
    let (place, new) = publish(&mut fixture, "q", "k", 100);
    assert!(new);
    fixture.pass(99);
    assert_eq!(publish(&mut fixture, "q", "k", 100), (place, false));
    assert!(fixture.storage.is_empty());
    assert_eq!(fixture.stats("q"), (1, 0, 0));
    fixture.pass(1);
    let (again, new) = publish(&mut fixture, "q", "k", 100);
    assert!(new && again != place);
    assert_eq!(fixture.stats("q"), (2, 0, 0));
}

#[test]
fn a_key_is_that_of_a_queue() {
    let mut fixture = Fixture::new();
    let here = publish(&mut fixture, "q", "k", 100);
    let there = publish(&mut fixture, "other", "k", 100);
    assert!(here.1 && there.1);
    assert_eq!(publish(&mut fixture, "q", "k2", 100).0.stream, here.0.stream);
}

#[test]
fn what_was_done_in_the_meantime_is_not_done_again() {
    let mut fixture = Fixture::new();
    let (place, _) = publish(&mut fixture, "q", "k", 100);
    assert_eq!(fixture.lease_places("q", ANN, 1), [place]);
    fixture.apply(&settle(Settle::Ack, &[place]));
    assert_eq!(publish(&mut fixture, "q", "k", 100), (place, false));
    assert_eq!(fixture.stats("q"), (0, 0, 0));
}

#[test]
fn keys_survive_a_snapshot_and_are_gone_from_it_when_they_are_forgotten() {
    let mut fixture = Fixture::new();
    let without = fixture.plane.machine().snapshot();
    let (place, _) = publish(&mut fixture, "q", "k", 100);
    let restored = Machine::restore(&fixture.plane.machine().snapshot()).unwrap();
    assert_eq!((restored.keys_remembered(), restored.snapshot()[0]), (1, 3));
    assert_eq!(restored.snapshot(), fixture.plane.machine().snapshot());
    fixture.apply(&settle(Settle::Ack, &[place]));
    fixture.pass(100);
    // One that is not remembered at all forgets the other.
    publish(&mut fixture, "q", "other", 0);
    assert_eq!((fixture.plane.machine().keys_remembered(), without[0]), (0, 1));
    assert_eq!(fixture.plane.machine().snapshot()[0], 1);
}

#[test]
fn a_snapshot_with_keys_that_no_commands_lead_to_is_refused() {
    let mut fixture = Fixture::new();
    publish(&mut fixture, "q", "k", 100);
    let whole = fixture.plane.machine().snapshot();
    for end in 0..whole.len() {
        assert!(Machine::restore(&whole[..end]).is_err(), "{end}");
    }
    let key_at = whole.len() - 24 - 1;
    assert_eq!(whole[key_at], b'k');
    let seq_at = key_at + 1 + 8;
    for (at, value) in [(seq_at, 0), (seq_at, 2), (key_at - 4, 0), (key_at - 8, 7)] {
        let mut bytes = whole.clone();
        bytes[at] = value;
        assert!(Machine::restore(&bytes).is_err(), "{at} {value}");
    }
}
