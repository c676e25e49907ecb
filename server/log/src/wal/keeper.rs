//! Preparing the next file, and removing or recycling those that nothing needs: on a thread of its own, or in steps.

mod erasing;

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::payload::encode_reserved;
use super::room::{fill, is_out_of_handles, is_out_of_room, reserve_room};
use super::{Head, Prepared, Reserve, Wal};
use crate::error::Failure;
use crate::files::{FileLayer, LogFile};
use crate::frame::{self, Header, Kind, Mark};
use crate::store::{Accounts, Class, Name};
use crate::types::FileId;

/// Time until the next attempt when there was no room for a file; it doubles …
const RETRY: Duration = Duration::from_millis(500);
/// … up to this.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Time until the next attempt when the process had too many files open. They may go at any time, and appends wait.
const RETRY_HANDLES: Duration = Duration::from_millis(50);
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
    accounts: Accounts,
    /// Files that were removed, which is not on the device yet.
    removed: Vec<FileId>,
    /// Files that could not be removed.
    stuck: Vec<Name>,
    /// What was erased when the log had to go on in another file the last time, and when it may have to again.
    erased: FileId,
    erase_at: Duration,
    /// When the last file was prepared.
    prepared: Option<Duration>,
    /// When to try again after a file could not be.
    retry_at: Duration,
    /// Time until the attempt after that, if there is still no room.
    retry: Duration,
    /// It was said that there are too many open files.
    out_of_handles: bool,
    reserve: Reserve,
    /// When to try again to make the reserve.
    reserve_at: Duration,
}

impl Keeper {
    pub(crate) fn new(files: Arc<dyn FileLayer>, dir: &Path, file_bytes: u64, accounts: Accounts) -> Self {
        Self {
            dir: dir.to_owned(),
            file_bytes,
            spare: None,
            spare_bytes: Arc::default(),
            accounts,
            removed: Vec::new(),
            stuck: Vec::new(),
            erased: FileId::NONE,
            erase_at: Duration::ZERO,
            prepared: None,
            retry_at: Duration::ZERO,
            retry: RETRY,
            out_of_handles: false,
            reserve: Reserve::new(Arc::clone(&files), dir, file_bytes),
            reserve_at: Duration::ZERO,
            files,
        }
    }

    /// Bytes of the file that waits to be recycled.
    pub(crate) fn spare_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.spare_bytes)
    }

    /// What is kept for a checkpoint on a full device.
    pub(crate) fn reserve(&self) -> Reserve {
        self.reserve.clone()
    }

    fn path(&self, name: Name) -> PathBuf {
        self.dir.join(name.to_string())
    }

    /// Whether a file of that length can become an ordinary one.
    pub(crate) fn can_recycle(&self, bytes: u64) -> bool {
        bytes == self.file_bytes
    }

    /// Keeps a file that nothing needs for later, or removes it: if it is one of those up to `erase_upto`, for certain.
    pub(crate) fn discard(&mut self, name: Name, bytes: u64, erase_upto: FileId) {
        if let (Name::Wal(id), None) = (name, self.spare)
            && self.can_recycle(bytes)
            && id > erase_upto
        {
            self.accounts.leave(id);
            self.spare = Some(id);
            self.spare_bytes.store(bytes, Ordering::Relaxed);
            return;
        }
        self.remove(name);
    }

    fn remove(&mut self, name: Name) {
        if let Name::Wal(id) | Name::Segment(id) = name {
            self.accounts.leave(id);
            match self.files.remove(&self.path(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(file = %name, %error, "a file that is no longer needed cannot be removed; the next time that others go, and the next start, try again");
                    self.stuck.push(name);
                }
                Ok(()) | Err(_) => self.removed.push(id),
            }
        }
    }

    /// No name that was removed comes back.
    fn sync_names(&mut self) -> io::Result<()> {
        self.files.sync_dir(&self.dir)?;
        self.accounts.left(self.removed.drain(..));
        Ok(())
    }

    /// A file of at least `bytes` under the name of `id`, that is on the device as a whole, and says that `in_use` was in use
    /// before it. A `quick` log gets one whose room is only reserved. Of the files up to `erase_upto`, none is recycled.
    pub(crate) fn prepare(
        &mut self,
        (id, erase_upto): (FileId, FileId),
        bytes: u64,
        in_use: FileId,
        quick: bool,
    ) -> io::Result<Prepared> {
        if let Some(spare) = self.spare.take_if(|spare| *spare <= erase_upto) {
            self.spare_bytes.store(0, Ordering::Relaxed);
            self.remove(Name::Wal(spare));
        }
        if self.spare.is_some() && bytes <= self.file_bytes {
            return self.recycle(id, in_use);
        }
        let path = self.path(Name::Wal(id));
        self.create(id, &path, bytes, in_use, quick).inspect_err(|_| {
            // Half a file is of no use, and takes room that is short.
            let _ = self.files.remove(&path);
        })
    }

    fn recycle(&mut self, id: FileId, in_use: FileId) -> io::Result<Prepared> {
        let (spare, path) = (self.spare.unwrap_or_default(), self.path(Name::Wal(id)));
        let handle = self.files.open(&self.path(Name::Wal(spare)))?;
        write_reserved(&*handle, id, in_use)?;
        handle.fdatasync()?;
        self.files.rename(&self.path(Name::Wal(spare)), &path)?;
        self.spare = Some(id);
        self.removed.push(spare);
        // Before this, a power loss brings the old name back, and with it a file that is in use is lost.
        self.sync_names()?;
        self.spare = None;
        self.spare_bytes.store(0, Ordering::Relaxed);
        let bytes = self.file_bytes;
        Ok(Prepared { id, handle, bytes })
    }

    fn create(&mut self, id: FileId, path: &Path, bytes: u64, in_use: FileId, quick: bool) -> io::Result<Prepared> {
        let handle = self.files.create(path)?;
        // First, so that a device without room is not filled with zeroes to find that out.
        let reserved = reserve_room(&*handle, bytes)?;
        if !(quick && reserved) {
            fill(&*handle, bytes)?;
        }
        write_reserved(&*handle, id, in_use)?;
        handle.fdatasync()?;
        self.sync_names()?;
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
        if chore.roll {
            self.go_on(wal);
        }
        if let Some(bytes) = chore.prepare {
            self.try_prepare(wal, bytes);
            // With the name of the new file, those are gone for good that went before.
            tidied();
        }
        if chore.reserve && self.reserve.make().is_err() {
            self.reserve_at = wal.clock.now() + RETRY_MAX;
        }
        chore.is_any()
    }

    /// Prepares a file of `bytes` to go on in, and returns whether there is one. Without room for it, the log is full; if
    /// the process has no handle for it, appends wait until it has; anything else stops the log.
    pub(super) fn try_prepare(&mut self, wal: &Wal, bytes: u64) -> bool {
        let outcome = self.prepare_next(wal, bytes);
        wal.waiting.end();
        if let Err(error) = outcome {
            if is_out_of_handles(&error) {
                self.wait_for_handles(wal, &error);
            } else if is_out_of_room(&error) {
                self.set_full(wal, &error);
            } else {
                wal.stop(Failure {
                    operation: "prepare the next file in",
                    path: self.dir.clone(),
                    source: error,
                });
            }
            wal.prepared.notify_all();
            return false;
        }
        (self.out_of_handles, self.retry) = (false, RETRY);
        wal.prepared.notify_all();
        true
    }

    fn set_full(&mut self, wal: &Wal, error: &io::Error) {
        if !wal.full.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, dir = %self.dir.display(), "no room for the next file of the log; trying again until there is");
        }
        wal.head().forget_wanted();
        self.retry_at = wal.clock.now() + self.retry;
        self.retry = (self.retry * 2).min(RETRY_MAX);
    }

    fn wait_for_handles(&mut self, wal: &Wal, error: &io::Error) {
        if !std::mem::replace(&mut self.out_of_handles, true) {
            tracing::warn!(%error, dir = %self.dir.display(), "too many open files for the next file of the log, and writing waits: allow the process more (ulimit -n), or fewer connections");
        }
        self.retry_at = wal.clock.now() + RETRY_HANDLES;
    }

    fn prepare_next(&mut self, wal: &Wal, bytes: u64) -> io::Result<()> {
        // Places go up with ids, so a file that is prepared already cannot come after one that is not.
        let put_back = wal.head().take_next();
        if let Some(next) = put_back {
            wal.frames.accounts.remove(next.id);
            let erase_upto = wal.head().erase_upto();
            self.discard(Name::Wal(next.id), next.bytes, erase_upto);
        }
        let since = |prepared| wal.clock.now().saturating_sub(prepared);
        let quick = self.prepared.is_some_and(|prepared| since(prepared) < QUICK);
        // Together: a file of an id that an erasure does not know has to be made without what it erases.
        let id = {
            let head = wal.head();
            (wal.next_file_id()?, head.erase_upto())
        };
        let next = self.prepare(id, bytes, wal.durable_file(), quick)?;
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
        let (replay_from, erase_upto) = (wal.replay_from(), wal.head().erase_upto());
        let free = wal.frames.accounts.take_free(replay_from);
        if !free.is_empty() {
            // There may be room now.
            (self.retry, self.retry_at, self.reserve_at) = (RETRY, Duration::ZERO, Duration::ZERO);
        }
        for (id, account) in free {
            wal.frames.handles.close(id);
            let name = match account.class {
                Class::Wal => Name::Wal(id),
                Class::Segment => Name::Segment(id),
            };
            self.discard(name, account.bytes, erase_upto);
        }
        for name in std::mem::take(&mut self.stuck) {
            self.remove(name);
        }
        self.settle_names(wal, erase_upto);
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
            match self.retry_due(wal, &head) {
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
        let now = wal.clock.now();
        let due = self.file_due(wal, head).is_some_and(|due| due <= now);
        Chore {
            tidy: head.tidy,
            prepare: due.then(|| self.wanted_bytes(head)),
            roll: self.roll_due(wal, head).is_some_and(|due| due <= now),
            reserve: self.reserve_due(head).is_some_and(|due| due <= now),
        }
    }

    pub(super) fn is_ready(&self, wal: &Wal) -> bool {
        self.chore(wal, &wal.head()).is_any()
    }

    /// Bytes that the next file has to have.
    pub(super) fn wanted_bytes(&self, head: &Head) -> u64 {
        head.wanted_bytes().max(self.file_bytes)
    }

    /// When there is something to do, if nothing else comes.
    pub(super) fn retry_due(&self, wal: &Wal, head: &Head) -> Option<Duration> {
        let due = [
            self.file_due(wal, head),
            self.reserve_due(head),
            self.roll_due(wal, head),
        ];
        due.into_iter().flatten().min()
    }

    /// When the next file is to be prepared, if it is missing.
    fn file_due(&self, wal: &Wal, head: &Head) -> Option<Duration> {
        let there = head.has_next() && head.next_fits(self.wanted_bytes(head));
        // Until the current one is known to be in use, the next one could not say so; the writer is at it.
        let early = wal.prepares_in_order() && wal.durable_file() < head.file();
        (!there && !early).then_some(self.retry_at)
    }

    /// When the reserve is to be made, if it is missing: after the next file.
    fn reserve_due(&self, head: &Head) -> Option<Duration> {
        (head.has_next() && !self.reserve.is_there()).then_some(self.reserve_at)
    }
}

/// Writes the first frame of a file that is not used yet.
fn write_reserved(handle: &dyn LogFile, id: FileId, in_use: FileId) -> io::Result<()> {
    let payload = encode_reserved(in_use);
    let header = Header {
        kind: Kind::Reserved,
        file: u64::from(id.0),
        offset: 0,
        mark: Mark::default(),
    };
    let payload_bytes = u32::try_from(payload.len()).map_err(io::Error::other)?;
    let header = frame::encode(&header, payload_bytes, frame::payload_crc(&[&payload]));
    handle.pwritev(&mut [IoSlice::new(&header), IoSlice::new(&payload)], 0)
}

#[derive(Default)]
struct Chore {
    tidy: bool,
    /// Bytes of the file to be prepared.
    prepare: Option<u64>,
    /// Whether the log is to go on in the next file.
    roll: bool,
    reserve: bool,
}

impl Chore {
    fn is_any(&self) -> bool {
        self.tidy || self.prepare.is_some() || self.roll || self.reserve
    }
}
