//! What the log asks of a file system, as a trait, so that tests can let every single operation fail.
//!
//! Durability is the caller's business and therefore visible: bytes are safe after [`LogFile::fdatasync`], and names
//! (created, renamed, removed) after [`FileLayer::sync_dir`].

mod os;

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

pub use os::OsFiles;

/// A file of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Name without the directory.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
}

/// Holds the lock of a directory until it is dropped.
pub trait DirLock: Send + Sync + Debug {}

/// What came of an attempt to lock a directory.
#[derive(Debug)]
pub enum LockOutcome {
    /// It is ours.
    Taken(Box<dyn DirLock>),
    /// Another process has it; what it wrote into the lock file, which is its process id.
    HeldBy(String),
}

/// An open file. All positions are absolute; there is no cursor.
pub trait LogFile: Send + Sync + Debug {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Writes all of `parts`, one after the other, from `offset` on.
    fn pwritev(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()>;
    /// Fills `into` from `offset` on; a file that ends earlier is [`io::ErrorKind::UnexpectedEof`].
    fn pread(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
    /// Returns when data and length are on the device.
    fn fdatasync(&self) -> io::Result<()>;
    /// Extends the file with zeroes, and reserves their room on the device, so that writing them cannot fail for want of it.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where the file system cannot do that; the file is as before.
    fn allocate(&self, bytes: u64) -> io::Result<()>;
    /// Cuts the file, or extends it with zeroes.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Whether who opens `path` gets this file. An open file can be written to and synced when its name is gone, and nobody
    /// finds it again.
    ///
    /// # Errors
    /// That cannot be told.
    fn is_at(&self, path: &Path) -> io::Result<bool>;
}

/// A file system.
pub trait FileLayer: Send + Sync + Debug {
    /// Creates `dir` and what is missing above it.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Tries to lock `path`, and never waits.
    fn lock(&self, path: &Path) -> io::Result<LockOutcome>;
    /// The files of `dir`, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<FileEntry>>;
    /// Creates `path` for reading and writing; what it held is gone.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn LogFile>>;
    /// Opens `path`, which exists, for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn LogFile>>;
    /// Renames a file; one that has the new name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Returns when all names in `dir` are on the device.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}
