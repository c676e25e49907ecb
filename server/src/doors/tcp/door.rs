//! The door: what all of its connections have in common.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::connection::Connection;
use super::input::Input;
use crate::access::{Access, Client};
use crate::config::ServerConfig;
use crate::service::{Clustering, Queues};
use crate::telemetry::{DoorMetrics, ForwardCounts};
use crate::tls::Dialer;

/// What a connection may do, known or not.
struct Limits {
    /// A connection that accepts no bytes for so long is closed.
    idle_write_timeout: Duration,
    /// Whether connections are passed on to the leader.
    forward: bool,
}

/// The binary protocol.
pub struct Door {
    queues: Queues,
    clustering: Clustering,
    access: Arc<Access>,
    dialer: Dialer,
    limits: Limits,
    pub(super) metrics: Arc<DoorMetrics>,
}

impl Door {
    /// In front of these queues.
    pub fn new(
        queues: Queues,
        clustering: Clustering,
        access: Arc<Access>,
        dialer: Dialer,
        config: &ServerConfig,
        metrics: Arc<DoorMetrics>,
    ) -> Self {
        let limits = Limits {
            idle_write_timeout: config.idle_write_timeout,
            forward: config.tcp_forward,
        };
        Self {
            queues,
            clustering,
            access,
            dialer,
            limits,
            metrics,
        }
    }

    pub(super) fn queues(&self) -> &Queues {
        &self.queues
    }

    pub(super) fn clustering(&self) -> &Clustering {
        &self.clustering
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    pub(super) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    pub(super) fn idle_write_timeout(&self) -> Duration {
        self.limits.idle_write_timeout
    }

    pub(super) fn forwards(&self) -> &ForwardCounts {
        &self.metrics.forwards
    }

    pub(super) fn is_clustered(&self) -> bool {
        self.clustering.is_enabled()
    }

    /// Whether connections that begin now are for another node.
    pub(super) fn passes_on(&self) -> bool {
        self.limits.forward && self.is_follower()
    }

    /// Whether this node belongs to a cluster and does not lead it, or not yet.
    pub(super) fn is_follower(&self) -> bool {
        self.is_clustered() && !self.queues.is_leading() && !self.clustering.is_removed()
    }

    /// Serves a connection, of which `input` was read already, until it ends, or with the request in progress when
    /// `stop` is cancelled. What it had leased is then available to others.
    pub(super) async fn serve<S>(&self, io: S, input: Input, client: &Client, stop: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut connection = Connection::new(self, io, client);
        match connection.run(input, stop).await {
            Ok(()) => connection.close().await,
            Err(error) => debug!(peer = ?client.peer(), %error, "connection broke"),
        }
    }
}
