//! File handles: each connection takes one, and so does each file of the log.
//!
//! A log that cannot open its next file cannot take messages, so connections must not get the last handle. The soft
//! limit of the process is raised to the hard one, and connections are bounded by what that leaves.

use std::cmp::min;

use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::{info, warn};

/// Not for connections: files of the log, of which there is one for each `storage.wal_file_bytes` of a backlog, ports,
/// timers. A quarter of the limit, within these bounds.
const RESERVE_MIN: u64 = 64;
const RESERVE_MAX: u64 = 16_384;
/// Of the connections that the limit leaves, this part is for the admin port, so that a crowd on the messaging port does
/// not make the node look dead.
const ADMIN_SHARE: u64 = 8;

/// Bounds of connections by port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// Of the messaging port.
    pub messaging: usize,
    /// Of the admin port.
    pub admin: usize,
}

impl Connections {
    /// Raises the limit of this process, and says how many connections of those that are configured for each port it
    /// allows. One that is passed on to another node, if this one `forwards`, takes two handles.
    #[must_use]
    pub fn within_the_limit(configured: usize, forwards: bool) -> Self {
        let limit = raise();
        let connections = Self::within(limit, configured, forwards);
        // The admin port's share is large enough whenever the other's is.
        if connections.messaging < configured {
            warn!(
                limit,
                messaging = connections.messaging,
                admin = connections.admin,
                configured,
                "server.max_connections is more than the limit of file handles allows; raise the limit \
                 (ulimit -n, LimitNOFILE) or lower server.max_connections"
            );
        }
        connections
    }

    fn within(limit: u64, configured: usize, forwards: bool) -> Self {
        // Of a limit that is hardly enough for anything, connections get a half.
        let reserve = (limit / 4).clamp(RESERVE_MIN, RESERVE_MAX).min(limit / 2);
        let left = limit - reserve;
        let count = |count: u64| usize::try_from(count.max(1)).unwrap_or(usize::MAX);
        let admin = min(configured, count(left / ADMIN_SHARE));
        let handles_each = if forwards { 2 } else { 1 };
        let messaging = min(configured, count((left - left / ADMIN_SHARE) / handles_each));
        Self { messaging, admin }
    }
}

fn raise() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    if before != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            warn!(%error, ?before, "the limit of file handles cannot be raised");
            limit.current = before;
        }
    }
    // None is no limit.
    let limit = limit.current.unwrap_or(u64::MAX);
    info!(limit, before = before.unwrap_or(u64::MAX), "file handles");
    limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_keeps_handles_whatever_the_limit_is() {
        for (limit, configured, messaging, admin) in [
            (u64::MAX, 10_000, 10_000, 10_000),
            (1 << 20, 10_000, 10_000, 10_000),
            (1_024, 10_000, 672, 96),
            (1_024, 50, 50, 50),
            (256, 10_000, 168, 24),
            (64, 10_000, 28, 4),
            (2, 10_000, 1, 1),
        ] {
            let wanted = Connections { messaging, admin };
            assert_eq!(Connections::within(limit, configured, false), wanted, "{limit}");
        }
    }

    #[test]
    fn a_connection_that_is_passed_on_counts_twice() {
        let forwarding = Connections::within(1_024, 10_000, true);
        let wanted = Connections {
            messaging: 336,
            admin: 96,
        };
        assert_eq!(forwarding, wanted);
        let few = Connections::within(1_024, 50, true);
        assert_eq!((few.messaging, few.admin), (50, 50));
    }
}
