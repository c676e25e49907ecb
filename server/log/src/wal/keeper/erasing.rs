//! What erasing asks of the write-ahead log: see [`crate::erasing`].

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Keeper;
use crate::error::Failure;
use crate::types::FileId;
use crate::wal::{Head, Wal};

/// At most this often does the log go on in a new file only because something was erased: what is erased meanwhile goes together.
const ERASE_EVERY: Duration = Duration::from_secs(10);

impl Wal {
    /// All files that there are now are to go, and none of them is recycled; returns the last of them. The bytes of
    /// what is erased from here on are in no other.
    pub(crate) fn begin_erasure(&self) -> FileId {
        let mut head = self.head();
        // Under the lock that the keeper holds while it takes an id and looks what it may recycle.
        let upto = self.last_file();
        head.erase(upto);
        head.tidy = true;
        drop(head);
        self.wake_keeper();
        upto
    }
}

impl Keeper {
    /// If something was erased, has the names go for good that were removed. (A file that waits to be recycled goes when the
    /// next one is prepared, as the log then goes on in another.)
    pub(super) fn settle_names(&mut self, wal: &Wal, erase_upto: FileId) {
        if erase_upto > FileId::NONE
            && !self.removed.is_empty()
            && let Err(source) = self.sync_names()
        {
            wal.stop(Failure {
                operation: "sync",
                path: self.dir.clone(),
                source,
            });
        }
    }

    /// Has the log go on in the next file, so that what is erased can go with this one.
    pub(super) fn go_on(&mut self, wal: &Wal) {
        let mut head = wal.head();
        if head.file() > self.erased {
            self.erased = head.erase_upto();
            self.erase_at = wal.clock.now() + ERASE_EVERY;
        }
        let start = head.roll();
        wal.push(&mut head, start.into_iter().collect(), true, None);
    }

    /// When the log is to go on in the next file because something was erased.
    pub(super) fn roll_due(&self, wal: &Wal, head: &Head) -> Option<Duration> {
        // What room there is on a full device is for entries that free some.
        let can = head.has_next() && !wal.full.load(Ordering::Relaxed);
        if !can || !head.holds_erased(wal.durable_file()) {
            return None;
        }
        let under_way = head.file() <= self.erased || self.erased == head.erase_upto();
        Some(if under_way { Duration::ZERO } else { self.erase_at })
    }
}
