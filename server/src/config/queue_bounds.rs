//! What the settings of queues may be: those of the server, in `keys`, and those of one queue, which take their place.
//!
//! A time is in milliseconds. Who adds a setting adds its bounds here and uses them wherever it can be given.

use std::ops::RangeInclusive;

const SECOND_MS: u64 = 1_000;
const HOUR_MS: u64 = 3_600 * SECOND_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Deliveries after the first. The key of the server knows -1 beside these, and takes 0 for its default.
pub const MAX_RETRY: RangeInclusive<u64> = 0..=1_000;
/// Wait after the first failure.
pub const RETRY_BACKOFF_MS: RangeInclusive<u64> = 0..=HOUR_MS;
/// Longest wait between deliveries.
pub const RETRY_BACKOFF_MAX_MS: RangeInclusive<u64> = 0..=DAY_MS;
/// Length of a lease for which the consumer asks no other.
pub const ACK_TIMEOUT_MS: RangeInclusive<u64> = 10..=7 * DAY_MS;
/// How long an idempotency key is remembered.
pub const DEDUP_TTL_MS: RangeInclusive<u64> = SECOND_MS..=7 * DAY_MS;
/// Time to live of messages that have none. Only of a queue.
pub const DEFAULT_TTL_MS: RangeInclusive<u64> = 1..=3_650 * DAY_MS;
/// Messages that a queue may hold.
pub const MAX_LENGTH: RangeInclusive<u64> = 1..=u64::MAX;
/// Bytes that these may have.
pub const MAX_LENGTH_BYTES: RangeInclusive<u64> = 1..=u64::MAX;
