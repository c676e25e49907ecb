//! Numbers that the doors count themselves. What happens to messages is counted by the queue plane.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only goes up. Add once per batch, not once per message, where there are many.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        // Nothing is ordered by it.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// So many more.
    pub fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// How many so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// The number now.
    pub fn set(&self, value: usize) {
        self.0.store(value as u64, Ordering::Relaxed);
    }

    /// The number last set.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Through which door a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Via {
    /// gRPC and gRPC-Web.
    #[default]
    Grpc,
    /// The binary protocol.
    Binary,
    /// The admin port.
    Http,
}

impl Via {
    /// All of them, each at the place that it has as a number.
    pub const ALL: [Self; 3] = [Self::Grpc, Self::Binary, Self::Http];

    /// As it is written in a label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Binary => "binary",
            Self::Http => "http",
        }
    }
}

/// Requests that this node could not answer itself, as another one leads.
#[derive(Debug, Default)]
pub struct ForwardCounts {
    /// Sent on to the leader.
    pub sent: Counter,
    /// The leader could not be reached, or did not answer.
    pub failed: Counter,
    /// Nobody was known to lead.
    pub no_leader: Counter,
}

/// What the doors count.
#[derive(Debug, Default)]
pub struct DoorMetrics {
    /// Open connections of the messaging port.
    pub messaging_connections: Gauge,
    /// Open connections of the admin port.
    pub admin_connections: Gauge,
    /// Connections closed at once because there were too many.
    pub connections_refused: Counter,
    /// Requests refused because unfinished ones would have taken more memory than they may.
    pub requests_refused: Counter,
    /// Requests given up because they made no progress.
    pub requests_stalled: Counter,
    /// Frames of the binary protocol that closed their connection: too long, or before authentication.
    pub frames_rejected: Counter,
    /// Wrong or missing API keys, on all doors.
    pub authentications_failed: Counter,
    /// Attempts that nobody looked at, as their address had failed too often.
    pub authentications_throttled: Counter,
    /// Requests for which the role of the key was not enough.
    pub requests_forbidden: Counter,
    /// TLS handshakes of clients that came to nothing.
    pub handshakes_failed: Counter,
    /// Requests for the leader.
    pub forwards: ForwardCounts,
}
