//! The thread that prepares the next file, and that removes or recycles those that nothing needs.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Prepared, Wal};
use crate::files::{FileLayer, LogFile};
use crate::store::{Class, Name};
use crate::types::FileId;

/// Time until the next attempt when a file could not be prepared.
const RETRY: Duration = Duration::from_millis(500);
/// Zeroes that are written at once.
const ZERO_BYTES: usize = 1 << 20;
/// A log that fills a file in less than this is bound by the bytes that reach the device, and gets files whose room is only
/// reserved. Syncs into those take longer, as each also says what was written, but they cover much, and no byte is written
/// twice. In a slower log every sync counts, and the zeroes cost nothing that anybody waits for.
const QUICK: Duration = Duration::from_millis(250);

/// Creates and recycles files.
pub(crate) struct Keeper {
    files: Arc<dyn FileLayer>,
    dir: PathBuf,
    /// Length of an ordinary file.
    file_bytes: u64,
    /// A file that nothing needs, under its old name.
    spare: Option<FileId>,
    spare_bytes: Arc<AtomicU64>,
    /// When the last file was prepared.
    prepared: Option<Instant>,
}

impl Keeper {
    pub(crate) fn new(files: Arc<dyn FileLayer>, dir: &Path, file_bytes: u64) -> Self {
        Self {
            files,
            dir: dir.to_owned(),
            file_bytes,
            spare: None,
            spare_bytes: Arc::default(),
            prepared: None,
        }
    }

    /// Bytes of the file that waits to be recycled.
    pub(crate) fn spare_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.spare_bytes)
    }

    fn path(&self, name: Name) -> PathBuf {
        self.dir.join(name.to_string())
    }

    /// Whether a file of that length can become an ordinary one.
    pub(crate) fn can_recycle(&self, bytes: u64) -> bool {
        bytes == self.file_bytes
    }

    /// Keeps a file that nothing needs for later, or removes it.
    pub(crate) fn discard(&mut self, name: Name, bytes: u64) {
        if let (Name::Wal(id), None) = (name, self.spare)
            && self.can_recycle(bytes)
        {
            self.spare = Some(id);
            self.spare_bytes.store(bytes, Ordering::Relaxed);
            return;
        }
        if let Err(error) = self.files.remove(&self.path(name)) {
            tracing::warn!(file = %name, %error, "a file that is no longer needed cannot be removed; the next start tries again");
        }
    }

    /// A file of at least `bytes` under the name of `id`, that is on the device as a whole.
    pub(crate) fn prepare(&mut self, id: FileId, bytes: u64) -> io::Result<Prepared> {
        let path = self.path(Name::Wal(id));
        if let Some(spare) = self.spare.filter(|_| bytes <= self.file_bytes) {
            self.files.rename(&self.path(Name::Wal(spare)), &path)?;
            self.spare = None;
            self.spare_bytes.store(0, Ordering::Relaxed);
            // Before this, a power loss brings the old name back, and with it a file that is in use is lost.
            self.files.sync_dir(&self.dir)?;
            let handle = self.files.open(&path)?;
            let bytes = self.file_bytes;
            return Ok(Prepared { id, handle, bytes });
        }
        self.create(id, &path, bytes).inspect_err(|_| {
            // Half a file is of no use, and takes room that is short.
            let _ = self.files.remove(&path);
        })
    }

    fn create(&self, id: FileId, path: &Path, bytes: u64) -> io::Result<Prepared> {
        let handle = self.files.create(path)?;
        let quick = self.prepared.is_some_and(|prepared| prepared.elapsed() < QUICK);
        match if quick {
            handle.allocate(bytes)
        } else {
            fill(&*handle, bytes)
        } {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => fill(&*handle, bytes)?,
            outcome => outcome?,
        }
        handle.fdatasync()?;
        self.files.sync_dir(&self.dir)?;
        Ok(Prepared { id, handle, bytes })
    }

    /// Runs until the log is closed. `tidied` is called when files went or could go.
    pub(crate) fn run(mut self, wal: &Wal, tidied: impl Fn()) {
        let mut retry_at = Instant::now();
        while let Some(chore) = next_chore(wal, self.file_bytes, retry_at) {
            if chore.tidy {
                self.tidy(wal);
                tidied();
            }
            if let Some(bytes) = chore.prepare
                && let Err(error) = self.prepare_next(wal, bytes)
            {
                if !wal.full.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, dir = %self.dir.display(), "no room for the next file of the log; trying again until there is");
                }
                wal.head().forget_wanted();
                retry_at = Instant::now() + RETRY;
                wal.prepared.notify_all();
            }
        }
    }

    fn prepare_next(&mut self, wal: &Wal, bytes: u64) -> io::Result<()> {
        // Places go up with ids, so a file that is prepared already cannot come after one that is not.
        let put_back = wal.head().take_next();
        if let Some(next) = put_back {
            wal.frames.accounts.remove(next.id);
            self.discard(Name::Wal(next.id), next.bytes);
        }
        let next = self.prepare(wal.next_file_id()?, bytes)?;
        self.prepared = Some(Instant::now());
        wal.frames.accounts.open_wal(next.id, next.bytes);
        wal.head().set_next(next);
        if wal.full.swap(false, Ordering::Relaxed) {
            tracing::info!(dir = %self.dir.display(), "there is room for the log again");
        }
        wal.prepared.notify_all();
        Ok(())
    }

    fn tidy(&mut self, wal: &Wal) {
        // In this order: what comes later is needed later.
        let replay_from = wal.replay_from();
        for (id, account) in wal.frames.accounts.take_free(replay_from) {
            wal.frames.handles.close(id);
            let name = match account.class {
                Class::Wal => Name::Wal(id),
                Class::Segment => Name::Segment(id),
            };
            self.discard(name, account.bytes);
        }
    }
}

/// Writes zeroes up to `bytes`.
fn fill(handle: &dyn LogFile, bytes: u64) -> io::Result<()> {
    let zeroes = vec![0; ZERO_BYTES];
    let mut at = 0;
    while at < bytes {
        let step = usize::try_from(bytes - at).unwrap_or(usize::MAX).min(ZERO_BYTES);
        handle.pwritev(&mut [IoSlice::new(&zeroes[..step])], at)?;
        at += step as u64;
    }
    Ok(())
}

struct Chore {
    tidy: bool,
    /// Bytes of the file to be prepared.
    prepare: Option<u64>,
}

/// Waits for something to do; nothing when the log is closed.
fn next_chore(wal: &Wal, file_bytes: u64, retry_at: Instant) -> Option<Chore> {
    let mut head = wal.head();
    loop {
        if head.is_closed() || wal.failure().is_some() {
            return None;
        }
        let wanted = head.wanted_bytes().max(file_bytes);
        let missing = !head.has_next() || !head.next_fits(wanted);
        let due = Instant::now() >= retry_at;
        let tidy = std::mem::take(&mut head.tidy);
        let prepare = (missing && due).then_some(wanted);
        if tidy || prepare.is_some() {
            return Some(Chore { tidy, prepare });
        }
        if missing {
            wal.chores.wait_until(&mut head, retry_at);
        } else {
            wal.chores.wait(&mut head);
        }
    }
}
