//! What a connection may do: before AUTH, after it, and when its key is gone.

use std::future::pending;
use std::io;
use std::pin::Pin;

use boltq_core::limits::FRAME_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::{debug, warn};

use super::command::Command;
use super::connection::{Closing, Connection};
use super::reply;
use crate::access::{Denied, Grant, Operation};
use crate::seldom::Seldom;

/// What a connection may do that is known, and how it hears that it no longer may.
pub(super) struct Rights {
    grant: Grant,
    /// `Sync`, as all of a connection is.
    revoked: Seldom<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl Rights {
    pub(super) fn new(grant: Grant) -> Self {
        let watched = grant.clone();
        Self {
            grant,
            revoked: Seldom::new(Box::pin(async move { watched.revoked().await })),
        }
    }

    /// Never returns, where there are none.
    pub(super) async fn revoked(rights: Option<&mut Self>) {
        match rights {
            Some(rights) => rights.revoked.happened().await,
            None => pending().await,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    /// Looks at a header, before the body is read.
    pub(super) fn admit(&mut self, command: Command, body_bytes: usize) -> Result<(), Closing> {
        let is_known = self.rights.is_some();
        if !is_known && command != Command::Auth {
            self.door.metrics.frames_rejected.increment();
            debug!(peer = ?self.client.peer(), ?command, "closing a connection that does not authenticate");
            reply::error(&mut self.out, "authentication required, send AUTH first");
            return Err(Closing);
        }
        let limit = match is_known {
            true => FRAME_BYTES_MAX,
            false => self.door.access().policy().frame_bytes_before_auth_max,
        };
        if body_bytes > limit {
            self.door.metrics.frames_rejected.increment();
            warn!(peer = ?self.client.peer(), ?command, body_bytes, limit, "closing a connection: frame over the limit");
            return Err(Closing);
        }
        Ok(())
    }

    /// Whether a command may be given, by who is known.
    pub(super) fn allow(&self, code: u8) -> Result<(), Denied> {
        match &self.rights {
            Some(rights) => self.door.access().allow(&rights.grant, Operation::of_command(code)),
            // What comes before AUTH is refused by its header.
            None => Ok(()),
        }
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.rights.as_ref().is_some_and(|rights| rights.grant.is_revoked())
    }

    pub(super) async fn refuse_revoked(&mut self) -> io::Result<()> {
        debug!(peer = ?self.client.peer(), "closing a connection: its key is no longer valid");
        reply::error(
            &mut self.out,
            "unauthorized: the key of this connection is no longer valid",
        );
        self.flush().await
    }

    pub(super) fn authenticate(&mut self, shown: Option<&str>) -> Option<Closing> {
        let access = self.door.access();
        let denied = match (access.open(), shown) {
            // Where no key is wanted, it does not matter what is shown.
            (Some(open), _) => self.take_rights(open),
            (None, Some(shown)) => match access.identify(self.client, shown.as_bytes()) {
                Ok(grant) => self.take_rights(grant),
                Err(denied) => Some(denied.to_string()),
            },
            (None, None) => {
                access.fail(self.client, false);
                Some("invalid auth payload".to_owned())
            }
        };
        let Some(denied) = denied else {
            reply::status(&mut self.out, "ok");
            return None;
        };
        reply::error(&mut self.out, &denied);
        self.auth_attempts += 1;
        if self.auth_attempts < access.policy().auth_attempts_max {
            return None;
        }
        let attempts = self.auth_attempts;
        warn!(peer = ?self.client.peer(), attempts, "closing a connection: too many failed AUTH frames");
        Some(Closing)
    }

    fn take_rights(&mut self, grant: Grant) -> Option<String> {
        self.rights = Some(Rights::new(grant));
        None
    }
}
