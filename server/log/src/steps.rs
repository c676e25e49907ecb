//! A log without threads: what they do is done when it is asked for, so that a simulation can decide when.
//!
//! Between an append and the step that writes it, anything can happen. Equal calls make equal files, byte for byte: nothing
//! asks for the time or for chance, and everything is done in a fixed order on the thread of the caller.
//!
//! Threads and steps share their code: a thread takes one turn after the other, and a step takes one turn of each.

use std::sync::Arc;
use std::time::Duration;

use crate::log::{Disk, Plane, Store};

/// Called when there may be work for [`Steps::step`], from within calls of the log: it may take note, but not call the log.
pub type OnWork = Arc<dyn Fn() + Send + Sync>;

/// Takes the steps of a log that was opened with [`crate::Log::open_stepped`]. In memory mode, there are none to take.
///
/// The log ends with its last handle, and then as if the process was killed: nothing more is written, what waits is not
/// completed, and steps do nothing. Only [`crate::Log::close`] writes and syncs what waits.
pub struct Steps {
    plane: Arc<Plane>,
}

impl Steps {
    pub(crate) fn new(plane: &Arc<Plane>) -> Self {
        Self {
            plane: Arc::clone(plane),
        }
    }

    fn disk(&self) -> Option<&Disk> {
        match &self.plane.store {
            Store::Memory(_) => None,
            Store::Disk(disk) => Some(disk),
        }
    }

    /// Whether a step finds something to do now.
    pub fn ready(&self) -> bool {
        self.disk()
            .is_some_and(|disk| disk.wal.is_ready() || disk.compaction.is_ready(disk))
    }

    /// When there will be something to do even if nothing comes: a sync of [`crate::SyncPolicy::Interval`], or an attempt to
    /// repeat. May lie in the past.
    pub fn due(&self) -> Option<Duration> {
        let disk = self.disk()?;
        disk.wal.due().into_iter().chain(disk.compaction.due()).min()
    }

    /// Puts the clock of the log forward, to a time since it was opened. It stands still otherwise.
    pub fn set_time(&self, since_open: Duration) {
        if let Some(disk) = self.disk() {
            disk.wal.clock.set(since_open);
        }
    }

    /// The device has been given what a step would write, and takes its time: until the next step the log counts how long,
    /// see [`crate::GroupLog::stalled`].
    pub fn begin(&self) {
        if let Some(disk) = self.disk() {
            disk.wal.begin_turn();
        }
    }

    /// Does once what the threads of a log do one after the other: writes what waits, syncs it if the policy says so, and
    /// completes it; tidies up and prepares the next file; rewrites some files if that is worth it. Returns whether there
    /// was something to do; there may be more, and what was done may have made it.
    pub fn step(&self) -> bool {
        let Some(disk) = self.disk() else {
            return false;
        };
        let moved = disk.wal.turn(|| disk.compaction.ask());
        let compacted = disk.compaction.turn(&self.plane, disk);
        moved || compacted
    }
}
