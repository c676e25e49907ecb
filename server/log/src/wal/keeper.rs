//! Preparing the next file, and removing or recycling those that nothing needs: on a thread of its own, or in steps.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Head, Prepared, Wal};
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
    prepared: Option<Duration>,
    /// When to try again after a file could not be.
    retry_at: Duration,
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
            retry_at: Duration::ZERO,
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

    /// A file of at least `bytes` under the name of `id`, that is on the device as a whole. A `quick` log gets one whose room
    /// is only reserved.
    pub(crate) fn prepare(&mut self, id: FileId, bytes: u64, quick: bool) -> io::Result<Prepared> {
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
        self.create(id, &path, bytes, quick).inspect_err(|_| {
            // Half a file is of no use, and takes room that is short.
            let _ = self.files.remove(&path);
        })
    }

    fn create(&self, id: FileId, path: &Path, bytes: u64, quick: bool) -> io::Result<Prepared> {
        let handle = self.files.create(path)?;
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

    /// Runs until the log is closed; for a thread of its own. `tidied` is called when files went or could go.
    pub(super) fn run(&mut self, wal: &Wal, tidied: impl Fn()) {
        while self.wait(wal) {
            self.turn(wal, &tidied);
        }
    }

    /// Does what there is to do; returns whether there was something.
    pub(super) fn turn(&mut self, wal: &Wal, tidied: impl Fn()) -> bool {
        let chore = self.chore(wal, &wal.head());
        if chore.tidy {
            wal.head().tidy = false;
            self.tidy(wal);
            tidied();
        }
        if let Some(bytes) = chore.prepare {
            self.try_prepare(wal, bytes);
        }
        chore.is_any()
    }

    /// Prepares a file of `bytes` to go on in; if that cannot be, the log is full.
    pub(super) fn try_prepare(&mut self, wal: &Wal, bytes: u64) {
        if let Err(error) = self.prepare_next(wal, bytes) {
            if !wal.full.swap(true, Ordering::Relaxed) {
                tracing::warn!(%error, dir = %self.dir.display(), "no room for the next file of the log; trying again until there is");
            }
            wal.head().forget_wanted();
            self.retry_at = wal.clock.now() + RETRY;
        }
        wal.prepared.notify_all();
    }

    fn prepare_next(&mut self, wal: &Wal, bytes: u64) -> io::Result<()> {
        // Places go up with ids, so a file that is prepared already cannot come after one that is not.
        let put_back = wal.head().take_next();
        if let Some(next) = put_back {
            wal.frames.accounts.remove(next.id);
            self.discard(Name::Wal(next.id), next.bytes);
        }
        let since = |prepared| wal.clock.now().saturating_sub(prepared);
        let quick = self.prepared.is_some_and(|prepared| since(prepared) < QUICK);
        let next = self.prepare(wal.next_file_id()?, bytes, quick)?;
        self.prepared = Some(wal.clock.now());
        wal.frames.accounts.open_wal(next.id, next.bytes);
        wal.head().set_next(next);
        if wal.full.swap(false, Ordering::Relaxed) {
            tracing::info!(dir = %self.dir.display(), "there is room for the log again");
        }
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

    /// Waits for something to do; not if the log is closed.
    fn wait(&self, wal: &Wal) -> bool {
        let mut head = wal.head();
        loop {
            if head.is_closed() || wal.failure().is_some() {
                return false;
            }
            if self.chore(wal, &head).is_any() {
                return true;
            }
            match self.retry_due(&head) {
                None => wal.chores.wait(&mut head),
                Some(due) => {
                    let wait = due.saturating_sub(wal.clock.now());
                    wal.chores.wait_for(&mut head, wait);
                }
            }
        }
    }

    /// What there is to do now.
    fn chore(&self, wal: &Wal, head: &Head) -> Chore {
        if head.is_closed() || wal.failure().is_some() {
            return Chore::default();
        }
        let due = self.retry_due(head).is_some_and(|due| due <= wal.clock.now());
        Chore {
            tidy: head.tidy,
            prepare: due.then(|| self.wanted_bytes(head)),
        }
    }

    pub(super) fn is_ready(&self, wal: &Wal) -> bool {
        self.chore(wal, &wal.head()).is_any()
    }

    /// Bytes that the next file has to have.
    pub(super) fn wanted_bytes(&self, head: &Head) -> u64 {
        head.wanted_bytes().max(self.file_bytes)
    }

    /// When the next file is to be prepared, if it is missing.
    pub(super) fn retry_due(&self, head: &Head) -> Option<Duration> {
        let there = head.has_next() && head.next_fits(self.wanted_bytes(head));
        (!there).then_some(self.retry_at)
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

#[derive(Default)]
struct Chore {
    tidy: bool,
    /// Bytes of the file to be prepared.
    prepare: Option<u64>,
}

impl Chore {
    fn is_any(&self) -> bool {
        self.tidy || self.prepare.is_some()
    }
}
