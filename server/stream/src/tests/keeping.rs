//! What is kept: retention and redaction.

use boltq_core::{Millis, Seq, StreamId};

use super::fixture::{Fixture, NOW, ONE, here, settings};
use crate::command;
use crate::{Effect, Outcome, Terms};

#[test]
fn records_go_when_they_are_too_old_an_eighth_late_at_most_and_never_early() {
    let mut fixture = Fixture::default();
    let terms = Terms::at_home(settings(1, 800, 0));
    for count in 1..400 {
        // Record n is from 10 n.
        fixture.append(NOW + count * 10, "t", &terms, &[10]);
        let ms = count * 10 + 5;
        fixture.trim(NOW + ms, "t");
        let (first, next) = fixture.range("t");
        assert!(
            ms < first * 10 + 800 + 100 + 10,
            "record {first} is still there at {ms}"
        );
        assert!(
            first == 1 || (first - 1) * 10 + 800 <= ms,
            "record {} is gone at {ms}",
            first - 1
        );
        assert_eq!(next, count + 1);
    }
    fixture.trim(NOW + 10_000, "t");
    // A topic that has no records is still there, and goes on where it was.
    assert_eq!(fixture.range("t"), (400, 400));
    assert_eq!(fixture.append(NOW + 10_000, "t", &terms, &[1]).first, Seq(400));
}

#[test]
fn a_partition_has_at_most_its_bytes_and_what_was_just_appended() {
    let mut fixture = Fixture::default();
    let terms = Terms::at_home(settings(1, 0, 1_000));
    for _ in 0..200 {
        fixture.append(NOW, "t", &terms, &[25]);
        let bytes = fixture.partition("t").bytes();
        assert!(bytes <= 1_000, "{bytes}");
    }
    let bytes = fixture.partition("t").bytes();
    assert!(bytes > 1_000 - 1_000 / 8 - 40, "{bytes}");
    fixture.append(NOW, "t", &terms, &[5_000]);
    fixture.trim(NOW, "t");
    assert_eq!(fixture.range("t"), (201, 202));
    fixture.append(NOW, "t", &terms, &[25]);
    assert_eq!(fixture.range("t"), (202, 203));
}

#[test]
fn another_retention_holds_for_what_is_there() {
    let mut fixture = Fixture::default();
    for ms in 0..100 {
        fixture.append(NOW + ms, "t", &Terms::at_home(ONE), &[1_000]);
    }
    let now = Millis(NOW + 100);
    assert!(fixture.machine.overdue(None, 10, now).topics.is_empty());
    let retention = settings(1, 0, 10_000).retention;
    let outcome = fixture.run(now.0, |out| command::update(out, here("t"), retention));
    let Outcome::Topic { new: false, terms } = outcome else {
        panic!("not changed: {outcome:?}");
    };
    assert!(terms.changed > terms.created && terms.settings.retention == retention);
    assert_eq!(fixture.machine.overdue(None, 10, now).topics, ["t"]);
    // They lie in a block of 65 records, and the open one.
    let trimmed = Outcome::Trimmed {
        records: 65,
        more: false,
    };
    assert_eq!(fixture.trim(now.0, "t"), trimmed);
    assert_eq!(fixture.range("t"), (66, 101));
}

#[test]
fn one_command_removes_a_bounded_part_and_says_that_there_is_more() {
    let mut fixture = Fixture::default();
    for _ in 0..100 {
        fixture.append(NOW, "t", &Terms::at_home(ONE), &[70_000]);
    }
    let retention = settings(1, 1, 0).retention;
    fixture.run(NOW, |out| command::update(out, here("t"), retention));
    let trimmed = |records, more| Outcome::Trimmed { records, more };
    assert_eq!(fixture.trim(NOW + 1, "t"), trimmed(64, true));
    assert_eq!(fixture.trim(NOW + 1, "t"), trimmed(36, false));
    assert_eq!(
        (fixture.machine.record_count(), fixture.machine.totals().trimmed),
        (0, 100)
    );
}

#[test]
fn what_is_overdue_is_found_a_part_at_a_time() {
    let mut fixture = Fixture::default();
    for (topic, max_age_ms) in [("a", 10), ("b", 0), ("c", 10), ("d", 10)] {
        fixture.append(NOW, topic, &Terms::at_home(settings(1, max_age_ms, 0)), &[1]);
    }
    let now = Millis(NOW + 10);
    let first = fixture.machine.overdue(None, 3, now);
    assert_eq!((first.topics, first.last), (vec!["a", "c"], Some("c")));
    let rest = fixture.machine.overdue(Some("c"), 3, now);
    assert_eq!((rest.topics, rest.last), (vec!["d"], None));
}

#[test]
fn a_redacted_record_keeps_its_place_and_is_freed_once() {
    let mut fixture = Fixture::default();
    fixture.append(NOW, "t", &Terms::at_home(settings(1, 10, 0)), &[1; 6]);
    assert_eq!(fixture.redact("t", 3), Outcome::Redacted(true));
    let (stream, seq) = (StreamId(1), Seq(3));
    assert_eq!(fixture.effects, [Effect::Redacted { stream, seq }]);
    assert_eq!(fixture.redact("t", 3), Outcome::Redacted(false));
    assert!(fixture.effects.is_empty());
    assert_eq!(fixture.redact("t", 4), Outcome::Redacted(true));
    assert_eq!(
        [0, 7].map(|seq| fixture.redact("t", seq)),
        [Outcome::NoRecord, Outcome::NoRecord]
    );
    let redacted = fixture.partition("t").redacted(Seq(1)..Seq(4));
    assert!(redacted.eq([Seq(3)..Seq(4)]));
    assert_eq!((fixture.range("t"), fixture.store.0.len()), ((1, 7), 4));
    // The store panics if something is freed twice.
    fixture.trim(NOW + 20, "t");
    assert_eq!((fixture.range("t"), fixture.store.0.len()), ((7, 7), 0));
    assert_eq!(fixture.redact("t", 3), Outcome::NoRecord);
    assert_eq!(fixture.machine.totals().redacted, 2);
}
