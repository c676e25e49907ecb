//! Messages with an ordering key, rule by rule.

use boltq_core::{Millis, RecordBuilder, StateMachine};
use bytes::BytesMut;

use super::fixture::{ANN, BOB, Fixture, LEASE_MS, Message, done, fail, settle, token};
use crate::command::{self, PublishWriter, Settle};
use crate::ordering::WAITING_MAX;
use crate::{ClaimError, Handle, Leased, Machine, Outcome, Place, QueueOptions, Run};

/// The record of a message whose key is this letter; `-` is none.
pub(super) fn record(out: &mut BytesMut, key: char, priority: u8) {
    record_until(out, key, priority, None);
}

/// As [`record`], of a message that expires.
pub(super) fn record_until(out: &mut BytesMut, key: char, priority: u8, expires: Option<Millis>) {
    let mut buffer = [0; 4];
    let builder = RecordBuilder {
        json: false,
        priority,
        published_ns: 1,
        expires,
        due: None,
        ordering_key: if key == '-' { "" } else { key.encode_utf8(&mut buffer) },
        id: None,
        payload: b"payload",
    };
    builder.write(std::iter::empty(), out);
}

/// A publish of a message for each letter.
pub(super) fn publish(queue: &str, keys: &str) -> BytesMut {
    let messages: Vec<_> = keys.chars().map(|key| (key, None)).collect();
    publish_until(queue, &messages)
}

/// A publish of a message for each letter, and when it expires.
pub(super) fn publish_until(queue: &str, messages: &[(char, Option<Millis>)]) -> BytesMut {
    let mut out = BytesMut::new();
    let writer = PublishWriter::begin(&mut out, queue);
    for (key, expires) in messages {
        record_until(&mut out, *key, 0, *expires);
    }
    writer.finish(&mut out, u32::try_from(messages.len()).unwrap());
    out
}

fn put(fixture: &mut Fixture, keys: &str) -> Vec<Place> {
    match fixture.apply(&publish("q", keys)) {
        Outcome::Published(runs) => runs.places().collect(),
        other => panic!("{other:?}"),
    }
}

fn take(fixture: &mut Fixture) -> Vec<Place> {
    fixture.lease_places("q", ANN, 99)
}

fn take_one(fixture: &mut Fixture) -> Leased {
    let leased = fixture.lease("q", ANN, 99);
    assert_eq!(leased.len(), 1, "{leased:?}");
    leased[0]
}

fn peek(fixture: &Fixture) -> Vec<Place> {
    let mut places = Vec::new();
    fixture.plane.peek(fixture.queue("q"), 99, fixture.now, &mut places);
    places
}

fn purge(runs: &[Run]) -> BytesMut {
    let mut out = BytesMut::new();
    command::purge(&mut out, runs);
    out
}

fn move_to(begin: fn(&mut BytesMut, Place, &str), place: Place, queue: &str, key: char) -> BytesMut {
    let mut out = BytesMut::new();
    begin(&mut out, place, queue);
    record(&mut out, key, 0);
    out
}

#[test]
fn messages_of_a_key_come_one_after_the_other_and_other_keys_go_on() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "aabcab");
    let leased = fixture.lease("q", ANN, 99);
    let first: Vec<_> = leased.iter().map(|leased| leased.place).collect();
    assert_eq!(first, [places[0], places[2], places[3]]);
    assert_eq!((take(&mut fixture), fixture.stats("q")), (vec![], (3, 3, 0)));
    fixture.ack(token(leased[1]));
    assert_eq!(take(&mut fixture), [places[5]]);
    fixture.ack(token(leased[0]));
    let next = take_one(&mut fixture);
    assert_eq!(next.place, places[1]);
    fixture.ack(token(next));
    assert_eq!(take(&mut fixture), [places[4]]);
}

#[test]
fn however_many_consumers_ask_one_of_a_key_is_out() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "aaa");
    assert_eq!(fixture.lease_places("q", ANN, 1), places[..1]);
    assert_eq!(fixture.lease_places("q", BOB, 9), []);
    assert_eq!(peek(&fixture), []);
}

#[test]
fn a_failed_message_keeps_its_key_while_it_rests_and_comes_again_first() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "aab");
    let leased = fixture.lease("q", ANN, 99);
    fixture.nack(token(leased[0]));
    fixture.ack(token(leased[1]));
    assert_eq!(take(&mut fixture), []);
    fixture.woken();
    fixture.pass(100);
    assert_eq!(fixture.woken(), [fixture.queue("q")]);
    let again = take_one(&mut fixture);
    assert_eq!((again.place, again.attempts), (places[0], 1));
    fixture.ack(token(again));
    assert_eq!(take(&mut fixture), places[1..2]);
}

/// A change to the holder of a key, which is leased, or was.
type Change = fn(&mut Fixture, Leased);

#[test]
fn every_way_out_frees_the_key_and_wakes_somebody() {
    let ways: [(&str, Change); 9] = [
        ("acknowledged", |fixture, leased| fixture.ack(token(leased))),
        ("acknowledged by its place", |fixture, leased| {
            fixture.ack(Handle::Place(leased.place));
        }),
        ("acknowledged after its lease", |fixture, leased| {
            fixture.plane.release(leased.place, fixture.now);
            fixture.ack(token(leased));
        }),
        ("acknowledged while it rests", |fixture, leased| {
            fixture.nack(token(leased));
            fixture.ack(token(leased));
        }),
        ("expired", |fixture, leased| {
            let now = fixture.now;
            fixture.plane.note(leased.place, Some(now), None);
            let claim = fixture.plane.claim(token(leased), now);
            assert!(matches!(claim, Err(ClaimError::Expired(_))));
            fixture.apply(&settle(Settle::Expire, &[leased.place]));
        }),
        ("a dead letter", |fixture, leased| {
            fixture.claim(token(leased));
            fixture.apply(&move_to(command::begin_dead_letter, leased.place, "q_dead_letter", 'a'));
        }),
        ("a dead letter when its lease ended", |fixture, leased| {
            assert_eq!(fixture.pass(LEASE_MS).len(), 1);
            fixture.apply(&move_to(command::begin_dead_letter, leased.place, "q_dead_letter", 'a'));
        }),
        ("purged", |fixture, leased| {
            fixture.plane.release(leased.place, fixture.now);
            fixture.apply(&purge(&[Run::from(leased.place)]));
        }),
        ("settled by an earlier leader", |fixture, leased| {
            fixture.apply(&settle(Settle::Ack, &[leased.place]));
        }),
    ];
    for (way, leave) in ways {
        let mut fixture = Fixture::new();
        let places = put(&mut fixture, "aa");
        let leased = take_one(&mut fixture);
        fixture.woken();
        leave(&mut fixture, leased);
        assert!(fixture.woken().contains(&fixture.queue("q")), "{way}");
        assert_eq!(peek(&fixture), places[1..], "{way}");
        assert_eq!(take(&mut fixture), places[1..], "{way}");
    }
}

#[test]
fn every_way_back_keeps_the_key() {
    let ways: [(&str, Change); 6] = [
        ("released", |fixture, leased| {
            fixture.plane.release(leased.place, fixture.now);
        }),
        ("its consumer is gone", |fixture, _| {
            fixture.plane.release_consumer(ANN, fixture.now);
        }),
        ("its command was not proposed", |fixture, leased| {
            fixture.claim(token(leased));
            assert_eq!(peek(fixture), []);
            fixture.plane.unclaim(leased.place, fixture.now);
        }),
        ("failed", |fixture, leased| {
            fixture.nack(token(leased));
            assert_eq!(peek(fixture), []);
            fixture.pass(100);
        }),
        ("its lease ended", |fixture, leased| {
            assert_eq!(fixture.pass(LEASE_MS).len(), 1);
            assert_eq!(take(fixture), []);
            let soon = fixture.now.plus(5);
            assert_eq!(fixture.apply(&fail(&[leased.place], soon)), done(1));
            assert_eq!(take(fixture), []);
            fixture.pass(5);
        }),
        ("failed by what an earlier leader proposed", |fixture, leased| {
            fixture.apply(&fail(&[leased.place], fixture.now));
        }),
    ];
    for (way, come_back) in ways {
        let mut fixture = Fixture::new();
        let places = put(&mut fixture, "aa");
        let leased = take_one(&mut fixture);
        fixture.woken();
        come_back(&mut fixture, leased);
        assert_eq!(fixture.woken(), [fixture.queue("q")], "{way}");
        assert_eq!(take(&mut fixture), places[..1], "{way}");
    }
}

#[test]
fn an_extended_lease_keeps_the_key() {
    let mut fixture = Fixture::new();
    put(&mut fixture, "aa");
    let leased = take_one(&mut fixture);
    fixture.plane.extend(token(leased), 2 * LEASE_MS, fixture.now).unwrap();
    assert!(fixture.pass(LEASE_MS).is_empty());
    assert_eq!(take(&mut fixture), []);
    assert_eq!(fixture.pass(LEASE_MS).len(), 1);
}

#[test]
fn nobody_can_settle_a_message_that_waits_for_its_key() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "aab");
    // Whether it was looked at before or not.
    for _ in 0..2 {
        let claim = fixture.plane.claim(Handle::Place(places[1]), fixture.now);
        assert_eq!(claim, Err(ClaimError::NotFound));
        fixture.plane.check();
        assert_eq!(take(&mut fixture), [places[0], places[2]]);
        fixture.plane.release_consumer(ANN, fixture.now);
    }
}

#[test]
fn what_is_done_out_of_turn_is_left_out() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "aaaa");
    let leased = take_one(&mut fixture);
    fixture.apply(&settle(Settle::Ack, &[places[1]]));
    fixture.apply(&fail(&[places[2]], fixture.now.plus(50)));
    fixture.ack(token(leased));
    assert_eq!(take(&mut fixture), []);
    fixture.pass(50);
    let third = take_one(&mut fixture);
    assert_eq!((third.place, third.attempts), (places[2], 1));
    fixture.ack(token(third));
    assert_eq!(take(&mut fixture), places[3..]);
}

#[test]
fn messages_with_a_key_and_without_share_the_lowest_priority() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "--------");
    let keyed = put(&mut fixture, "abcdefgh");
    let one = |fixture: &mut Fixture| fixture.lease_places("q", ANN, 1)[0];
    let firsts: Vec<_> = (0..4).map(|_| one(&mut fixture)).collect();
    assert_eq!(firsts, [keyed[0], places[0], keyed[1], places[1]]);
    let urgent = Message {
        priority: 9,
        ..Message::default()
    };
    let urgent = fixture.publish("q", &[urgent]);
    let some = fixture.lease_places("q", ANN, 4);
    assert_eq!(some, [urgent[0], keyed[2], keyed[3], places[2]]);
    // What one has too little of, the other may have.
    let mut shown = Vec::new();
    fixture.plane.peek(fixture.queue("q"), 8, fixture.now, &mut shown);
    let rest = [&places[3..7], &keyed[4..8]].concat();
    assert_eq!(shown, rest);
    assert_eq!(fixture.lease_places("q", ANN, 8), rest);
    assert_eq!(take(&mut fixture), places[7..]);
}

#[test]
fn a_publish_with_and_without_keys_says_where_each_is() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "a-b-a");
    let lanes: Vec<_> = places.iter().map(|place| (place.stream.0, place.seq.0)).collect();
    assert_eq!(lanes, [(27, 1), (16, 1), (27, 2), (16, 2), (27, 3)]);
}

#[test]
fn a_purge_takes_what_waits_and_leaves_what_somebody_holds() {
    let mut fixture = Fixture::new();
    put(&mut fixture, "aabab");
    let leased = fixture.lease("q", ANN, 1)[0];
    let runs = fixture.plane.begin_purge(fixture.queue("q"));
    fixture.plane.check();
    assert_eq!(fixture.apply(&purge(&runs)), Outcome::Purged(4));
    let new = put(&mut fixture, "ab");
    assert_eq!(take(&mut fixture), new[1..]);
    fixture.ack(token(leased));
    assert_eq!(take(&mut fixture), new[..1]);
}

#[test]
fn while_a_purge_is_on_its_way_nothing_overtakes_what_it_may_give_back() {
    let mut fixture = Fixture::new();
    let old = put(&mut fixture, "aabc");
    let leased = fixture.lease("q", ANN, 1)[0];
    let runs = fixture.plane.begin_purge(fixture.queue("q"));
    let new = put(&mut fixture, "abd");
    fixture.ack(token(leased));
    assert_eq!((take(&mut fixture), peek(&fixture)), (vec![], vec![]));
    fixture.woken();
    fixture.plane.abort_purge(&runs, fixture.now);
    fixture.plane.check();
    assert_eq!(fixture.woken(), [fixture.queue("q")]);
    assert_eq!(take(&mut fixture), [old[1], old[2], old[3], new[2]]);
}

#[test]
fn looking_ahead_has_an_end_and_goes_on_when_keys_are_free() {
    let mut fixture = Fixture::new();
    let many = "a".repeat(WAITING_MAX + 1);
    put(&mut fixture, &many);
    let near = put(&mut fixture, "b");
    put(&mut fixture, "a");
    let far = put(&mut fixture, "c");
    let leased = fixture.lease("q", ANN, 99);
    assert_eq!((leased.len(), leased[1].place), (2, near[0]));
    assert_eq!(take(&mut fixture), []);
    let shown_by_a_new_leader = |fixture: &Fixture| {
        let mut plane = crate::Plane::new(
            Machine::restore(&fixture.plane.machine().snapshot()).unwrap(),
            super::fixture::SETTINGS,
        );
        plane.lead(fixture.term, fixture.now);
        let mut shown = Vec::new();
        plane.peek(fixture.queue("q"), 99, fixture.now, &mut shown);
        shown
    };
    assert!(!shown_by_a_new_leader(&fixture).contains(&far[0]));
    fixture.woken();
    fixture.ack(token(leased[0]));
    assert_eq!(fixture.woken(), [fixture.queue("q")]);
    assert!(shown_by_a_new_leader(&fixture).contains(&far[0]));
    let next = take(&mut fixture);
    assert_eq!((next.len(), next[1]), (2, far[0]));
}

#[test]
fn a_new_leader_hands_out_the_same_and_takes_late_acknowledgements() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "aabbcc");
    let leased = fixture.lease("q", ANN, 99);
    fixture.nack(token(leased[2]));
    fixture.fail_over();
    assert_eq!(peek(&fixture), [places[0], places[2]]);
    // It has looked at nothing yet.
    fixture.ack(token(leased[1]));
    assert_eq!(take(&mut fixture), [places[0], places[3]]);
    fixture.pass(100);
    let third = take_one(&mut fixture);
    assert_eq!((third.place, third.attempts), (places[4], 1));
    assert_eq!(
        fixture.plane.claim(token(leased[0]), fixture.now),
        Err(ClaimError::LeaseLost)
    );
}

#[test]
fn dead_letters_do_not_wait_for_each_other_and_go_back_behind_the_rest() {
    let mut fixture = Fixture::new();
    put(&mut fixture, "aaa");
    for _ in 0..2 {
        let leased = take_one(&mut fixture);
        fixture.claim(token(leased));
        fixture.apply(&move_to(command::begin_dead_letter, leased.place, "q_dead_letter", 'a'));
    }
    let dead = fixture.lease("q_dead_letter", ANN, 9);
    assert_eq!(dead.len(), 2);
    let mut back = Vec::new();
    for leased in dead {
        fixture.claim(token(leased));
        match fixture.apply(&move_to(command::begin_redrive, leased.place, "q", 'a')) {
            Outcome::Redriven(Some(place)) => back.push(place),
            other => panic!("{other:?}"),
        }
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        let leased = take_one(&mut fixture);
        seen.push(leased.place);
        fixture.ack(token(leased));
    }
    assert_eq!(seen[1..], back);
}

#[test]
fn keys_are_in_snapshots_as_long_as_a_message_has_one() {
    let mut fixture = Fixture::new();
    put(&mut fixture, "aba");
    let first = fixture.lease("q", ANN, 1)[0];
    fixture.ack(token(first));
    let snapshot = fixture.plane.machine().snapshot();
    assert_eq!(snapshot[0], 4);
    assert_eq!(Machine::restore(&snapshot).unwrap().snapshot(), snapshot);
    for _ in 0..2 {
        let leased = fixture.lease("q", ANN, 1)[0];
        fixture.ack(token(leased));
    }
    let snapshot = fixture.plane.machine().snapshot();
    assert_eq!(snapshot[0], 1);
    assert_eq!(Machine::restore(&snapshot).unwrap().snapshot(), snapshot);
}

#[test]
fn a_snapshot_without_the_key_of_each_message_is_refused() {
    let mut fixture = Fixture::new();
    put(&mut fixture, "ab");
    let snapshot = fixture.plane.machine().snapshot();
    // Number of sections; tag, length; number of queues; queue, number of messages, two hashes.
    let at = snapshot.len() - (1 + 5 + 4 + 8 + 16);
    let refusal = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = snapshot.clone();
        change(&mut bytes);
        Machine::restore(&bytes).unwrap_err().to_string()
    };
    assert_eq!(snapshot[at..at + 14], [1, 3, 28, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    let no_section = refusal(&|bytes| {
        bytes.truncate(at);
        bytes.push(0);
    });
    assert!(
        no_section.starts_with("ordering keys: there is not one for each"),
        "{no_section}"
    );
    let other_queue = refusal(&|bytes| bytes[at + 10] = 1);
    assert!(
        other_queue.starts_with("ordering keys: the queue has no messages"),
        "{other_queue}"
    );
    let too_few = refusal(&|bytes| {
        bytes[at + 2] -= 8;
        bytes[at + 14] = 1;
        bytes.truncate(bytes.len() - 8);
    });
    assert!(
        too_few.starts_with("ordering keys: there is not one for each"),
        "{too_few}"
    );
    let twice = refusal(&|bytes| {
        let queue = bytes[at + 10..].to_vec();
        bytes.extend(queue);
        (bytes[at + 2], bytes[at + 6]) = (52, 2);
    });
    assert!(twice.starts_with("ordering keys: queues are out of order"), "{twice}");
}

#[test]
fn what_makes_room_frees_its_key_also_if_somebody_has_it() {
    let mut fixture = Fixture::new();
    let options = QueueOptions {
        max_length: Some(2),
        drop_oldest: true,
        ..QueueOptions::default()
    };
    let mut out = BytesMut::new();
    command::create_queue(&mut out, "q", &options);
    fixture.apply(&out);
    let places = put(&mut fixture, "aa");
    take_one(&mut fixture);
    put(&mut fixture, "a");
    assert_eq!(take(&mut fixture), places[1..]);
}

#[test]
fn keys_of_a_deleted_queue_are_forgotten() {
    let mut fixture = Fixture::new();
    put(&mut fixture, "aab");
    take(&mut fixture);
    let mut out = BytesMut::new();
    command::delete_queue(&mut out, "q", false);
    fixture.apply(&out);
    let new = put(&mut fixture, "ab");
    fixture.fail_over();
    assert_eq!(take(&mut fixture), new);
}

#[test]
fn time_passes_for_messages_that_were_not_looked_at() {
    let mut fixture = Fixture::new();
    let places = put(&mut fixture, "ab");
    fixture.apply(&fail(&[places[0]], fixture.now.plus(50)));
    fixture.fail_over();
    assert_eq!(take(&mut fixture), places[1..]);
    assert_eq!(fixture.plane.next_tick(), Some(Millis(fixture.now.0 + 50)));
    fixture.woken();
    fixture.pass(50);
    assert_eq!(fixture.woken(), [fixture.queue("q")]);
    assert_eq!(take(&mut fixture), places[..1]);
}
