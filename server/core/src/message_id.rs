//! Ids of messages, which are their places in disguise.
//!
//! An id has to be unique for ever, cheap to make a million times a second, and has to lead from an acknowledgement
//! back to the message. So it *is* the place of the message (stream and sequence, which the state machine gives out
//! once only), put through a permutation of 128 bits: equal places give equal ids, other places other ids, and an id
//! tells a client neither the rate nor the number of messages. The salt differs between data directories, so that ids
//! do not repeat after a start without the old data.

use std::fmt;
use std::str::FromStr;

use crate::{Seq, StreamId};

/// 16 bytes, shown as 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub [u8; 16]);

/// Key of the permutation, fixed when a group is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdSalt(pub u64);

/// A Feistel network: any round function makes it a permutation, four rounds mix both halves well enough that
/// neighbouring places have nothing in common (Luby and Rackoff, 1988). Not a cipher, and nothing depends on it being one.
const ROUND_KEYS: [u64; 4] = [
    0x9E37_79B9_7F4A_7C15,
    0xC2B2_AE3D_27D4_EB4F,
    0x1656_67B1_9E37_79F9,
    0xD6E8_FEB8_6659_FD93,
];

/// The finalizer of `SplitMix64` (Steele, Lea, Flood, 2014).
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

impl IdSalt {
    /// The id of a place.
    #[must_use]
    pub fn id(self, stream: StreamId, seq: Seq) -> MessageId {
        let (mut left, mut right) = (stream.0, seq.0);
        for key in ROUND_KEYS {
            (left, right) = (right, left ^ mix(right ^ key ^ self.0));
        }
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&left.to_be_bytes());
        bytes[8..].copy_from_slice(&right.to_be_bytes());
        MessageId(bytes)
    }

    /// The place of an id. Any 16 bytes give some place; whether a message is there is for the caller to find out.
    #[must_use]
    pub fn place(self, id: MessageId) -> (StreamId, Seq) {
        let (mut left, mut right) = id.halves();
        for key in ROUND_KEYS.into_iter().rev() {
            (left, right) = (right ^ mix(left ^ key ^ self.0), left);
        }
        (StreamId(left), Seq(right))
    }
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

impl MessageId {
    fn halves(self) -> (u64, u64) {
        let whole = u128::from_be_bytes(self.0);
        #[allow(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
        ((whole >> 64) as u64, whole as u64)
    }

    /// The 32 digits as ASCII bytes.
    #[must_use]
    pub fn hex(self) -> [u8; 32] {
        let mut hex = [0; 32];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair[0] = HEX_DIGITS[usize::from(byte >> 4)];
            pair[1] = HEX_DIGITS[usize::from(byte & 15)];
        }
        hex
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = self.hex();
        f.write_str(std::str::from_utf8(&hex).unwrap_or_default())
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a message id: 32 hexadecimal digits wanted")]
pub struct ParseIdError;

impl FromStr for MessageId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        // `from_str_radix` alone would take a sign.
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(ParseIdError);
        }
        u128::from_str_radix(text, 16)
            .map(|whole| Self(whole.to_be_bytes()))
            .map_err(|_| ParseIdError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_place_comes_back_from_its_id(salt: u64, stream: u64, seq: u64) {
            let salt = IdSalt(salt);
            let id = salt.id(StreamId(stream), Seq(seq));
            prop_assert_eq!(salt.place(id), (StreamId(stream), Seq(seq)));
        }

        #[test]
        fn text_comes_back(bytes: [u8; 16]) {
            prop_assert_eq!(MessageId(bytes).to_string().parse(), Ok(MessageId(bytes)));
        }
    }

    #[test]
    fn neighbours_share_no_half() {
        let salt = IdSalt(42);
        let (a, b) = (salt.id(StreamId(1), Seq(1)), salt.id(StreamId(1), Seq(2)));
        assert_ne!(a.halves().0, b.halves().0);
        assert_ne!(a.halves().1, b.halves().1);
    }

    #[test]
    fn signs_short_and_other_text_are_no_ids() {
        for text in [
            "",
            "12",
            "+1234567890123456789012345678901",
            &"g".repeat(32),
            &"0".repeat(33),
        ] {
            assert_eq!(text.parse::<MessageId>(), Err(ParseIdError), "{text}");
        }
    }
}
