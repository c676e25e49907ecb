//! Words of the interface.

use boltq_core::{LogIndex, NodeId, Term};
use bytes::Bytes;

/// What tells an entry of a Raft log from every other one of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryId {
    /// Term in which it was proposed.
    pub term: Term,
    /// Who proposed it.
    pub leader: NodeId,
    /// Where it stands in the log of its group.
    pub index: LogIndex,
}

/// One entry of a Raft log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: EntryId,
    /// What the layer above means by `data`; stored and returned as it is.
    pub kind: u8,
    /// Its bytes, records among them.
    pub data: Bytes,
}

/// What Raft has to know about its log when it starts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RaftState {
    /// The last vote that was saved.
    pub vote: Option<Bytes>,
    /// Entries up to here are forgotten.
    pub purged: Option<EntryId>,
    /// The last entry; that of `purged` if none is left.
    pub last: Option<EntryId>,
}

/// A state that was written with [`crate::GroupLog::write_checkpoint`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last entry that it contains.
    pub applied: EntryId,
    /// Of the layer above.
    pub meta: Bytes,
    /// Of the state machine.
    pub state: Bytes,
}

/// Whether there is room for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// The next file is prepared or on its way.
    Ample,
    /// The next file could not be prepared. What is prepared already is left for entries that make room.
    Full,
}

/// How hard to try to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// From memory or not at all; does not block.
    Cached,
    /// From the device if need be.
    Disk,
}

/// What a log holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of the files of the write-ahead log, those ahead of the writer included. In memory mode: bytes of entries held.
    pub wal_bytes: u64,
    /// Bytes of segments.
    pub segment_bytes: u64,
    /// Bytes of checkpoints.
    pub checkpoint_bytes: u64,
    /// Files of all kinds.
    pub files: usize,
    /// Bytes of frames in memory that are on the device too.
    pub cached_bytes: u64,
    /// Bytes of frames in memory that are not written yet.
    pub unwritten_bytes: u64,
    /// Rows of the stream index.
    pub rows: usize,
    /// Records that were erased, and whose bytes may still be in files.
    pub erasures: usize,
    /// Bytes of records that rows point to, freed ones of a row that is in use included.
    pub live_bytes: u64,
}

/// A file of the log, unique for good; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct FileId(pub(crate) u32);

impl FileId {
    pub(crate) const NONE: Self = Self(0);
}

/// Where a frame is: its file and the offset of its header in there. In memory mode, both together are a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct FrameKey {
    pub(crate) file: FileId,
    pub(crate) offset: u32,
}
