//! What the broker remembers of an ordering key.
//!
//! Messages of a key are delivered one after the other, so it has to be known which of those that wait have the same one.
//! 64 bits say that for 8 bytes of memory. Keys that have them in common by chance wait for each other too, and nothing else
//! comes of it: no order is broken, and no message is taken for another.

/// 64 bits of an ordering key: FNV-1a. They lie in snapshots, so they never change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyHash(pub u64);

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

impl KeyHash {
    /// That of a key.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(
            key.iter()
                .fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the reference of the function.
    #[test]
    fn it_is_what_it_was() {
        for (key, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(KeyHash::of(key.as_bytes()), KeyHash(hash), "{key}");
        }
    }
}
