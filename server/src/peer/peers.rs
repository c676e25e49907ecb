//! The front of it all: what the node opens, and what groups and services call.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::GroupId;
use boltq_proto::internal::v1::IdentifyRequest;
use boltq_raft::{Peer, Receiver, Transport, TransportError};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use parking_lot::RwLock;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::budget::Target;
use super::config::{PeerConfig, STOP_MAX, WITHIN_MAX};
use super::dial::{Dialer, Use, message};
use super::info::{InfoSource, PeerInfo};
use super::listen::Listener;
use super::metrics::PeerMetrics;
use super::proof::ANY_NODE;
use super::shared::{ForwardHandler, Shared};
use super::tls::{PeerTlsError, Tls};
use super::transfer;

/// Why there is no traffic with other nodes.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The files of TLS.
    #[error(transparent)]
    Tls(#[from] PeerTlsError),
    /// The port.
    #[error("the port for peers: {0}")]
    Listen(#[from] io::Error),
    /// A task that reads files ended.
    #[error("start interrupted: {0}")]
    Interrupted(#[from] tokio::task::JoinError),
}

/// It is not known who is at an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot learn who is at {address}: {why}")]
pub struct IdentifyError {
    /// Host and port.
    pub address: String,
    /// Nobody answers, or it is refused; in words.
    pub why: String,
}

/// Traffic with other nodes, in both directions. Clones are the same; it ends with [`Peers::stop`] or with the last of them.
#[derive(Clone)]
pub struct Peers {
    shared: Arc<Shared>,
    address: SocketAddr,
    _stop_at_end: Arc<DropGuard>,
}

impl Peers {
    /// Listens from now on. Requests to groups and services that are not there yet are refused.
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn start(listener: TcpListener, config: PeerConfig, info: InfoSource) -> Result<Self, PeerError> {
        let address = listener.local_addr()?;
        let tls = match config.tls {
            None => None,
            Some(files) => Some(tokio::task::spawn_blocking(move || Tls::load(&files)).await??),
        };
        let dialer = Dialer {
            info,
            secret: config.secret,
            tls,
            limits: config.limits,
            metrics: Arc::default(),
        };
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            dialer: Arc::new(dialer),
            receivers: RwLock::new(BTreeMap::new()),
            forward: RwLock::new(None),
            links: RwLock::new(BTreeMap::new()),
            runtime: Handle::current(),
            stop: stop.clone(),
            tasks: TaskTracker::new(),
        });
        shared.tasks.spawn(Listener::new(listener, shared.clone()).run());
        Ok(Self {
            shared,
            address,
            _stop_at_end: Arc::new(stop.drop_guard()),
        })
    }

    /// Where this node listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on `receiver` takes the requests to a group.
    ///
    /// Each request is polled once before the next one of the same peer is read, so it must not block there. It is
    /// dropped when its caller has given up or this node stops.
    pub fn register(&self, group: GroupId, receiver: Arc<dyn Receiver>) {
        self.shared.receivers.write().insert(group, receiver);
    }

    /// Requests to a group are refused from now on.
    pub fn unregister(&self, group: GroupId) {
        self.shared.receivers.write().remove(&group);
    }

    /// From now on `handler` takes what other nodes forward. What is said of requests in [`Peers::register`] holds.
    pub fn serve_forwarded(&self, handler: ForwardHandler) {
        *self.shared.forward.write() = Some(handler);
    }

    /// Calls a service on another node. As [`Transport::call`], which overtakes it.
    pub fn forward(
        &self,
        to: &Peer,
        service: u32,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        self.shared.link(to).call(Target::Service(service), request, within)
    }

    /// Asks who is at an address, after both sides have proved themselves. On a connection of its own.
    ///
    /// # Errors
    /// Nobody answers within `within`, or one of the two refuses the other.
    pub async fn identify(&self, address: &str, within: Duration) -> Result<PeerInfo, IdentifyError> {
        let error = |why| IdentifyError {
            address: address.to_owned(),
            why,
        };
        let asked = async {
            let dialed = self.shared.dialer.dial(address, ANY_NODE, Use::Calls).await;
            let mut connection = dialed.map_err(|why| error(why.to_string()))?;
            let answer = connection.client.identify(IdentifyRequest {}).await;
            let info = PeerInfo::from(answer.map_err(|status| error(message(&status)))?.into_inner());
            if info.node != connection.party.node {
                return Err(error("it gives two ids".to_owned()));
            }
            Ok(info)
        };
        timeout(within.min(WITHIN_MAX), asked)
            .await
            .unwrap_or_else(|_| Err(error(format!("no answer within {} ms", within.as_millis()))))
    }

    /// Counters.
    #[must_use]
    pub fn metrics(&self) -> &PeerMetrics {
        &self.shared.dialer.metrics
    }

    /// Closes the port and all connections, and waits a moment for what was under way to end; calls fail from now on.
    pub async fn stop(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        if timeout(STOP_MAX, self.shared.tasks.wait()).await.is_err() {
            tracing::warn!("what a group takes from a peer has not ended; going on without");
        }
    }
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Transport for Peers {
    fn call(
        &self,
        to: &Peer,
        group: GroupId,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        self.shared.link(to).call(Target::Group(group.0), request, within)
    }

    fn send(
        &self,
        to: &Peer,
        group: GroupId,
        chunks: BoxStream<'static, Result<Bytes, String>>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        let dialer = self.shared.dialer.clone();
        Box::pin(transfer::send(dialer, to.clone(), group, chunks, within))
    }
}
