//! Bounds of what requests may ask for, which are the same on every door.

use std::time::Duration;

/// Of the leases of a call.
pub(super) const LEASE_MIN: Duration = Duration::from_secs(1);
pub(super) const LEASE_MAX: Duration = Duration::from_secs(12 * 3600);
/// Before a message that was given back is tried again.
pub(super) const RETRY_DELAY_MAX: Duration = Duration::from_secs(24 * 3600);
/// For messages to come, of one call.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(60);
/// Entries of a page for which no number is asked.
pub(super) const PAGE_DEFAULT: usize = 100;
/// Messages of a look for which no number is asked.
pub(super) const PEEK_DEFAULT: usize = 10;
