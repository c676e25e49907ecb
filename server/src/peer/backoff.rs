//! How long to leave a peer alone that could not be reached.

use std::time::Duration;

use super::config::{BACKOFF_MAX, BACKOFF_MIN};
use crate::service::random;

/// Doubles with each failure of a row; the jitter takes away up to half.
pub(super) fn after(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let longest = BACKOFF_MIN.saturating_mul(1 << doublings).min(BACKOFF_MAX);
    let permille = u32::try_from(random() % 500).unwrap_or(0);
    longest - longest * permille / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_its_longest_and_is_spread() {
        for (failures, longest_ms) in [(1, 50), (2, 100), (3, 200), (6, 1_600), (7, 2_000), (u32::MAX, 2_000)] {
            let longest = Duration::from_millis(longest_ms);
            let drawn: Vec<_> = (0..100).map(|_| after(failures)).collect();
            assert!(
                drawn.iter().all(|wait| *wait <= longest && *wait > longest / 2),
                "{failures}"
            );
            assert!(drawn.iter().any(|wait| *wait != drawn[0]), "no jitter");
        }
    }
}
