//! From the frames of the WAL back to the groups.

use std::collections::BTreeMap;
use std::path::Path;

use boltq_core::{DecodeError, GroupId, LogIndex};
use bytes::Bytes;

use super::directory::Newest;
use crate::entries::{EntryTable, Slot};
use crate::error::OpenError;
use crate::frame::{Frame, Kind};
use crate::group::RaftLog;
use crate::types::{EntryId, FrameKey};
use crate::wal::ENTRY_PREFIX_BYTES;
use crate::wal::payload::{EntryPrefix, Start, decode_purge, decode_truncate, decode_vote};

/// What the frames said so far.
#[derive(Default)]
pub(super) struct Replay {
    pub(super) groups: BTreeMap<GroupId, RaftLog>,
    /// Bytes of all frames.
    pub(super) total_bytes: u64,
    /// For each file that was read, the bytes before it.
    pub(super) bytes_before: BTreeMap<u64, u64>,
}

/// Why a frame that is whole does not fit.
pub(super) enum Misfit {
    Decode(DecodeError),
    /// An entry that is missing before it.
    Gap(GroupId, LogIndex),
}

impl From<DecodeError> for Misfit {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl Replay {
    /// Begins with what checkpoints say.
    pub(super) fn new(checkpoints: &BTreeMap<GroupId, Newest>) -> Self {
        let mut replay = Self::default();
        for (group, newest) in checkpoints {
            replay.group(*group).table.saved(newest.contents.head.applied.index);
        }
        replay
    }

    fn group(&mut self, id: GroupId) -> &mut RaftLog {
        self.groups.entry(id).or_default()
    }

    pub(super) fn frame(&mut self, key: FrameKey, frame: &Frame<'_>) -> Result<(), Misfit> {
        if key.offset == 0 {
            self.bytes_before.insert(u64::from(key.file.0), self.total_bytes);
        }
        self.total_bytes += frame.bytes as u64;
        match frame.kind {
            Kind::Start => self.start(frame.payload)?,
            Kind::Entry => self.entry(key, frame.payload)?,
            Kind::Vote => {
                let (group, vote) = decode_vote(frame.payload)?;
                self.group(group).vote = Some(vote);
            }
            Kind::Truncate => {
                let (group, last) = decode_truncate(frame.payload)?;
                self.group(group).table.truncate_after(last);
            }
            Kind::Purge => {
                let (group, upto) = decode_purge(frame.payload)?;
                self.group(group).table.purge(upto);
            }
            Kind::Run | Kind::Footer | Kind::Trailer | Kind::Checkpoint => {
                return Err(Misfit::Decode(DecodeError::Unknown {
                    what: "kind of a frame in the WAL",
                    value: frame.kind as u64,
                }));
            }
        }
        Ok(())
    }

    fn start(&mut self, payload: &[u8]) -> Result<(), Misfit> {
        for (group, state) in Start::decode(payload)?.groups {
            let raft = self.group(group);
            if !state.vote.is_empty() {
                raft.vote = Some(state.vote);
            }
            if let Some(purged) = state.purged {
                raft.table.purge(purged);
            }
        }
        Ok(())
    }

    fn entry(&mut self, key: FrameKey, payload: &[u8]) -> Result<(), Misfit> {
        let EntryPrefix { group, kind, id } = EntryPrefix::decode(payload)?;
        let table = &mut self.group(group).table;
        let index = id.index.0;
        if table.purged().is_some_and(|purged| purged.index >= id.index) {
            return Ok(());
        }
        // The first one that is met may come after a hole: what lies before was given up as a file. See `settle`.
        if table.first().is_some()
            && let Err(expected) = table.check(index)
        {
            return Err(Misfit::Gap(group, LogIndex(expected)));
        }
        let bytes = payload.len() - ENTRY_PREFIX_BYTES;
        table.put(
            index,
            Slot {
                term: id.term,
                leader: id.leader,
                key,
                bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                kind,
            },
        );
        Ok(())
    }

    /// Brings the log of each group and its checkpoint together.
    pub(super) fn settle(&mut self, checkpoints: &BTreeMap<GroupId, Newest>, dir: &Path) -> Result<(), OpenError> {
        for (id, raft) in &mut self.groups {
            let applied = checkpoints.get(id).map(|newest| newest.contents.head.applied);
            settle(&mut raft.table, applied).map_err(|wanted| OpenError::Gap {
                group: *id,
                wanted,
                dir: dir.to_owned(),
            })?;
        }
        Ok(())
    }
}

/// A purge may have been lost while the files of the entries are gone; a checkpoint makes up for entries that it contains.
fn settle(table: &mut EntryTable, applied: Option<EntryId>) -> Result<(), LogIndex> {
    let after_purge = table.purged().map_or(0, |purged| purged.index.0 + 1);
    if let Some(applied) = applied.filter(|applied| applied.index.0 >= after_purge) {
        let next = applied.index.0 + 1;
        let same = table.id(applied.index).is_none_or(|id| id == applied);
        let ends_before = table.last().is_none_or(|last| last.index < applied.index);
        let hole = table.first().is_some_and(|first| first > after_purge);
        if !same {
            // A state that was installed from another node, over a log that went another way.
            table.truncate_after(None);
        }
        if table.first().is_some_and(|first| first > next) {
            return Err(LogIndex(next));
        }
        if !same || ends_before || hole {
            table.purge(applied);
        }
        return Ok(());
    }
    match table.first() {
        Some(first) if table.purged().is_some() && first > after_purge => Err(LogIndex(after_purge)),
        _ => Ok(()),
    }
}

/// The vote as the state of a group has it: empty is none.
pub(super) fn vote_bytes(vote: Option<&Bytes>) -> Bytes {
    vote.cloned().unwrap_or_default()
}
