//! Time since the log was opened.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Runs by itself, or stands where it was put.
pub(crate) enum Clock {
    Running(Instant),
    Stepped(AtomicU64),
}

impl Clock {
    pub(crate) fn running() -> Self {
        Self::Running(Instant::now())
    }

    pub(crate) fn stepped() -> Self {
        Self::Stepped(AtomicU64::new(0))
    }

    pub(crate) fn now(&self) -> Duration {
        match self {
            Self::Running(start) => start.elapsed(),
            Self::Stepped(nanos) => Duration::from_nanos(nanos.load(Ordering::Relaxed)),
        }
    }

    /// Puts a clock forward that does not run by itself.
    pub(crate) fn set(&self, now: Duration) {
        if let Self::Stepped(nanos) = self {
            nanos.fetch_max(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }
}
