//! The machine as bytes. Its size follows what is in flight: a queue costs its name, and each of its streams a few
//! numbers and what is neither done nor waiting in line.
//!
//! ```text
//! u8  format: 4; 3 if there are no sections, 2 if no keys of publishes are remembered either, and 1 if there are no topics and
//!     exchanges either: what there is none of is left out, and versions that do not know it can read the rest
//! u64 time, Unix milliseconds
//! u8  1 if there is a salt, else 0; u64 salt
//! u64 published, u64 acked, u64 nacked, u64 expired, u64 dead-lettered, u64 purged
//! u32 number of queues; each, in the order of their ids:
//!     str name (u32 length, UTF-8)
//!     u16 bit n is set if stream n was ever published to: 0-9 the lanes, 10 the delayed messages, 11 those with an ordering
//!         key
//!     each of these streams:
//!         u64 head, u64 base
//!         u32 number of finished ranges; each: u64 first, u64 end
//!         u32 number of failed messages; each: u64 sequence, u32 attempts, u64 not before
//!     (an empty name and only bit 15 instead of streams: so many queues in a row that were deleted, as u32)
//!     of the delayed stream only, and only up to format 3: u32 number of messages; each: u64 sequence, u64 due, u8 priority.
//!         Since format 4 due times are a section. Earlier formats are written only if there are none
//! topics and exchanges, see `routing/snapshot.rs`
//! keys of publishes, see `once.rs`
//! sections, see `sections.rs`
//! ```
//!
//! Integers are little-endian. Reading checks every invariant of the machine, conservation included: bytes that are
//! accepted are a state that commands can lead to.

use std::collections::BTreeMap;
use std::sync::Arc;

use boltq_core::codec::{self, Reader};
use boltq_core::limits::PRIORITY_MAX;
use boltq_core::{DecodeError, IdSalt, Millis};
use bytes::{BufMut, BytesMut};

use crate::command::patch_u32;
use crate::due::Due;
use crate::machine::{Machine, Queue};
use crate::once::Once;
use crate::ordering;
use crate::outcome::Totals;
use crate::place::{DELAYED, QueueId, STREAMS};
use crate::ranges::RangeSet;
use crate::routing;
use crate::sections;
use crate::times;
use crate::timetable::Timetable;
use crate::window::{Failure, Window};

const FORMAT_QUEUES: u8 = 1;
const FORMAT_ROUTING: u8 = 2;
const FORMAT_ONCE: u8 = 3;
const FORMAT_SECTIONS: u8 = 4;
/// Room for what is small: names and figures.
const SMALL_BYTES: usize = 64 << 10;
/// Queues that were ever created. No group gets there, and far from overflow there is none to check.
const NUMBERS_MAX: usize = 1 << 31;
/// Instead of a set of streams: queues that were deleted.
const GONE: u16 = 1 << 15;
/// Highest sequence and total that is accepted. No group gets there, and far from overflow there is none to check.
pub(crate) const COUNT_MAX: u64 = 1 << 62;

/// Appends the machine.
pub(crate) fn write(machine: &Machine, out: &mut BytesMut) {
    out.reserve(SMALL_BYTES + times::bytes_about(machine));
    let format = format_of(machine);
    out.put_u8(format);
    out.put_u64_le(machine.now.0);
    out.put_u8(u8::from(machine.salt.is_some()));
    out.put_u64_le(machine.salt.unwrap_or_default().0);
    let Totals {
        published,
        acked,
        nacked,
        expired,
        dead_lettered,
        purged,
        // Among the sections.
        dropped: _,
        rejected: _,
    } = machine.totals;
    for total in [published, acked, nacked, expired, dead_lettered, purged] {
        out.put_u64_le(total);
    }
    write_queues(machine, format, out);
    if format >= FORMAT_ROUTING {
        routing::snapshot::write(machine, out);
    }
    if format >= FORMAT_ONCE {
        machine.once.write(out);
    }
    if format >= FORMAT_SECTIONS {
        sections::write(machine, out);
    }
}

/// The earliest format that has all that there is.
fn format_of(machine: &Machine) -> u8 {
    if sections::are_empty(machine) {
        format_without_sections(machine)
    } else {
        FORMAT_SECTIONS
    }
}

fn format_without_sections(machine: &Machine) -> u8 {
    if !machine.once.has_none_of_queues() {
        FORMAT_ONCE
    } else if machine.routing.is_empty() {
        FORMAT_QUEUES
    } else {
        FORMAT_ROUTING
    }
}

fn write_queues(machine: &Machine, format: u8, out: &mut BytesMut) {
    let count_at = out.len();
    out.put_u32_le(0);
    let (mut count, mut next) = (0, 0);
    let mut put_gone = |until: usize, out: &mut BytesMut| {
        let gone = until - next;
        next = until + 1;
        if gone > 0 {
            codec::put_bytes(out, b"");
            out.put_u16_le(GONE);
            codec::put_len(out, gone);
        }
        u32::from(gone > 0)
    };
    for (number, queue) in machine.queues.numbered() {
        count += put_gone(number, out) + 1;
        write_queue(queue, format, out);
    }
    count += put_gone(machine.queues.len(), out);
    patch_u32(out, count_at, count);
}

fn write_queue(queue: &Queue, format: u8, out: &mut BytesMut) {
    codec::put_bytes(out, queue.name.as_bytes());
    let used = (0..STREAMS).filter(|lane| queue.window(*lane).is_some());
    out.put_u16_le(used.fold(0, |mask, lane| mask | 1 << lane));
    for window in queue.windows.iter().flatten() {
        write_window(window, out);
    }
    if format < FORMAT_SECTIONS && queue.window(DELAYED).is_some() {
        // No message waits to be due, or there would be a section.
        codec::put_len(out, 0);
    }
}

fn write_window(window: &Window, out: &mut BytesMut) {
    out.put_u64_le(window.head);
    out.put_u64_le(window.base);
    codec::put_len(out, window.finished.range_count());
    for range in window.finished.iter() {
        out.put_u64_le(range.start);
        out.put_u64_le(range.end);
    }
    codec::put_len(out, window.failed.len());
    for (seq, failure) in &window.failed {
        out.put_u64_le(*seq);
        out.put_u32_le(failure.attempts);
        out.put_u64_le(failure.not_before.0);
    }
}

pub(crate) fn read(bytes: &[u8]) -> Result<Machine, DecodeError> {
    let mut reader = Reader::new(bytes);
    let format = reader.u8("snapshot format")?;
    if !(FORMAT_QUEUES..=FORMAT_SECTIONS).contains(&format) {
        return Err(DecodeError::Unknown {
            what: "snapshot format",
            value: u64::from(format),
        });
    }
    let mut machine = Machine::default();
    machine.now = Millis(reader.u64("time")?);
    machine.salt = read_salt(&mut reader)?;
    machine.totals = read_totals(&mut reader)?;
    read_queues(&mut machine, format, &mut reader)?;
    if format >= FORMAT_ROUTING {
        routing::snapshot::read(&mut machine, &mut reader)?;
    }
    if format >= FORMAT_ONCE {
        machine.once = Once::read(&machine, &mut reader)?;
    }
    if format >= FORMAT_SECTIONS {
        sections::read(&mut machine, &mut reader)?;
    }
    check_due(&machine)?;
    // Up to format 3, due times stood elsewhere.
    let least = match format {
        FORMAT_SECTIONS => !sections::are_empty(&machine),
        _ => format == format_without_sections(&machine),
    };
    check(
        least,
        "snapshot format",
        "there is nothing of what makes it more than an earlier one",
    )?;
    check(reader.is_empty(), "snapshot", "there are bytes behind its end")?;
    ordering::check_all(&machine)?;
    check_conservation(&machine)?;
    Ok(machine)
}

pub(crate) fn read_total(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let total = reader.u64("totals")?;
    check(total <= COUNT_MAX, "totals", "one is higher than there can be messages")?;
    Ok(total)
}

pub(crate) fn check(holds: bool, what: &'static str, why: &'static str) -> Result<(), DecodeError> {
    if holds {
        return Ok(());
    }
    Err(DecodeError::Invalid { what, why })
}

fn read_salt(reader: &mut Reader<'_>) -> Result<Option<IdSalt>, DecodeError> {
    let there = reader.u8("id salt")?;
    let salt = IdSalt(reader.u64("id salt")?);
    match there {
        0 => check(salt == IdSalt::default(), "id salt", "it is absent and not 0").map(|()| None),
        1 => Ok(Some(salt)),
        value => Err(DecodeError::Unknown {
            what: "id salt",
            value: u64::from(value),
        }),
    }
}

fn read_totals(reader: &mut Reader<'_>) -> Result<Totals, DecodeError> {
    let mut total = || read_total(reader);
    Ok(Totals {
        published: total()?,
        acked: total()?,
        nacked: total()?,
        expired: total()?,
        dead_lettered: total()?,
        purged: total()?,
        dropped: 0,
        rejected: 0,
    })
}

fn read_queues(machine: &mut Machine, format: u8, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let mut after_gone = false;
    // A queue is at least the length of its name and the set of its streams.
    for _ in 0..reader.count(6, "queues")? {
        let name = reader.str("queue name")?;
        let used = reader.u16("streams")?;
        if used == GONE {
            let gone = reader.u32("deleted queues")?;
            let as_written = name.is_empty() && gone > 0 && !after_gone;
            check(as_written, "deleted queues", "they have a name, or are not together")?;
            machine.queues.push_gone(gone as usize);
        } else {
            let id = QueueId(u32::try_from(machine.queues.len()).unwrap_or(u32::MAX));
            let queue = read_queue((name, used), format, reader)?;
            let twice = machine.names.insert(Arc::clone(&queue.name), id);
            check(twice.is_none(), "queues", "two have the same name")?;
            machine.queues.push(queue);
        }
        after_gone = used == GONE;
        let numbered = machine.queues.len() <= NUMBERS_MAX;
        check(numbered, "queues", "there are more than have numbers")?;
    }
    Ok(())
}

fn read_queue((name, used): (&str, u16), format: u8, reader: &mut Reader<'_>) -> Result<Queue, DecodeError> {
    let mut queue = Queue::new(name.into());
    check(used >> STREAMS == 0, "streams", "there is one that no queue has")?;
    for (lane, window) in queue.windows.iter_mut().enumerate() {
        if used & 1 << lane != 0 {
            *window = Some(Box::new(read_window(reader)?));
        }
    }
    if let Some(window) = queue.windows[DELAYED].as_deref()
        && format < FORMAT_SECTIONS
    {
        queue.due = read_due(reader, window)?;
    }
    Ok(queue)
}

fn read_window(reader: &mut Reader<'_>) -> Result<Window, DecodeError> {
    let (head, base) = (reader.u64("head")?, reader.u64("base")?);
    check(
        1 < head && head <= COUNT_MAX,
        "head",
        "nothing was published, or more than can be",
    )?;
    check(1 <= base && base <= head, "base", "it is not between 1 and the head")?;
    let mut finished = RangeSet::default();
    // The base itself is not done, and ranges do not touch.
    let mut before = base;
    for _ in 0..reader.count(16, "finished ranges")? {
        let (first, end) = (reader.u64("finished range")?, reader.u64("finished range")?);
        check(
            before < first && first < end && end <= head,
            "finished ranges",
            "they overlap, touch, or lie outside of the window",
        )?;
        finished.insert(first..end);
        before = end;
    }
    let mut window = Window {
        head,
        base,
        finished,
        failed: BTreeMap::new(),
        expires: Timetable::default(),
    };
    window.failed = read_failed(reader, &window)?;
    Ok(window)
}

fn read_failed(reader: &mut Reader<'_>, window: &Window) -> Result<BTreeMap<u64, Failure>, DecodeError> {
    let mut failed = BTreeMap::new();
    let mut before = 0;
    for _ in 0..reader.count(20, "failed messages")? {
        let seq = reader.u64("failed message")?;
        let failure = Failure {
            attempts: reader.u32("attempts")?,
            not_before: Millis(reader.u64("not before")?),
        };
        check(
            before < seq && window.is_open(seq) && failure.attempts > 0,
            "failed messages",
            "one is out of order, done, unknown, or never failed",
        )?;
        failed.insert(seq, failure);
        before = seq;
    }
    Ok(failed)
}

fn read_due(reader: &mut Reader<'_>, window: &Window) -> Result<Timetable<Due>, DecodeError> {
    let mut dues = Timetable::default();
    let mut before = 0;
    for _ in 0..reader.count(17, "delayed messages")? {
        let seq = reader.u64("delayed message")?;
        let (at, priority) = (Millis(reader.u64("due time")?), reader.u8("priority")?);
        check(
            before < seq && window.is_open(seq) && priority <= PRIORITY_MAX,
            "delayed messages",
            "one is out of order, done, unknown, or of a priority over 9",
        )?;
        dues.insert(seq, Due::new(at, priority));
        before = seq;
    }
    Ok(dues)
}

/// Due times are only read for messages that are not done, so it is enough to count them.
fn check_due(machine: &Machine) -> Result<(), DecodeError> {
    let all_due = |queue: &Queue| queue.due.len() == queue.window(DELAYED).map_or(0, Window::open_count);
    check(
        machine.queues.iter().all(all_due),
        "delayed messages",
        "one that is not done has no due time",
    )
}

fn check_conservation(machine: &Machine) -> Result<(), DecodeError> {
    let open = machine
        .queues
        .iter()
        .flat_map(|queue| queue.windows.iter().flatten())
        .try_fold(0u64, |sum, window| sum.checked_add(window.open_count()));
    let totals = machine.totals;
    // Each is at most 2^62.
    let done = [totals.acked, totals.expired, totals.purged, totals.dropped];
    let done: u128 = done.into_iter().map(u128::from).sum();
    check(
        open.is_some_and(|open| u128::from(open) + done == u128::from(totals.published)),
        "totals",
        "what is done and what is not are not what was published",
    )
}

#[cfg(test)]
mod tests {
    use boltq_core::StateMachine;
    use proptest::prelude::*;

    use super::*;

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
}
