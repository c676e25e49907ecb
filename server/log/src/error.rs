//! What can go wrong, an enum for each operation.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use boltq_core::{DecodeError, GroupId, LogIndex, Seq, StreamId};

use crate::config::{ENTRY_BYTES_MAX, WAL_FILE_BYTES_MAX, WAL_FILE_BYTES_MIN};

/// A setting that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Length of a WAL file.
    #[error("WAL files of {bytes} bytes; give a multiple of 8 from {WAL_FILE_BYTES_MIN} to {WAL_FILE_BYTES_MAX}")]
    WalFileBytes {
        /// The setting.
        bytes: u64,
    },
    /// Bytes of a row.
    #[error("rows of {bytes} bytes; give 1 to 1048576")]
    RowBytes {
        /// The setting.
        bytes: u32,
    },
    /// Open files.
    #[error("no file may be open for reading; allow at least 1")]
    OpenFiles,
}

/// Why a log does not open. Nothing was changed on disk unless it says so.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A setting that cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another process uses the directory.
    #[error("data directory {} is in use by process {pid}; stop it, or give this one a directory of its own", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// Who holds it, as it wrote it.
        pid: String,
    },
    /// The device or the file system refused.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes that had been synced are not what was written.
    #[error(
        "{} is damaged at offset {offset}: {why}. It had been synced, so acknowledged data is lost: restore the file from a \
         replica or a backup, or remove the data directory if this node may start empty",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// A file that is needed is not there.
    #[error(
        "{} is missing: {needed_by}. Restore it from a replica or a backup, or remove the data directory if this node may start empty",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// Why it is needed.
        needed_by: String,
    },
    /// There has to be a log, and there is none.
    #[error(
        "{} holds no log, but this node has written one before: is it the right directory, and is its volume mounted? Restore \
         it from a replica or a backup, or remove the data directory if this node may start empty",
        dir.display()
    )]
    NoLog {
        /// The directory.
        dir: PathBuf,
    },
    /// Entries were removed because a checkpoint had them, and that checkpoint is not there.
    #[error(
        "{} has no checkpoint of group {group} with entry {purged}, and the log begins after it: its newest file ckp-{group}-* \
         was removed or replaced. Restore it from a replica or a backup, or remove the data directory if this node may \
         start empty",
        dir.display()
    )]
    NoCheckpoint {
        /// The group.
        group: GroupId,
        /// The last entry that was removed from the log.
        purged: LogIndex,
        /// The directory.
        dir: PathBuf,
    },
    /// The entries of a group have a hole.
    #[error(
        "group {group} has no entry {wanted} in its log, but later or earlier ones need it: a WAL file of {} was removed or \
         replaced. Restore it from a replica or a backup",
        dir.display()
    )]
    Gap {
        /// The group.
        group: GroupId,
        /// The index that is not there.
        wanted: LogIndex,
        /// The directory.
        dir: PathBuf,
    },
}

/// A write or sync that failed. What is on the device is then unknown, so nothing is written any more.
#[derive(Debug, thiserror::Error)]
#[error(
    "{operation} {}: {source}. What reached the device is unknown, so this log takes no more writes; check the device and restart the node",
    path.display()
)]
pub struct Failure {
    /// What was tried.
    pub operation: &'static str,
    /// With which file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Why something was not appended.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// A write or sync failed, this one or one before.
    #[error(transparent)]
    Failed(#[from] Arc<Failure>),
    /// No file could be prepared for it. It was not written; the same can succeed when there is room.
    #[error(
        "no room for {bytes} more bytes in the data directory; make room on the device, writing then resumes by itself"
    )]
    OutOfSpace {
        /// What was to be written.
        bytes: u64,
    },
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// The first entry does not follow the last one, or entries do not follow each other.
    #[error("group {group}: entry {index} does not follow; {expected} is next")]
    Order {
        /// The group.
        group: GroupId,
        /// What was given.
        index: LogIndex,
        /// What would have been right.
        expected: LogIndex,
    },
    /// A start would take it for damage.
    #[error("entry {index} is higher than any entry can have")]
    TooHigh {
        /// What was given.
        index: LogIndex,
    },
    /// An entry or vote that is too long.
    #[error(
        "{bytes} bytes in one frame; at most {ENTRY_BYTES_MAX} for an entry and {} for a vote are allowed",
        crate::wal::VOTE_BYTES_MAX
    )]
    TooLarge {
        /// Its length.
        bytes: u64,
    },
}

impl AppendError {
    /// Whether every later append fails too, until the log is opened again.
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Failed(_) | Self::Closed => true,
            Self::OutOfSpace { .. } | Self::Order { .. } | Self::TooHigh { .. } | Self::TooLarge { .. } => false,
        }
    }
}

/// Why something was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No record that is wanted has this place.
    #[error("group {group}: stream {stream} has no record {seq}; it was freed or never placed")]
    NoRecord {
        /// The group.
        group: GroupId,
        /// The stream.
        stream: StreamId,
        /// The sequence.
        seq: Seq,
    },
    /// The record was erased. Its place is taken, and its bytes are gone or are going.
    #[error("group {group}: record {seq} of stream {stream} was erased")]
    Erased {
        /// The group.
        group: GroupId,
        /// The stream.
        stream: StreamId,
        /// The sequence.
        seq: Seq,
    },
    /// The log has no such entry.
    #[error("group {group} has no entry {index}")]
    NoEntry {
        /// The group.
        group: GroupId,
        /// The index.
        index: LogIndex,
    },
    /// What is on the device is not what was written.
    #[error("{} is damaged at offset {offset}: {why}. Restore the file from a replica or a backup", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// The device or the file system refused.
    #[error("read {}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Why effects of an entry were not taken over. Those before the one that is named were.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The entry or its bytes are not there.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The records are not within the entry, or not what they are said to be.
    #[error(
        "group {group}, entry {index}: records of stream {stream} from {first} on do not fit the entry's bytes: {source}"
    )]
    Records {
        /// The group.
        group: GroupId,
        /// The entry.
        index: LogIndex,
        /// The stream.
        stream: StreamId,
        /// Sequence of the first record.
        first: Seq,
        /// What is wrong.
        source: DecodeError,
    },
    /// The sequence was given before.
    #[error("group {group}, entry {index}: record {first} of stream {stream} was placed before; {next} is next")]
    Order {
        /// The group.
        group: GroupId,
        /// The entry.
        index: LogIndex,
        /// The stream.
        stream: StreamId,
        /// Sequence of the first record.
        first: Seq,
        /// The least that would have been right.
        next: Seq,
    },
    /// A record is freed that is not there.
    #[error(
        "group {group}, entry {index}: {count} records of stream {stream} from {first} on are freed, but not all are placed and wanted"
    )]
    NotPlaced {
        /// The group.
        group: GroupId,
        /// The entry.
        index: LogIndex,
        /// The stream.
        stream: StreamId,
        /// Sequence of the first record.
        first: Seq,
        /// Number of records.
        count: u64,
    },
}

/// Why a checkpoint was not written. The one before it stays the newest.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The write-ahead log could not be synced first.
    #[error("checkpoint: {0}")]
    Log(#[from] AppendError),
    /// The device or the file system refused. A full device can be tried again later.
    #[error("checkpoint: {operation} {}: {source}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It does not fit into a frame.
    #[error("checkpoint of {bytes} bytes; at most {} are possible", u32::MAX)]
    TooLarge {
        /// Its length.
        bytes: u64,
    },
    /// It is older than the newest one.
    #[error("checkpoint of entry {applied} of group {group}, which has one of entry {newest} already")]
    Old {
        /// The group.
        group: GroupId,
        /// The entry of the one that was to be written.
        applied: LogIndex,
        /// The entry of the one that is there.
        newest: LogIndex,
    },
}

/// Why a state of another node was not installed. The group is as it was.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The checkpoint that it becomes was not written.
    #[error("install: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// The device or the file system refused. A full device can be tried again later, from the start.
    #[error("install: {operation} {}: {source}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Records are not what they are said to be.
    #[error("install: {count} records of stream {stream} from {first} on are not what was announced: {source}")]
    Records {
        /// The stream.
        stream: StreamId,
        /// Sequence of the first record.
        first: Seq,
        /// Number of records.
        count: u32,
        /// What is wrong.
        source: DecodeError,
    },
    /// A record came twice.
    #[error("install: record {seq} of stream {stream} came twice")]
    Twice {
        /// The stream.
        stream: StreamId,
        /// The sequence.
        seq: Seq,
    },
    /// Something was not added before.
    #[error("install: records were not added before, so this is not whole; begin again")]
    Incomplete,
    /// There is no such entry.
    #[error("install: the state is said to be of entry {applied}, which is higher than any entry can have")]
    TooHigh {
        /// The entry of the state that was to be installed.
        applied: LogIndex,
    },
    /// The log has left that entry behind.
    #[error(
        "install: the state is of entry {applied}, but the log of group {group} begins after entry {begins_after}, with another history"
    )]
    Behind {
        /// The group.
        group: GroupId,
        /// The entry of the state that was to be installed.
        applied: LogIndex,
        /// The entry that the log begins after.
        begins_after: LogIndex,
    },
}

impl From<AppendError> for InstallError {
    fn from(error: AppendError) -> Self {
        Self::Checkpoint(error.into())
    }
}
