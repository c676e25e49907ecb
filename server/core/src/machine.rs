//! The contract between replicated state and the layers that replicate and store it.

use crate::codec::DecodeError;
use crate::{Millis, Seq, StreamId};

/// Replicated state: the same commands give the same state and the same outcomes on every replica.
///
/// No clock, no randomness, no I/O. What the outside has to do is returned: to the store as [`StorageEffect`]s, to the
/// plane as effects, which only a leader runs and which may run twice.
pub trait StateMachine: Sized {
    /// The answer to one command.
    type Outcome;
    /// What the plane does after a command.
    type Effect;

    /// Applies one command. `time` is that of the entry; the machine keeps the highest it has seen.
    /// `offset` is where `command` starts in the data of its entry: places of records are counted from there.
    ///
    /// # Errors
    /// The bytes are no command of this version. The state is then unchanged, and the node has to stop: another
    /// replica may have understood them.
    fn apply(
        &mut self,
        time: Millis,
        command: &[u8],
        offset: u32,
        applied: &mut Applied<Self::Effect>,
    ) -> Result<Self::Outcome, DecodeError>;

    /// The whole state, in a format with a version.
    fn snapshot(&self) -> Vec<u8>;

    /// The state of a snapshot.
    ///
    /// # Errors
    /// The bytes are damaged or of a version that is not known.
    fn restore(bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// What commands want from the outside, collected over an entry.
#[derive(Debug)]
pub struct Applied<E> {
    /// For the store, in order.
    pub storage: Vec<StorageEffect>,
    /// For the plane, in order.
    pub effects: Vec<E>,
}

impl<E> Default for Applied<E> {
    fn default() -> Self {
        Self {
            storage: Vec::new(),
            effects: Vec::new(),
        }
    }
}

/// Where records are, and which are no longer wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageEffect {
    /// `count` records that stand one after the other in the entry, from `offset` on, `bytes` in all, now belong to
    /// `stream` with the sequences from `first` on.
    Placed {
        /// The stream.
        stream: StreamId,
        /// Sequence of the first record.
        first: Seq,
        /// Number of records, at least 1.
        count: u32,
        /// Offset of the first record in the data of the entry.
        offset: u32,
        /// Bytes of all of them.
        bytes: u32,
    },
    /// `count` records from `first` on are no longer wanted. They were placed before, and each is freed once.
    Freed {
        /// The stream.
        stream: StreamId,
        /// Sequence of the first record.
        first: Seq,
        /// Number of records, at least 1.
        count: u64,
    },
    /// A record is no longer wanted, as with `Freed`, and its bytes have to be gone for ever, though its neighbours stay. It was
    /// placed before, and is freed or erased once. Who reads it is told so; how far its bytes are gone, the store says.
    Erased {
        /// The stream.
        stream: StreamId,
        /// Its sequence.
        seq: Seq,
    },
}
