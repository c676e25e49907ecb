//! What fuzz targets need of the formats between nodes, which have openraft's types in them and are nobody else's business.
//!
//! Only with the feature `fuzzing`.

use std::sync::Arc;

use boltq_core::DecodeError;
use boltq_log::GroupLog;
use bytes::Bytes;

use crate::encoding::{read_stored_membership, write_stored_membership};
use crate::snapshot::{Installing, Receiving};
use crate::wire::{self, Request, SnapshotHead};

/// What is accepted is written as it was read.
fn check<T>(bytes: &Bytes, decoded: Result<T, DecodeError>, encode: impl FnOnce(T) -> Bytes) -> bool {
    let Ok(message) = decoded else { return false };
    assert_eq!(encode(message), bytes, "not what was read");
    true
}

/// Reads a request to a group, an answer to one, or the membership in the head of a snapshot. Returns whether it is one.
///
/// # Panics
/// What is accepted is not written as it was read.
#[must_use]
pub fn message(bytes: &Bytes) -> bool {
    let accepted = [
        check(bytes, Request::decode(bytes), Request::encode),
        check(bytes, wire::decode_append_answer(bytes), |answer| {
            wire::encode_append_answer(&answer)
        }),
        check(bytes, wire::decode_vote_answer(bytes), |answer| {
            wire::encode_vote_answer(&answer)
        }),
        check(bytes, wire::decode_transfer_answer(bytes), |answer| {
            wire::encode_transfer_answer(&answer)
        }),
        check(bytes, wire::decode_snapshot_answer(bytes), |vote| {
            wire::encode_snapshot_answer(&vote)
        }),
        check(
            bytes,
            wire::decode_read_index_answer(bytes),
            wire::encode_read_index_answer,
        ),
        check(bytes, wire::decode_room_answer(bytes), wire::encode_room_answer),
        check(bytes, wire::decode_feed_answer(bytes), |()| wire::encode_feed_answer()),
        check(bytes, SnapshotHead::decode(bytes), |head| head.encode()),
        check(bytes, read_stored_membership(bytes), |stored| {
            write_stored_membership(&stored).into()
        }),
    ];
    accepted.contains(&true)
}

/// Takes the chunks of a snapshot as they come from another node, the head first, and replaces what the log has of the group.
/// Returns the state that came with it.
///
/// # Errors
/// As the other node would be told.
pub fn install(log: &GroupLog, chunks: &[Bytes]) -> Result<Bytes, String> {
    let (head, chunks) = chunks.split_first().ok_or("a snapshot without a head")?;
    let mut receiving = Receiving::begin(log, head)?;
    for chunk in chunks {
        receiving.add(chunk)?;
    }
    let received = receiving.end(Arc::new(Installing::default()).begin())?;
    read_stored_membership(received.membership()).map_err(|error| error.to_string())?;
    let state = received.state.clone();
    received.commit().map_err(|error| error.to_string())?;
    Ok(state)
}
