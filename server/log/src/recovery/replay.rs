//! From the frames of the WAL back to the groups.
//!
//! A checkpoint of a group names the place of the first entry after those that it contains, or where that was to go. If the
//! entry that the checkpoint ends with is not among those before the place, the checkpoint did not come from them: it was
//! installed from another node (or they are gone, and it makes up for them), and none of them counts. So a checkpoint that
//! was installed is in force from its place on, whatever was written before, and whether the purge with which an install
//! ends reached the device or not.

use std::collections::BTreeMap;
use std::path::Path;

use boltq_core::{DecodeError, GroupId, LogIndex};
use bytes::Bytes;

use super::directory::Newest;
use crate::entries::{EntryTable, Slot};
use crate::error::OpenError;
use crate::frame::{Frame, Kind, Mark};
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
    /// Last entries of checkpoints whose place was not reached yet, by group, with that place.
    ahead: BTreeMap<GroupId, (Mark, EntryId)>,
    /// Those of the others, whose place was reached.
    behind: BTreeMap<GroupId, LogIndex>,
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
            let head = &newest.contents.head;
            replay.group(*group).table.saved(head.applied.index);
            replay.ahead.insert(*group, (head.replay, head.applied));
        }
        replay
    }

    /// All frames before `place` were replayed.
    fn reach(&mut self, place: Mark) {
        while let Some((group, (_, applied))) = self.ahead.iter().find(|(_, (mark, _))| *mark <= place) {
            let (group, applied) = (*group, *applied);
            self.ahead.remove(&group);
            self.behind.insert(group, applied.index);
            let table = &mut self.group(group).table;
            let purged = table.purged().is_some_and(|purged| purged.index >= applied.index);
            if !purged && table.id(applied.index) != Some(applied) {
                table.install(applied);
            }
        }
    }

    fn group(&mut self, id: GroupId) -> &mut RaftLog {
        self.groups.entry(id).or_default()
    }

    pub(super) fn frame(&mut self, key: FrameKey, frame: &Frame<'_>) -> Result<(), Misfit> {
        if key.offset == 0 {
            self.bytes_before.insert(u64::from(key.file.0), self.total_bytes);
        }
        self.total_bytes += frame.bytes as u64;
        self.reach(Mark {
            file: u64::from(key.file.0),
            offset: key.offset,
        });
        match frame.kind {
            Kind::Start => self.start(frame)?,
            Kind::Entry => self.entry(key, frame.payload)?,
            Kind::Vote => {
                let (group, vote) = decode_vote(frame.payload)?;
                self.group(group).vote = Some(vote);
            }
            Kind::Truncate => {
                let (group, last) = decode_truncate(frame.payload)?;
                // What a checkpoint has was applied, and is taken back by nobody. A frame that says so is forged.
                let last = last.max(self.behind.get(&group).copied());
                self.group(group).table.truncate_after(last);
            }
            Kind::Purge => {
                let (group, upto) = decode_purge(frame.payload)?;
                self.group(group).table.purge(upto);
            }
            Kind::Mark | Kind::End => {}
            Kind::Run | Kind::Footer | Kind::Trailer | Kind::Checkpoint | Kind::ErasingCheckpoint | Kind::Reserved => {
                return Err(Misfit::Decode(DecodeError::Unknown {
                    what: "kind of a frame in the WAL",
                    value: frame.kind as u64,
                }));
            }
        }
        Ok(())
    }

    fn start(&mut self, frame: &Frame<'_>) -> Result<(), Misfit> {
        for (group, state) in Start::decode(frame.payload, frame.version)?.groups {
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
        let superseded = self.ahead.contains_key(&group);
        let table = &mut self.group(group).table;
        let index = id.index.0;
        if table.purged().is_some_and(|purged| purged.index >= id.index) {
            return Ok(());
        }
        // The first one that is met may come after a hole: what lies before was given up as a file. See `settle`.
        if table.first().is_some()
            && let Err(expected) = table.check(index)
        {
            if !superseded {
                return Err(Misfit::Gap(group, LogIndex(expected)));
            }
            // The checkpoint makes up for all that lies before its place, so a hole there hides nothing.
            table.truncate_after(None);
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

    /// Brings the log of each group and its checkpoint together, at the end of the log.
    pub(super) fn settle(&mut self, checkpoints: &BTreeMap<GroupId, Newest>, dir: &Path) -> Result<(), OpenError> {
        // The end may have been torn off before the place of a checkpoint.
        self.reach(Mark {
            file: u64::MAX,
            offset: u32::MAX,
        });
        for (id, raft) in &mut self.groups {
            let applied = checkpoints.get(id).map(|newest| newest.contents.head.applied);
            if let Some(purged) = raft.table.purged()
                && applied.is_none_or(|applied| applied.index < purged.index)
            {
                return Err(OpenError::NoCheckpoint {
                    group: *id,
                    purged: purged.index,
                    dir: dir.to_owned(),
                });
            }
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
    let Some(first) = table.first().filter(|first| *first > after_purge) else {
        return Ok(());
    };
    match applied.filter(|applied| applied.index.0 >= after_purge) {
        Some(applied) if first > applied.index.0 + 1 => Err(LogIndex(applied.index.0 + 1)),
        Some(applied) => {
            table.purge(applied);
            Ok(())
        }
        None if table.purged().is_some() => Err(LogIndex(after_purge)),
        None => Ok(()),
    }
}

/// The vote as the state of a group has it: empty is none.
pub(super) fn vote_bytes(vote: Option<&Bytes>) -> Bytes {
    vote.cloned().unwrap_or_default()
}
