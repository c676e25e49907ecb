//! Due times and ends of lives of all queues, as a section of a snapshot.
//!
//! ```text
//! u32 number of timetables, at least 1; each, rising:
//!     u64 stream
//!     u8  what: 0 when delayed messages are due, 1 when messages of the stream expire
//!     the times, see `timetable/encoding.rs`
//! ```
//!
//! Every delayed message that is not done has a due time; those with a time to live have an end, unless they were published to a
//! version that did not keep it.

use boltq_core::codec::{self, Reader};
use boltq_core::{DecodeError, StreamId};
use bytes::BufMut;

use crate::machine::{Machine, Queue};
use crate::place::{DELAYED, QueueId, STREAMS, stream_id, stream_of};
use crate::snapshot::{Parts, check};
use crate::timetable::Timetable;

const WHAT: &str = "times of messages";
const DUE: u8 = 0;
const EXPIRES: u8 = 1;
/// Stream, what, number of chunks.
const TABLE_BYTES_MIN: usize = 8 + 1 + 4;

/// The timetables of a queue that have something in them: stream, what, and how it is written.
fn tables(queue: &Queue) -> impl Iterator<Item = (usize, u8)> + '_ {
    (0..STREAMS).flat_map(|lane| {
        let due = lane == DELAYED && !queue.due.is_empty();
        let expires = queue.window(lane).is_some_and(|window| !window.expires.is_empty());
        [(due, DUE), (expires, EXPIRES)]
            .into_iter()
            .filter_map(move |(there, what)| there.then_some((lane, what)))
    })
}

pub(crate) fn are_empty(machine: &Machine) -> bool {
    machine.queues.iter().all(|queue| tables(queue).next().is_none())
}

pub(crate) fn write(machine: &Machine, parts: &mut Parts) {
    let count = machine.queues.iter().flat_map(tables).count();
    codec::put_len(parts.bytes(), count);
    for (number, queue) in machine.queues.numbered() {
        // Numbers are those of queues.
        let id = QueueId(u32::try_from(number).unwrap_or(u32::MAX));
        for (lane, what) in tables(queue) {
            parts.bytes().put_u64_le(stream_id(id, lane).0);
            parts.bytes().put_u8(what);
            match (what, queue.window(lane)) {
                (EXPIRES, Some(window)) => parts.expires(&window.expires),
                _ => parts.due(&queue.due),
            }
        }
    }
}

/// Into a machine that has its queues and their windows.
pub(crate) fn read(machine: &mut Machine, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let mut before = None;
    for _ in 0..reader.count(TABLE_BYTES_MIN, WHAT)? {
        let stream = StreamId(reader.u64(WHAT)?);
        let what = reader.u8(WHAT)?;
        check(before < Some((stream, what)), WHAT, "streams are out of order")?;
        before = Some((stream, what));
        let known = stream_of(stream).and_then(|(id, lane)| {
            let queue = machine.queues.get_mut(id.0 as usize)?;
            Some((lane, queue.windows.get_mut(lane)?.as_mut()?, &mut queue.due))
        });
        match (what, known) {
            (DUE, Some((DELAYED, window, due))) => *due = Timetable::read(window, reader)?,
            (EXPIRES, Some((_, window, _))) => window.expires = Timetable::read(window, reader)?,
            _ => check(false, WHAT, "they are of a stream that has none")?,
        }
    }
    Ok(())
}
