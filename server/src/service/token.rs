//! What names a lease to a client.

use boltq_core::{MessageId, Seq, StreamId};
use boltq_queue::{LeaseNo, Place};

const TOKEN_BYTES: usize = 24;

/// Names one lease of one message: place and number of the lease, 24 bytes. Opaque to clients, and no secret: who may
/// settle is decided by the API key of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryToken {
    pub(crate) place: Place,
    pub(crate) lease: LeaseNo,
}

impl DeliveryToken {
    /// The bytes that a client gets.
    #[must_use]
    pub fn to_bytes(self) -> [u8; TOKEN_BYTES] {
        let mut bytes = [0; TOKEN_BYTES];
        bytes[..8].copy_from_slice(&self.place.stream.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.place.seq.0.to_be_bytes());
        bytes[16..].copy_from_slice(&self.lease.0.to_be_bytes());
        bytes
    }

    /// The token of these bytes, if they have its length. Whether there is such a lease is for the plane to say.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; TOKEN_BYTES] = bytes.try_into().ok()?;
        let part = |at: usize| {
            let mut part = [0; 8];
            part.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(part)
        };
        let place = Place {
            stream: StreamId(part(0)),
            seq: Seq(part(8)),
        };
        Some(Self {
            place,
            lease: LeaseNo(part(16)),
        })
    }
}

/// What a client calls a message that it wants to settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handle {
    /// The lease that it was given.
    Token(DeliveryToken),
    /// The message, whoever holds it.
    Id(MessageId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_and_other_lengths_are_none() {
        let token = DeliveryToken {
            place: Place {
                stream: StreamId(17),
                seq: Seq(u64::MAX),
            },
            lease: LeaseNo(3),
        };
        let bytes = token.to_bytes();
        assert_eq!(DeliveryToken::from_bytes(&bytes), Some(token));
        assert_eq!(DeliveryToken::from_bytes(&bytes[1..]), None);
        assert_eq!(DeliveryToken::from_bytes(&[]), None);
    }
}
