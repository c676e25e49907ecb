//! A timetable as bytes.
//!
//! ```text
//! u32 number of chunks, at least 1; each, rising:
//!     u64 number of the chunk
//!     u16 how many messages of it have a time, 1-1,024
//!     which: u16 offsets, rising, if there are up to 63; else 16 times u64 bits, unless all have one
//!     u64 the earliest time; u8 width, 0-8
//!     for each message, in order: by how much its time is later than the earliest, in that many bytes
//! ```
//!
//! Times that lie within a year of one another take five bytes, within a minute two. Times are written as they are packed,
//! and the same times have one form.

use std::sync::Arc;

use boltq_core::DecodeError;
use boltq_core::codec::{self, Reader};
use bytes::{BufMut, BytesMut};

use super::chunk::{Chunk, OFFSETS, WORDS};
use super::{CHUNK, Slot, Timetable};
use crate::snapshot::check;
use crate::window::Window;

const WHAT: &str = "times of messages";
/// From so many on, bits are shorter than offsets.
const BITS_FROM: usize = WORDS * 4;
/// Number, count, earliest and width of a chunk.
const CHUNK_BYTES_MIN: usize = 8 + 2 + 8 + 1;

/// Bytes that a difference takes.
fn width_of(difference: u64) -> usize {
    (u64::BITS - difference.leading_zeros()).div_ceil(8) as usize
}

impl<T: Slot> Timetable<T> {
    /// Appends the times, of which there is at least one.
    pub(crate) fn write(&self, out: &mut BytesMut) {
        codec::put_len(out, self.chunks.len());
        for (number, chunk) in &self.chunks {
            out.put_u64_le(*number);
            write_chunk(chunk, out);
        }
    }

    /// Reads times of messages of `window` that are not done.
    pub(crate) fn read(window: &Window, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = reader.count(CHUNK_BYTES_MIN, WHAT)?;
        check(count > 0, WHAT, "there are none")?;
        let mut table = Self {
            chunks: Default::default(),
            len: 0,
            slots: Default::default(),
        };
        let mut from = 0;
        for _ in 0..count {
            let number = reader.u64(WHAT)?;
            check(
                from <= number && number <= u64::MAX / CHUNK,
                WHAT,
                "chunks are out of order, or beyond the last one",
            )?;
            from = number + 1;
            let chunk = read_chunk(reader)?;
            check(
                chunk.times().iter().all(|time| T::is_packed(*time)),
                WHAT,
                "one is none that can be",
            )?;
            check(
                is_open(window, number, &chunk),
                WHAT,
                "one is of a message that is done or unknown",
            )?;
            table.len += chunk.times().len() as u64;
            table.chunks.insert(number, Arc::new(chunk));
        }
        Ok(table)
    }
}

fn is_open(window: &Window, number: u64, chunk: &Chunk) -> bool {
    let first = number * CHUNK;
    let range = first..first.saturating_add(CHUNK);
    let open = window
        .open_parts(range)
        .map(|part| chunk.count(super::part_of(number, &part)));
    open.sum::<usize>() == chunk.times().len()
}

fn write_chunk(chunk: &Chunk, out: &mut BytesMut) {
    let times = chunk.times();
    let count = times.len();
    out.put_u16_le(u16::try_from(count).unwrap_or(u16::MAX));
    if count < BITS_FROM {
        for (offset, _) in chunk.within(0..OFFSETS) {
            out.put_u16_le(u16::try_from(offset).unwrap_or(u16::MAX));
        }
    } else if count < OFFSETS {
        chunk.there().iter().for_each(|word| out.put_u64_le(*word));
    }
    let earliest = times.iter().min().copied().unwrap_or_default();
    let latest = times.iter().max().copied().unwrap_or_default();
    let width = width_of(latest - earliest);
    out.put_u64_le(earliest);
    // Up to 8.
    out.put_u8(u8::try_from(width).unwrap_or(u8::MAX));
    for time in times {
        out.put_uint_le(time - earliest, width);
    }
}

fn read_chunk(reader: &mut Reader<'_>) -> Result<Chunk, DecodeError> {
    let count = usize::from(reader.u16(WHAT)?);
    check((1..=OFFSETS).contains(&count), WHAT, "a chunk has none or too many")?;
    let there = read_there(reader, count)?;
    let earliest = reader.u64(WHAT)?;
    let width = usize::from(reader.u8(WHAT)?);
    check(width <= 8, WHAT, "they are wider than a time")?;
    let differences = read_differences(reader, count, width)?;
    let (least, most) = bounds(&differences);
    check(
        least == 0 && width == width_of(most) && earliest.checked_add(most).is_some(),
        WHAT,
        "a chunk is not written in the shortest form",
    )?;
    let times = differences
        .into_iter()
        .map(|difference| earliest + difference)
        .collect();
    Ok(Chunk::new(there, times))
}

fn read_there(reader: &mut Reader<'_>, count: usize) -> Result<[u64; WORDS], DecodeError> {
    let mut there = [0; WORDS];
    if count < BITS_FROM {
        let mut free = 0;
        for _ in 0..count {
            let offset = usize::from(reader.u16(WHAT)?);
            check(
                (free..OFFSETS).contains(&offset),
                WHAT,
                "messages are out of order, or beyond their chunk",
            )?;
            there[offset / 64] |= 1 << (offset % 64);
            free = offset + 1;
        }
    } else if count < OFFSETS {
        for word in &mut there {
            *word = reader.u64(WHAT)?;
        }
        let set: u32 = there.iter().map(|word| word.count_ones()).sum();
        check(set as usize == count, WHAT, "there are not as many as it says")?;
    } else {
        there = [u64::MAX; WORDS];
    }
    Ok(there)
}

fn read_differences(reader: &mut Reader<'_>, count: usize, width: usize) -> Result<Vec<u64>, DecodeError> {
    let bytes = reader.take(count * width, WHAT)?;
    if width == 0 {
        return Ok(vec![0; count]);
    }
    let difference = |part: &[u8]| part.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
    Ok(bytes.chunks_exact(width).map(difference).collect())
}

fn bounds(values: &[u64]) -> (u64, u64) {
    let least = values.iter().min().copied().unwrap_or_default();
    let most = values.iter().max().copied().unwrap_or_default();
    (least, most)
}

#[cfg(test)]
mod tests {
    use boltq_core::Millis;

    use super::*;

    fn open(messages: u64) -> Window {
        let mut window = Window::default();
        window.append(messages);
        window
    }

    fn table(times: impl IntoIterator<Item = (u64, u64)>) -> Timetable<Millis> {
        let mut table = Timetable::default();
        times.into_iter().for_each(|(seq, at)| table.insert(seq, Millis(at)));
        table
    }

    fn write(table: &Timetable<Millis>) -> BytesMut {
        let mut out = BytesMut::new();
        table.write(&mut out);
        out
    }

    fn read(bytes: &[u8], messages: u64) -> Result<Timetable<Millis>, String> {
        let mut reader = Reader::new(bytes);
        let read = Timetable::read(&open(messages), &mut reader).map_err(|error| error.to_string())?;
        assert!(reader.is_empty());
        Ok(read)
    }

    /// Few and many messages of a chunk, all of one, and times of every width.
    #[test]
    fn every_form_of_a_chunk_comes_back() {
        for count in [1, 2, 63, 64, 65, 1_022, 1_023, 1_024, 3_000] {
            for bits in 0..=64u32 {
                let span = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
                let at = |seq: u64| if seq.is_multiple_of(2) { span } else { 0 };
                let table = table((1_024..1_024 + count).map(|seq| (seq, at(seq))));
                assert_eq!(read(&write(&table), 5_000).unwrap(), table, "{count} {bits}");
            }
        }
    }

    #[test]
    fn times_of_a_year_take_five_bytes_each_and_those_of_a_minute_two() {
        for (span, bytes_max) in [(366 * 86_400_000, 5.1), (60_000, 2.1)] {
            let times = (0..102_400).map(|seq| (1_024 + seq, 1_800_000_000_000 + seq * 7_919 % span));
            let bytes = write(&table(times)).len();
            assert!((bytes as f64) < 102_400.0 * bytes_max, "{bytes}");
        }
    }

    #[test]
    fn what_is_cut_off_out_of_order_or_of_no_message_is_refused() {
        let bytes = write(&table([(1, 7), (3, 9), (2_000, 1)]));
        assert!(read(&bytes, 2_000).is_ok());
        assert!(read(&bytes, 1_999).unwrap_err().contains("done or unknown"));
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end], 2_000).is_err(), "{end}");
        }
        let refused = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            read(&bytes, 2_000).unwrap_err()
        };
        assert!(refused(0, 0).contains("there are none"));
        assert!(refused(4, 1).contains("out of order"));
        assert!(refused(12, 0).contains("none or too many"));
        assert!(refused(14, 3).contains("out of order"));
        assert!(refused(26, 9).contains("wider than a time"));
        assert!(refused(27, 1).contains("shortest form"));
        assert!(refused(28, 0).contains("shortest form"));
    }
}
