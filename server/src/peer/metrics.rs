//! Counters of the connections between nodes.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that is only read to be shown.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The number now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub(super) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Since the start, unless they say otherwise.
#[derive(Debug, Default)]
pub struct PeerMetrics {
    /// Connections to peers over which calls go, now.
    pub outgoing_open: Count,
    /// Proved connections from peers, now.
    pub incoming_open: Count,
    /// Connections to peers that were made, those of transfers included.
    pub connects: Count,
    /// Attempts that failed.
    pub connect_failures: Count,
    /// Connections that broke while in use.
    pub breaks: Count,
    /// Connections from others that did not prove themselves.
    pub refused: Count,
    /// Calls made.
    pub calls: Count,
    /// Calls that were not sent, as too much was outstanding.
    pub overloaded: Count,
    /// Calls without an answer in time.
    pub timeouts: Count,
    /// Payload of requests sent and answers received.
    pub call_bytes_sent: Count,
    /// See `call_bytes_sent`.
    pub call_bytes_received: Count,
    /// Requests of others, those refused included.
    pub requests: Count,
    /// Requests of others that were refused.
    pub requests_refused: Count,
    /// Transfers to peers that were started.
    pub transfers: Count,
    /// Their chunks.
    pub transfer_bytes_sent: Count,
    /// Chunks of transfers from peers.
    pub transfer_bytes_received: Count,
}

/// Counts something as open while it lives.
pub(super) struct Open<'a>(&'a Count);

impl<'a> Open<'a> {
    pub(super) fn new(count: &'a Count) -> Self {
        count.add(1);
        Self(count)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.remove();
    }
}
