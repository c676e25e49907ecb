//! The codec of all services: protobuf, with a bound on what a message may grow to when it is decoded.
//!
//! Two bytes on the wire can be an empty message in a list, which takes a hundred in memory. The limit on the bytes of a
//! message alone would let a few megabytes become hundreds. So before a message is decoded, its members are counted.

use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// Members of one message that are accepted however small they are. Requests have at most a thousand of a kind.
const MEMBERS_MAX: usize = 8_192;
/// Beyond [`MEMBERS_MAX`], members have at least so many bytes on average, with their tags.
const MEMBER_BYTES_MIN: usize = 16;

/// See the module.
#[derive(Debug, Clone)]
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> ProstEncoder<T> {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> BoundedDecoder<U> {
        BoundedDecoder(ProstDecoder::default())
    }
}

/// Counts, then decodes.
#[derive(Debug, Clone)]
pub struct BoundedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // All of the message: tonic gathers it in one piece.
        if has_too_many_members(buffer.chunk()) {
            return Err(Status::invalid_argument(format!(
                "a message of {} bytes has more than {MEMBERS_MAX} members, of less than {MEMBER_BYTES_MIN} bytes each",
                buffer.remaining()
            )));
        }
        self.0.decode(buffer)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// Of the message itself, not of those in it: these are bounded by their own bytes. One that is malformed has none too many:
/// the decoder says what is wrong with it.
fn has_too_many_members(mut bytes: &[u8]) -> bool {
    let limit = MEMBERS_MAX.max(bytes.len() / MEMBER_BYTES_MIN);
    let mut members = 0;
    // A member has two bytes at least.
    while bytes.len() > 2 * limit.saturating_sub(members) {
        let Some(rest) = after_member(bytes) else { return false };
        bytes = rest;
        members += 1;
        if members > limit {
            return true;
        }
    }
    false
}

fn after_member(bytes: &[u8]) -> Option<&[u8]> {
    let (tag, rest) = varint(bytes)?;
    match tag & 7 {
        0 => varint(rest).map(|(_, rest)| rest),
        1 => rest.get(8..),
        2 => {
            let (length, rest) = varint(rest)?;
            rest.get(usize::try_from(length).ok()?..)
        }
        // The beginning and the end of a group: what is in between counts.
        3 | 4 => Some(rest),
        5 => rest.get(4..),
        _ => None,
    }
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: usize, bytes: usize) -> Vec<u8> {
        // Field 2, of up to 127 bytes.
        let one = [&[0x12, u8::try_from(bytes).unwrap()][..], &vec![0; bytes]].concat();
        one.repeat(count)
    }

    #[test]
    fn many_small_members_are_too_many_and_many_large_ones_are_not() {
        assert!(!has_too_many_members(&members(MEMBERS_MAX, 0)));
        assert!(has_too_many_members(&members(MEMBERS_MAX + 1, 0)));
        assert!(has_too_many_members(&members(1_900_000, 0)));
        assert!(has_too_many_members(&members(100_000, 13)));
        assert!(!has_too_many_members(&members(100_000, 14)));
        assert!(!has_too_many_members(&[]));
    }

    #[test]
    fn members_of_every_kind_are_counted() {
        let kinds: [&[u8]; 4] = [
            &[0x08, 1],
            &[0x0b, 0x0c],
            &[0x0d, 0, 0, 0, 0],
            &[0x09, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        for kind in kinds {
            assert!(has_too_many_members(&kind.repeat(10_000)), "{kind:?}");
        }
    }

    #[test]
    fn what_is_malformed_is_left_to_the_decoder() {
        for bytes in [
            vec![0x0f; 100_000],
            vec![0xff; 100_000],
            members(1, 100).repeat(200)[..20_001].to_vec(),
        ] {
            assert!(!has_too_many_members(&bytes));
        }
    }
}
