//! Settings of queues, and their end.

mod consumers;
mod deletion;
mod limits;

use boltq_core::{Applied, StateMachine, StorageEffect};
use bytes::BytesMut;

use super::fixture::{ANN, BOB, Fixture, Message, dead_letter, publish, publish_once, settle, token};
use super::routing::{attach, publish_exchange, publish_topic, written};
use crate::command::{self, Settle};
use crate::{
    ClaimError, ConsumerId, ExchangeKind, HeaderRule, Machine, Outcome, QueueOption, QueueOptionSet, QueueOptions,
    QueueRefusal,
};

pub(super) fn limited(max_length: u64) -> QueueOptions {
    QueueOptions {
        max_length: Some(max_length),
        ..QueueOptions::default()
    }
}

fn dropping(max_length: u64) -> QueueOptions {
    QueueOptions {
        drop_oldest: true,
        ..limited(max_length)
    }
}

fn single() -> QueueOptions {
    QueueOptions {
        single_active_consumer: true,
        ..QueueOptions::default()
    }
}

fn dead_letters_to(queue: &str) -> QueueOptions {
    QueueOptions {
        dead_letter_queue: Some(queue.into()),
        ..QueueOptions::default()
    }
}

impl Fixture {
    pub(super) fn create(&mut self, queue: &str, options: &QueueOptions) -> Outcome {
        self.apply(&written(|out| command::create_queue(out, queue, options)))
    }

    pub(super) fn change(&mut self, queue: &str, which: &[QueueOption], options: &QueueOptions) -> Outcome {
        let mut set = QueueOptionSet::default();
        which.iter().for_each(|option| set.insert(*option));
        self.apply(&written(|out| command::change_queue(out, queue, set, options)))
    }

    fn delete(&mut self, queue: &str, only_if_empty: bool) -> Outcome {
        self.apply(&written(|out| command::delete_queue(out, queue, only_if_empty)))
    }

    fn pause(&mut self, queue: &str, paused: bool) {
        let options = QueueOptions {
            paused,
            ..QueueOptions::default()
        };
        self.change(queue, &[QueueOption::Paused], &options);
    }

    /// How many were taken and refused.
    fn fill(&mut self, queue: &str, count: usize) -> (u64, u64) {
        match self.apply(&publish(queue, &vec![Message::default(); count])) {
            Outcome::Published(runs) => (runs.places().count() as u64, 0),
            Outcome::Full { published, refused, .. } => (published.places().count() as u64, refused),
            other => panic!("{other:?}"),
        }
    }
}

fn refused(refusal: QueueRefusal) -> Outcome {
    Outcome::QueueRefused(refusal)
}

#[test]
fn creating_again_is_harmless_unless_something_else_is_asked_for() {
    let mut fixture = Fixture::new();
    let created = fixture.create("q", &limited(3));
    let queue = fixture.queue("q");
    assert_eq!(created, Outcome::QueueSet { queue, new: true });
    assert_eq!(
        fixture.create("q", &limited(3)),
        Outcome::QueueSet { queue, new: false }
    );
    assert_eq!(fixture.create("q", &limited(4)), refused(QueueRefusal::Exists));
    fixture.publish_plain("plain", 1);
    assert_eq!(fixture.create("plain", &limited(3)), refused(QueueRefusal::Exists));
    assert!(matches!(
        fixture.create("plain", &QueueOptions::default()),
        Outcome::QueueSet { .. }
    ));
}

#[test]
fn a_change_is_about_what_it_names_and_back_to_the_server_if_that_has_no_value() {
    let mut fixture = Fixture::new();
    let nothing = QueueOptions::default();
    assert_eq!(
        fixture.change("q", &[QueueOption::MaxLength], &limited(1)),
        refused(QueueRefusal::NotFound)
    );
    fixture.create("q", &limited(3));
    let retries = QueueOptions {
        max_retry: Some(7),
        ..dropping(9)
    };
    fixture.change("q", &[QueueOption::MaxRetry], &retries);
    let queue = fixture.queue("q");
    let expected = QueueOptions {
        max_retry: Some(7),
        ..limited(3)
    };
    assert_eq!(fixture.plane.machine().options(queue), Some(&expected));
    assert_eq!(fixture.plane.settings(queue).max_retry, 7);
    fixture.fail_over();
    assert_eq!(fixture.plane.machine().options(queue), Some(&expected));
    fixture.change("q", &[QueueOption::MaxRetry, QueueOption::MaxLength], &nothing);
    assert_eq!(fixture.plane.machine().options(queue), None);
    assert_eq!(
        fixture.plane.settings(queue).max_retry,
        super::fixture::SETTINGS.max_retry
    );
}

#[test]
fn keys_are_remembered_as_long_as_the_queue_says() {
    let mut fixture = Fixture::new();
    let options = QueueOptions {
        dedup_ttl_ms: Some(50),
        ..QueueOptions::default()
    };
    fixture.create("q", &options);
    for (pass, stored) in [(0, true), (49, false), (1, true)] {
        fixture.pass(pass);
        let outcome = fixture.apply(&publish_once(fixture.now.plus(9_000), "q", "a", Message::default()));
        assert_eq!(matches!(outcome, Outcome::Published(_)), stored, "{outcome:?}");
    }
}

#[test]
fn dead_letters_go_where_the_queue_says_and_never_in_a_circle() {
    let mut fixture = Fixture::new();
    let to = |fixture: &Fixture, queue: &str| fixture.plane.machine().dead_letter_queue(queue).into_owned();
    fixture.create("q", &dead_letters_to("morgue"));
    assert_eq!(to(&fixture, "q"), "morgue");
    assert_eq!(to(&fixture, "morgue"), "morgue_dead_letter");
    assert_eq!(to(&fixture, "morgue_dead_letter"), "morgue_dead_letter");
    let returns = refused(QueueRefusal::DeadLettersReturn);
    assert_eq!(fixture.create("self", &dead_letters_to("self")), returns);
    assert_eq!(fixture.create("morgue_dead_letter", &dead_letters_to("q")), returns);
    assert_eq!(fixture.create("morgue", &dead_letters_to("q")), returns);
    assert_eq!(fixture.create("other_dead_letter", &dead_letters_to("other")), returns);
    assert!(fixture.plane.queue("morgue").is_none());
    let created = fixture.create("morgue", &dead_letters_to("cemetery"));
    assert!(matches!(created, Outcome::QueueSet { new: true, .. }));
    let which = [QueueOption::DeadLetterQueue];
    assert_eq!(fixture.change("morgue", &which, &dead_letters_to("q")), returns);
    assert_eq!(to(&fixture, "morgue"), "cemetery");
}
