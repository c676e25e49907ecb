//! Payloads of the frames of the write-ahead log.
//!
//! ```text
//! entry      u32 group, u8 kind, 3 zeroes, u64 term, u64 leader, u64 index; data: the rest
//! vote       u32 group; vote: the rest
//! truncate   u32 group, u8 whether an entry is left, [u64 index of the last one that is left]
//! purge      u32 group, id
//! start      [u32 length of the file, not in version 1], u64 file before this one (0: none), u32 its end,
//!            u32 number of groups; each:
//!            u32 group, u64 first file that the group needs (0: none), u8 flags: 1 purged, [id], u32 length, vote
//! reserved   u64 newest file that was in use, and its first frame on the device, when this one was prepared (0: none)
//! mark, end  nothing
//! id         u64 term, u64 leader, u64 index
//! ```
//!
//! A start frame repeats what a group cannot do without, so that every file before the first one that is needed can go.

use boltq_core::codec::{Reader, put_bytes, put_len};
use boltq_core::{DecodeError, GroupId, LogIndex, NodeId, Term};
use bytes::{BufMut, Bytes, BytesMut};

use crate::frame::VERSION_1;
use crate::types::{EntryId, FileId};

/// Length of what stands before the data of an entry.
pub(crate) const ENTRY_PREFIX_BYTES: usize = 32;
/// Longest vote.
pub(crate) const VOTE_BYTES_MAX: usize = 1024;

/// Length of the payload of a frame in a file that is not used yet.
const RESERVED_BYTES: usize = 8;
/// Highest index that is accepted. No log gets there, and so far from overflow there is none to check.
pub(crate) const INDEX_MAX: u64 = 1 << 62;

/// What an entry frame says besides its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryPrefix {
    pub(crate) group: GroupId,
    pub(crate) kind: u8,
    pub(crate) id: EntryId,
}

impl EntryPrefix {
    pub(crate) fn encode(&self) -> [u8; ENTRY_PREFIX_BYTES] {
        let mut out = [0; ENTRY_PREFIX_BYTES];
        out[..4].copy_from_slice(&self.group.0.to_le_bytes());
        out[4] = self.kind;
        out[8..16].copy_from_slice(&self.id.term.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.id.leader.0.to_le_bytes());
        out[24..].copy_from_slice(&self.id.index.0.to_le_bytes());
        out
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let group = GroupId(reader.u32("group of an entry")?);
        let kind = reader.u8("kind of an entry")?;
        reader.take(3, "head of an entry")?;
        let id = read_id(&mut reader)?;
        Ok(Self { group, kind, id })
    }
}

/// What a group cannot do without.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GroupStart {
    pub(crate) vote: Bytes,
    pub(crate) purged: Option<EntryId>,
    /// The file of the first entry that is neither purged nor in a durable checkpoint.
    pub(crate) needed_from: Option<FileId>,
}

/// The first frame of a WAL file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Start {
    /// Length of the file; 0 if it is not known, as of version 1. Only a start of the log cuts it, and leaves an end frame.
    pub(crate) file_bytes: u32,
    /// The file before; 0 if there is none.
    pub(crate) previous: FileId,
    /// Where the frames of the file before end.
    pub(crate) previous_end: u32,
    pub(crate) groups: Vec<(GroupId, GroupStart)>,
}

impl Start {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u32_le(self.file_bytes);
        out.put_u64_le(u64::from(self.previous.0));
        out.put_u32_le(self.previous_end);
        put_len(&mut out, self.groups.len());
        for (group, state) in &self.groups {
            out.put_u32_le(group.0);
            out.put_u64_le(u64::from(state.needed_from.unwrap_or_default().0));
            out.put_u8(u8::from(state.purged.is_some()));
            if let Some(purged) = state.purged {
                put_id(&mut out, purged);
            }
            put_bytes(&mut out, &state.vote);
        }
        out.freeze()
    }

    pub(crate) fn decode(payload: &[u8], version: u8) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let file_bytes = match version {
            VERSION_1 => 0,
            _ => reader.u32("length of the file")?,
        };
        let previous = read_file(&mut reader)?;
        let previous_end = reader.u32("end of the file before")?;
        let count = reader.count(17, "groups")?;
        let mut groups = Vec::with_capacity(count);
        for _ in 0..count {
            let group = GroupId(reader.u32("group")?);
            let needed_from = Some(read_file(&mut reader)?).filter(|file| *file != FileId::NONE);
            let purged = read_flag(&mut reader)?.then(|| read_id(&mut reader)).transpose()?;
            let vote = Bytes::copy_from_slice(reader.bytes("vote")?);
            groups.push((
                group,
                GroupStart {
                    vote,
                    purged,
                    needed_from,
                },
            ));
        }
        Ok(Self {
            file_bytes,
            previous,
            previous_end,
            groups,
        })
    }
}

pub(crate) fn encode_reserved(in_use: FileId) -> [u8; RESERVED_BYTES] {
    u64::from(in_use.0).to_le_bytes()
}

pub(crate) fn decode_reserved(payload: &[u8]) -> Result<FileId, DecodeError> {
    read_file(&mut Reader::new(payload))
}

pub(crate) fn encode_vote(group: GroupId, vote: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(4 + vote.len());
    out.put_u32_le(group.0);
    out.put_slice(vote);
    out.freeze()
}

pub(crate) fn decode_vote(payload: &[u8]) -> Result<(GroupId, Bytes), DecodeError> {
    let mut reader = Reader::new(payload);
    let group = GroupId(reader.u32("group of a vote")?);
    Ok((group, Bytes::copy_from_slice(reader.rest())))
}

pub(crate) fn encode_truncate(group: GroupId, last: Option<LogIndex>) -> Bytes {
    let mut out = BytesMut::with_capacity(13);
    out.put_u32_le(group.0);
    out.put_u8(u8::from(last.is_some()));
    if let Some(last) = last {
        out.put_u64_le(last.0);
    }
    out.freeze()
}

pub(crate) fn decode_truncate(payload: &[u8]) -> Result<(GroupId, Option<LogIndex>), DecodeError> {
    let mut reader = Reader::new(payload);
    let group = GroupId(reader.u32("group of a truncation")?);
    let left = read_flag(&mut reader)?;
    let last = left.then(|| read_index(&mut reader)).transpose()?;
    Ok((group, last))
}

pub(crate) fn encode_purge(group: GroupId, upto: EntryId) -> Bytes {
    let mut out = BytesMut::with_capacity(28);
    out.put_u32_le(group.0);
    put_id(&mut out, upto);
    out.freeze()
}

pub(crate) fn decode_purge(payload: &[u8]) -> Result<(GroupId, EntryId), DecodeError> {
    let mut reader = Reader::new(payload);
    Ok((GroupId(reader.u32("group of a purge")?), read_id(&mut reader)?))
}

pub(crate) fn put_id(out: &mut BytesMut, id: EntryId) {
    out.put_u64_le(id.term.0);
    out.put_u64_le(id.leader.0);
    out.put_u64_le(id.index.0);
}

pub(crate) fn read_id(reader: &mut Reader<'_>) -> Result<EntryId, DecodeError> {
    Ok(EntryId {
        term: Term(reader.u64("term")?),
        leader: NodeId(reader.u64("leader")?),
        index: read_index(reader)?,
    })
}

fn read_index(reader: &mut Reader<'_>) -> Result<LogIndex, DecodeError> {
    let index = reader.u64("index")?;
    if index > INDEX_MAX {
        return Err(DecodeError::Invalid {
            what: "index",
            why: "it is higher than any entry can have",
        });
    }
    Ok(LogIndex(index))
}

/// File ids have 64 bits on disk and 32 in memory: a process will not see the difference, the format should not end there.
pub(crate) fn read_file(reader: &mut Reader<'_>) -> Result<FileId, DecodeError> {
    let value = reader.u64("file")?;
    let file = u32::try_from(value).map_err(|_| DecodeError::Unknown { what: "file", value })?;
    Ok(FileId(file))
}

fn read_flag(reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match reader.u8("flag")? {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(DecodeError::Unknown {
            what: "flag",
            value: u64::from(value),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(n: u64) -> EntryId {
        EntryId {
            term: Term(n),
            leader: NodeId(n + 1),
            index: LogIndex(n + 2),
        }
    }

    #[test]
    fn payloads_come_back() {
        let prefix = EntryPrefix {
            group: GroupId(3),
            kind: 2,
            id: id(9),
        };
        assert_eq!(EntryPrefix::decode(&prefix.encode()), Ok(prefix));
        let start = Start {
            file_bytes: 65_536,
            previous: FileId(4),
            previous_end: 4096,
            groups: vec![
                (GroupId(1), GroupStart::default()),
                (
                    GroupId(2),
                    GroupStart {
                        vote: Bytes::from_static(b"vote"),
                        purged: Some(id(4)),
                        needed_from: Some(FileId(3)),
                    },
                ),
            ],
        };
        assert_eq!(Start::decode(&start.encode(), 2), Ok(start.clone()));
        let without_length = Start {
            file_bytes: 0,
            ..start.clone()
        };
        assert_eq!(Start::decode(&start.encode()[4..], VERSION_1), Ok(without_length));
        assert_eq!(decode_reserved(&encode_reserved(FileId(9))), Ok(FileId(9)));
        let vote = encode_vote(GroupId(1), b"me");
        assert_eq!(decode_vote(&vote), Ok((GroupId(1), Bytes::from_static(b"me"))));
        for last in [None, Some(LogIndex(5))] {
            assert_eq!(
                decode_truncate(&encode_truncate(GroupId(1), last)),
                Ok((GroupId(1), last))
            );
        }
        assert_eq!(decode_purge(&encode_purge(GroupId(1), id(7))), Ok((GroupId(1), id(7))));
    }

    #[test]
    fn an_index_next_to_overflow_is_refused() {
        let group = GroupId(1);
        let highest = LogIndex(INDEX_MAX);
        let id = |index| EntryId { index, ..id(7) };
        let truncate = |last| decode_truncate(&encode_truncate(group, Some(last)));
        assert_eq!(truncate(highest), Ok((group, Some(highest))));
        assert_eq!(
            decode_purge(&encode_purge(group, id(highest))),
            Ok((group, id(highest)))
        );
        for index in [INDEX_MAX + 1, u64::MAX].map(LogIndex) {
            assert!(truncate(index).is_err());
            assert!(decode_purge(&encode_purge(group, id(index))).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused_without_panic(bytes: Vec<u8>) {
            let _ = EntryPrefix::decode(&bytes);
            let _ = (Start::decode(&bytes, VERSION_1), Start::decode(&bytes, 2), decode_reserved(&bytes));
            let _ = decode_vote(&bytes);
            let _ = decode_truncate(&bytes);
            let _ = decode_purge(&bytes);
        }
    }
}
