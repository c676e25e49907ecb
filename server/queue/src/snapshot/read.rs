//! Reading the machine, and whether it can be one.

use std::collections::BTreeMap;
use std::sync::Arc;

use boltq_core::codec::Reader;
use boltq_core::limits::PRIORITY_MAX;
use boltq_core::{DecodeError, IdSalt, Millis};

use super::{
    COUNT_MAX, FORMAT_ONCE, FORMAT_QUEUES, FORMAT_ROUTING, FORMAT_SECTIONS, GONE, NUMBERS_MAX, format_without_sections,
};
use crate::due::Due;
use crate::machine::{Machine, Queue};
use crate::once::Once;
use crate::ordering;
use crate::outcome::Totals;
use crate::place::{DELAYED, QueueId, STREAMS};
use crate::ranges::RangeSet;
use crate::routing;
use crate::sections;
use crate::timetable::Timetable;
use crate::window::{Failure, Window};

pub(crate) fn read(bytes: &[u8]) -> Result<Machine, DecodeError> {
    let mut reader = Reader::new(bytes);
    let format = reader.u8("snapshot format")?;
    if !(FORMAT_QUEUES..=FORMAT_SECTIONS).contains(&format) {
        return Err(DecodeError::Unknown {
            what: "snapshot format",
            value: u64::from(format),
        });
    }
    let mut machine = Machine {
        now: Millis(reader.u64("time")?),
        salt: read_salt(&mut reader)?,
        totals: read_totals(&mut reader)?,
        ..Machine::default()
    };
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
