//! How long to wait between two attempts, and other things that need chance.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Of the first wait.
const FIRST_MAX: Duration = Duration::from_millis(50);
/// Of any wait but those that the server asks for.
const MAX: Duration = Duration::from_secs(2);

/// A number that nobody can foresee well enough to matter. Every `RandomState` has keys of its own, from the system at first.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// Exponential backoff with full jitter: clients that failed together do not come back together.
#[derive(Debug)]
pub(crate) struct Backoff {
    limit: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { limit: FIRST_MAX }
    }

    /// The next wait, not less than what the server asked for.
    pub(crate) fn next(&mut self, at_least: Option<Duration>) -> Duration {
        let limit = self.limit;
        self.limit = (limit * 2).min(MAX);
        // 32 bits are enough to choose among so few milliseconds.
        #[allow(clippy::cast_precision_loss)]
        let fraction = (random() >> 32) as f64 / f64::from(u32::MAX);
        let least = at_least.unwrap_or_default();
        // Whoever was told the same time is spread over as much again as it would have waited.
        least + limit.mul_f64(fraction.min(1.0))
    }

    /// After a success.
    pub(crate) fn reset(&mut self) {
        self.limit = FIRST_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_spread_below_a_limit_that_doubles() {
        let mut backoff = Backoff::new();
        let mut limit = FIRST_MAX;
        for _ in 0..20 {
            assert!(backoff.next(None) <= limit);
            limit = (limit * 2).min(MAX);
        }
        let waits: std::collections::HashSet<Duration> = (0..50).map(|_| backoff.next(None)).collect();
        assert!(waits.len() > 25, "{waits:?}");
        let asked = Duration::from_millis(700);
        let waited = backoff.next(Some(asked));
        assert!(waited >= asked && waited <= asked + MAX);
        backoff.reset();
        assert!(backoff.next(None) <= FIRST_MAX);
    }
}
