//! The write-ahead log, shared by all groups of a plane.
//!
//! An append gets its place under a short lock and is done with; one thread writes what has gathered at the places that
//! were given, syncs once for all of it, and completes the appends in order. A second thread prepares the next file and
//! removes or recycles those that nothing needs. In a log that takes steps ([`crate::Steps`]), whoever takes the step does
//! what these threads do, and an append that needs the next file prepares it itself.
//!
//! Always true:
//! - a file has its room on the device (zero-filled, recycled, or reserved while files fill quickly), is synced, and is
//!   known by its name on the device before the first place in it is given; so a full device cannot stop what has a place;
//! - places are given without holes, in the order of the queue;
//! - every file starts with a [`payload::Start`] frame, which names the file before and where that ends;
//! - a file that is prepared starts with a frame that names one that is in use, and on the device: under
//!   [`SyncPolicy::Always`] the current one. So the newest file cannot be lost without a trace.

mod head;
mod keeper;
mod outgoing;
pub(crate) mod payload;
mod reserve;
mod room;
mod stall;
mod writer;

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use boltq_core::histogram::{Histogram, LATENCY};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::clock::Clock;
use crate::config::SyncPolicy;
use crate::error::{AppendError, Failure};
use crate::frame::Mark;
use crate::steps::OnWork;
use crate::store::DiskFrames;
use crate::types::{FileId, Space};

pub(crate) use head::{Head, Prepared, start_bytes};
pub(crate) use keeper::Keeper;
pub(crate) use outgoing::Outgoing;
pub(crate) use payload::{ENTRY_PREFIX_BYTES, INDEX_MAX, VOTE_BYTES_MAX};
pub(crate) use reserve::{RESERVE_NAME, Reserve};
pub(crate) use room::{is_out_of_room, reserve_room};
use stall::Since;
use writer::Writer;

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

impl Batch {
    /// Whether there is the first frame of a file in it.
    fn opens(&self) -> bool {
        self.frames.iter().any(|frame| frame.opens.is_some())
    }
}

/// What appenders, the writer and the keeper share. The lock of the head is taken after those of writer and keeper.
pub(crate) struct Wal {
    /// Who takes turns: for good the threads, if there are any.
    writer: Mutex<Writer>,
    keeper: Mutex<Keeper>,
    head: Mutex<Head>,
    /// The writer waits for something to write.
    work: Condvar,
    /// Appenders wait for the next file.
    prepared: Condvar,
    /// The keeper waits for something to do.
    chores: Condvar,
    full: AtomicBool,
    /// A round is being written.
    writing: Since,
    /// Appends wait for the next file.
    waiting: Since,
    failure: OnceLock<Arc<Failure>>,
    pub(crate) reserve: Reserve,
    file_ids: AtomicU32,
    /// The newest file whose first frame is on the device.
    durable_file: AtomicU32,
    pub(crate) policy: SyncPolicy,
    pub(crate) frames: Arc<DiskFrames>,
    pub(crate) clock: Clock,
    /// How long the device took to sync.
    pub(crate) syncs: Histogram,
    /// There are no threads, and this is told that there is work.
    on_work: Option<OnWork>,
}

impl Wal {
    /// `durable` is where the log ended that was read, `last_file_id` the file to go on in.
    pub(crate) fn new(
        head: Head,
        durable: Mark,
        last_file_id: FileId,
        policy: SyncPolicy,
        frames: Arc<DiskFrames>,
        keeper: Keeper,
        on_work: Option<OnWork>,
    ) -> Self {
        let reserve = keeper.reserve();
        let clock = if on_work.is_some() {
            Clock::stepped()
        } else {
            Clock::running()
        };
        Self {
            writer: Mutex::new(Writer::new(durable)),
            keeper: Mutex::new(keeper),
            head: Mutex::new(head),
            work: Condvar::new(),
            prepared: Condvar::new(),
            chores: Condvar::new(),
            full: AtomicBool::new(false),
            writing: Since::default(),
            waiting: Since::default(),
            failure: OnceLock::new(),
            reserve,
            file_ids: AtomicU32::new(last_file_id.0),
            durable_file: AtomicU32::new(durable.file_id().0),
            policy,
            frames,
            clock,
            syncs: Histogram::new(&LATENCY),
            on_work,
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

    /// How long what was to be written first has not been done with: by the device, if it is long.
    pub(crate) fn stalled(&self) -> Duration {
        let now = self.clock.now();
        self.writing.elapsed(now).max(self.waiting.elapsed(now))
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
        match &self.on_work {
            Some(on_work) => on_work(),
            None if head.take_idle() => {
                self.work.notify_one();
            }
            None => {}
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
    /// the file is being prepared, or does that.
    fn make_room(&self, head: &mut MutexGuard<'_, Head>, bytes: u64) -> Result<Option<Outgoing>, AppendError> {
        let mut refused = false;
        loop {
            self.check(head)?;
            if head.fits(bytes) {
                return Ok(None);
            }
            let needed = bytes + head.start_bytes();
            if head.next_fits(needed) {
                self.wake_keeper();
                return Ok(head.roll());
            }
            if self.full.load(Ordering::Relaxed) || refused {
                return Err(AppendError::OutOfSpace { bytes });
            }
            head.want(needed);
            if self.on_work.is_none() {
                self.wake_keeper();
                self.waiting.begin(self.clock.now());
                self.prepared.wait(head);
                continue;
            }
            MutexGuard::unlocked(head, || {
                let mut keeper = self.keeper.lock();
                let bytes = keeper.wanted_bytes(&self.head());
                // There is nobody to wait for.
                refused = !keeper.try_prepare(self, bytes);
            });
        }
    }

    fn wake_keeper(&self) {
        match &self.on_work {
            Some(on_work) => on_work(),
            None => {
                self.chores.notify_one();
            }
        }
    }

    /// The highest id that a file has had.
    pub(crate) fn last_file_id(&self) -> u64 {
        u64::from(self.last_file().0)
    }

    pub(crate) fn last_file(&self) -> FileId {
        FileId(self.file_ids.load(Ordering::Relaxed))
    }

    /// The first file that has to stay. Votes and purges of all groups are in the first frame of every file, but as long as
    /// that of the newest file is not on the device, they are in the one before it.
    pub(crate) fn replay_from(&self) -> FileId {
        let durable = self.durable_file();
        self.head.lock().replay_from(durable)
    }

    /// The newest file whose first frame is on the device.
    fn durable_file(&self) -> FileId {
        FileId(self.durable_file.load(Ordering::Acquire))
    }

    /// Whether the next file waits until the current one is known to be in use. Not where syncs may be rare, or where they
    /// come when somebody says so.
    fn prepares_in_order(&self) -> bool {
        self.policy == SyncPolicy::Always && self.on_work.is_none()
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
        self.wake_keeper();
    }

    /// Writes until the log is closed or a write fails; for a thread of its own.
    pub(crate) fn run_writer(&self) {
        self.writer.lock().run(self);
    }

    /// Keeps files until the log is closed; for a thread of its own. `tidied` is called when files went or could go.
    pub(crate) fn run_keeper(&self, tidied: impl Fn()) {
        self.keeper.lock().run(self, tidied);
    }

    /// What the threads do, once; returns whether there was something to do.
    pub(crate) fn turn(&self, tidied: impl Fn()) -> bool {
        let wrote = self.writer.lock().turn(self);
        let kept = self.keeper.lock().turn(self, tidied);
        self.writing.end();
        wrote || kept
    }

    /// Without threads, counts from now on how long the next turn takes.
    pub(crate) fn begin_turn(&self) {
        self.writing.begin(self.clock.now());
    }

    /// Whether a turn finds something to do.
    pub(crate) fn is_ready(&self) -> bool {
        let now = self.clock.now();
        let writes = self.writer.lock().is_ready(self, &self.head(), now);
        writes || self.keeper.lock().is_ready(self)
    }

    /// When there is something to do, if nothing comes.
    pub(crate) fn due(&self) -> Option<Duration> {
        let sync = self.writer.lock().due(self);
        let retry = self.keeper.lock().retry_due(self, &self.head());
        sync.into_iter()
            .chain(retry)
            .min()
            .filter(|_| self.check(&self.head()).is_ok())
    }

    /// Without threads, writes what waits, so that the caller can wait for it.
    pub(crate) fn write_if_stepped(&self) {
        if self.on_work.is_some() {
            let mut writer = self.writer.lock();
            while writer.turn(self) {}
        }
    }

    /// No more appends; what is queued is written and synced, by the threads if there are any.
    pub(crate) fn close(&self) {
        self.head.lock().close();
        self.work.notify_all();
        self.prepared.notify_all();
        self.chores.notify_all();
        if self.on_work.is_some() {
            self.writer.lock().finish(self);
        }
    }

    /// Without threads, ends as a process does that is killed: what is queued is not written. Returns whether that is so.
    pub(crate) fn abandon_if_stepped(&self) -> bool {
        if self.on_work.is_none() {
            return false;
        }
        let mut head = self.head();
        head.close();
        let batches = head.take_batches();
        drop(head);
        drop(batches);
        true
    }

    /// What is on the device is unknown, and so nothing is written any more. Returns why: the first to come is the reason.
    pub(crate) fn stop(&self, failure: Failure) -> Arc<Failure> {
        self.fail(failure, Vec::new())
    }

    /// A write or sync failed. Everything that waits fails, and everything that comes.
    fn fail(&self, failure: Failure, batches: Vec<Batch>) -> Arc<Failure> {
        tracing::error!(%failure, "the write-ahead log stops");
        let failure = Arc::clone(self.failure.get_or_init(|| Arc::new(failure)));
        let waiting = self.head.lock().take_batches();
        self.work.notify_all();
        self.prepared.notify_all();
        self.chores.notify_all();
        for batch in batches.into_iter().chain(waiting) {
            if let Some(done) = batch.done {
                done(Err(AppendError::Failed(Arc::clone(&failure))));
            }
        }
        failure
    }
}
