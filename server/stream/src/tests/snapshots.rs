//! States that are damaged, and states that nobody wrote.

use boltq_core::{Applied, Millis, StateMachine};
use proptest::prelude::*;

use super::fixture::{Fixture, NOW, append_bytes, claim, here, reader, settings};
use crate::command;
use crate::{Machine, Terms};

/// A machine that has everything that there is.
fn full() -> Fixture {
    let mut fixture = Fixture::default();
    let terms = Terms::at_home(settings(3, 8_000, 0));
    for topic in ["a", "b", "gone"] {
        for partition in [0, 2] {
            for (number, ms) in (0..).zip([0, 4, 3, 2, 8, 1_500, 3_000, 4_500]) {
                let said = [((NOW + ms) * 1_000_000, vec![7; 5])];
                let claim = claim("m-1", 9).filter(|_| number == 0);
                fixture.send(NOW, &append_bytes(topic, partition, &terms, claim, &said));
            }
            for seq in [1, 2, 4] {
                fixture.run(NOW, |out| command::redact(out, here(topic), partition, seq));
            }
        }
        let members: Vec<String> = (0..40).map(|member| member.to_string()).collect();
        let commits: Vec<_> = members.iter().map(|member| (reader(topic, 2, member), 3)).collect();
        fixture.commits(1_000, &commits);
    }
    fixture.run(NOW, |out| command::delete(out, here("gone")));
    fixture
}

#[test]
fn a_snapshot_is_the_machine() {
    let fixture = full();
    let bytes = fixture.machine.snapshot();
    let restored = Machine::restore(&bytes).unwrap();
    assert_eq!(restored.snapshot(), bytes);
    let parts = restored.topic("a").unwrap().partition(2).unwrap();
    assert!(parts.redacted(parts.first_seq()..parts.next_seq()).count() > 0);
    assert_eq!((restored.claim_count(), restored.cursor_count()), (6, 120));
    assert_eq!(restored.record_count(), fixture.machine.record_count());
    assert!(restored.totals().deleted > 0);
}

#[test]
fn a_snapshot_that_is_cut_off_or_too_long_is_refused() {
    let mut bytes = full().machine.snapshot();
    for end in 0..bytes.len() {
        assert!(Machine::restore(&bytes[..end]).is_err(), "{end}");
    }
    bytes.push(0);
    assert!(Machine::restore(&bytes).is_err());
    bytes[0] = 2;
    let error = Machine::restore(&bytes).unwrap_err().to_string();
    assert_eq!(error, "snapshot of a stream group: 2 is unknown to this version");
}

#[test]
fn a_snapshot_with_any_bit_turned_is_refused_or_works() {
    let bytes = full().machine.snapshot();
    let mut accepted = 0;
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            let Ok(machine) = Machine::restore(&bad) else { continue };
            assert_eq!(machine.snapshot(), bad, "byte {at}, bit {bit}");
            accepted += 1;
            work(machine);
        }
    }
    assert!(accepted > 0, "names and times are not checked, so some are accepted");
}

/// Nothing that a snapshot can say makes a command panic.
fn work(mut machine: Machine) {
    let mut out = bytes::BytesMut::new();
    let mut commands = vec![append_bytes(
        "a",
        2,
        &Terms::at_home(settings(3, 5, 10)),
        None,
        &[(NOW, vec![1; 9])],
    )];
    let all = here("a");
    command::trim(&mut out, ["a", "b"].into_iter());
    commands.push(out.split());
    command::redact(&mut out, all, 2, 7);
    commands.push(out.split());
    command::delete(&mut out, all);
    commands.push(out.split());
    for command in commands {
        machine
            .apply(Millis(NOW * 2), &command, 0, &mut Applied::default())
            .unwrap();
    }
    assert_eq!(
        Machine::restore(&machine.snapshot()).unwrap().snapshot(),
        machine.snapshot()
    );
}

proptest! {
    #[test]
    fn any_bytes_are_a_snapshot_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(machine) = Machine::restore(&bytes) {
            prop_assert_eq!(machine.snapshot(), bytes);
        }
    }

    #[test]
    fn any_bytes_are_a_command_or_refused_and_change_nothing_then(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 1u8..10) {
        let mut machine = full().machine;
        let before = machine.snapshot();
        let mut applied = Applied::default();
        if machine.apply(Millis(NOW), &[&[kind], &bytes[..]].concat(), 0, &mut applied).is_err() {
            prop_assert_eq!(machine.snapshot(), before);
            prop_assert!(applied.storage.is_empty() && applied.effects.is_empty());
        }
    }
}
