//! Reading and writing of the binary formats: little-endian integers and length-prefixed bytes.
//!
//! A reader never panics and never allocates by a length that it has not checked against what is there.

use bytes::{BufMut, BytesMut};

/// Why bytes could not be read. They came from a disk or another node, so every case is reachable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end before the value does.
    #[error("{what}: {wanted} bytes wanted at {at}, {left} left")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where it starts.
        at: usize,
        /// Its length.
        wanted: usize,
        /// What is there.
        left: usize,
    },
    /// A value that this version does not know.
    #[error("{what}: {value} is unknown to this version")]
    Unknown {
        /// What was being read.
        what: &'static str,
        /// What it said.
        value: u64,
    },
    /// Text that is not UTF-8.
    #[error("{what}: not UTF-8")]
    NotUtf8 {
        /// What was being read.
        what: &'static str,
    },
    /// A value that contradicts another one.
    #[error("{what}: {why}")]
    Invalid {
        /// What was being read.
        what: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// Reads a slice from its start.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Whether everything is read.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// That everything is read.
    pub fn end(&self, what: &'static str) -> Result<(), DecodeError> {
        if self.is_empty() {
            return Ok(());
        }
        Err(DecodeError::Invalid {
            what,
            why: "more bytes than it has",
        })
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let left = self.remaining();
        if count > left {
            return Err(DecodeError::Truncated {
                what,
                at: self.at,
                wanted: count,
                left,
            });
        }
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        self.at = self.bytes.len();
        rest
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let taken = self.take(N, what)?;
        let mut array = [0; N];
        array.copy_from_slice(taken);
        Ok(array)
    }

    /// One byte.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    /// Two bytes.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Sixteen bytes.
    pub fn u128(&mut self, what: &'static str) -> Result<u128, DecodeError> {
        self.array(what).map(u128::from_le_bytes)
    }

    /// A u32 length, then that many bytes.
    pub fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let count = self.u32(what)? as usize;
        self.take(count, what)
    }

    /// As [`Reader::bytes`], which has to be UTF-8.
    pub fn str(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes(what)?).map_err(|_| DecodeError::NotUtf8 { what })
    }

    /// A u32 count of items of at least `item_bytes_min` bytes each, refused if they cannot all be there.
    pub fn count(&mut self, item_bytes_min: usize, what: &'static str) -> Result<usize, DecodeError> {
        let at = self.at;
        let count = self.u32(what)? as usize;
        let wanted = count.saturating_mul(item_bytes_min.max(1));
        if wanted > self.remaining() {
            return Err(DecodeError::Truncated {
                what,
                at,
                wanted,
                left: self.remaining(),
            });
        }
        Ok(count)
    }
}

/// Appends a u32 length and the bytes. Callers keep `bytes` under 4 GiB: limits are checked at the doors.
pub fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.put_slice(bytes);
}

/// Appends a length as u32; a longer one is written as `u32::MAX`, which no reader accepts.
pub fn put_len(out: &mut BytesMut, len: usize) {
    out.put_u32_le(u32::try_from(len).unwrap_or(u32::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_back_in_order() {
        let mut out = BytesMut::new();
        out.put_u8(7);
        out.put_u16_le(8);
        out.put_u32_le(9);
        out.put_u64_le(10);
        out.put_u128_le(11);
        put_bytes(&mut out, "né".as_bytes());
        let mut reader = Reader::new(&out);
        assert_eq!(reader.u8("a"), Ok(7));
        assert_eq!(reader.u16("b"), Ok(8));
        assert_eq!(reader.u32("c"), Ok(9));
        assert_eq!(reader.u64("d"), Ok(10));
        assert_eq!(reader.u128("e"), Ok(11));
        assert_eq!(reader.str("f"), Ok("né"));
        assert!(reader.is_empty());
        assert_eq!(
            reader.u8("g"),
            Err(DecodeError::Truncated {
                what: "g",
                at: 38,
                wanted: 1,
                left: 0
            })
        );
    }

    #[test]
    fn a_count_beyond_the_bytes_is_refused_before_anything_is_allocated() {
        let bytes = u32::MAX.to_le_bytes();
        assert!(matches!(
            Reader::new(&bytes).count(8, "items"),
            Err(DecodeError::Truncated { .. })
        ));
        assert!(matches!(
            Reader::new(&bytes).bytes("text"),
            Err(DecodeError::Truncated { .. })
        ));
    }
}
