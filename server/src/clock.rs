//! The clock of the node: the one place that asks for the time of day.

use std::time::{SystemTime, UNIX_EPOCH};

use boltq_core::Millis;

/// A moment, taken once for a request and used for all its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant {
    unix_ns: u64,
}

impl Instant {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            unix_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Unix time in nanoseconds.
    #[must_use]
    pub fn unix_ns(self) -> u64 {
        self.unix_ns
    }

    /// Unix time in milliseconds, as the state machines count.
    #[must_use]
    pub fn millis(self) -> Millis {
        Millis(self.unix_ns / 1_000_000)
    }
}

/// Now, as the state machines count.
#[must_use]
pub fn now() -> Millis {
    Instant::now().millis()
}
