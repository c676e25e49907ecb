//! What the formats of commands and snapshots have in common.

use boltq_core::DecodeError;
use boltq_core::codec::Reader;
use boltq_core::limits::NAME_BYTES_MAX;
use bytes::{BufMut, BytesMut};

pub(crate) fn check(is_so: bool, what: &'static str, why: &'static str) -> Result<(), DecodeError> {
    if is_so {
        Ok(())
    } else {
        Err(DecodeError::Invalid { what, why })
    }
}

/// Of texts whose limits are within what the length can say.
pub(crate) fn put_short(out: &mut BytesMut, text: &str) {
    out.put_u8(u8::try_from(text.len()).unwrap_or(u8::MAX));
    out.put_slice(text.as_bytes());
}

pub(crate) fn read_short<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<&'a str, DecodeError> {
    let bytes = usize::from(reader.u8(what)?);
    std::str::from_utf8(reader.take(bytes, what)?).map_err(|_| DecodeError::NotUtf8 { what })
}

pub(crate) fn read_topic<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    const WHAT: &str = "topic";
    let topic = read_short(reader, WHAT)?;
    check(
        (1..=NAME_BYTES_MAX).contains(&topic.len()),
        WHAT,
        "its name is empty or too long",
    )?;
    Ok(topic)
}

/// A sequence, a version or a count of a snapshot: none gets this high, and what counts on from it does not get over the end.
pub(crate) fn read_number(reader: &mut Reader<'_>, what: &'static str) -> Result<u64, DecodeError> {
    const NUMBER_MAX: u64 = 1 << 62;
    let number = reader.u64(what)?;
    check(number <= NUMBER_MAX, what, "it is higher than any can be")?;
    Ok(number)
}
