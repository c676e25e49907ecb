//! The parts that messages are made of: their head, votes, ids of entries, flags.

use boltq_core::codec::Reader;
use boltq_core::{DecodeError, LogIndex, NodeId, Term};
use boltq_log::EntryId;
use bytes::{BufMut, BytesMut};

use crate::encoding::{to_entry_id, to_log_id};
use crate::types::{LogId, Vote};

const VERSION: u8 = 1;
/// Version and kind.
const HEAD_BYTES: usize = 2;

pub(super) fn head(kind: u8, body_bytes: usize) -> BytesMut {
    let mut out = BytesMut::with_capacity(HEAD_BYTES + body_bytes);
    out.put_u8(VERSION);
    out.put_u8(kind);
    out
}

pub(super) fn read_head(reader: &mut Reader<'_>) -> Result<u8, DecodeError> {
    match reader.u8("version")? {
        VERSION => reader.u8("kind"),
        other => Err(unknown("version of a message between nodes", other)),
    }
}

pub(super) fn expect(reader: &mut Reader<'_>, kind: u8) -> Result<(), DecodeError> {
    match read_head(reader)? {
        read if read == kind => Ok(()),
        other => Err(unknown("kind of an answer", other)),
    }
}

pub(super) fn unknown(what: &'static str, value: u8) -> DecodeError {
    DecodeError::Unknown {
        what,
        value: u64::from(value),
    }
}

pub(super) fn put_vote(out: &mut BytesMut, vote: &Vote) {
    out.put_u64_le(vote.leader_id.term);
    out.put_u64_le(vote.leader_id.node_id);
    out.put_u8(u8::from(vote.committed));
}

pub(super) fn read_vote(reader: &mut Reader<'_>) -> Result<Vote, DecodeError> {
    let (term, node) = (reader.u64("vote term")?, reader.u64("vote node")?);
    Ok(if read_flag(reader, "vote committed")? {
        Vote::new_committed(term, node)
    } else {
        Vote::new(term, node)
    })
}

pub(super) fn read_flag(reader: &mut Reader<'_>, what: &'static str) -> Result<bool, DecodeError> {
    match reader.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(unknown(what, other)),
    }
}

pub(super) fn put_log_id(out: &mut BytesMut, id: Option<&LogId>) {
    match id {
        None => out.put_u8(0),
        Some(id) => {
            out.put_u8(1);
            put_entry_id(out, to_entry_id(id));
        }
    }
}

pub(super) fn read_log_id(reader: &mut Reader<'_>) -> Result<Option<LogId>, DecodeError> {
    Ok(if read_flag(reader, "log id")? {
        Some(to_log_id(read_entry_id(reader)?))
    } else {
        None
    })
}

pub(super) fn put_entry_id(out: &mut BytesMut, id: EntryId) {
    out.put_u64_le(id.term.0);
    out.put_u64_le(id.leader.0);
    out.put_u64_le(id.index.0);
}

pub(super) fn read_entry_id(reader: &mut Reader<'_>) -> Result<EntryId, DecodeError> {
    Ok(EntryId {
        term: Term(reader.u64("entry term")?),
        leader: NodeId(reader.u64("entry leader")?),
        index: LogIndex(reader.u64("entry index")?),
    })
}
