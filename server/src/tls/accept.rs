//! The handshake of a connection that was accepted.
//!
//! It runs in the task of the connection, which holds a place among those of its port: who does not finish it takes a place
//! for [`HANDSHAKE_MAX`] and no longer, and keeps nobody else from being accepted.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::store::TlsStore;
use super::stream::Stream;
use crate::telemetry::DoorMetrics;

/// For the whole handshake. Two round trips are enough.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Between two lines about clients that do not speak TLS: one that tries again and again must not fill the log.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// How connections of a port begin. Clones are cheap.
#[derive(Clone)]
pub struct PortTls(Option<Arc<Enabled>>);

struct Enabled {
    store: Arc<TlsStore>,
    /// Of the admin port, which speaks HTTP/1.1 alone.
    admin: bool,
    metrics: Arc<DoorMetrics>,
    logged: Mutex<Option<Instant>>,
}

impl PortTls {
    /// Of the messaging port. Without a store connections are not encrypted.
    #[must_use]
    pub fn messaging(store: Option<Arc<TlsStore>>, metrics: &Arc<DoorMetrics>) -> Self {
        Self::new(store, false, metrics)
    }

    /// Of the admin port.
    #[must_use]
    pub fn admin(store: Option<Arc<TlsStore>>, metrics: &Arc<DoorMetrics>) -> Self {
        Self::new(store, true, metrics)
    }

    fn new(store: Option<Arc<TlsStore>>, admin: bool, metrics: &Arc<DoorMetrics>) -> Self {
        Self(store.map(|store| {
            Arc::new(Enabled {
                store,
                admin,
                metrics: metrics.clone(),
                logged: Mutex::default(),
            })
        }))
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// `None`: the client is not let in, has gone, or the server stops.
    pub async fn accept(&self, stream: TcpStream, stop: &CancellationToken) -> Option<Stream> {
        let Some(enabled) = &self.0 else {
            return Some(Stream::Plain(stream));
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => None,
            accepted = enabled.accept(stream) => accepted,
        }
    }
}

impl Enabled {
    async fn accept(&self, stream: TcpStream) -> Option<Stream> {
        let peer = stream.peer_addr().ok();
        let material = self.store.current();
        let config = if self.admin {
            &material.admin
        } else {
            &material.messaging
        };
        let accepting = TlsAcceptor::from(config.clone()).accept(stream);
        // Else old keys would be kept for as long as a handshake takes.
        drop(material);
        let error = match timeout(HANDSHAKE_MAX, accepting).await {
            Ok(Ok(stream)) => return Some(Stream::Tls(Box::new(stream.into()))),
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        self.metrics.handshakes_failed.increment();
        if is_no_tls(&error) && self.may_log() {
            warn!(
                ?peer,
                "closing a connection that does not speak TLS: server.tls.enabled is set, so clients need https:// or \
                 their own switch for TLS"
            );
        } else {
            debug!(?peer, %error, "a TLS handshake failed");
        }
        None
    }

    fn may_log(&self) -> bool {
        let mut logged = self.logged.lock();
        let may = logged.is_none_or(|at| at.elapsed() >= LOG_PAUSE);
        if may {
            *logged = Some(Instant::now());
        }
        may
    }
}

/// Whether the first bytes were none of TLS.
fn is_no_tls(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidMessage(_)))
}
