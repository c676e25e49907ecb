//! A message as it lies in the log.
//!
//! ```text
//! u32 length of what follows
//! u8  format, 1
//! u8  flags: 1 JSON payload, 2 expires, 4 due, 8 headers, 16 own id, 32 origin, 64 ordering key
//! u8  priority, 0-9
//! u64 published, Unix nanoseconds
//! [u64 expires, Unix milliseconds]
//! [u64 due, Unix milliseconds]
//! [u8 length, ordering key: 1 to 200 bytes]
//! [16 bytes of id: for a record that moved and keeps the id of the place where it was published]
//! [origin, of a record that was published to a topic or an exchange: 16 bytes of id of the publish; u8 length, exchange;
//!     u8 length, routing key]
//! [u32 length of headers; each: u16 length, key, u32 length, value]
//! payload: the rest
//! ```
//!
//! Integers are little-endian. The length comes first, so that records can stand one after the other and be stepped
//! over without being read. The payload is never looked into.

mod write;

use bytes::Bytes;

use crate::codec::{DecodeError, Reader};
use crate::limits::ORDERING_KEY_BYTES_MAX;
use crate::{KeyHash, MessageId, Millis};

pub use write::RecordBuilder;

const FORMAT: u8 = 1;
const JSON: u8 = 1;
const EXPIRES: u8 = 2;
const DUE: u8 = 4;
const HEADERS: u8 = 8;
const ID: u8 = 16;
const ORIGIN: u8 = 32;
const ORDERING_KEY: u8 = 64;
const FLAGS_KNOWN: u8 = JSON | EXPIRES | DUE | HEADERS | ID | ORIGIN | ORDERING_KEY;

/// Where a record comes from that was published to a topic or an exchange.
///
/// All copies of the message are the same record, so each has an id of its own only through its place; this is the id that
/// they have in common. Whoever proposes the publish chooses it, so that replicas do not differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin<'a> {
    /// Id of the publish.
    pub id: MessageId,
    /// The exchange; empty for a topic, and for the default exchange.
    pub exchange: &'a str,
    /// What it was routed by.
    pub routing_key: &'a str,
}

impl<'a> Origin<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            id: MessageId(reader.u128("id of the publish")?.to_le_bytes()),
            exchange: read_short(reader, "exchange")?,
            routing_key: read_short(reader, "routing key")?,
        })
    }
}

fn read_short<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<&'a str, DecodeError> {
    let bytes = usize::from(reader.u8(what)?);
    std::str::from_utf8(reader.take(bytes, what)?).map_err(|_| DecodeError::NotUtf8 { what })
}

/// What a state machine has to know of a record, read without touching headers and payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHead {
    /// Length of the whole record, its length field included.
    pub bytes: usize,
    /// 0-9.
    pub priority: u8,
    /// Unix nanoseconds of the publish.
    pub published_ns: u64,
    /// When the message is discarded.
    pub expires: Option<Millis>,
    /// When the message may be delivered.
    pub due: Option<Millis>,
    /// Of its ordering key, if it has one.
    pub key: Option<KeyHash>,
}

impl RecordHead {
    /// Reads the head of the record that `bytes` start with.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let length = reader.u32("record length")? as usize;
        let mut reader = Reader::new(reader.take(length, "record")?);
        let (flags, priority, published_ns) = read_fixed(&mut reader)?;
        Ok(Self {
            bytes: 4 + length,
            priority,
            published_ns,
            expires: read_time(&mut reader, flags & EXPIRES != 0, "record expiry")?,
            due: read_time(&mut reader, flags & DUE != 0, "record due time")?,
            key: read_key(&mut reader, flags)?.map(|key| KeyHash::of(key.as_bytes())),
        })
    }
}

fn read_fixed(reader: &mut Reader<'_>) -> Result<(u8, u8, u64), DecodeError> {
    let format = reader.u8("record format")?;
    if format != FORMAT {
        return Err(DecodeError::Unknown {
            what: "record format",
            value: u64::from(format),
        });
    }
    let flags = reader.u8("record flags")?;
    if flags & !FLAGS_KNOWN != 0 {
        return Err(DecodeError::Unknown {
            what: "record flags",
            value: u64::from(flags),
        });
    }
    let priority = reader.u8("record priority")?;
    if priority > crate::limits::PRIORITY_MAX {
        return Err(DecodeError::Unknown {
            what: "record priority",
            value: u64::from(priority),
        });
    }
    Ok((flags, priority, reader.u64("record time")?))
}

fn read_time(reader: &mut Reader<'_>, there: bool, what: &'static str) -> Result<Option<Millis>, DecodeError> {
    there.then(|| reader.u64(what).map(Millis)).transpose()
}

/// The ordering key, if the record has one.
fn read_key<'a>(reader: &mut Reader<'a>, flags: u8) -> Result<Option<&'a str>, DecodeError> {
    if flags & ORDERING_KEY == 0 {
        return Ok(None);
    }
    let key = read_short(reader, "ordering key")?;
    if key.is_empty() || key.len() > ORDERING_KEY_BYTES_MAX {
        return Err(DecodeError::Invalid {
            what: "ordering key",
            why: "it is empty or too long",
        });
    }
    Ok(Some(key))
}

/// A record that was checked as a whole; its parts are slices of the buffer that it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
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
    /// The id, if it is not that of the place.
    pub id: Option<MessageId>,
    /// The message itself.
    pub payload: Bytes,
    /// Ordering key, id and origin as they are written: those of them that there are.
    named: Bytes,
    /// Of the ordering key; 0: there is none.
    key_bytes: u8,
    headers: Bytes,
}

impl Record {
    /// Reads the record that `bytes` start with; what follows it is left alone.
    pub fn read(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut outer = Reader::new(bytes);
        let length = outer.u32("record length")? as usize;
        let mut reader = Reader::new(outer.take(length, "record")?);
        let (flags, priority, published_ns) = read_fixed(&mut reader)?;
        let expires = read_time(&mut reader, flags & EXPIRES != 0, "record expiry")?;
        let due = read_time(&mut reader, flags & DUE != 0, "record due time")?;
        let named_at = reader.position();
        let key = read_key(&mut reader, flags)?.unwrap_or_default();
        let key_bytes = u8::try_from(key.len()).unwrap_or(u8::MAX);
        let id = if flags & ID != 0 {
            Some(MessageId(reader.u128("record id")?.to_le_bytes()))
        } else {
            None
        };
        if flags & ORIGIN != 0 {
            Origin::read(&mut reader)?;
        }
        let named = bytes.slice(4 + named_at..4 + reader.position());
        let headers = if flags & HEADERS != 0 {
            let part = reader.bytes("record headers")?;
            check_headers(part)?;
            let end = 4 + reader.position();
            bytes.slice(end - part.len()..end)
        } else {
            Bytes::new()
        };
        let payload = bytes.slice(4 + reader.position()..4 + length);
        Ok(Self {
            json: flags & JSON != 0,
            priority,
            published_ns,
            expires,
            due,
            id,
            payload,
            named,
            key_bytes,
            headers,
        })
    }

    /// Messages with the same one are delivered one after the other; empty: none.
    #[must_use]
    pub fn ordering_key(&self) -> &str {
        if self.key_bytes == 0 {
            return "";
        }
        read_short(&mut Reader::new(&self.named), "ordering key").unwrap_or_default()
    }

    /// Where it comes from, if it was published to a topic or an exchange.
    #[must_use]
    pub fn origin(&self) -> Option<Origin<'_>> {
        let mut reader = Reader::new(&self.named);
        if self.key_bytes > 0 {
            read_short(&mut reader, "ordering key").ok()?;
        }
        if self.id.is_some() {
            reader.u128("record id").ok()?;
        }
        Origin::read(&mut reader).ok()
    }

    /// Keys and values in the order in which they were written.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut reader = Reader::new(&self.headers);
        std::iter::from_fn(move || read_header(&mut reader).ok().flatten())
    }

    /// Whether the message is to be discarded at `now`.
    pub fn expired(&self, now: Millis) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// The headers of the record that `bytes` start with, in the order in which they were written.
///
/// # Errors
/// What stands before the payload cannot be read.
pub fn record_headers(bytes: &[u8]) -> Result<Vec<(&str, &str)>, DecodeError> {
    let mut headers = Vec::new();
    let (flags, _, mut reader) = read_to_headers(bytes)?;
    if flags & HEADERS != 0 {
        let mut reader = Reader::new(reader.bytes("record headers")?);
        while let Some(header) = read_header(&mut reader)? {
            headers.push(header);
        }
    }
    Ok(headers)
}

/// Where the record that `bytes` start with comes from, if it was published to a topic or an exchange.
///
/// # Errors
/// What stands before the headers cannot be read.
pub fn record_origin(bytes: &[u8]) -> Result<Option<Origin<'_>>, DecodeError> {
    read_to_headers(bytes).map(|(_, origin, _)| origin)
}

/// Flags and origin of the record that `bytes` start with, and what follows them.
fn read_to_headers(bytes: &[u8]) -> Result<(u8, Option<Origin<'_>>, Reader<'_>), DecodeError> {
    let mut outer = Reader::new(bytes);
    let mut reader = Reader::new(outer.bytes("record")?);
    let (flags, ..) = read_fixed(&mut reader)?;
    read_time(&mut reader, flags & EXPIRES != 0, "record expiry")?;
    read_time(&mut reader, flags & DUE != 0, "record due time")?;
    read_key(&mut reader, flags)?;
    if flags & ID != 0 {
        reader.u128("record id")?;
    }
    let there = flags & ORIGIN != 0;
    let origin = there.then(|| Origin::read(&mut reader)).transpose()?;
    Ok((flags, origin, reader))
}

fn check_headers(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    while read_header(&mut reader)?.is_some() {}
    Ok(())
}

fn read_header<'a>(reader: &mut Reader<'a>) -> Result<Option<(&'a str, &'a str)>, DecodeError> {
    if reader.is_empty() {
        return Ok(None);
    }
    let key_bytes = usize::from(reader.u16("header key")?);
    let key = std::str::from_utf8(reader.take(key_bytes, "header key")?)
        .map_err(|_| DecodeError::NotUtf8 { what: "header key" })?;
    Ok(Some((key, reader.str("header value")?)))
}

#[cfg(test)]
mod tests;
