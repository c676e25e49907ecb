//! Moments that tasks wait for: when something is due or a lease ends, and when a message expires.

use std::sync::atomic::{AtomicU64, Ordering};

use boltq_core::Millis;
use boltq_queue::{Claim, Place};
use tokio::sync::Notify;

use super::QueuePlane;
use super::waking::Woken;

/// Tells a task that waits for a moment when an earlier one has come up. Used under the lock of the plane.
#[derive(Debug)]
pub(super) struct Timer {
    armed: AtomicU64,
    earlier: Notify,
}

impl Default for Timer {
    fn default() -> Self {
        Self {
            armed: AtomicU64::new(u64::MAX),
            earlier: Notify::new(),
        }
    }
}

impl Timer {
    /// The task is about to wait for this moment.
    fn arm(&self, next: Option<Millis>) {
        self.armed.store(next.unwrap_or(Millis::MAX).0, Ordering::Relaxed);
    }

    pub(super) fn want(&self, at: Millis) {
        if at.0 < self.armed.load(Ordering::Relaxed) {
            self.armed.store(at.0, Ordering::Relaxed);
            self.earlier.notify_one();
        }
    }
}

impl QueuePlane {
    /// Lets time pass: what is due becomes ready, leases that ended are claimed. Returns the next moment, for which the
    /// timer is armed then. For the timer task alone.
    pub fn tick(&self, now: Millis, timed_out: &mut Vec<Claim>, max: usize) -> Option<Millis> {
        let mut woken = Woken::default();
        let mut plane = self.plane.lock();
        if plane.is_leading() {
            plane.tick(now, timed_out, max);
            woken = Woken::take(&mut plane);
        }
        let next = plane.next_tick();
        self.timer.arm(next);
        drop(plane);
        self.wake_all(woken);
        next
    }

    /// Returns when something is due earlier than what the last [`QueuePlane::tick`] returned.
    pub async fn earlier(&self) {
        self.timer.earlier.notified().await;
    }

    /// Claims messages whose time to live is over, `max` at most. Returns when the next one expires, for which the task that expires
    /// them is armed then; for that task alone.
    pub fn claim_expired(&self, now: Millis, max: usize, expired: &mut Vec<Place>) -> Option<Millis> {
        let mut plane = self.plane.lock();
        plane.claim_expired(now, max, expired);
        let next = plane.next_expiry();
        self.expiry.arm(next);
        next
    }

    /// Returns when something expires earlier than what the last [`QueuePlane::claim_expired`] returned.
    pub async fn expires_earlier(&self) {
        self.expiry.earlier.notified().await;
    }
}
