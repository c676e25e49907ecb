//! The cache as bytes.
//!
//! ```text
//! u8  format, 1
//! u64 time, Unix milliseconds
//! u64 version of the last change
//! u64 sets, u64 deletes, u64 expired, u64 evicted
//! u32 number of keys; each, the one that was used longest ago first:
//!     str key (u32 length, UTF-8), u32 length and value
//!     u64 end, Unix milliseconds (0: none), u64 creation, Unix milliseconds, u64 version
//! ```
//!
//! Integers are little-endian.

use std::sync::Arc;

use boltq_core::codec::{self, Reader};
use boltq_core::{DecodeError, Millis};
use bytes::{BufMut, Bytes, BytesMut};

use crate::entries::{Entries, Entry};
use crate::machine::{Cache, Totals};

const FORMAT: u8 = 1;
/// Of versions and counts. No cache gets there, and who counts on from it does not get over the end.
const COUNT_MAX: u64 = 1 << 62;
/// Of what comes before the keys.
const HEAD_BYTES: usize = 1 + 2 * 8 + 4 * 8 + 4;
/// Of a key and its value, if both are empty.
const ENTRY_BYTES_MIN: usize = 32;

/// The state of a [`Cache`] at a moment, from which its snapshot can be written while the cache goes on. Keys and values are shared
/// with it, so taking it costs a handle for each key, however long the values are.
#[derive(Debug)]
pub struct Captured {
    now: Millis,
    version: u64,
    totals: Totals,
    /// Of keys and values.
    bytes: u64,
    /// In the order of the keys, each with its place in the order of use.
    entries: Vec<(u64, Arc<str>, Entry)>,
}

impl Captured {
    pub(crate) fn new(cache: &Cache) -> Self {
        Self {
            now: cache.now,
            version: cache.version,
            totals: cache.totals,
            bytes: cache.entries.bytes(),
            entries: cache.entries.capture(),
        }
    }

    /// Appends the snapshot.
    pub fn write(mut self, out: &mut BytesMut) {
        self.entries.sort_unstable_by_key(|(used, ..)| *used);
        let bytes = usize::try_from(self.bytes).unwrap_or(0);
        out.reserve(HEAD_BYTES + bytes + self.entries.len() * ENTRY_BYTES_MIN);
        out.put_u8(FORMAT);
        out.put_u64_le(self.now.0);
        out.put_u64_le(self.version);
        let Totals {
            sets,
            deletes,
            expired,
            evicted,
        } = self.totals;
        for total in [sets, deletes, expired, evicted] {
            out.put_u64_le(total);
        }
        codec::put_len(out, self.entries.len());
        for (_, key, entry) in &self.entries {
            codec::put_bytes(out, key.as_bytes());
            codec::put_bytes(out, &entry.value);
            out.put_u64_le(entry.expires.map_or(0, |expires| expires.0));
            out.put_u64_le(entry.created.0);
            out.put_u64_le(entry.version);
        }
    }
}

pub(crate) fn read(bytes: &[u8]) -> Result<Cache, DecodeError> {
    let mut reader = Reader::new(bytes);
    let format = reader.u8("format of the cache")?;
    if format != FORMAT {
        return Err(DecodeError::Unknown {
            what: "format of the cache",
            value: u64::from(format),
        });
    }
    let mut cache = Cache {
        now: Millis(reader.u64("time")?),
        version: read_count(&mut reader, "version")?,
        ..Cache::default()
    };
    cache.totals = Totals {
        sets: read_count(&mut reader, "sets")?,
        deletes: read_count(&mut reader, "deletes")?,
        expired: read_count(&mut reader, "expired")?,
        evicted: read_count(&mut reader, "evicted")?,
    };
    let count = reader.count(ENTRY_BYTES_MIN, "keys")?;
    let mut entries = Entries::default();
    for _ in 0..count {
        let key = reader.str("key")?;
        let entry = read_entry(&mut reader)?;
        if entry.version > cache.version {
            return Err(invalid("a value is newer than the last change"));
        }
        if entries.get(key).is_some() {
            return Err(invalid("a key is there twice"));
        }
        entries.put(key, entry);
    }
    reader.end("cache")?;
    cache.entries = entries;
    Ok(cache)
}

fn read_count(reader: &mut Reader<'_>, what: &'static str) -> Result<u64, DecodeError> {
    match reader.u64(what)? {
        count if count > COUNT_MAX => Err(invalid("it counts more than there can have been")),
        count => Ok(count),
    }
}

fn read_entry(reader: &mut Reader<'_>) -> Result<Entry, DecodeError> {
    let value = Bytes::copy_from_slice(reader.bytes("value")?);
    let expires = reader.u64("end")?;
    Ok(Entry {
        value,
        expires: (expires > 0).then_some(Millis(expires)),
        created: Millis(reader.u64("creation")?),
        version: reader.u64("version")?,
    })
}

fn invalid(why: &'static str) -> DecodeError {
    DecodeError::Invalid { what: "cache", why }
}
