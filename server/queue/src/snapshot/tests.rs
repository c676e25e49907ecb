//! States that cannot be are refused.

use boltq_core::{Millis, StateMachine};
use proptest::prelude::*;

use super::*;
use crate::due::Due;
use crate::timetable::Timetable;
use crate::window::Failure;

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_without_panic(mut bytes: Vec<u8>) {
        let _ = Machine::restore(&bytes);
        for known in FORMAT_QUEUES..=FORMAT_SECTIONS {
            if let Some(format) = bytes.first_mut() {
                *format = known;
            }
            let _ = Machine::restore(&bytes);
        }
    }
}

/// A queue with six messages in lane 0: 2 and 4 are done, 3 has failed; and two delayed ones.
fn machine() -> Machine {
    let mut window = Window::default();
    window.append(6);
    window.finish(&(2..3), |_| {});
    window.finish(&(4..5), |_| {});
    window.fail(3, Millis(7));
    let mut delayed = Window::default();
    delayed.append(2);
    let mut queue = Queue::new("q".into());
    queue.windows[0] = Some(Box::new(window));
    queue.windows[DELAYED] = Some(Box::new(delayed));
    for seq in [1, 2] {
        queue.due.insert(seq, Due::new(Millis(9), 3));
    }
    let mut machine = Machine::default();
    machine.queues.push(queue);
    machine.totals.published = 8;
    machine.totals.acked = 2;
    machine
}

fn lane(machine: &mut Machine) -> &mut Window {
    machine.queues[0].windows[0].as_mut().unwrap()
}

/// What reading says to a machine that `damage` has changed.
fn refusal(damage: impl FnOnce(&mut Machine)) -> String {
    let mut machine = machine();
    damage(&mut machine);
    Machine::restore(&machine.snapshot()).unwrap_err().to_string()
}

fn assert_refused(why: &str, damages: &[fn(&mut Machine)]) {
    for (n, damage) in damages.iter().enumerate() {
        let error = refusal(damage);
        assert!(error.starts_with(why), "{n}: {error}");
    }
}

#[test]
fn a_state_that_commands_can_lead_to_is_accepted() {
    let snapshot = machine().snapshot();
    assert_eq!(Machine::restore(&snapshot).unwrap().snapshot(), snapshot);
}

#[test]
fn windows_that_contradict_themselves_are_refused() {
    assert_refused(
        "finished ranges: they overlap, touch, or lie outside",
        &[
            |machine| lane(machine).head = 4,
            |machine| lane(machine).base = 2,
            |machine| lane(machine).base = 3,
            |machine| lane(machine).finished.insert(7..8),
        ],
    );
    assert_refused(
        "base: ",
        &[|machine| lane(machine).base = 0, |machine| lane(machine).base = 8],
    );
    assert_refused(
        "head: ",
        &[
            |machine| lane(machine).head = 1,
            |machine| lane(machine).head = u64::MAX,
        ],
    );
}

#[test]
fn failures_and_due_times_of_no_message_are_refused() {
    let failure = Failure {
        attempts: 1,
        not_before: Millis(0),
    };
    for seq in [0, 2, 7] {
        let error = refusal(|machine| lane(machine).failed.extend([(seq, failure)]));
        assert!(error.starts_with("failed messages: "), "{error}");
    }
    let never = Failure { attempts: 0, ..failure };
    let error = refusal(|machine| lane(machine).failed.extend([(3, never)]));
    assert!(error.starts_with("failed messages: "), "{error}");
    let error = refusal(|machine| machine.queues[0].due.insert(3, Due::new(Millis(0), 0)));
    assert!(error.contains("done or unknown"), "{error}");
    assert_refused(
        "delayed messages: one that is not done has no due time",
        &[|machine| machine.queues[0].due.remove(&(2..3))],
    );
    let error = refusal(|machine| lane(machine).expires.insert(2, Millis(9)));
    assert!(error.contains("done or unknown"), "{error}");
}

/// The queue of `machine` as it was written up to format 3, with these delayed messages.
fn format_1(delayed: &[(u64, u64, u8)]) -> Vec<u8> {
    let mut machine = machine();
    machine.queues[0].due = Timetable::default();
    let mut bytes = machine.snapshot();
    assert_eq!((bytes[0], &bytes[bytes.len() - 4..]), (FORMAT_QUEUES, &[0; 4][..]));
    bytes.truncate(bytes.len() - 4);
    bytes.extend(u32::try_from(delayed.len()).unwrap().to_le_bytes());
    for (seq, due, priority) in delayed {
        bytes.extend(seq.to_le_bytes());
        bytes.extend(due.to_le_bytes());
        bytes.push(*priority);
    }
    bytes
}

#[test]
fn due_times_of_earlier_formats_are_read() {
    let read = Machine::restore(&format_1(&[(1, 9, 3), (2, 9, 3)])).unwrap();
    assert_eq!(read.snapshot(), machine().snapshot());
    assert_eq!(read.snapshot()[0], FORMAT_SECTIONS);
    // A time that no clock reaches is kept as the latest that there is.
    let read = Machine::restore(&format_1(&[(1, u64::MAX, 3), (2, 9, 3)])).unwrap();
    assert!(Machine::restore(&read.snapshot()).is_ok());
}

#[test]
fn due_times_of_earlier_formats_that_cannot_be_are_refused() {
    for delayed in [
        &[(2, 9, 3), (1, 9, 3)][..],
        &[(0, 9, 3), (1, 9, 3)],
        &[(1, 9, 3), (3, 9, 3)],
        &[(1, 9, 3), (2, 9, 10)],
    ] {
        let error = Machine::restore(&format_1(delayed)).unwrap_err().to_string();
        assert!(error.starts_with("delayed messages: one is out of order"), "{error}");
    }
    let error = Machine::restore(&format_1(&[(1, 9, 3)])).unwrap_err().to_string();
    assert!(error.starts_with("delayed messages: one that is not done"), "{error}");
}

#[test]
fn queues_and_totals_that_cannot_be_are_refused() {
    assert_refused(
        "queues: two have the same name",
        &[|machine| machine.queues.push(Queue::new("q".into()))],
    );
    assert_refused(
        "totals: what is done and what is not",
        &[
            |machine| machine.totals.published += 1,
            |machine| machine.totals.purged += 1,
            |machine| machine.totals.expired += 1,
            |machine| machine.totals.acked -= 1,
        ],
    );
    assert_refused(
        "totals: one is higher than there can be messages",
        &[|machine| machine.totals.nacked = u64::MAX],
    );
}

#[test]
fn a_snapshot_from_the_future_is_refused_by_number() {
    let mut bytes = Machine::default().snapshot();
    bytes[0] = FORMAT_SECTIONS + 1;
    let error = Machine::restore(&bytes).unwrap_err();
    assert_eq!(error.to_string(), "snapshot format: 5 is unknown to this version");
}
