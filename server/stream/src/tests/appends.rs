//! Sequences, timestamps, what is repeated, and what the log is told.

use boltq_core::{Applied, Millis, Seq, StateMachine, StorageEffect, StreamId};

use super::fixture::{Fixture, NOW, ONE, append_bytes, claim, settings};
use crate::{AppendRefusal, Machine, Outcome, Terms};

#[test]
fn sequences_begin_at_1_and_have_no_gaps_whatever_their_batches_are() {
    let mut fixture = Fixture::default();
    let terms = Terms::at_home(ONE);
    for (payloads, first) in [(&[1, 2, 3][..], 1), (&[4], 4), (&[5, 6], 5)] {
        let appended = fixture.append(NOW, "t", &terms, payloads);
        assert_eq!((appended.first, appended.count as usize), (Seq(first), payloads.len()));
        assert!(!appended.duplicate);
    }
    assert_eq!(fixture.range("t"), (1, 7));
}

#[test]
fn an_append_to_a_partition_that_the_topic_does_not_have_changes_nothing() {
    let mut fixture = Fixture::default();
    let bytes = append_bytes("t", 2, &Terms::at_home(settings(2, 0, 0)), None, &[(1, vec![])]);
    let refused = Outcome::Refused(AppendRefusal::NoPartition { partitions: 2 });
    assert_eq!(fixture.apply(NOW, &bytes), refused);
    assert_eq!((fixture.machine.topic_count(), fixture.store.0.len()), (0, 0));
}

#[test]
fn timestamps_never_fall_and_readers_see_what_appenders_were_told() {
    let mut fixture = Fixture::default();
    let terms = Terms::at_home(ONE);
    let ms = |ms: u64| (NOW + ms) * 1_000_000;
    let records = [ms(5), ms(3), ms(7) + 1, ms(7), ms(4), ms(9)].map(|stamp| (stamp, vec![]));
    let mut told = Vec::new();
    for record in &records {
        let bytes = append_bytes("t", 0, &terms, None, std::slice::from_ref(record));
        told.push(fixture.send(NOW, &bytes).timestamp_ns);
    }
    assert_eq!(told, [ms(5), ms(5), ms(7) + 1, ms(7) + 1, ms(7) + 1, ms(9)]);
    let partition = fixture.partition("t");
    let seen = (1..)
        .zip(&records)
        .map(|(seq, (stamp, _))| partition.timestamp_ns(Seq(seq), *stamp));
    assert_eq!(seen.collect::<Vec<_>>(), told);
    assert_eq!(partition.last_timestamp_ns(), ms(9));
}

#[test]
fn the_same_append_again_is_answered_as_the_first_one() {
    let mut fixture = Fixture::default();
    let message = |now, topic, id| {
        let said = [(now * 1_000_000, vec![])];
        append_bytes(topic, 0, &Terms::at_home(ONE), claim(id, 2), &said)
    };
    let first = fixture.send(NOW, &message(NOW, "t", "m-1"));
    let again = fixture.send(NOW + 9_999, &message(NOW + 9_999, "t", "m-1"));
    assert_eq!((again.first, again.timestamp_ns), (first.first, first.timestamp_ns));
    assert_eq!((again.duplicate, fixture.range("t")), (true, (1, 2)));
    // The same id in another conversation is another message.
    assert!(!fixture.send(NOW + 9_999, &message(NOW, "u", "m-1")).duplicate);
    // And there is no room for a third one, until the time of the first is over.
    let third = fixture.apply(NOW + 9_999, &message(NOW, "t", "m-2"));
    assert_eq!(third, Outcome::Refused(AppendRefusal::ClaimsFull));
    assert_eq!(fixture.range("t"), (1, 2));
    // Repeating did not make it last longer.
    assert!(!fixture.send(NOW + 10_000, &message(NOW, "t", "m-1")).duplicate);
    assert_eq!((fixture.range("t"), fixture.machine.totals().duplicates), ((1, 3), 1));
}

#[test]
fn what_was_refused_is_not_a_duplicate_when_it_is_sent_again() {
    let mut fixture = Fixture::default();
    let send = |partition| append_bytes("t", partition, &Terms::at_home(ONE), claim("m-1", 9), &[(1, vec![])]);
    assert!(matches!(fixture.apply(NOW, &send(1)), Outcome::Refused(_)));
    assert!(!fixture.send(NOW, &send(0)).duplicate);
}

#[test]
fn a_duplicate_is_known_when_its_record_is_no_more() {
    let mut fixture = Fixture::default();
    let terms = Terms::at_home(settings(1, 10, 0));
    let send = append_bytes("t", 0, &terms, claim("m-1", 9), &[(NOW * 1_000_000, vec![])]);
    fixture.send(NOW, &send);
    fixture.trim(NOW + 10, "t");
    assert_eq!(fixture.range("t"), (2, 2));
    let again = fixture.send(NOW + 11, &send);
    assert_eq!((again.first, again.duplicate), (Seq(1), true));
}

#[test]
fn a_command_that_cannot_be_read_changes_nothing() {
    let mut machine = Machine::default();
    let whole = append_bytes("t", 0, &Terms::at_home(ONE), None, &[(5, vec![1; 30]), (6, vec![2; 3])]);
    let with = |at: usize, bytes: &[u8]| {
        let mut other = whole.to_vec();
        other[at..at + bytes.len()].copy_from_slice(bytes);
        other
    };
    let (created_at, partitions_at, count_at) = (1 + 2 + 4, 1 + 2 + 4 + 16, 1 + 2 + 4 + 36 + 1);
    let longer = [&whole[..], &[0]].concat();
    let none = with(count_at, &[0])[..count_at + 4].to_vec();
    let cut = (0..whole.len()).map(|end| whole[..end].to_vec());
    let bad = [
        longer,
        none,
        with(count_at, &[1]),
        with(partitions_at, &[0; 4]),
        // It was changed before it was created; and no version is so high.
        with(created_at, &[1]),
        with(created_at, &[0xff; 16]),
        vec![10],
        vec![0],
    ];
    let before = machine.snapshot();
    for bad in cut.chain(bad) {
        let mut applied = Applied::default();
        assert!(machine.apply(Millis(NOW), &bad, 0, &mut applied).is_err(), "{bad:?}");
        assert!(applied.storage.is_empty() && machine.snapshot() == before);
    }
    let far = machine.apply(Millis(NOW), &whole, u32::MAX - 3, &mut Applied::default());
    assert_eq!(
        far.unwrap_err().to_string(),
        "records: they are further on than an entry can be long"
    );
    assert_eq!(machine.snapshot(), before);
}

#[test]
fn the_store_is_told_where_records_are_in_their_entry() {
    let mut machine = Machine::default();
    let bytes = append_bytes("t", 0, &Terms::at_home(ONE), None, &[(5, vec![1; 30]), (6, vec![2; 3])]);
    let mut applied = Applied::default();
    machine.apply(Millis(NOW), &bytes, 100, &mut applied).unwrap();
    let placed = StorageEffect::Placed {
        stream: StreamId(1),
        first: Seq(1),
        count: 2,
        offset: 100 + 48,
        bytes: 33 + 2 * 15,
    };
    assert_eq!(applied.storage, [placed]);
    assert_eq!(bytes.len(), 48 + 33 + 2 * 15);
}
