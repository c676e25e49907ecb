//! Commands, as they stand in the log.
//!
//! ```text
//! 64 Set        str key, u64 milliseconds to live (0: for ever), condition, u64 keys at most (0: any number), value: the rest
//! 65 Delete     str key, condition
//! 66 Expire     str key, u64 milliseconds to live (0: for ever)
//! 67 Increment  str key, u64 by (two's complement), u64 milliseconds a new key lives (0: for ever), u64 keys at most
//! 68 Flush
//! 69 Sweep      u32 keys at most
//! 70 Touch      u32 count, keys
//!
//! condition  u8: 0 any, 1 there is no value, 2 there is one, 3 it has this version: u64
//! str        u32 length, UTF-8
//! ```
//!
//! Numbers begin at 64: below are the commands of the queues, which stand in the same log. The first byte names the command
//! *and* its format. Integers are little-endian; a command ends where its bytes end.

use boltq_core::DecodeError;
use boltq_core::codec::{self, Reader};
use bytes::{BufMut, BytesMut};

const SET: u8 = 64;
const DELETE: u8 = 65;
const EXPIRE: u8 = 66;
const INCREMENT: u8 = 67;
const FLUSH: u8 = 68;
const SWEEP: u8 = 69;
const TOUCH: u8 = 70;

/// Whether bytes are to be a command of the cache, be they readable or not.
#[must_use]
pub fn is_command(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|kind| *kind >= SET)
}

/// What has to be so for a key to be changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Condition {
    /// It is changed.
    #[default]
    Any,
    /// It has no value.
    Absent,
    /// It has one.
    Present,
    /// Its value has this version.
    Version(u64),
}

/// How long a value lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TimeToLive {
    /// Until it is deleted, or its place is needed.
    #[default]
    Unlimited,
    /// So many milliseconds, at least 1, from the time of the entry on.
    Millis(std::num::NonZeroU64),
}

impl TimeToLive {
    /// 0 is for ever.
    #[must_use]
    pub fn from_millis(millis: u64) -> Self {
        std::num::NonZeroU64::new(millis).map_or(Self::Unlimited, Self::Millis)
    }

    fn as_millis(self) -> u64 {
        match self {
            Self::Unlimited => 0,
            Self::Millis(millis) => millis.get(),
        }
    }
}

/// Appends the command that sets a key, and takes the place of others if there are more than `keys_max` then (0: any number).
pub fn set(out: &mut BytesMut, key: &str, value: &[u8], live: TimeToLive, condition: Condition, keys_max: u64) {
    out.reserve(key.len() + value.len() + 64);
    out.put_u8(SET);
    codec::put_bytes(out, key.as_bytes());
    out.put_u64_le(live.as_millis());
    put_condition(out, condition);
    out.put_u64_le(keys_max);
    out.put_slice(value);
}

/// Appends the command that deletes a key.
pub fn delete(out: &mut BytesMut, key: &str, condition: Condition) {
    out.put_u8(DELETE);
    codec::put_bytes(out, key.as_bytes());
    put_condition(out, condition);
}

/// Appends the command that changes how long a key lives, from now on.
pub fn expire(out: &mut BytesMut, key: &str, live: TimeToLive) {
    out.put_u8(EXPIRE);
    codec::put_bytes(out, key.as_bytes());
    out.put_u64_le(live.as_millis());
}

/// Appends the command that adds to the number that is the value of a key. Without a value it counts from 0, and lives as
/// `live` says; a value that is there lives as long as before.
pub fn increment(out: &mut BytesMut, key: &str, by: i64, live: TimeToLive, keys_max: u64) {
    out.put_u8(INCREMENT);
    codec::put_bytes(out, key.as_bytes());
    out.put_i64_le(by);
    out.put_u64_le(live.as_millis());
    out.put_u64_le(keys_max);
}

/// Appends the command that removes everything.
pub fn flush(out: &mut BytesMut) {
    out.put_u8(FLUSH);
}

/// Appends the command that removes up to `keys_max` keys whose time is over.
pub fn sweep(out: &mut BytesMut, keys_max: u32) {
    out.put_u8(SWEEP);
    out.put_u32_le(keys_max);
}

/// Appends the command that says which keys were read, in that order, so that they stay longer than others.
pub fn touch<'a>(out: &mut BytesMut, keys: impl ExactSizeIterator<Item = &'a str>) {
    out.put_u8(TOUCH);
    codec::put_len(out, keys.len());
    for key in keys {
        codec::put_bytes(out, key.as_bytes());
    }
}

fn put_condition(out: &mut BytesMut, condition: Condition) {
    match condition {
        Condition::Any => out.put_u8(0),
        Condition::Absent => out.put_u8(1),
        Condition::Present => out.put_u8(2),
        Condition::Version(version) => {
            out.put_u8(3);
            out.put_u64_le(version);
        }
    }
}

#[derive(Debug)]
pub(crate) enum Command<'a> {
    Set {
        key: &'a str,
        value: &'a [u8],
        live: TimeToLive,
        condition: Condition,
        keys_max: u64,
    },
    Delete {
        key: &'a str,
        condition: Condition,
    },
    Expire {
        key: &'a str,
        live: TimeToLive,
    },
    Increment {
        key: &'a str,
        by: i64,
        live: TimeToLive,
        keys_max: u64,
    },
    Flush,
    Sweep {
        keys_max: u32,
    },
    Touch(Vec<&'a str>),
}

impl<'a> Command<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let command = match reader.u8("command of the cache")? {
            SET => Self::Set {
                key: reader.str("key")?,
                live: read_live(&mut reader)?,
                condition: read_condition(&mut reader)?,
                keys_max: reader.u64("keys at most")?,
                value: reader.rest(),
            },
            DELETE => Self::Delete {
                key: reader.str("key")?,
                condition: read_condition(&mut reader)?,
            },
            EXPIRE => Self::Expire {
                key: reader.str("key")?,
                live: read_live(&mut reader)?,
            },
            INCREMENT => Self::Increment {
                key: reader.str("key")?,
                by: reader.u64("increment")?.cast_signed(),
                live: read_live(&mut reader)?,
                keys_max: reader.u64("keys at most")?,
            },
            FLUSH => Self::Flush,
            SWEEP => Self::Sweep {
                keys_max: reader.u32("keys at most")?,
            },
            TOUCH => {
                let count = reader.count(4, "keys that were read")?;
                let keys = (0..count).map(|_| reader.str("key")).collect::<Result<_, _>>()?;
                Self::Touch(keys)
            }
            other => {
                return Err(DecodeError::Unknown {
                    what: "command of the cache",
                    value: u64::from(other),
                });
            }
        };
        reader.end("command of the cache")?;
        Ok(command)
    }
}

fn read_live(reader: &mut Reader<'_>) -> Result<TimeToLive, DecodeError> {
    reader.u64("time to live").map(TimeToLive::from_millis)
}

fn read_condition(reader: &mut Reader<'_>) -> Result<Condition, DecodeError> {
    Ok(match reader.u8("condition")? {
        0 => Condition::Any,
        1 => Condition::Absent,
        2 => Condition::Present,
        3 => Condition::Version(reader.u64("version")?),
        other => {
            return Err(DecodeError::Unknown {
                what: "condition",
                value: u64::from(other),
            });
        }
    })
}
