//! Writing records.

use bytes::{BufMut, BytesMut};

use super::{DUE, EXPIRES, FORMAT, HEADERS, ID, JSON, ORDERING_KEY, ORIGIN, Origin};
use crate::{MessageId, Millis};

/// Writes a record.
#[derive(Debug, Clone)]
pub struct RecordBuilder<'a> {
    /// Whether the payload is one JSON value.
    pub json: bool,
    /// 0-9.
    pub priority: u8,
    /// Unix nanoseconds of the publish.
    pub published_ns: u64,
    /// When the message is discarded.
    pub expires: Option<Millis>,
    /// When the message may be delivered.
    pub due: Option<Millis>,
    /// Messages with the same one are delivered one after the other; empty: none.
    pub ordering_key: &'a str,
    /// The id, if it is not that of the place.
    pub id: Option<MessageId>,
    /// The message itself.
    pub payload: &'a [u8],
}

impl RecordBuilder<'_> {
    /// Appends the record with its headers to `out`. The limits of `crate::limits` are checked at the doors, and keep
    /// every length in here far below what its field can hold.
    pub fn write<'h>(&self, headers: impl Iterator<Item = (&'h str, &'h str)>, out: &mut BytesMut) {
        self.write_routed(None, headers, out);
    }

    /// As [`RecordBuilder::write`], for a record that comes from a topic or an exchange.
    pub fn write_routed<'h>(
        &self,
        origin: Option<Origin<'_>>,
        headers: impl Iterator<Item = (&'h str, &'h str)>,
        out: &mut BytesMut,
    ) {
        let start = out.len();
        out.put_u32_le(0);
        out.put_u8(FORMAT);
        out.put_u8(0);
        out.put_u8(self.priority);
        out.put_u64_le(self.published_ns);
        let mut flags = if self.json { JSON } else { 0 };
        if let Some(expires) = self.expires {
            flags |= EXPIRES;
            out.put_u64_le(expires.0);
        }
        if let Some(due) = self.due {
            flags |= DUE;
            out.put_u64_le(due.0);
        }
        if !self.ordering_key.is_empty() {
            flags |= ORDERING_KEY;
            put_short(self.ordering_key, out);
        }
        if let Some(id) = self.id {
            flags |= ID;
            out.put_slice(&id.0);
        }
        if let Some(origin) = origin {
            flags |= ORIGIN;
            origin.write(out);
        }
        if write_headers(headers, out) {
            flags |= HEADERS;
        }
        out.put_slice(self.payload);
        out[start + 5] = flags;
        let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }
}

impl Origin<'_> {
    fn write(&self, out: &mut BytesMut) {
        out.put_slice(&self.id.0);
        for text in [self.exchange, self.routing_key] {
            put_short(text, out);
        }
    }
}

/// Of texts whose limits are far below what the length can say.
fn put_short(text: &str, out: &mut BytesMut) {
    out.put_u8(u8::try_from(text.len()).unwrap_or(u8::MAX));
    out.put_slice(text.as_bytes());
}

/// Returns whether there was a header; without one nothing is written.
fn write_headers<'h>(headers: impl Iterator<Item = (&'h str, &'h str)>, out: &mut BytesMut) -> bool {
    let start = out.len();
    for (key, value) in headers {
        if out.len() == start {
            out.put_u32_le(0);
        }
        out.put_u16_le(u16::try_from(key.len()).unwrap_or(u16::MAX));
        out.put_slice(key.as_bytes());
        out.put_u32_le(u32::try_from(value.len()).unwrap_or(u32::MAX));
        out.put_slice(value.as_bytes());
    }
    let any = out.len() > start;
    if any {
        let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }
    any
}
