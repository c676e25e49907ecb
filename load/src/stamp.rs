//! When a message was due, written into its payload.
//!
//! The first 16 bytes of a payload: 8 that name the load, and the nanoseconds since it began, both big-endian. A payload that is
//! shorter has no stamp. The name keeps messages that were in the queue before out of the figures.

use std::time::Instant;

/// Bytes of a stamp.
pub const STAMP_BYTES: usize = 16;

/// An instant of one load; by default of none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    load: u64,
    /// Nanoseconds since the load began.
    at_ns: u64,
}

impl Stamp {
    /// The stamp as it stands at the start of a payload.
    pub fn to_bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[..8].copy_from_slice(&self.load.to_be_bytes());
        bytes[8..].copy_from_slice(&self.at_ns.to_be_bytes());
        bytes
    }
}

/// The clock of one load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    load: u64,
    start: Instant,
}

impl Clock {
    /// Starts now.
    pub(crate) fn start() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self {
            // Seeded by the system, and different in each process: a name needs no more.
            load: RandomState::new().hash_one("boltq-load"),
            start: Instant::now(),
        }
    }

    pub(crate) fn stamp(&self, at: Instant) -> Stamp {
        Stamp {
            load: self.load,
            at_ns: nanos_between(self.start, at),
        }
    }

    /// Nanoseconds from the stamp of a payload until `now`; `None` if it has none of this load.
    pub(crate) fn waited_ns(&self, payload: &[u8], now: Instant) -> Option<u64> {
        let (load, rest) = payload.split_first_chunk::<8>()?;
        let (at_ns, _) = rest.split_first_chunk::<8>()?;
        (u64::from_be_bytes(*load) == self.load)
            .then(|| nanos_between(self.start, now).saturating_sub(u64::from_be_bytes(*at_ns)))
    }
}

/// 0 if `later` is not later.
pub(crate) fn nanos_between(earlier: Instant, later: Instant) -> u64 {
    u64::try_from(later.saturating_duration_since(earlier).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_stamp_says_how_long_ago_it_was_due() {
        let clock = Clock::start();
        let due = clock.start + Duration::from_millis(3);
        let mut payload = clock.stamp(due).to_bytes().to_vec();
        payload.push(b'x');
        assert_eq!(clock.waited_ns(&payload, due + Duration::from_micros(7)), Some(7_000));
        assert_eq!(clock.waited_ns(&payload, clock.start), Some(0));
    }

    #[test]
    fn what_this_load_did_not_write_is_no_stamp() {
        let (mine, other) = (
            Clock::start(),
            Clock {
                load: 0,
                start: Instant::now(),
            },
        );
        let now = Instant::now();
        assert_eq!(mine.waited_ns(&other.stamp(now).to_bytes(), now), None);
        assert_eq!(mine.waited_ns(&mine.stamp(now).to_bytes()[..15], now), None);
        assert_eq!(mine.waited_ns(b"", now), None);
    }
}
