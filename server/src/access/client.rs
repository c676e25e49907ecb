//! What is known of a connection.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::grant::Grant;

/// Shared by all that is asked over one connection.
#[derive(Debug)]
pub struct Client {
    peer: Option<SocketAddr>,
    let_in: AtomicBool,
    proven: OnceLock<Grant>,
}

impl Client {
    /// Of a connection from there; `None`, if it is gone already.
    #[must_use]
    pub fn new(peer: Option<SocketAddr>) -> Self {
        Self {
            peer,
            let_in: AtomicBool::new(false),
            proven: OnceLock::new(),
        }
    }

    /// Where it comes from.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Whether anything that it asked for was not refused for want of a key: the health of the server is for everybody.
    #[must_use]
    pub fn is_let_in(&self) -> bool {
        // Nothing else is ordered by it.
        self.let_in.load(Ordering::Relaxed)
    }

    /// Whether this key was the first right one that was shown over it. Others do not count: who has one key must not guess
    /// another one the quicker for it.
    pub(super) fn has_proven(&self, grant: &Grant) -> bool {
        self.proven.get().is_some_and(|proven| proven.is_of(grant))
    }

    pub(super) fn let_in(&self, proven: Option<&Grant>) {
        self.let_in.store(true, Ordering::Relaxed);
        if let Some(grant) = proven
            && self.proven.get().is_none()
        {
            // Another request may have been quicker.
            let _ = self.proven.set(grant.clone());
        }
    }
}
