//! The state of a machine at a moment, from which its snapshot can be written while the machine goes on.
//!
//! What may be large is eight bytes for each message that waits for a time, or that has an ordering key. It lies in chunks, which a
//! capture shares with the machine, and the machine copies a chunk before it changes it. So a capture takes a handle for each
//! chunk, some ten thousand for ten million messages, and its memory is that of the chunks that change while it is there. All
//! else is small, and written into bytes at once: to copy it would take no less.

use std::ops::Range;

use boltq_core::{KeyHash, Millis};
use bytes::{BufMut, BytesMut};

use crate::due::Due;
use crate::ordering::Keys;
use crate::timetable::Timetable;

/// Room for what is small: names and figures.
const SMALL_BYTES: usize = 64 << 10;
/// About what a time takes, for room to be made at once.
const TIME_BYTES: u64 = 6;

/// The state of a [`crate::Machine`] at a moment.
#[derive(Debug)]
pub struct Captured {
    parts: Parts,
}

/// What a snapshot consists of, in its order.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    parts: Vec<Part>,
    /// Behind the last one.
    bytes: BytesMut,
}

#[derive(Debug)]
enum Part {
    Bytes(BytesMut),
    /// Parts with their length in front, as u32.
    Sized(Parts),
    Due(Timetable<Due>),
    Expires(Timetable<Millis>),
    Keys(Keys, Vec<Range<u64>>),
}

impl Captured {
    pub(super) fn new(write: impl FnOnce(&mut Parts)) -> Self {
        let mut parts = Parts::default();
        write(&mut parts);
        Self { parts }
    }

    /// Appends the snapshot.
    pub fn write(&self, out: &mut BytesMut) {
        out.reserve(SMALL_BYTES + self.parts.bytes_about());
        self.parts.write(out);
    }
}

impl Parts {
    /// Where to write what is small.
    pub(crate) fn bytes(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    fn push(&mut self, part: Part) {
        if !self.bytes.is_empty() {
            self.parts.push(Part::Bytes(std::mem::take(&mut self.bytes)));
        }
        self.parts.push(part);
    }

    /// What `write` makes, with its length in front.
    pub(crate) fn sized(&mut self, write: impl FnOnce(&mut Self)) {
        let mut parts = Self::default();
        write(&mut parts);
        self.push(Part::Sized(parts));
    }

    pub(crate) fn due(&mut self, table: &Timetable<Due>) {
        self.push(Part::Due(table.clone()));
    }

    pub(crate) fn expires(&mut self, table: &Timetable<Millis>) {
        self.push(Part::Expires(table.clone()));
    }

    /// The keys of the messages that are `open`.
    pub(crate) fn keys(&mut self, keys: &Keys, open: impl Iterator<Item = Range<u64>>) {
        self.push(Part::Keys(keys.clone(), open.collect()));
    }

    fn bytes_about(&self) -> usize {
        let parts = self.parts.iter().map(Part::bytes_about);
        parts.fold(self.bytes.len(), usize::saturating_add)
    }

    fn write(&self, out: &mut BytesMut) {
        self.parts.iter().for_each(|part| part.write(out));
        out.extend_from_slice(&self.bytes);
    }
}

impl Part {
    fn bytes_about(&self) -> usize {
        let bytes = match self {
            Self::Bytes(bytes) => return bytes.len(),
            Self::Sized(parts) => return parts.bytes_about(),
            Self::Due(table) => table.len() * TIME_BYTES,
            Self::Expires(table) => table.len() * TIME_BYTES,
            Self::Keys(_, open) => {
                let open: u64 = open.iter().map(|range| range.end - range.start).sum();
                open * size_of::<KeyHash>() as u64
            }
        };
        usize::try_from(bytes).unwrap_or(0)
    }

    fn write(&self, out: &mut BytesMut) {
        match self {
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
            Self::Sized(parts) => {
                // Its length is known afterwards. What is written elsewhere first would be there twice.
                let length_at = out.len();
                out.put_u32_le(0);
                parts.write(out);
                let length = u32::try_from(out.len() - length_at - 4).unwrap_or(u32::MAX);
                if let Some(field) = out.get_mut(length_at..length_at + 4) {
                    field.copy_from_slice(&length.to_le_bytes());
                }
            }
            Self::Due(table) => table.write(out),
            Self::Expires(table) => table.write(out),
            Self::Keys(keys, open) => {
                for seq in open.iter().cloned().flatten() {
                    out.put_u64_le(keys.get(seq).0);
                }
            }
        }
    }
}
