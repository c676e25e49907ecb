//! How failed messages are tried again.

use boltq_core::Millis;

/// Settings of the dispatch. They concern what a leader proposes, never what a command means, so that nodes may differ
/// in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Attempts after the first one; a message that fails more often is a dead letter.
    pub max_retry: u32,
    /// Wait after the first failed attempt, in ms; it doubles with each further one. 0: no wait.
    pub backoff_first_ms: u64,
    /// Longest wait, in ms.
    pub backoff_max_ms: u64,
    /// Length of a lease for which the consumer asks no other, in ms. For those who call [`crate::Plane::lease`].
    pub ack_timeout_ms: u64,
    /// How long the key of a publish is remembered, in ms.
    pub dedup_ttl_ms: u64,
    /// Keys that are remembered at most; publishes with one more are refused.
    pub dedup_keys_max: usize,
}

impl Settings {
    /// When a message may be delivered again after its `attempts`th failure. `jitter` are random bits: they shorten the
    /// wait by up to a fifth, so that messages that failed together do not come back together.
    #[must_use]
    pub fn not_before(&self, attempts: u32, now: Millis, jitter: u64) -> Millis {
        let doubled = 1u64.checked_shl(attempts.saturating_sub(1)).unwrap_or(u64::MAX);
        let wait = self.backoff_first_ms.saturating_mul(doubled).min(self.backoff_max_ms);
        now.plus(wait - jitter % (wait / 5 + 1))
    }

    /// Whether a message that failed `attempts` times is a dead letter.
    #[must_use]
    pub fn exhausted(&self, attempts: u32) -> bool {
        attempts > self.max_retry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        max_retry: 5,
        backoff_first_ms: 100,
        backoff_max_ms: 30_000,
        ack_timeout_ms: 30_000,
        dedup_ttl_ms: 600_000,
        dedup_keys_max: 100,
    };

    #[test]
    fn the_wait_doubles_up_to_its_maximum() {
        let waits: Vec<_> = [1, 2, 3, 9, 10, 64, 65, u32::MAX]
            .into_iter()
            .map(|attempts| SETTINGS.not_before(attempts, Millis(1_000), 0).0 - 1_000)
            .collect();
        assert_eq!(waits, [100, 200, 400, 25_600, 30_000, 30_000, 30_000, 30_000]);
    }

    #[test]
    fn jitter_shortens_by_a_fifth_at_most() {
        for jitter in (0..1_000).chain([u64::MAX]) {
            let wait = SETTINGS.not_before(1, Millis(0), jitter).0;
            assert!((80..=100).contains(&wait), "{wait}");
        }
    }

    #[test]
    fn zero_switches_the_wait_off_and_time_does_not_overflow() {
        let off = Settings {
            backoff_first_ms: 0,
            ..SETTINGS
        };
        assert_eq!(off.not_before(7, Millis(5), u64::MAX), Millis(5));
        assert_eq!(SETTINGS.not_before(7, Millis(u64::MAX - 1), 0), Millis::MAX);
    }

    #[test]
    fn a_message_is_delivered_once_more_than_it_is_retried() {
        assert!(!SETTINGS.exhausted(5));
        assert!(SETTINGS.exhausted(6));
        let none = Settings {
            max_retry: 0,
            ..SETTINGS
        };
        assert!(none.exhausted(1));
    }
}
