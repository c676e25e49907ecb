//! The file system of the operating system.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;

use super::{DirLock, FileEntry, FileLayer, LockOutcome, LogFile};

/// Most parts that Linux takes in one call (`IOV_MAX`).
const PARTS_MAX: usize = 1024;

/// The real files.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsFiles;

impl FileLayer for OsFiles {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<LockOutcome> {
        // Not truncated: until the lock is ours, what is in it belongs to its holder.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let dir = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?,
            _ => File::open(".")?,
        };
        // The directory too: the file can be removed, and the next one of its name is another. Where the file system cannot
        // lock a directory, as over a network, the file has to do.
        let dir_is_held = flock(&dir, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if !dir_is_held => {
                file.set_len(0)?;
                write!(file, "{}", std::process::id())?;
                Ok(LockOutcome::Taken(Box::new(OsLock { _file: file, _dir: dir })))
            }
            Ok(()) | Err(Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                // A process id and no more, whatever somebody put there.
                file.take(32).read_to_string(&mut holder)?;
                Ok(LockOutcome::HeldBy(holder))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FileEntry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Removed meanwhile, so it is not there.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // A name that is not UTF-8 is none of ours.
            if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
                entries.push(FileEntry {
                    name,
                    bytes: metadata.len(),
                });
            }
        }
        Ok(entries)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        Ok(Arc::new(OsFile { file }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(OsFile { file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}

/// The kernel drops the lock when the file is closed, also when the process is killed.
#[derive(Debug)]
struct OsLock {
    _file: File,
    _dir: File,
}

impl DirLock for OsLock {}

#[derive(Debug)]
struct OsFile {
    file: File,
}

impl LogFile for OsFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn pwritev(&self, parts: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        let mut left = parts;
        while !left.is_empty() {
            let batch = &left[..left.len().min(PARTS_MAX)];
            match rustix::io::pwritev(&self.file, batch, offset) {
                Ok(0) if batch.iter().all(|part| part.is_empty()) => return Ok(()),
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn pread(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }

    fn fdatasync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        Ok(fallocate(&self.file, FallocateFlags::empty(), 0, bytes)?)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let named = match std::fs::metadata(path) {
            Ok(named) => named,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let own = self.file.metadata()?;
        Ok((own.dev(), own.ino()) == (named.dev(), named.ino()))
    }
}
