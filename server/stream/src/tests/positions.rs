//! Positions of readers.

use boltq_core::{Seq, StateMachine, StreamId};

use super::fixture::{Fixture, NOW, ONE, here, reader};
use crate::command::{self, CursorOf};
use crate::{Commit, Machine, Outcome, Terms};

/// With three records in "t".
fn fixture() -> Fixture {
    let mut fixture = Fixture::default();
    fixture.append(NOW, "t", &Terms::at_home(ONE), &[1, 1, 1]);
    fixture
}

#[test]
fn positions_go_forward_and_not_beyond_the_end() {
    let mut fixture = fixture();
    let phone = reader("t", 0, "phone");
    for (to, at) in [(0, 1), (3, 3), (2, 3), (4, 4), (5, 4), (u64::MAX, 4)] {
        assert_eq!(fixture.commit(&phone, to), Commit::At(Seq(at)), "{to}");
    }
    assert_eq!(fixture.commit(&reader("t", 0, "tablet"), 2), Commit::At(Seq(2)));
    let stream = StreamId(1);
    let cursors: Vec<_> = fixture.machine.cursors_after(stream, None).collect();
    assert_eq!(cursors, [("user:ana", "phone", Seq(4)), ("user:ana", "tablet", Seq(2))]);
    let after = fixture.machine.cursors_after(stream, Some(("user:ana", "phone")));
    assert!(after.eq([("user:ana", "tablet", Seq(2))]));
    let forgotten = fixture.run(NOW, |out| command::forget(out, [phone, phone].into_iter()));
    assert_eq!(forgotten, Outcome::Forgotten(1));
    assert_eq!(fixture.machine.cursor(stream, "user:ana", "phone"), None);
    assert_eq!(fixture.commit(&phone, 2), Commit::At(Seq(2)));
}

#[test]
fn groups_whose_names_run_into_those_of_members_are_apart() {
    let mut fixture = fixture();
    for (to, (group, member)) in (1..).zip([("ab", "c"), ("a", "bc"), ("abc", "")]) {
        let cursor = CursorOf {
            group,
            member,
            ..reader("t", 0, "")
        };
        assert_eq!(fixture.commit(&cursor, to), Commit::At(Seq(to)));
    }
    let all: Vec<_> = fixture.machine.cursors_after(StreamId(1), None).collect();
    assert_eq!(all, [("a", "bc", Seq(2)), ("ab", "c", Seq(1)), ("abc", "", Seq(3))]);
}

#[test]
fn the_members_of_a_group_are_those_of_this_group_and_stream() {
    let mut fixture = fixture();
    fixture.append(NOW, "u", &Terms::at_home(ONE), &[1, 1, 1]);
    for topic in ["t", "u"] {
        for (group, member) in [("push", ""), ("push", "a"), ("push", "b"), ("pusha", ""), ("pus", "ha")] {
            let cursor = CursorOf {
                group,
                member,
                ..reader(topic, 0, "")
            };
            fixture.commit(&cursor, 2);
        }
    }
    let members = |group, after| -> Vec<_> {
        let members = fixture.machine.members(StreamId(1), group, after);
        members.map(|(member, position)| (member, position.0)).collect()
    };
    assert_eq!(members("push", None), [("", 2), ("a", 2), ("b", 2)]);
    assert_eq!(members("push", Some("")), [("a", 2), ("b", 2)]);
    assert_eq!(members("push", Some("aa")), [("b", 2)]);
    assert_eq!(members("none", None), []);
}

#[test]
fn names_are_as_long_as_the_format_can_say() {
    let mut fixture = fixture();
    let long = "x".repeat(crate::CURSOR_NAME_BYTES_MAX);
    let cursor = CursorOf {
        group: &long,
        ..reader("t", 0, &long)
    };
    assert_eq!(fixture.commit(&cursor, 2), Commit::At(Seq(2)));
    fixture.machine = Machine::restore(&fixture.machine.snapshot()).unwrap();
    assert_eq!(fixture.machine.cursor(StreamId(1), &long, &long), Some(Seq(2)));
}

#[test]
fn a_full_group_takes_no_new_position_and_moves_those_it_has() {
    let mut fixture = fixture();
    let commits = [("one", 1), ("two", 2), ("one", 3)].map(|(member, to)| (reader("t", 0, member), to));
    let at = |seq| Commit::At(Seq(seq));
    assert_eq!(fixture.commits(1, &commits), [at(1), Commit::Full, at(3)]);
}

#[test]
fn positions_of_deleted_topics_go_little_by_little() {
    let mut fixture = fixture();
    let members: Vec<String> = (0..200).map(|member| format!("m{member}")).collect();
    let commits: Vec<_> = members.iter().map(|member| (reader("t", 0, member), 1)).collect();
    fixture.commits(1_000, &commits);
    fixture.run(NOW, |out| command::delete(out, here("t")));
    let mut counts = vec![fixture.machine.cursor_count()];
    while counts.last() > Some(&0) && counts.len() < 9 {
        fixture.run(NOW, |out| command::delete(out, here("none")));
        counts.push(fixture.machine.cursor_count());
        fixture.machine = Machine::restore(&fixture.machine.snapshot()).unwrap();
    }
    assert_eq!(counts, [200, 136, 72, 8, 0]);
}
