//! Who gets messages of a queue.

use super::*;

#[test]
fn a_paused_queue_takes_messages_and_gives_none_until_it_goes_on() {
    let mut fixture = Fixture::new();
    fixture.publish_plain("q", 2);
    let leased = fixture.lease("q", ANN, 1);
    fixture.pause("q", true);
    fixture.publish_plain("q", 1);
    assert_eq!(fixture.lease("q", BOB, 9), []);
    fixture.ack(token(leased[0]));
    fixture.fail_over();
    assert_eq!(fixture.lease("q", BOB, 9), []);
    fixture.woken();
    fixture.pause("q", false);
    let queue = fixture.queue("q");
    assert_eq!(fixture.woken(), [queue]);
    assert_eq!(fixture.lease("q", BOB, 9).len(), 2);
}

#[test]
fn the_next_consumer_waits_until_the_first_has_ended_and_is_settled() {
    let mut fixture = Fixture::new();
    fixture.create("q", &single());
    fixture.publish_plain("q", 4);
    let queue = fixture.queue("q");
    let leased = fixture.lease("q", ANN, 2);
    assert_eq!(fixture.lease("q", BOB, 2), []);
    assert!(fixture.plane.wakes_all(queue));
    let claim = fixture.claim(token(leased[0]));
    assert_eq!(fixture.plane.release_consumer(ANN, fixture.now), 1);
    fixture.woken();
    assert_eq!(fixture.lease("q", BOB, 2), []);
    fixture.apply(&settle(Settle::Ack, &[claim.place]));
    assert_eq!(fixture.woken(), [queue]);
    assert_eq!(fixture.lease_places("q", BOB, 1), [leased[1].place]);
    assert_eq!(fixture.lease("q", ANN, 9), []);
    // Then all of them again.
    fixture.change("q", &[QueueOption::SingleActiveConsumer], &QueueOptions::default());
    assert!(!fixture.plane.wakes_all(queue));
    assert_eq!(fixture.lease("q", ANN, 1).len(), 1);
}

#[test]
fn calls_without_a_connection_are_one_consumer_that_gives_way() {
    let mut fixture = Fixture::new();
    fixture.create("q", &single());
    fixture.publish_plain("q", 3);
    let queue = fixture.queue("q");
    let leased = fixture.lease("q", ConsumerId::DETACHED, 1);
    assert_eq!(fixture.lease("q", ConsumerId::DETACHED, 0), []);
    assert_eq!(fixture.lease("q", ANN, 1), []);
    fixture.woken();
    fixture.nack(token(leased[0]));
    assert_eq!(fixture.woken(), [queue]);
    assert_eq!(fixture.lease("q", ANN, 1).len(), 1);
    assert_eq!(fixture.lease("q", ConsumerId::DETACHED, 1), []);
}
