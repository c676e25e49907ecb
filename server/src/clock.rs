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

    /// The moment so many nanoseconds after the beginning of Unix time.
    #[must_use]
    pub fn from_unix_ns(unix_ns: u64) -> Self {
        Self { unix_ns }
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

/// Where the queue plane has time and chance from. A simulation gives each node a clock of its own.
#[derive(Debug, Clone, Copy)]
pub struct Sources {
    /// The time of day.
    pub clock: fn() -> Instant,
    /// Random bits for what must differ, not for what must not be guessed.
    pub random: fn() -> u64,
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            clock: Instant::now,
            random,
        }
    }
}

/// The standard library seeds its hashers from the operating system.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}
