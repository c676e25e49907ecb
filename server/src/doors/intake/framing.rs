//! The length prefixes in the body of a gRPC request: where a message ends.

/// A flag and a big-endian length.
const PREFIX_BYTES: usize = 5;

/// Most messages are counted in one step.
const STEP_BYTES: usize = 64 << 10;

/// Where in a sequence of messages the bytes so far end.
#[derive(Debug, Default)]
pub(super) struct Framing {
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the message that is not whole, its prefix included.
    received: usize,
    /// Bytes that its prefix announced, and the prefix; known once that is there.
    announced: usize,
    whole: u64,
}

impl Framing {
    /// The next bytes of the body. Whether the lengths are sensible is for the decoder to say.
    pub(super) fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.received < PREFIX_BYTES {
                let count = (PREFIX_BYTES - self.received).min(bytes.len());
                self.prefix[self.received..self.received + count].copy_from_slice(&bytes[..count]);
                self.received += count;
                bytes = &bytes[count..];
                if self.received < PREFIX_BYTES {
                    return;
                }
                let [_, length @ ..] = self.prefix;
                self.announced = (u32::from_be_bytes(length) as usize).saturating_add(PREFIX_BYTES);
            }
            let count = (self.announced - self.received).min(bytes.len());
            self.received += count;
            bytes = &bytes[count..];
            if self.received == self.announced {
                self.whole += 1;
                self.received = 0;
            }
        }
    }

    /// Bytes of the message that is not whole; 0 between messages.
    pub(super) fn unfinished(&self) -> usize {
        self.received
    }

    /// Bytes to count for it: what has come, in steps, but not more than will come.
    pub(super) fn to_hold(&self) -> usize {
        match self.received {
            0 => 0,
            1..PREFIX_BYTES => PREFIX_BYTES,
            _ => self.received.next_multiple_of(STEP_BYTES).min(self.announced),
        }
    }

    /// Messages that are whole.
    pub(super) fn whole(&self) -> u64 {
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(length: usize) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
        bytes.resize(PREFIX_BYTES + length, 7);
        bytes
    }

    #[test]
    fn the_largest_length_is_followed() {
        let mut framing = Framing::default();
        framing.advance(&[0, 0xff, 0xff, 0xff, 0xff, 1, 2]);
        assert_eq!((framing.whole(), framing.unfinished()), (0, 7));
        assert_eq!(framing.to_hold(), STEP_BYTES);
    }

    #[test]
    fn what_was_announced_and_has_not_come_is_not_counted() {
        let mut framing = Framing::default();
        let bytes = message(4 << 20);
        framing.advance(&bytes[..3]);
        assert_eq!(framing.to_hold(), PREFIX_BYTES);
        framing.advance(&bytes[3..STEP_BYTES + 1]);
        assert_eq!(framing.to_hold(), 2 * STEP_BYTES);
        framing.advance(&bytes[STEP_BYTES + 1..bytes.len() - 1]);
        assert_eq!(framing.to_hold(), bytes.len());
        framing.advance(&[7]);
        assert_eq!((framing.whole(), framing.to_hold()), (1, 0));
        framing.advance(&message(100)[..50]);
        assert_eq!(framing.to_hold(), 105);
    }

    proptest! {
        #[test]
        fn messages_end_where_their_prefixes_say_however_they_are_cut(
            lengths in prop::collection::vec(0_usize..40, 0..10),
            chunk in 1_usize..50,
            missing in 0_usize..5,
        ) {
            let mut bytes: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
            let begun = message(30);
            bytes.extend_from_slice(&begun[..missing]);
            let mut framing = Framing::default();
            bytes.chunks(chunk).for_each(|chunk| framing.advance(chunk));
            prop_assert_eq!(framing.whole(), lengths.len() as u64);
            prop_assert_eq!(framing.unfinished(), missing);
        }
    }
}
