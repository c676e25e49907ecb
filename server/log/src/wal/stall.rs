//! How long the device has not answered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Since when something has been under way.
#[derive(Default)]
pub(crate) struct Since(AtomicU64);

impl Since {
    /// It begins now, unless it is under way.
    pub(crate) fn begin(&self, now: Duration) {
        // Zero is for "not under way".
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX).max(1);
        let _ = self.0.compare_exchange(0, nanos, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// How long it has been under way at `now`; zero if it is not.
    pub(crate) fn elapsed(&self, now: Duration) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            nanos => now.saturating_sub(Duration::from_nanos(nanos)),
        }
    }
}
