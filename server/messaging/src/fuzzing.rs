//! What fuzz targets need of the formats between nodes.
//!
//! Only with the feature `fuzzing`.

use boltq_raft::Proposal;

use crate::wire;

/// Reads a call that another node passed on, or the answer to one. Returns whether it is one.
///
/// # Panics
/// What is accepted is not written as it was read.
#[must_use]
pub fn call(bytes: &[u8]) -> bool {
    let call = wire::decode_call(bytes).map(|call| {
        assert_eq!(
            wire::encode_call(call.group, call.kind, call.commands),
            bytes,
            "not what was read"
        );
        Proposal::from_bytes(call.commands, boltq_stream::command::check).is_ok()
    });
    let answer = wire::decode_answer(bytes).map(|answer| {
        let written = wire::encode_answer(&answer);
        let again = wire::decode_answer(&written).ok();
        // Texts that are no UTF-8 are shown as well as they can be.
        assert_eq!(again, Some(answer), "not what was read");
    });
    call.unwrap_or(false) || answer.is_ok()
}
