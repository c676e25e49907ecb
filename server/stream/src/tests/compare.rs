//! What the model and a machine have in common.

use boltq_core::{Millis, Seq, StreamId};

use super::fixture::Fixture;
use super::model::{Model, Partition, Topic};
use crate::{AppendRefusal, Commit, Machine, Outcome, PartitionView};

/// That a machine, and what is stored, is what the model says.
pub(super) fn compare(fixture: &Fixture, model: &Model) {
    let machine = &fixture.machine;
    assert_eq!(machine.topics_after(None).count(), model.topics.len());
    let mut stored = 0;
    for ((name, view), (wanted, topic)) in machine.topics_after(None).zip(&model.topics) {
        assert_eq!((name, view.terms()), (wanted.as_str(), topic.terms));
        assert_eq!(view.partitions().count(), topic.partitions.len());
        for (view, (number, partition)) in view.partitions().zip(&topic.partitions) {
            assert_eq!((view.number(), view.stream().0), (*number, partition.stream));
            compare_partition(fixture, view, partition);
            compare_cursors(machine, partition);
            stored += partition.rows().filter(|row| row.content.is_some()).count();
        }
    }
    assert_eq!(fixture.store.0.len(), stored, "what is stored is not what is wanted");
    assert_eq!(machine.claim_count(), model.claim_count());
    assert_eq!(machine.cursor_count(), model.cursor_count());
    let rows = |topic: &Topic| topic.partitions.values().map(|one| one.rows().count()).sum::<usize>();
    assert_eq!(
        machine.record_count(),
        model.topics.values().map(rows).sum::<usize>() as u64
    );
    let now = Millis(model.now + 50);
    assert_eq!(machine.overdue(None, 100, now).topics, model.overdue(now));
}

fn compare_partition(fixture: &Fixture, view: PartitionView<'_>, partition: &Partition) {
    assert_eq!(
        (view.first_seq().0, view.next_seq().0),
        (partition.first(), partition.next)
    );
    assert_eq!(
        (view.bytes(), view.last_timestamp_ns()),
        (partition.bytes(), partition.last_ns)
    );
    let all = Seq(0)..Seq(u64::MAX);
    let redacted: Vec<u64> = view
        .redacted(all)
        .flat_map(|range| range.start.0..range.end.0)
        .collect();
    let without = partition.rows().filter(|row| row.content.is_none());
    assert_eq!(redacted, without.map(|row| row.seq).collect::<Vec<_>>());
    for row in partition.rows() {
        assert_eq!(view.is_redacted(Seq(row.seq)), row.content.is_none());
        let Some(content) = &row.content else { continue };
        let record = fixture.store.record(partition.stream, row.seq);
        assert_eq!(record.payload, content);
        assert_eq!(view.timestamp_ns(Seq(row.seq), record.published_ns), row.ns);
    }
    for time in partition
        .rows()
        .step_by(7)
        .flat_map(|row| [row.ns, row.ns + 1])
        .chain([0])
    {
        let around = view.around(time);
        let first = partition
            .rows()
            .find(|row| row.ns >= time)
            .map_or(partition.next, |row| row.seq);
        assert!(
            (around.start.0..=around.end.0).contains(&first),
            "{first} is not around {around:?}"
        );
    }
}

fn compare_cursors(machine: &Machine, partition: &Partition) {
    let stream = StreamId(partition.stream);
    let mut cursors: Vec<_> = machine
        .cursors_after(stream, None)
        .map(|(group, member, position)| ((group.to_owned(), member.to_owned()), position.0))
        .collect();
    cursors.sort();
    let wanted: Vec<_> = partition
        .cursors
        .iter()
        .map(|(names, position)| (names.clone(), *position))
        .collect();
    assert_eq!(cursors, wanted);
    for ((group, member), position) in &wanted {
        assert_eq!(machine.cursor(stream, group, member), Some(Seq(*position)));
    }
}

/// What kind of an outcome it is, of those that a test has to have seen.
pub(super) fn kinds(outcome: &Outcome) -> Vec<&'static str> {
    vec![match outcome {
        Outcome::Topic { new: true, .. } => "created",
        Outcome::Topic { new: false, .. } => "was there",
        Outcome::NoTopic => "no topic",
        Outcome::Adopted => "adopted",
        Outcome::Deleted(0) => "deleted empty",
        Outcome::Deleted(_) => "deleted",
        Outcome::Appended(appended) if appended.duplicate => "duplicate",
        Outcome::Appended(_) => "appended",
        Outcome::Refused(AppendRefusal::NoPartition { .. }) => "no partition",
        Outcome::Refused(AppendRefusal::Stale) => "stale",
        Outcome::Refused(AppendRefusal::ClaimsFull) => "claims full",
        Outcome::Committed(commits) => {
            return commits
                .iter()
                .map(|commit| match commit {
                    Commit::At(_) => "committed",
                    Commit::NoPartition => "committed nowhere",
                    Commit::Full => "cursors full",
                })
                .collect();
        }
        Outcome::Forgotten(0) => "nothing forgotten",
        Outcome::Forgotten(_) => "forgotten",
        Outcome::Trimmed { records: 0, .. } => "nothing trimmed",
        Outcome::Trimmed { .. } => "trimmed",
        Outcome::Redacted(true) => "redacted",
        Outcome::Redacted(false) => "redacted before",
        Outcome::NoRecord => "no record",
    }]
}

/// Of the above.
pub(super) const KINDS: usize = 21;
