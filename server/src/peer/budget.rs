//! What may be outstanding on one connection, so that a peer that does not answer does not make memory grow.
//!
//! One target (a group, a service) may use half of it: a group that hangs leaves room for the heartbeats of the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Where a request goes on the other node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Group(u32),
    Service(u32),
}

#[derive(Debug, Clone, Copy, Default)]
struct Used {
    requests: usize,
    bytes: usize,
}

impl Used {
    fn fits(self, bytes: usize, max: Used) -> bool {
        self.requests < max.requests && self.bytes.saturating_add(bytes) <= max.bytes
    }
}

/// Room for requests and their bytes.
#[derive(Debug)]
pub(super) struct Budget {
    max: Used,
    used: Mutex<(Used, BTreeMap<Target, Used>)>,
}

impl Budget {
    pub(super) fn new(requests_max: usize, bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            max: Used {
                requests: requests_max,
                bytes: bytes_max,
            },
            used: Mutex::default(),
        })
    }

    /// Room for one request, until the answer drops it.
    pub(super) fn take(self: &Arc<Self>, target: Target, bytes: usize) -> Option<Room> {
        let mut used = self.used.lock();
        let (all, by_target) = &mut *used;
        let own = by_target.entry(target).or_default();
        let half = Used {
            requests: self.max.requests / 2,
            bytes: self.max.bytes / 2,
        };
        if !(all.fits(bytes, self.max) && own.fits(bytes, half)) {
            if own.requests == 0 {
                by_target.remove(&target);
            }
            return None;
        }
        for used in [all, own] {
            used.requests += 1;
            used.bytes += bytes;
        }
        Some(Room {
            budget: self.clone(),
            target,
            bytes,
        })
    }
}

/// A part of a budget that is in use while this lives.
#[derive(Debug)]
pub(super) struct Room {
    budget: Arc<Budget>,
    target: Target,
    bytes: usize,
}

impl Room {
    /// Adds the bytes of the answer, if there is room for them in the whole.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let mut used = self.budget.used.lock();
        let (all, by_target) = &mut *used;
        if all.bytes.saturating_add(bytes) > self.budget.max.bytes {
            return false;
        }
        all.bytes += bytes;
        if let Some(own) = by_target.get_mut(&self.target) {
            own.bytes += bytes;
        }
        self.bytes += bytes;
        true
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut used = self.budget.used.lock();
        let (all, by_target) = &mut *used;
        all.requests -= 1;
        all.bytes -= self.bytes;
        if let Some(own) = by_target.get_mut(&self.target) {
            own.requests -= 1;
            own.bytes -= self.bytes;
            if own.requests == 0 {
                by_target.remove(&self.target);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_target_gets_half_and_everything_comes_back() {
        let budget = Budget::new(4, 100);
        let (one, two) = (Target::Group(1), Target::Service(1));
        let first = budget.take(one, 10).unwrap();
        let second = budget.take(one, 40).unwrap();
        assert!(budget.take(one, 0).is_none(), "half of the requests are used");
        drop(second);
        assert!(budget.take(one, 41).is_none(), "more than half of the bytes");
        let mut other = budget.take(two, 50).unwrap();
        assert!(other.grow(40));
        assert!(!other.grow(1), "all bytes are used");
        drop((first, other));
        let used = budget.used.lock();
        assert_eq!((used.0.requests, used.0.bytes, used.1.len()), (0, 0, 0));
    }
}
