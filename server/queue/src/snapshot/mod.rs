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

mod capture;
mod read;
#[cfg(test)]
mod tests;

use boltq_core::codec;
use bytes::{BufMut, BytesMut};

use crate::command::patch_u32;
use crate::machine::{Machine, Queue};
use crate::outcome::Totals;
use crate::place::{DELAYED, STREAMS};
use crate::routing;
use crate::sections;
use crate::window::Window;

pub use capture::Captured;
pub(crate) use capture::Parts;
pub(crate) use read::{check, read, read_total};

const FORMAT_QUEUES: u8 = 1;
const FORMAT_ROUTING: u8 = 2;
const FORMAT_ONCE: u8 = 3;
const FORMAT_SECTIONS: u8 = 4;
/// Queues that were ever created. No group gets there, and far from overflow there is none to check.
const NUMBERS_MAX: usize = 1 << 31;
/// Instead of a set of streams: queues that were deleted.
const GONE: u16 = 1 << 15;
/// Highest sequence and total that is accepted. No group gets there, and far from overflow there is none to check.
pub(crate) const COUNT_MAX: u64 = 1 << 62;

/// Takes what a snapshot of the machine consists of.
pub(crate) fn capture(machine: &Machine) -> Captured {
    Captured::new(|parts| write(machine, parts))
}

fn write(machine: &Machine, parts: &mut Parts) {
    let format = format_of(machine);
    let out = parts.bytes();
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
        sections::write(machine, parts);
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
