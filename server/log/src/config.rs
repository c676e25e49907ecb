//! Settings of a log.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::ConfigError;

/// Smallest WAL file.
pub const WAL_FILE_BYTES_MIN: u64 = 64 * 1024;
/// Largest WAL file: places in files are 32-bit offsets, and half of that leaves room for one entry of the largest size.
pub const WAL_FILE_BYTES_MAX: u64 = 1 << 30;
/// Largest data of one entry.
pub const ENTRY_BYTES_MAX: usize = 1 << 30;

/// Where the log lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In memory, gone with the process.
    Memory,
    /// In a directory that belongs to this log alone.
    Disk {
        /// The directory; it is created if it is not there.
        dir: PathBuf,
    },
}

/// When an append counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// When it is on the device. Survives a power loss.
    Always,
    /// When the kernel has it, which goes to the device this often. Survives the end of the process; a power loss
    /// takes at most this much time.
    Interval(Duration),
    /// When the kernel has it, which goes to the device when the kernel likes. Survives the end of the process.
    Never,
}

/// Settings of a log.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// Where the log lives.
    pub storage: Storage,
    /// There has to be a log in the directory, as this node has written one before. An empty directory is then refused: it
    /// is another one, or what should be mounted there is not.
    pub existing: bool,
    /// When an append counts as done. A vote is always synced.
    pub sync: SyncPolicy,
    /// Length of a WAL file. One that is being written, one ahead and one to be recycled exist at any time.
    pub wal_file_bytes: u64,
    /// Bytes of frames that are kept in memory for reading. What is not written yet is kept on top of that.
    pub cache_bytes: u64,
    /// Bytes of all files from which on files that hold little are rewritten.
    pub compaction_threshold: u64,
    /// Bytes of records that the index keeps one row for. More saves memory, less saves reading.
    pub row_bytes: u32,
    /// Files that are kept open for reading.
    pub open_files: usize,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            storage: Storage::Memory,
            existing: false,
            sync: SyncPolicy::Always,
            wal_file_bytes: 22 << 20,
            cache_bytes: 8 << 20,
            compaction_threshold: 100 << 20,
            row_bytes: 16 << 10,
            open_files: 256,
        }
    }
}

impl LogConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !(WAL_FILE_BYTES_MIN..=WAL_FILE_BYTES_MAX).contains(&self.wal_file_bytes)
            || !self.wal_file_bytes.is_multiple_of(8)
        {
            return Err(ConfigError::WalFileBytes {
                bytes: self.wal_file_bytes,
            });
        }
        if self.row_bytes == 0 || self.row_bytes > 1 << 20 {
            return Err(ConfigError::RowBytes { bytes: self.row_bytes });
        }
        if self.open_files == 0 {
            return Err(ConfigError::OpenFiles);
        }
        Ok(())
    }
}
