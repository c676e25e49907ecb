//! The end of queues, and what is left of them in a snapshot.

use super::*;

#[test]
fn a_deleted_queue_takes_all_that_it_has_with_it() {
    let mut fixture = Fixture::new();
    let delayed = Message {
        priority: 1,
        due: Some(fixture.now.plus(1_000)),
    };
    fixture.create("q", &single());
    let places = fixture.publish("q", &[Message::default(), Message::default(), delayed]);
    let leased = fixture.lease("q", ANN, 1);
    let until = fixture.now.plus(9_000);
    fixture.apply(&publish_once(until, "q", "key", Message::default()));
    fixture.apply(&written(|out| {
        command::declare_exchange(out, "e", ExchangeKind::Topic, true, None);
    }));
    fixture.apply(&written(|out| {
        command::bind(out, "e", "q", "a.#", &HeaderRule::default());
    }));
    let before = fixture.queue("q");
    assert_eq!(fixture.delete("q", true), refused(QueueRefusal::NotEmpty(4)));
    assert_eq!(fixture.delete("q", false), Outcome::QueueDeleted(4));
    assert_eq!(fixture.delete("q", false), refused(QueueRefusal::NotFound));
    assert_eq!(
        (fixture.plane.queue("q"), fixture.plane.queue_name(before)),
        (None, None)
    );
    assert_eq!(
        fixture.plane.claim(token(leased[0]), fixture.now),
        Err(ClaimError::NotFound)
    );
    assert_eq!(
        (fixture.plane.held_by(ANN), fixture.plane.machine().keys_remembered()),
        (0, 0)
    );
    assert_eq!(fixture.plane.machine().exchange("e").unwrap().binding_count(), 0);
    assert_eq!(fixture.pass(10_000), []);
    // The next one of its name has nothing in common with it.
    assert!(matches!(
        fixture.apply(&publish_once(until, "q", "key", Message::default())),
        Outcome::Published(_)
    ));
    assert!(fixture.queue("q") > before);
    assert_eq!(fixture.plane.machine().options(fixture.queue("q")), None);
    assert_eq!(fixture.apply(&settle(Settle::Ack, &places[..1])), {
        let missing = vec![places[0].into()];
        Outcome::Settled { done: 0, missing }
    });
    assert_eq!((fixture.plane.totals().purged, fixture.stats("q")), (4, (1, 0, 0)));
}

#[test]
fn what_was_about_to_be_settled_or_purged_may_go_with_the_queue() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("q", 3);
    let leased = fixture.lease("q", ANN, 1);
    let claim = fixture.claim(token(leased[0]));
    let runs = fixture.plane.begin_purge(fixture.queue("q"));
    fixture.delete("q", false);
    fixture.plane.unclaim(claim.place, fixture.now);
    fixture.plane.abort_purge(&runs, fixture.now);
    fixture.plane.release(claim.place, fixture.now);
    fixture.plane.check();
    fixture.woken();
    let moved = fixture.apply(&dead_letter(claim.place, "dead", Message::default()));
    assert_eq!(moved, Outcome::DeadLettered(None));
}

#[test]
fn a_backlog_is_not_deleted_but_with_its_subscription() {
    let mut fixture = Fixture::new();
    fixture.apply(&attach("t", "x"));
    let backlog = QueueRefusal::Backlog {
        topic: "t".into(),
        subscription: "x".into(),
    };
    assert_eq!(fixture.delete("t:x", false), refused(backlog));
    fixture.apply(&written(|out| {
        command::remove_subscription(out, "t", "x", boltq_core::Millis::MAX);
    }));
    assert_eq!(fixture.delete("t:x", true), Outcome::QueueDeleted(0));
}

#[test]
fn a_subscription_is_deleted_with_its_backlog_unless_somebody_came_back() {
    let mut fixture = Fixture::new();
    fixture.apply(&attach("t", "x"));
    let seen = fixture.now;
    fixture.publish_plain("t:x", 3);
    let leased = fixture.lease("t:x", ANN, 1);
    fixture.pass(10);
    fixture.apply(&attach("t", "x"));
    let delete = |until| written(|out| command::delete_subscription(out, "t", "x", until));
    assert_eq!(fixture.apply(&delete(seen)), Outcome::SubscriptionRemoved(None));
    assert_eq!(fixture.stats("t:x"), (2, 1, 0));
    let now = fixture.now;
    assert_eq!(fixture.apply(&delete(now)), Outcome::SubscriptionRemoved(Some(3)));
    assert_eq!(fixture.apply(&delete(now)), Outcome::SubscriptionRemoved(None));
    assert_eq!((fixture.plane.queue("t:x"), fixture.plane.held_by(ANN)), (None, 0));
    assert_eq!(
        fixture.plane.claim(token(leased[0]), fixture.now),
        Err(ClaimError::NotFound)
    );
    assert_eq!(fixture.plane.totals().purged, 3);
    // The next one begins anew.
    fixture.apply(&attach("t", "x"));
    assert_eq!(fixture.stats("t:x"), (0, 0, 0));
}

#[test]
fn deleted_queues_leave_nothing_but_their_number() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("kept", 1);
    let before = fixture.plane.machine().snapshot().len();
    for n in 0..1_000 {
        let name = format!("temporary {n}");
        fixture.create(&name, &limited(5));
        fixture.publish_plain(&name, 2);
        fixture.delete(&name, false);
    }
    fixture.publish_plain("kept too", 1);
    assert_eq!(fixture.plane.machine().deleted_count(), 1_000);
    let after = fixture.plane.machine().snapshot();
    assert!(after.len() < before + 150, "{} bytes after {before}", after.len());
    let restored = Machine::restore(&after).unwrap();
    assert_eq!(restored.queue("kept too"), Some(crate::QueueId(1_001)));
    assert_eq!(restored.snapshot(), after);
}

#[test]
fn settings_that_contradict_their_queues_are_not_read() {
    let mut fixture = Fixture::new();
    fixture.create("q", &limited(0x0101_0101));
    fixture.publish_plain("gone", 1);
    fixture.delete("gone", false);
    let snapshot = fixture.plane.machine().snapshot();
    let mut machine = Machine::restore(&snapshot).unwrap();
    let refusal = |from: &[u8], to: &[u8]| {
        let at = snapshot.windows(from.len()).rposition(|part| part == from).unwrap();
        let mut bytes = snapshot.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        Machine::restore(&bytes).unwrap_err().to_string()
    };
    // One deleted queue, one queue with settings: that is number 0, and has only option 5.
    let tail = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 32, 0, 1, 1, 1, 1];
    for (position, value, why) in [
        (0, 2, "deleted queues: there are not as many as there should be"),
        (8, 1, "settings of queues: they are of a queue that does not exist"),
        (12, 0, "settings of queues: a queue has none"),
        (13, 255, "settings of a queue: 65312 is unknown to this version"),
    ] {
        let mut changed = tail;
        changed[position] = value;
        assert_eq!(refusal(&tail, &changed), why);
    }
    assert_eq!(machine.snapshot(), snapshot);
    let outcome = machine.apply(
        fixture.now,
        &publish("q", &[Message::default()]),
        0,
        &mut Applied::default(),
    );
    assert!(matches!(outcome, Ok(Outcome::Published(_))));
}
