//! The windows of HTTP/2 connections: what a client may send although nobody reads it.
//!
//! A handler that is held back (its client does not read the answers, or the disk is slow) does not read its stream, and
//! what the client sends lies in the connection until the window is full. Full windows for everybody would be the number
//! of connections times 16 MiB. So a connection gets a sixteenth of what is left of the pool when it begins: the first
//! dozens have large windows, and a crowd has windows that are as small as HTTP/2 allows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::budget::Intake;

/// For several streams at a time.
const WINDOW_BYTES_MAX: u32 = 16 << 20;
/// What HTTP/2 begins with, and cannot go below.
const WINDOW_BYTES_MIN: u32 = 65_535;
/// How many more connections of the same kind are reckoned with.
const SHARES: usize = 16;

#[derive(Debug)]
pub(super) struct Windows {
    bytes_max: usize,
    /// May be above: nobody gets less than the minimum.
    granted: AtomicUsize,
}

/// Gives its bytes back when it is dropped.
#[derive(Debug)]
pub(in crate::doors) struct Window {
    intake: Arc<Intake>,
    bytes: u32,
}

impl Windows {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            granted: AtomicUsize::new(0),
        }
    }
}

impl Intake {
    /// For a new connection.
    pub(in crate::doors) fn window(self: &Arc<Self>) -> Window {
        // Two that ask at once may both get a share of the same rest, which is still bounded.
        let left = self
            .windows
            .bytes_max
            .saturating_sub(self.windows.granted.load(Ordering::Relaxed));
        let share = u32::try_from(left / SHARES).unwrap_or(u32::MAX);
        let bytes = share.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        self.windows.granted.fetch_add(bytes as usize, Ordering::Relaxed);
        Window {
            intake: self.clone(),
            bytes,
        }
    }
}

impl Window {
    pub(in crate::doors) fn bytes(&self) -> u32 {
        self.bytes
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.intake
            .windows
            .granted
            .fetch_sub(self.bytes as usize, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::budget::tests::intake;
    use super::*;

    #[test]
    fn a_crowd_gets_small_windows_and_leaves_large_ones_behind() {
        let intake = intake(256 << 20, 16 << 20, Duration::from_secs(30));
        let windows: Vec<_> = (0..10_000).map(|_| intake.window()).collect();
        assert_eq!(windows[0].bytes(), WINDOW_BYTES_MAX);
        assert!(windows[40].bytes() > 1 << 20, "{}", windows[40].bytes());
        assert_eq!(windows[9_999].bytes(), WINDOW_BYTES_MIN);
        let sum: usize = windows.iter().map(|window| window.bytes() as usize).sum();
        assert!(sum <= (256 << 20) + 10_000 * WINDOW_BYTES_MIN as usize);
        drop(windows);
        assert_eq!(intake.window().bytes(), WINDOW_BYTES_MAX);
    }
}
