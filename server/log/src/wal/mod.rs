//! The write-ahead log, shared by all groups of a plane.
//!
//! An append gets its place under a short lock and is done with; one thread writes what has gathered at the places that
//! were given, syncs once for all of it, and completes the appends in order. A second thread prepares the next file and
//! removes or recycles those that nothing needs.
//!
//! Always true:
//! - a file has its room on the device (zero-filled, recycled, or reserved while files fill quickly), is synced, and is
//!   known by its name on the device before the first place in it is given; so a full device cannot stop what has a place;
//! - places are given without holes, in the order of the queue;
//! - every file starts with a [`payload::Start`] frame, which names the file before and where that ends.

mod head;
mod keeper;
mod outgoing;
pub(crate) mod payload;
mod writer;

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::config::SyncPolicy;
use crate::error::{AppendError, Failure};
use crate::store::DiskFrames;
use crate::types::{FileId, Space};

pub(crate) use head::{Head, Prepared, start_bytes};
pub(crate) use keeper::Keeper;
pub(crate) use outgoing::Outgoing;
pub(crate) use payload::{ENTRY_PREFIX_BYTES, VOTE_BYTES_MAX};
pub(crate) use writer::Writer;

/// Called once with the outcome of an append, on the thread that writes, or before the call returns if nothing was
/// written. It has to be quick: everybody waits for it.
pub type Completion = Box<dyn FnOnce(Result<(), AppendError>) + Send>;

/// What was appended in one call.
pub(crate) struct Batch {
    pub(crate) frames: Vec<Outgoing>,
    /// Whether it is synced whatever the policy.
    pub(crate) sync: bool,
    pub(crate) done: Option<Completion>,
}

/// What appenders, the writer and the keeper share.
pub(crate) struct Wal {
    head: Mutex<Head>,
    /// The writer waits for something to write.
    work: Condvar,
    /// Appenders wait for the next file.
    prepared: Condvar,
    /// The keeper waits for something to do.
    chores: Condvar,
    full: AtomicBool,
    failure: OnceLock<Arc<Failure>>,
    file_ids: AtomicU32,
    /// The newest file whose first frame is on the device.
    durable_file: AtomicU32,
    pub(crate) policy: SyncPolicy,
    pub(crate) frames: Arc<DiskFrames>,
}

impl Wal {
    /// `durable_file` is the last file of the log that was read, `last_file_id` the one to go on in.
    pub(crate) fn new(
        head: Head,
        durable_file: FileId,
        last_file_id: FileId,
        policy: SyncPolicy,
        frames: Arc<DiskFrames>,
    ) -> Self {
        Self {
            head: Mutex::new(head),
            work: Condvar::new(),
            prepared: Condvar::new(),
            chores: Condvar::new(),
            full: AtomicBool::new(false),
            failure: OnceLock::new(),
            file_ids: AtomicU32::new(last_file_id.0),
            durable_file: AtomicU32::new(durable_file.0),
            policy,
            frames,
        }
    }

    pub(crate) fn head(&self) -> MutexGuard<'_, Head> {
        self.head.lock()
    }

    pub(crate) fn space(&self) -> Space {
        if self.full.load(Ordering::Relaxed) {
            Space::Full
        } else {
            Space::Ample
        }
    }

    pub(crate) fn failure(&self) -> Option<Arc<Failure>> {
        self.failure.get().cloned()
    }

    /// An id that no file had before.
    pub(crate) fn next_file_id(&self) -> std::io::Result<FileId> {
        let next = |id: u32| id.checked_add(1);
        match self.file_ids.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(last) => Ok(FileId(last + 1)),
            Err(_) => Err(std::io::Error::other("all file ids were used")),
        }
    }

    /// Gives places to frames and queues them. `placed` is called with frames that have got their places, before the
    /// writer sees them; more than once if they do not fit into one file.
    ///
    /// # Errors
    /// `done` is given back with the reason; it was not called. Frames that had their places already are written, as if
    /// the process had ended before it could answer: a place must not stay empty.
    pub(crate) fn submit(
        &self,
        frames: Vec<Outgoing>,
        sync: bool,
        done: Option<Completion>,
        mut placed: impl FnMut(&[Outgoing]),
    ) -> Result<(), (AppendError, Option<Completion>)> {
        let mut head = self.head.lock();
        let mut ready = Vec::with_capacity(frames.len());
        for mut frame in frames {
            if !head.fits(frame.bytes()) {
                // The lock is released while a file is prepared, and the queue has to be in the order of places.
                let before = std::mem::take(&mut ready);
                placed(&before);
                self.push(&mut head, before, sync, None);
                match self.make_room(&mut head, frame.bytes()) {
                    Ok(start) => ready.extend(start),
                    Err(error) => return Err((error, done)),
                }
            }
            head.place(&mut frame);
            ready.push(frame);
        }
        if let Err(error) = self.check(&head) {
            // Nothing is written any more, so the places do not matter.
            return Err((error, done));
        }
        placed(&ready);
        self.push(&mut head, ready, sync, done);
        Ok(())
    }

    fn push(&self, head: &mut Head, frames: Vec<Outgoing>, sync: bool, done: Option<Completion>) {
        if frames.is_empty() && done.is_none() {
            return;
        }
        head.push(Batch { frames, sync, done });
        if head.take_idle() {
            self.work.notify_one();
        }
    }

    fn check(&self, head: &Head) -> Result<(), AppendError> {
        if let Some(failure) = self.failure.get() {
            return Err(AppendError::Failed(Arc::clone(failure)));
        }
        if head.is_closed() {
            Err(AppendError::Closed)
        } else {
            Ok(())
        }
    }

    /// Goes on to the next file unless a frame of `bytes` fits into this one, and returns its first frame. Waits while
    /// the file is being prepared.
    fn make_room(&self, head: &mut MutexGuard<'_, Head>, bytes: u64) -> Result<Option<Outgoing>, AppendError> {
        loop {
            self.check(head)?;
            if head.fits(bytes) {
                return Ok(None);
            }
            let needed = bytes + head.start_bytes();
            if head.next_fits(needed) {
                self.chores.notify_one();
                return Ok(head.roll());
            }
            if self.full.load(Ordering::Relaxed) {
                return Err(AppendError::OutOfSpace { bytes });
            }
            head.want(needed);
            self.chores.notify_one();
            self.prepared.wait(head);
        }
    }

    /// The highest id that a file has had.
    pub(crate) fn last_file_id(&self) -> u64 {
        u64::from(self.file_ids.load(Ordering::Relaxed))
    }

    /// The first file that has to stay. Votes and purges of all groups are in the first frame of every file, but as long as
    /// that of the newest file is not on the device, they are in the one before it.
    pub(crate) fn replay_from(&self) -> FileId {
        let durable = FileId(self.durable_file.load(Ordering::Acquire));
        self.head.lock().replay_from(durable)
    }

    /// Everything up to `file` and its first frame is on the device.
    fn set_durable_file(&self, file: FileId) {
        if self.durable_file.swap(file.0, Ordering::AcqRel) != file.0 {
            self.tidy();
        }
    }

    /// Has the keeper look for files that nothing needs.
    pub(crate) fn tidy(&self) {
        self.head.lock().tidy = true;
        self.chores.notify_one();
    }

    /// No more appends; what is queued is written and synced.
    pub(crate) fn close(&self) {
        self.head.lock().close();
        self.work.notify_all();
        self.prepared.notify_all();
        self.chores.notify_all();
    }

    /// A write or sync failed. Everything that waits fails, and everything that comes.
    fn fail(&self, failure: Failure, batches: Vec<Batch>) {
        tracing::error!(%failure, "the write-ahead log stops");
        let failure = Arc::clone(self.failure.get_or_init(|| Arc::new(failure)));
        let waiting = self.head.lock().take_batches();
        self.prepared.notify_all();
        self.chores.notify_all();
        for batch in batches.into_iter().chain(waiting) {
            if let Some(done) = batch.done {
                done(Err(AppendError::Failed(Arc::clone(&failure))));
            }
        }
    }
}
