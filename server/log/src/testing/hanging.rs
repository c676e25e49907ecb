//! A file system whose device does not answer while a test wants it so.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::files::{FileEntry, FileLayer, LockOutcome, LogFile};

#[derive(Debug, Default)]
struct Gate {
    /// For paths with this in their names.
    shut: Mutex<Option<&'static str>>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn pass(&self, path: &Path) {
        let mut shut = self.shut.lock();
        while shut.is_some_and(|part| path.to_string_lossy().contains(part)) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            self.opened.wait(&mut shut);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn set(&self, shut: Option<&'static str>) {
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
        self.hang_at("")
    }

    /// What writes to paths with `part` in their names returns only when what is returned here is dropped.
    #[must_use]
    pub fn hang_at(&self, part: &'static str) -> Hanging {
        self.gate.set(Some(part));
        Hanging(self.gate.clone())
    }

    fn file(&self, path: &Path, file: Arc<dyn LogFile>) -> Arc<dyn LogFile> {
        Arc::new(HangingFile {
            file,
            path: path.to_owned(),
            gate: self.gate.clone(),
        })
    }
}

/// A device that does not answer; it does when this is dropped.
#[derive(Debug)]
pub struct Hanging(Arc<Gate>);

impl Hanging {
    /// How many wait for it now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::SeqCst)
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

impl FileLayer for HangingFiles {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.gate.pass(dir);
        self.files.create_dir_all(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<LockOutcome> {
        self.files.lock(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FileEntry>> {
        self.files.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        self.gate.pass(path);
        self.files.create(path).map(|file| self.file(path, file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        self.files.open(path).map(|file| self.file(path, file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.gate.pass(from);
        self.files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.gate.pass(path);
        self.files.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.gate.pass(dir);
        self.files.sync_dir(dir)
    }
}

#[derive(Debug)]
struct HangingFile {
    file: Arc<dyn LogFile>,
    path: PathBuf,
    gate: Arc<Gate>,
}

impl LogFile for HangingFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn pwritev(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.gate.pass(&self.path);
        self.file.pwritev(parts, offset)
    }

    fn pread(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.pread(into, offset)
    }

    fn fdatasync(&self) -> io::Result<()> {
        self.gate.pass(&self.path);
        self.file.fdatasync()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.gate.pass(&self.path);
        self.file.allocate(bytes)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.gate.pass(&self.path);
        self.file.set_len(bytes)
    }
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.file.is_at(path)
    }
}
