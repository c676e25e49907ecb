//! A file system whose device does not answer while a test wants it so.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::files::{FileEntry, FileLayer, LockOutcome, LogFile};

#[derive(Debug, Default)]
struct Gate {
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut shut = self.shut.lock();
        while *shut {
            self.opened.wait(&mut shut);
        }
    }

    fn set(&self, shut: bool) {
        *self.shut.lock() = shut;
        self.opened.notify_all();
    }
}

/// Another file system, of which everything that writes can be held up. What only reads goes on, as if it were cached.
/// Cloning gives another handle to the same.
#[derive(Debug, Clone)]
pub struct HangingFiles {
    files: Arc<dyn FileLayer>,
    gate: Arc<Gate>,
}

impl HangingFiles {
    /// One whose device answers.
    #[must_use]
    pub fn new(files: Arc<dyn FileLayer>) -> Self {
        Self {
            files,
            gate: Arc::default(),
        }
    }

    /// What writes returns only when what is returned here is dropped.
    #[must_use]
    pub fn hang(&self) -> Hanging {
        self.gate.set(true);
        Hanging(self.gate.clone())
    }

    fn file(&self, file: Arc<dyn LogFile>) -> Arc<dyn LogFile> {
        Arc::new(HangingFile {
            file,
            gate: self.gate.clone(),
        })
    }
}

/// A device that does not answer; it does when this is dropped.
#[derive(Debug)]
pub struct Hanging(Arc<Gate>);

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl FileLayer for HangingFiles {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.gate.pass();
        self.files.create_dir_all(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<LockOutcome> {
        self.files.lock(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FileEntry>> {
        self.files.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        self.gate.pass();
        self.files.create(path).map(|file| self.file(file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        self.files.open(path).map(|file| self.file(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.gate.pass();
        self.files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.gate.pass();
        self.files.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.gate.pass();
        self.files.sync_dir(dir)
    }
}

#[derive(Debug)]
struct HangingFile {
    file: Arc<dyn LogFile>,
    gate: Arc<Gate>,
}

impl LogFile for HangingFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn pwritev(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.gate.pass();
        self.file.pwritev(parts, offset)
    }

    fn pread(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.pread(into, offset)
    }

    fn fdatasync(&self) -> io::Result<()> {
        self.gate.pass();
        self.file.fdatasync()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.gate.pass();
        self.file.allocate(bytes)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.gate.pass();
        self.file.set_len(bytes)
    }
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.file.is_at(path)
    }
}
