//! Stream groups that anybody's bytes led to.

use boltq_core::{Applied, DecodeError, Millis, Seq, StateMachine, StorageEffect};
use boltq_stream::command::{self, CommitWriter, CursorOf, Target};
use boltq_stream::{Machine, Outcome, Version};
use bytes::BytesMut;

/// Applies a command, and checks that one that is refused changes nothing. Returns how many records are stored more, or fewer.
pub fn apply(machine: &mut Machine, time: Millis, command: &[u8]) -> Result<(Outcome, i64), DecodeError> {
    let before = machine.snapshot();
    let mut applied = Applied::default();
    let outcome = machine.apply(time, command, 0, &mut applied);
    let mut stored = 0;
    for effect in &applied.storage {
        match *effect {
            StorageEffect::Placed {
                count, offset, bytes, ..
            } => {
                assert!(
                    offset as usize + bytes as usize <= command.len(),
                    "records beyond the entry"
                );
                stored += i64::from(count);
            }
            StorageEffect::Freed { count, .. } => stored -= count.cast_signed(),
            StorageEffect::Erased { .. } => stored -= 1,
        }
    }
    match outcome {
        Ok(outcome) => Ok((outcome, stored)),
        Err(error) => {
            assert_eq!(machine.snapshot(), before, "a refused command changed something");
            assert!(applied.storage.is_empty() && applied.effects.is_empty());
            Err(error)
        }
    }
}

/// Records that have their content.
pub fn stored(machine: &Machine) -> i64 {
    let mut stored = 0;
    for (_, topic) in machine.topics_after(None) {
        for partition in topic.partitions() {
            let range = partition.first_seq()..partition.next_seq();
            let redacted = partition.redacted(range.clone()).map(|part| part.end.0 - part.start.0);
            stored += (range.end.0 - range.start.0 - redacted.sum::<u64>()).cast_signed();
        }
    }
    stored
}

/// Reads and changes it in every way, and checks that what is stored is what there is, and that the state survives being written and
/// read.
pub fn exercise(mut machine: Machine, now: Millis) {
    check(&machine);
    let names: Vec<String> = machine
        .topics_after(None)
        .take(3)
        .map(|(name, _)| name.to_owned())
        .collect();
    let mut run = |write: &dyn Fn(&mut BytesMut)| {
        let mut out = BytesMut::new();
        write(&mut out);
        let before = stored(&machine);
        let (outcome, change) = apply(&mut machine, now, &out).expect("a command that was just written");
        assert_eq!(stored(&machine), before + change, "{outcome:?}");
        check(&machine);
        outcome
    };
    for topic in &names {
        let target = Target {
            topic,
            created: Version::NONE,
        };
        run(&|out| command::redact(out, target, 0, 2));
        run(&|out| command::trim(out, std::iter::once(topic.as_str())));
        run(&|out| {
            let mut writer = CommitWriter::begin(out, u32::MAX);
            let cursor = CursorOf {
                target,
                partition: 0,
                group: "g",
                member: "",
            };
            writer.push(out, &cursor, u64::MAX);
            writer.finish(out);
        });
        run(&|out| command::delete(out, target));
    }
}

fn check(machine: &Machine) {
    let topics: Vec<_> = machine.topics_after(None).collect();
    assert_eq!(topics.len(), machine.topic_count());
    assert!(
        topics.is_sorted_by(|one, other| one.0 < other.0),
        "topics are not in order"
    );
    for partition in topics.iter().flat_map(|(_, topic)| topic.partitions()) {
        let (first, next) = (partition.first_seq(), partition.next_seq());
        assert!(Seq::FIRST <= first && first <= next);
        for time in [0, partition.last_timestamp_ns(), u64::MAX] {
            let around = partition.around(time);
            assert!(first <= around.start && around.start <= around.end && around.end <= next);
        }
        let mut cursors = machine.cursors_after(partition.stream(), None);
        assert!(cursors.all(|(_, _, position)| Seq::FIRST <= position && position <= next));
    }
    let _ = machine.overdue(None, 10, Millis::MAX);
    let snapshot = machine.snapshot();
    let restored = Machine::restore(&snapshot).expect("a snapshot that was written");
    assert_eq!(restored.snapshot(), snapshot);
}
