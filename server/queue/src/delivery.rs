//! What consumers get, and what they come back with.

use boltq_core::Millis;

use crate::place::{ConsumerId, LeaseNo, Place, QueueId};

/// A message that was just leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leased {
    /// The message.
    pub place: Place,
    /// The lease, which together with the place is the token of the delivery.
    pub lease: LeaseNo,
    /// Failed attempts so far.
    pub attempts: u32,
    /// When it was due, if it was published with a delay.
    pub due: Option<Millis>,
    /// When it expires, if it does; the record of a copy that several queues have may say nothing of it.
    pub expires: Option<Millis>,
}

/// How a message is named when it is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handle {
    /// By the lease that it was delivered under.
    Token {
        /// The message.
        place: Place,
        /// Its lease.
        lease: LeaseNo,
    },
    /// By its place alone, whoever holds it.
    Place(Place),
}

impl Handle {
    /// The message.
    #[must_use]
    pub fn place(self) -> Place {
        match self {
            Self::Token { place, .. } | Self::Place(place) => place,
        }
    }
}

/// A message that belongs to a command until the command is applied, or the claim is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The message.
    pub place: Place,
    /// Its queue.
    pub queue: QueueId,
    /// Failed attempts so far.
    pub attempts: u32,
    /// Who held it. `None` if nobody did, because the lease had ended: an acknowledgement is then still right, but a
    /// failure was counted already when the lease ended, and should not be counted again.
    pub consumer: Option<ConsumerId>,
    /// How long its consumer had held it when it came back with it, in milliseconds; `None` if it did not, or nobody held it.
    pub held_ms: Option<u64>,
    /// Whether its time to live is known to be over: it is to be expired, whatever was intended.
    pub expired: bool,
}

/// Why a message cannot be settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// It is done, or there never was one, or this node does not lead.
    #[error(
        "there is no such message: it was acknowledged, expired, purged or dead-lettered, or it was never delivered"
    )]
    NotFound,
    /// Another consumer holds it, or it is being settled.
    #[error("the lease is over, and the message went on to another consumer or is being settled; drop this delivery")]
    LeaseLost,
    /// It has an ordering key, and a leader that has just begun has not come to it yet: it has looked at a bounded number of
    /// those in front of it now. Try again, when others have had their turn.
    #[error("the message was looked for, and not found yet; try again")]
    Later,
    /// Its time to live is over. It is claimed, to be expired.
    #[error("the time to live of the message is over")]
    Expired(Claim),
}
