//! Bytes that nobody wrote.

use boltq_core::{Applied, Millis, StateMachine};
use proptest::prelude::*;

use super::fixture::{Fixture, Message, dead_letter, fail, publish, settle, token};
use super::routing::{attach, publish_exchange, publish_topic, written};
use crate::command::{self, Settle};
use crate::{ExchangeKind, HeaderRule, Machine, QueueOptionSet, QueueOptions};

/// A command of every kind, with something for each to act on.
fn commands(fixture: &mut Fixture) -> Vec<Vec<u8>> {
    let due = Message {
        priority: 1,
        due: Some(fixture.now.plus(100)),
    };
    let places = fixture.publish("q", &[Message::default(), Message::default(), due]);
    let leased = fixture.lease("q", super::fixture::ANN, 1);
    fixture.nack(token(leased[0]));
    let mut purge = bytes::BytesMut::new();
    crate::command::purge(&mut purge, &[places[0].into(), places[2].into()]);
    let mut declare = bytes::BytesMut::new();
    crate::command::declare(&mut declare, "other");
    let mut others = routing_commands();
    others.extend(managing_commands());
    for command in &others {
        fixture.apply(command);
    }
    let commands = [
        publish("q", &[due, Message::default()]),
        settle(Settle::Ack, &places),
        settle(Settle::Expire, &places),
        fail(&places, Millis(7)),
        dead_letter(places[1], "dead", Message::default()),
        purge,
        declare,
    ];
    let commands = commands.into_iter().chain(others);
    commands.map(|command| command.to_vec()).collect()
}

/// Each kind of command that sets or deletes a queue.
fn managing_commands() -> Vec<bytes::BytesMut> {
    let options = QueueOptions {
        max_length: Some(9),
        dead_letter_queue: Some("dead".into()),
        paused: true,
        ..QueueOptions::default()
    };
    vec![
        written(|out| command::create_queue(out, "new", &options)),
        written(|out| command::change_queue(out, "q", QueueOptionSet::ALL, &options)),
        written(|out| command::delete_queue(out, "new", true)),
        written(|out| command::delete_subscription(out, "t", "y", Millis(1))),
    ]
}

/// Each kind of command about topics and exchanges, the removals last.
fn routing_commands() -> Vec<bytes::BytesMut> {
    let rule = HeaderRule::new(true, [("k", "v")]);
    vec![
        attach("t", "x"),
        publish_topic("t", &[Message::default()]),
        written(|out| command::declare_exchange(out, "h", ExchangeKind::Headers, true, Some("p"))),
        written(|out| command::declare_exchange(out, "p", ExchangeKind::Topic, false, None)),
        written(|out| command::bind(out, "h", "q", "", &rule)),
        written(|out| command::bind(out, "p", "q", "a.#.*", &HeaderRule::default())),
        publish_exchange("h", "a.b", &[("k", "w")], 2),
        written(|out| command::unbind(out, "h", "q", "k")),
        written(|out| command::delete_exchange(out, "never there")),
        written(|out| command::remove_subscription(out, "t", "x", Millis(1))),
    ]
}

#[test]
fn a_command_that_is_cut_off_changes_nothing() {
    let mut fixture = Fixture::new();
    let commands = commands(&mut fixture);
    let before = fixture.plane.machine().snapshot();
    for command in commands {
        for end in 0..command.len() {
            let mut applied = Applied::default();
            let later = fixture.now.plus(5);
            assert!(
                fixture.plane.apply(later, &command[..end], 0, &mut applied).is_err(),
                "{end}"
            );
            assert!(applied.storage.is_empty() && applied.effects.is_empty());
        }
    }
    assert_eq!(fixture.plane.machine().snapshot(), before);
}

#[test]
fn an_offset_beyond_its_field_is_refused() {
    let mut fixture = Fixture::new();
    let command = publish("q", &[Message::default()]);
    let error = fixture
        .plane
        .apply(fixture.now, &command, u32::MAX, &mut Applied::default());
    assert_eq!(
        error.unwrap_err().to_string(),
        "records: the entry is longer than 4 GiB"
    );
}

#[test]
fn every_truncation_of_a_snapshot_is_refused() {
    let mut fixture = Fixture::new();
    commands(&mut fixture);
    let snapshot = fixture.plane.machine().snapshot();
    for end in 0..snapshot.len() {
        assert!(Machine::restore(&snapshot[..end]).is_err(), "{end}");
    }
    let longer = [&snapshot[..], &[0]].concat();
    assert!(Machine::restore(&longer).is_err());
}

/// What a machine that came out of a damaged snapshot is put through: it was accepted, so it has to work.
fn use_it(machine: Machine, commands: &[Vec<u8>], now: Millis) {
    let mut plane = crate::Plane::new(machine, super::fixture::SETTINGS);
    plane.lead(boltq_core::Term(1), now);
    let mut leased = Vec::new();
    for id in 0..4 {
        plane.lease(crate::QueueId(id), super::fixture::ANN, 10, 1, now, &mut leased);
        plane.peek(crate::QueueId(id), 10, now, &mut Vec::new());
    }
    for command in commands {
        let _ = plane.apply(now, command, 0, &mut Applied::default());
    }
    plane.tick(Millis::MAX, &mut Vec::new(), 100);
    let snapshot = plane.machine().snapshot();
    assert_eq!(Machine::restore(&snapshot).unwrap().snapshot(), snapshot);
}

proptest! {
    #[test]
    fn any_bytes_are_a_command_or_refused(tag in 0u8..34, mut bytes: Vec<u8>, time: u64, offset: u32) {
        let mut fixture = Fixture::new();
        commands(&mut fixture);
        bytes.insert(0, tag);
        let before = fixture.plane.machine().snapshot();
        let mut applied = Applied::default();
        if fixture.plane.apply(Millis(time), &bytes, offset, &mut applied).is_err() {
            prop_assert_eq!(fixture.plane.machine().snapshot(), before);
            prop_assert!(applied.storage.is_empty());
        }
        fixture.plane.check();
    }

    #[test]
    fn damaged_commands_are_applied_or_refused(
        which: prop::sample::Index, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut fixture = Fixture::new();
        let commands = commands(&mut fixture);
        let mut command = which.get(&commands).clone();
        for (at, value) in flips {
            let at = at.index(command.len());
            command[at] = value;
        }
        let _ = fixture.plane.apply(fixture.now, &command, 0, &mut Applied::default());
        fixture.plane.check();
        let snapshot = fixture.plane.machine().snapshot();
        prop_assert_eq!(Machine::restore(&snapshot).unwrap().snapshot(), snapshot);
    }

    #[test]
    fn damaged_snapshots_are_refused_or_work(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut fixture = Fixture::new();
        let commands = commands(&mut fixture);
        let mut snapshot = fixture.plane.machine().snapshot();
        for (at, value) in flips {
            let at = at.index(snapshot.len());
            snapshot[at] = value;
        }
        if let Ok(machine) = Machine::restore(&snapshot) {
            use_it(machine, &commands, fixture.now);
        }
    }
}
