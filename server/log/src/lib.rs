//! The storage of one plane: a write-ahead log that all its groups share, and what finds records in it.
//!
//! An entry of a Raft log is written once, with one sync for all that waits. The records in it are not copied anywhere: the
//! layer above says where in the entry they are ([`GroupLog::place`]), an index in memory keeps *rows* (stream, sequence →
//! file, offset; one for up to 16 KiB of records), and a file stays as long as a row points into it. Only when files hold
//! little that is still wanted are their rows copied, sorted by stream, into a *segment*. A *checkpoint* is the state of a
//! group together with its rows, so that a start reads the newest one and the end of the log, however large the backlog is.
//!
//! What must stay true:
//! - What was acknowledged is on the device as far as the [`SyncPolicy`] says; a torn tail is cut, and damage in what had
//!   been synced is an error that names file and offset, never a shorter log.
//! - A write or sync that failed is not tried again: the log stops.
//! - A full device takes away the next file, never the current one: [`Log::space`] turns to [`Space::Full`] while there is
//!   still room for entries that free something.
//! - A file goes when no row, no durable checkpoint and no replay needs it.
//! - Nothing is written to a file any more that may have bytes of an erased record, and none is recycled ([`erasing`]).
//!
//! A group that is to have the state of another node gets it as that node's newest checkpoint with its records
//! ([`GroupLog::export`], [`GroupLog::begin_install`]).
//!
//! A record can be erased while its neighbours stay ([`boltq_core::StorageEffect::Erased`]). It cannot be read from then on, and the
//! log says when its bytes are in no file any more, and what has to be done for that ([`GroupLog::erasures`]).
//!
//! The log knows nothing of queues or of Raft's rules; it does not look into entries, except to step over records.
//!
//! Plain threads, no async: methods may be called from async tasks, and only [`GroupLog::read`] with [`ReadMode::Disk`],
//! [`GroupLog::entries`] of old entries, [`GroupLog::write_checkpoint`] and what belongs to [`Export`] and [`Install`] wait
//! for the device. (An append waits too, if it outruns the preparation of the next file, or while a state is installed.)
//! For simulations, a log can do without threads and take [`Steps`] instead.

mod cache;
mod checkpoint;
mod clock;
mod compaction;
mod config;
mod entries;
mod erasing;
mod error;
mod export;
pub mod files;
mod frame;
mod group;
mod index;
mod install;
mod log;
mod placing;
mod reading;
mod recovery;
mod segment;
mod steps;
mod store;
pub mod testing;
mod types;
mod users;
mod wal;

pub use checkpoint::Capture;
pub use config::{ENTRY_BYTES_MAX, LogConfig, Storage, SyncPolicy, WAL_FILE_BYTES_MAX, WAL_FILE_BYTES_MIN};
pub use erasing::ErasureProgress;
pub use error::{AppendError, CheckpointError, ConfigError, Failure, InstallError, OpenError, PlaceError, ReadError};
pub use export::{Export, ExportedRun};
pub use files::{FileLayer, OsFiles};
pub use group::GroupLog;
pub use install::Install;
pub use log::Log;
pub use steps::{OnWork, Steps};
pub use types::{Checkpoint, Entry, EntryId, RaftState, ReadMode, Space, Usage};
pub use wal::Completion;
