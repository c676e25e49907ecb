//! Room for a checkpoint on a device that has none left.
//!
//! What would make room, a checkpoint, takes some itself. So a file of zeroes is kept, whose blocks become those of a
//! checkpoint when the device has no others. Nothing is given back to the device in between, so nobody else can take it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::room::{fill, reserve_room};
use crate::files::{FileLayer, LogFile};

/// Name of the file.
pub(crate) const RESERVE_NAME: &str = "reserve";
/// Its length, if a WAL file is not shorter. A checkpoint of a log with little in it is much smaller.
const RESERVE_BYTES: u64 = 1 << 20;

/// The file, shared by who keeps it and who may need it.
#[derive(Debug, Clone)]
pub(crate) struct Reserve {
    files: Arc<dyn FileLayer>,
    path: PathBuf,
    bytes: u64,
    /// Whether it is there as a whole.
    there: Arc<Mutex<bool>>,
}

impl Reserve {
    pub(crate) fn new(files: Arc<dyn FileLayer>, dir: &Path, wal_file_bytes: u64) -> Self {
        Self {
            files,
            path: dir.join(RESERVE_NAME),
            bytes: wal_file_bytes.min(RESERVE_BYTES),
            there: Arc::default(),
        }
    }

    /// The directory holds a file of that name and length.
    pub(crate) fn found(&self, bytes: u64) {
        *self.there.lock() = bytes == self.bytes;
    }

    pub(crate) fn is_there(&self) -> bool {
        *self.there.lock()
    }

    /// Makes it, if it is not there. Nothing remains of it after an error.
    pub(crate) fn make(&self) -> io::Result<()> {
        if self.is_there() {
            return Ok(());
        }
        let write = || {
            let handle = self.files.create(&self.path)?;
            reserve_room(&*handle, self.bytes)?;
            // Room that is only reserved can need more when it is written to.
            fill(&*handle, self.bytes)?;
            handle.fdatasync()
        };
        write().inspect_err(|_| {
            let _ = self.files.remove(&self.path);
        })?;
        *self.there.lock() = true;
        Ok(())
    }

    /// Gives it another name and returns it, for something of `bytes` that is written over it and cut to its length; none
    /// if it is not there or too small.
    pub(crate) fn take(&self, bytes: u64, name: &Path) -> Option<Arc<dyn LogFile>> {
        let mut there = self.there.lock();
        if !*there || bytes > self.bytes {
            return None;
        }
        let taken = self.files.rename(&self.path, name).and_then(|()| self.files.open(name));
        *there = false;
        taken.ok()
    }
}
