//! File systems for tests: one whose device hangs, and one in memory that loses what was not synced, runs full, and fails when a test wants it to.
//!
//! It is as unkind as a file system may be: until [`LogFile::fdatasync`], any part of what was written may be missing after a
//! crash, in any order; until [`FileLayer::sync_dir`], names may be missing, but in the order in which they came to be. A
//! sync that failed has lost what it was to sync, and the next one does not bring it back.

mod device;
mod hanging;

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

pub use hanging::{Hanging, HangingFiles};

use self::device::{Contents, Device, NameChange, Random, Write};
use crate::files::{DirLock, FileEntry, FileLayer, LockOutcome, LogFile};

/// The file system. Cloning gives another handle to the same.
#[derive(Debug, Clone, Default)]
pub struct SimFiles {
    device: Arc<Mutex<Device>>,
    /// The power cycle that this handle belongs to; after a crash it is of no use.
    cycle: u64,
}

impl SimFiles {
    /// An empty file system.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of operations that changed something so far.
    pub fn operations(&self) -> u64 {
        self.device.lock().operations
    }

    /// Bytes that were read from files so far.
    pub fn bytes_read(&self) -> u64 {
        self.device.lock().bytes_read
    }

    /// Has every operation fail after `count` more that change something, as if the power went.
    pub fn stop_after(&self, count: u64) {
        let mut device = self.device.lock();
        device.stop_at = Some(device.operations + count);
    }

    /// Has the `nth` sync from now on fail, 1 being the next.
    pub fn fail_sync(&self, nth: u64) {
        let mut device = self.device.lock();
        device.fail_sync = Some(device.syncs + nth);
    }

    /// Has the `nth` sync of names from now on fail, 1 being the next.
    pub fn fail_dir_sync(&self, nth: u64) {
        let mut device = self.device.lock();
        device.fail_dir_sync = Some(device.dir_syncs + nth);
    }

    /// Turns a bit of a file over, on the device too, as if it had decayed there.
    ///
    /// # Errors
    /// There is no such file, or it is not that long.
    pub fn flip_bit(&self, path: &Path, offset: usize, bit: u8) -> io::Result<()> {
        let mut device = self.device.lock();
        let index = device.find(path)?;
        let file = &mut device.files[index];
        let byte = file.bytes.get_mut(offset).ok_or(io::ErrorKind::UnexpectedEof)?;
        *byte ^= 1 << (bit % 8);
        if let Some(byte) = file.durable.get_mut(offset) {
            *byte ^= 1 << (bit % 8);
        }
        Ok(())
    }

    /// All files as they are now, with what is not synced.
    pub fn image(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let device = self.device.lock();
        let names = device.names.iter();
        names
            .map(|(path, index)| (path.clone(), device.files[*index].bytes.clone()))
            .collect()
    }

    /// Has every file that is created fail with an error of the system; none: no more.
    pub fn fail_create(&self, errno: Option<i32>) {
        self.device.lock().fail_create = errno;
    }

    /// Has every file that gets another name fail with an error of the system; none: no more.
    pub fn fail_rename(&self, errno: Option<i32>) {
        self.device.lock().fail_rename = errno;
    }

    /// Has files take at most this many bytes more than they do now; none: any.
    pub fn set_room(&self, bytes: Option<u64>) {
        let mut device = self.device.lock();
        device.room = bytes.map(|bytes| bytes + device.used());
    }

    /// What a process finds that starts after this one was killed: a file system of its own, as this one is now.
    #[must_use]
    pub fn after_kill(&self) -> Self {
        let mut device = self.device.lock().clone();
        device.locks.clear();
        Self {
            device: Arc::new(Mutex::new(device)),
            cycle: self.cycle,
        }
    }

    /// The power goes and comes back. `seed` says what reached the device of that which was not synced. The result is
    /// the file system after that; handles from before fail.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        self.cut_power(Some(Random(seed)))
    }

    /// As [`SimFiles::crash`], and nothing that was not synced reached the device.
    #[must_use]
    pub fn lose_unsynced(&self) -> Self {
        self.cut_power(None)
    }

    fn cut_power(&self, random: Option<Random>) -> Self {
        let mut device = self.device.lock();
        if let Some(mut random) = random {
            device.keep_some(&mut random);
        }
        device.restart();
        Self {
            device: Arc::clone(&self.device),
            cycle: device.cycle,
        }
    }

    fn with<T>(&self, changes: bool, run: impl FnOnce(&mut Device) -> io::Result<T>) -> io::Result<T> {
        let mut device = self.device.lock();
        if device.cycle != self.cycle || device.stop_at.is_some_and(|stop_at| device.operations >= stop_at) {
            return Err(io::Error::other("the power is gone"));
        }
        device.operations += u64::from(changes);
        run(&mut device)
    }

    fn file(&self, index: usize) -> Arc<dyn LogFile> {
        Arc::new(SimFile {
            files: self.clone(),
            index,
        })
    }
}

#[derive(Debug)]
struct SimLock {
    files: SimFiles,
    path: PathBuf,
}

impl DirLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut device = self.files.device.lock();
        if device.cycle == self.files.cycle {
            device.locks.remove(&self.path);
        }
    }
}

impl FileLayer for SimFiles {
    fn create_dir_all(&self, _dir: &Path) -> io::Result<()> {
        self.with(false, |_| Ok(()))
    }

    fn lock(&self, path: &Path) -> io::Result<LockOutcome> {
        let taken = self.with(false, |device| Ok(device.locks.insert(path.to_owned())))?;
        Ok(if taken {
            LockOutcome::Taken(Box::new(SimLock {
                files: self.clone(),
                path: path.to_owned(),
            }))
        } else {
            LockOutcome::HeldBy("simulated".to_owned())
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FileEntry>> {
        self.with(false, |device| {
            let inside = device.names.iter().filter(|(path, _)| path.parent() == Some(dir));
            let entries = inside.filter_map(|(path, index)| {
                Some(FileEntry {
                    name: path.file_name()?.to_str()?.to_owned(),
                    bytes: device.files[*index].bytes.len() as u64,
                })
            });
            Ok(entries.collect())
        })
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        let index = self.with(true, |device| {
            if let Some(errno) = device.fail_create {
                return Err(io::Error::from_raw_os_error(errno));
            }
            device.files.push(Contents::default());
            let index = device.files.len() - 1;
            device.change_name(NameChange::Set(path.to_owned(), index));
            Ok(index)
        })?;
        Ok(self.file(index))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        let index = self.with(false, |device| device.find(path))?;
        Ok(self.file(index))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.with(true, |device| {
            if let Some(errno) = device.fail_rename {
                return Err(io::Error::from_raw_os_error(errno));
            }
            device.find(from)?;
            device.change_name(NameChange::Move(from.to_owned(), to.to_owned()));
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.with(true, |device| {
            device.find(path)?;
            device.change_name(NameChange::Remove(path.to_owned()));
            Ok(())
        })
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        self.with(true, |device| {
            device.dir_syncs += 1;
            if device.fail_dir_sync == Some(device.dir_syncs) {
                return Err(io::Error::other("input/output error"));
            }
            device.renames.clear();
            device.durable_names = device.names.clone();
            Ok(())
        })
    }
}

#[derive(Debug)]
struct SimFile {
    files: SimFiles,
    index: usize,
}

impl SimFile {
    fn write(&self, writes: Vec<Write>) -> io::Result<()> {
        self.files.with(true, |device| {
            let length = device.files[self.index].bytes.len();
            let end = writes.iter().map(|write| match write {
                Write::Bytes(offset, bytes) => offset + bytes.len(),
                Write::Length(length) => *length,
            });
            let growth = end.max().unwrap_or(0).saturating_sub(length) as u64;
            if growth > 0 && device.room.is_some_and(|room| device.used() + growth > room) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let file = &mut device.files[self.index];
            for write in writes {
                write.apply(&mut file.bytes);
                file.writes.push(write);
            }
            Ok(())
        })
    }
}

impl LogFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        self.files
            .with(false, |device| Ok(device.files[self.index].bytes.len() as u64))
    }

    fn pwritev(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter()).copied().collect();
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        self.write(vec![Write::Bytes(offset, bytes)])
    }

    fn pread(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.files.with(false, |device| {
            let offset = usize::try_from(offset).map_err(io::Error::other)?;
            let end = offset.saturating_add(into.len());
            let bytes = device.files[self.index].bytes.get(offset..end);
            into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
            device.bytes_read += into.len() as u64;
            Ok(())
        })
    }

    fn fdatasync(&self) -> io::Result<()> {
        self.files.with(true, |device| {
            device.syncs += 1;
            if device.fail_sync == Some(device.syncs) {
                device.files[self.index].writes.clear();
                return Err(io::Error::other("input/output error"));
            }
            device.files[self.index].sync();
            Ok(())
        })
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        self.write(vec![Write::Length(length)])
    }
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.files
            .with(false, |device| Ok(device.names.get(path) == Some(&self.index)))
    }
}
