//! Topics, at home and away from it.

use boltq_core::{Millis, Seq, StreamId};

use super::fixture::{Fixture, NOW, ONE, append_bytes, claim, here, reader, settings};
use crate::command::{self, CursorOf, Target};
use crate::{AppendRefusal, Commit, Effect, Outcome, Terms, Version};

#[test]
fn a_topic_that_was_appended_to_is_what_the_first_append_said() {
    let mut fixture = Fixture::default();
    fixture.append(NOW, "t", &Terms::at_home(settings(4, 5, 6)), &[1]);
    fixture.append(NOW + 9, "t", &Terms::at_home(settings(2, 7, 8)), &[1]);
    let terms = fixture.machine.topic("t").unwrap().terms();
    assert_eq!((terms.settings, terms.created.time()), (settings(4, 5, 6), Millis(NOW)));
    assert_eq!(terms.changed, terms.created);
}

#[test]
fn reading_and_committing_create_nothing() {
    let mut fixture = Fixture::default();
    assert_eq!(fixture.commit(&reader("t", 0, "phone"), 1), Commit::NoPartition);
    assert!(fixture.machine.topic("t").is_none());
    let trimmed = Outcome::Trimmed {
        records: 0,
        more: false,
    };
    assert_eq!(fixture.trim(NOW, "t"), trimmed);
    assert_eq!(fixture.redact("t", 1), Outcome::NoTopic);
    assert_eq!(
        fixture.run(NOW, |out| command::delete(out, here("t"))),
        Outcome::NoTopic
    );
    assert_eq!((fixture.machine.topic_count(), fixture.machine.cursor_count()), (0, 0));
}

#[test]
fn nothing_of_a_deleted_topic_comes_back_with_the_next_one_of_its_name() {
    let mut fixture = Fixture::default();
    let send = append_bytes("t", 0, &Terms::at_home(ONE), claim("m-1", 9), &[(NOW, vec![1])]);
    fixture.send(NOW, &send);
    fixture.commit(&reader("t", 0, "phone"), 2);
    let created = fixture.machine.topic("t").unwrap().terms().created;
    assert_eq!(
        fixture.run(NOW, |out| command::delete(out, here("t"))),
        Outcome::Deleted(1)
    );
    assert_eq!(fixture.effects, [Effect::Ended { stream: StreamId(1) }]);
    assert_eq!(fixture.store.0.len(), 0);
    let again = fixture.send(NOW, &send);
    assert_eq!(
        (again.first, again.stream, again.duplicate),
        (Seq(1), StreamId(2), false)
    );
    assert!(fixture.machine.topic("t").unwrap().terms().created > created);
    assert!(fixture.machine.cursor(StreamId(2), "user:ana", "phone").is_none());
    // Who means the earlier one does nothing to the later one.
    let target = Target { topic: "t", created };
    assert_eq!(fixture.run(NOW, |out| command::delete(out, target)), Outcome::NoTopic);
    assert_eq!(
        fixture.run(NOW, |out| command::redact(out, target, 0, 1)),
        Outcome::NoTopic
    );
    let late = CursorOf {
        target,
        ..reader("t", 0, "phone")
    };
    assert_eq!(fixture.commit(&late, 1), Commit::NoPartition);
}

/// What a topic has in a group that is not its home follows the home.
#[test]
fn a_partition_away_from_home_is_of_the_topic_that_its_home_has() {
    let mut fixture = Fixture::default();
    let terms = |created, changed, max_age_ms| Terms {
        created: Version(created),
        changed: Version(changed),
        settings: settings(4, max_age_ms, 0),
    };
    let bytes = |terms: &Terms| append_bytes("t", 3, terms, None, &[(NOW * 1_000_000, vec![])]);
    let max_age_ms = |fixture: &Fixture| {
        let terms = fixture.machine.topic("t").unwrap().terms();
        terms.settings.retention.max_age_ms
    };
    // Settings that are older than those that are here say nothing.
    for (terms, first, then) in [
        (terms(7, 7, 10), 1, 10),
        (terms(7, 9, 20), 2, 20),
        (terms(7, 8, 30), 3, 20),
    ] {
        assert_eq!(fixture.send(NOW, &bytes(&terms)).first, Seq(first));
        assert_eq!(max_age_ms(&fixture), then);
    }
    fixture.run(NOW, |out| command::adopt(out, "t", &terms(7, 10, 40)));
    assert_eq!((max_age_ms(&fixture), fixture.store.0.len()), (40, 3));
    // It was deleted at home, and there is another one now.
    assert_eq!(fixture.send(NOW, &bytes(&terms(11, 11, 50))).first, Seq(1));
    assert_eq!((max_age_ms(&fixture), fixture.store.0.len()), (50, 1));
    let stale = fixture.apply(NOW, &bytes(&terms(7, 10, 40)));
    assert_eq!(stale, Outcome::Refused(AppendRefusal::Stale));
    fixture.run(NOW, |out| command::adopt(out, "t", &terms(12, 12, 0)));
    assert_eq!((fixture.machine.topic_count(), fixture.store.0.len()), (0, 0));
}

#[test]
fn partitions_of_a_topic_are_apart_and_go_with_it() {
    let mut fixture = Fixture::default();
    let terms = Terms::at_home(settings(5, 0, 0));
    for partition in [3, 0, 4, 3] {
        fixture.send(NOW, &append_bytes("t", partition, &terms, None, &[(NOW, vec![])]));
    }
    let topic = fixture.machine.topic("t").unwrap();
    let partitions = topic.partitions().map(|one| (one.number(), one.next_seq().0));
    assert!(partitions.eq([(0, 2), (3, 3), (4, 2)]));
    assert!(topic.partition(1).is_none());
    assert_eq!(
        fixture.run(NOW, |out| command::delete(out, here("t"))),
        Outcome::Deleted(4)
    );
    assert_eq!((fixture.effects.len(), fixture.store.0.len()), (3, 0));
}
