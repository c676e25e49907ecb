//! What groups say to each other, in our own bytes.
//!
//! A request is `u8 version, u8 kind, body`, and so is an answer. Numbers are little-endian; `?` stands for a byte that says
//! whether what follows is there.
//!
//! ```text
//! append   vote, previous log id ?, commit log id ?, u32 count, entries: log id, u8 kind, u32 length, data
//! vote     vote, last log id ?, u8 leadership transfer        (also for pre-votes)
//! transfer vote, u64 node, last log id ?
//! snapshot vote, log id, u32 length, membership               (the head of a transfer, see `snapshot`)
//! read     nothing; the answer is u8 outcome, and with an index u64
//! room     nothing; the answer is u8, whether there is room for more
//! feed     u64 node, that wants a snapshot; the answer is nothing, when it has it
//!
//! vote     u64 term, u64 node, u8 committed
//! log id   u64 term, u64 leader, u64 index
//! ```

mod parts;

use boltq_core::codec::{Reader, put_bytes, put_len};
use boltq_core::{DecodeError, LogIndex, NodeId};
use boltq_log::{Entry, EntryId};
use bytes::{BufMut, Bytes};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};

use self::parts::{
    expect, head, put_entry_id, put_log_id, put_vote, read_entry_id, read_flag, read_head, read_log_id, read_vote,
    unknown,
};
use crate::encoding::{to_entry, to_raft_entry};
use crate::types::{TypeConfig, Vote};

/// Log id, kind and length of an entry.
const ENTRY_HEAD_BYTES: usize = 24 + 1 + 4;

/// A request to a group.
#[derive(Debug)]
pub(crate) enum Request {
    Append(AppendEntriesRequest<TypeConfig>),
    Vote(VoteRequest<TypeConfig>),
    PreVote(VoteRequest<TypeConfig>),
    Transfer(TransferLeaderRequest<TypeConfig>),
    ReadIndex,
    Room,
    Feed(NodeId),
}

/// The answer to [`Request::ReadIndex`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadIndex {
    Is(LogIndex),
    NotLeader,
    NoMajority,
    Stopped,
}

mod kind {
    pub(super) const APPEND: u8 = 1;
    pub(super) const VOTE: u8 = 2;
    pub(super) const PRE_VOTE: u8 = 3;
    pub(super) const TRANSFER: u8 = 4;
    pub(super) const SNAPSHOT: u8 = 5;
    pub(super) const READ_INDEX: u8 = 6;
    pub(super) const ROOM: u8 = 7;
    pub(super) const FEED: u8 = 8;
}

mod append {
    pub(super) const SUCCESS: u8 = 0;
    pub(super) const PARTIAL: u8 = 1;
    pub(super) const CONFLICT: u8 = 2;
    pub(super) const HIGHER_VOTE: u8 = 3;
}

mod transfer {
    pub(super) const ACCEPTED: u8 = 0;
    pub(super) const VOTE_CHANGED: u8 = 1;
    pub(super) const NOT_FLUSHED: u8 = 2;
}

mod read_index {
    pub(super) const IS: u8 = 0;
    pub(super) const NOT_LEADER: u8 = 1;
    pub(super) const NO_MAJORITY: u8 = 2;
    pub(super) const STOPPED: u8 = 3;
}

impl Request {
    pub(crate) fn encode(self) -> Bytes {
        match self {
            Self::Append(request) => encode_append(request),
            Self::Vote(request) => encode_vote(kind::VOTE, &request),
            Self::PreVote(request) => encode_vote(kind::PRE_VOTE, &request),
            Self::Transfer(request) => {
                let mut out = head(kind::TRANSFER, 64);
                put_vote(&mut out, request.from_leader());
                out.put_u64_le(*request.to_node_id());
                put_log_id(&mut out, request.last_log_id());
                out.freeze()
            }
            Self::ReadIndex => head(kind::READ_INDEX, 0).freeze(),
            Self::Room => head(kind::ROOM, 0).freeze(),
            Self::Feed(node) => {
                let mut out = head(kind::FEED, 8);
                out.put_u64_le(node.0);
                out.freeze()
            }
        }
    }

    /// Entries share the memory of `bytes`.
    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let request = match read_head(&mut reader)? {
            kind::APPEND => Self::Append(read_append(&mut reader, bytes)?),
            kind::VOTE => Self::Vote(read_vote_request(&mut reader)?),
            kind::PRE_VOTE => Self::PreVote(read_vote_request(&mut reader)?),
            kind::TRANSFER => {
                let (from, to) = (read_vote(&mut reader)?, reader.u64("target of a transfer")?);
                Self::Transfer(TransferLeaderRequest::new(from, to, read_log_id(&mut reader)?))
            }
            kind::READ_INDEX => Self::ReadIndex,
            kind::ROOM => Self::Room,
            kind::FEED => Self::Feed(NodeId(reader.u64("node that wants a snapshot")?)),
            kind => return Err(unknown("request kind", kind)),
        };
        reader.end("request")?;
        Ok(request)
    }
}

fn encode_append(request: AppendEntriesRequest<TypeConfig>) -> Bytes {
    let entries: Vec<Entry> = request.entries.into_iter().map(to_entry).collect();
    let data: usize = entries.iter().map(|entry| ENTRY_HEAD_BYTES + entry.data.len()).sum();
    let mut out = head(kind::APPEND, 80 + data);
    put_vote(&mut out, &request.vote);
    put_log_id(&mut out, request.prev_log_id.as_ref());
    put_log_id(&mut out, request.leader_commit.as_ref());
    put_len(&mut out, entries.len());
    for entry in entries {
        put_entry_id(&mut out, entry.id);
        out.put_u8(entry.kind);
        put_bytes(&mut out, &entry.data);
    }
    out.freeze()
}

fn read_append(reader: &mut Reader<'_>, bytes: &Bytes) -> Result<AppendEntriesRequest<TypeConfig>, DecodeError> {
    let vote = read_vote(reader)?;
    let prev_log_id = read_log_id(reader)?;
    let leader_commit = read_log_id(reader)?;
    let count = reader.count(ENTRY_HEAD_BYTES, "entries")?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let id = read_entry_id(reader)?;
        let kind = reader.u8("entry kind")?;
        let data = bytes.slice_ref(reader.bytes("entry data")?);
        entries.push(to_raft_entry(Entry { id, kind, data })?);
    }
    Ok(AppendEntriesRequest {
        vote,
        prev_log_id,
        entries,
        leader_commit,
    })
}

fn encode_vote(kind: u8, request: &VoteRequest<TypeConfig>) -> Bytes {
    let mut out = head(kind, 64);
    put_vote(&mut out, &request.vote);
    put_log_id(&mut out, request.last_log_id.as_ref());
    out.put_u8(u8::from(request.leadership_transfer));
    out.freeze()
}

fn read_vote_request(reader: &mut Reader<'_>) -> Result<VoteRequest<TypeConfig>, DecodeError> {
    let mut request = VoteRequest::new(read_vote(reader)?, read_log_id(reader)?);
    request.leadership_transfer = read_flag(reader, "leadership transfer")?;
    Ok(request)
}

pub(crate) fn encode_append_answer(answer: &AppendEntriesResponse<TypeConfig>) -> Bytes {
    let mut out = head(kind::APPEND, 32);
    match answer {
        AppendEntriesResponse::Success => out.put_u8(append::SUCCESS),
        AppendEntriesResponse::PartialSuccess(last) => {
            out.put_u8(append::PARTIAL);
            put_log_id(&mut out, last.as_ref());
        }
        AppendEntriesResponse::Conflict => out.put_u8(append::CONFLICT),
        AppendEntriesResponse::HigherVote(vote) => {
            out.put_u8(append::HIGHER_VOTE);
            put_vote(&mut out, vote);
        }
    }
    out.freeze()
}

pub(crate) fn decode_append_answer(bytes: &[u8]) -> Result<AppendEntriesResponse<TypeConfig>, DecodeError> {
    let mut reader = Reader::new(bytes);
    expect(&mut reader, kind::APPEND)?;
    let answer = match reader.u8("answer to an append")? {
        append::SUCCESS => AppendEntriesResponse::Success,
        append::PARTIAL => AppendEntriesResponse::PartialSuccess(read_log_id(&mut reader)?),
        append::CONFLICT => AppendEntriesResponse::Conflict,
        append::HIGHER_VOTE => AppendEntriesResponse::HigherVote(read_vote(&mut reader)?),
        other => return Err(unknown("answer to an append", other)),
    };
    reader.end("answer")?;
    Ok(answer)
}

pub(crate) fn encode_vote_answer(answer: &VoteResponse<TypeConfig>) -> Bytes {
    let mut out = head(kind::VOTE, 64);
    put_vote(&mut out, &answer.vote);
    out.put_u8(u8::from(answer.vote_granted));
    put_log_id(&mut out, answer.last_log_id.as_ref());
    out.freeze()
}

pub(crate) fn decode_vote_answer(bytes: &[u8]) -> Result<VoteResponse<TypeConfig>, DecodeError> {
    let mut reader = Reader::new(bytes);
    expect(&mut reader, kind::VOTE)?;
    let vote = read_vote(&mut reader)?;
    let granted = read_flag(&mut reader, "vote granted")?;
    let answer = VoteResponse::new(vote, read_log_id(&mut reader)?, granted);
    reader.end("answer")?;
    Ok(answer)
}

pub(crate) fn encode_transfer_answer(answer: &TransferLeaderResponse<TypeConfig>) -> Bytes {
    let mut out = head(kind::TRANSFER, 64);
    match answer {
        Ok(()) => out.put_u8(transfer::ACCEPTED),
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            out.put_u8(transfer::VOTE_CHANGED);
            put_vote(&mut out, expected);
            put_vote(&mut out, actual);
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
            out.put_u8(transfer::NOT_FLUSHED);
            put_log_id(&mut out, expected.as_ref());
            put_log_id(&mut out, actual.as_ref());
        }
    }
    out.freeze()
}

pub(crate) fn decode_transfer_answer(bytes: &[u8]) -> Result<TransferLeaderResponse<TypeConfig>, DecodeError> {
    let mut reader = Reader::new(bytes);
    expect(&mut reader, kind::TRANSFER)?;
    let answer = match reader.u8("answer to a transfer")? {
        transfer::ACCEPTED => Ok(()),
        transfer::VOTE_CHANGED => Err(TransferLeaderError::VoteChanged {
            expected: read_vote(&mut reader)?,
            actual: read_vote(&mut reader)?,
        }),
        transfer::NOT_FLUSHED => Err(TransferLeaderError::LogNotFlushed {
            expected: read_log_id(&mut reader)?,
            actual: read_log_id(&mut reader)?,
        }),
        other => return Err(unknown("answer to a transfer", other)),
    };
    reader.end("answer")?;
    Ok(answer)
}

pub(crate) fn encode_read_index_answer(answer: ReadIndex) -> Bytes {
    let mut out = head(kind::READ_INDEX, 9);
    match answer {
        ReadIndex::Is(index) => {
            out.put_u8(read_index::IS);
            out.put_u64_le(index.0);
        }
        ReadIndex::NotLeader => out.put_u8(read_index::NOT_LEADER),
        ReadIndex::NoMajority => out.put_u8(read_index::NO_MAJORITY),
        ReadIndex::Stopped => out.put_u8(read_index::STOPPED),
    }
    out.freeze()
}

pub(crate) fn decode_read_index_answer(bytes: &[u8]) -> Result<ReadIndex, DecodeError> {
    let mut reader = Reader::new(bytes);
    expect(&mut reader, kind::READ_INDEX)?;
    let answer = match reader.u8("answer to a read")? {
        read_index::IS => ReadIndex::Is(LogIndex(reader.u64("read index")?)),
        read_index::NOT_LEADER => ReadIndex::NotLeader,
        read_index::NO_MAJORITY => ReadIndex::NoMajority,
        read_index::STOPPED => ReadIndex::Stopped,
        other => return Err(unknown("answer to a read", other)),
    };
    reader.end("answer")?;
    Ok(answer)
}

pub(crate) fn encode_room_answer(room: bool) -> Bytes {
    let mut out = head(kind::ROOM, 1);
    out.put_u8(u8::from(room));
    out.freeze()
}

pub(crate) fn decode_room_answer(bytes: &[u8]) -> Result<bool, DecodeError> {
    let mut reader = Reader::new(bytes);
    expect(&mut reader, kind::ROOM)?;
    let room = read_flag(&mut reader, "room")?;
    reader.end("answer")?;
    Ok(room)
}

pub(crate) fn encode_feed_answer() -> Bytes {
    head(kind::FEED, 0).freeze()
}

pub(crate) fn decode_feed_answer(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    expect(&mut reader, kind::FEED)?;
    reader.end("answer")
}

/// The head of a snapshot: whose, up to where, and the membership there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SnapshotHead {
    pub(crate) vote: Vote,
    pub(crate) applied: EntryId,
    pub(crate) membership: Bytes,
}

impl SnapshotHead {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = head(kind::SNAPSHOT, 64 + self.membership.len());
        put_vote(&mut out, &self.vote);
        put_entry_id(&mut out, self.applied);
        put_bytes(&mut out, &self.membership);
        out.freeze()
    }

    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        expect(&mut reader, kind::SNAPSHOT)?;
        let head = Self {
            vote: read_vote(&mut reader)?,
            applied: read_entry_id(&mut reader)?,
            membership: bytes.slice_ref(reader.bytes("membership")?),
        };
        reader.end("head of a snapshot")?;
        Ok(head)
    }
}

pub(crate) fn encode_snapshot_answer(vote: &Vote) -> Bytes {
    let mut out = head(kind::SNAPSHOT, 32);
    put_vote(&mut out, vote);
    out.freeze()
}

pub(crate) fn decode_snapshot_answer(bytes: &[u8]) -> Result<Vote, DecodeError> {
    let mut reader = Reader::new(bytes);
    expect(&mut reader, kind::SNAPSHOT)?;
    let vote = read_vote(&mut reader)?;
    reader.end("answer")?;
    Ok(vote)
}

#[cfg(test)]
mod tests;
