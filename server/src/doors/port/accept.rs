//! The loop that accepts connections and owns them until they end.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::telemetry::{DoorMetrics, Gauge};

/// Wait after a failure to accept that will not go away by itself at once: no file handles, no memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Such a failure lasts, and the log should have room for other things.
const ACCEPT_LOG_PAUSE: Duration = Duration::from_secs(1);

/// Silence after which the system asks whether the other side is still there, and how often it repeats that; with the
/// nine times of Linux a dead peer is noticed after little more than three minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// One port.
pub struct Acceptor {
    /// For the log.
    pub name: &'static str,
    /// Bound already, so that its port is known before anything is served.
    pub listener: TcpListener,
    /// One more is closed at once.
    pub connections_max: usize,
    /// For connections when `stop` is cancelled.
    pub grace: Duration,
    /// Where connections are counted.
    pub metrics: Arc<DoorMetrics>,
    /// Which of its gauges is that of this port.
    pub open: fn(&DoorMetrics) -> &Gauge,
    /// No more connections are accepted from then on.
    pub stop: CancellationToken,
}

impl Acceptor {
    /// Serves connections until `stop` is cancelled and they have ended, or the grace has passed; what is left then is
    /// dropped. `serve` has to watch the stop itself.
    pub async fn run<S, F>(self, serve: S)
    where
        S: Fn(TcpStream) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let mut connections = JoinSet::new();
        let mut full = false;
        let mut logged = None;
        loop {
            (self.open)(&self.metrics).set(connections.len());
            let accepted = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    log_panic(self.name, ended);
                    continue;
                }
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    self.accept_failed(&error, &mut logged).await;
                    continue;
                }
            };
            if connections.len() >= self.connections_max {
                self.refuse(&mut full);
                continue;
            }
            full = false;
            match prepare(&stream) {
                Ok(()) => drop(connections.spawn(serve(stream))),
                Err(error) => debug!(port = self.name, %error, "a connection broke before it was served"),
            }
        }
        self.drain(connections).await;
    }

    /// One line when the limit is reached, not one for each connection beyond it.
    fn refuse(&self, full: &mut bool) {
        self.metrics.connections_refused.increment();
        if !*full {
            warn!(
                port = self.name,
                limit = self.connections_max,
                "too many connections; closing new ones until there is room (server.max_connections)"
            );
        }
        *full = true;
    }

    async fn accept_failed(&self, error: &io::Error, logged: &mut Option<Instant>) {
        // The client gave up before we got to it: nothing is wrong here.
        if error.kind() == io::ErrorKind::ConnectionAborted {
            return;
        }
        if logged.is_none_or(|at| at.elapsed() >= ACCEPT_LOG_PAUSE) {
            *logged = Some(Instant::now());
            error!(port = self.name, %error, "cannot accept connections; {}", advice(error));
        }
        // A stop does not wait for the end of this, which is soon.
        sleep(ACCEPT_PAUSE).await;
    }

    async fn drain(self, mut connections: JoinSet<()>) {
        drop(self.listener);
        let all_ended = async {
            while let Some(ended) = connections.join_next().await {
                log_panic(self.name, ended);
            }
        };
        if timeout(self.grace, all_ended).await.is_err() {
            warn!(
                port = self.name,
                left = connections.len(),
                grace = ?self.grace,
                "closing connections that are still busy (server.shutdown_grace)"
            );
            connections.shutdown().await;
        }
        (self.open)(&self.metrics).set(0);
    }
}

/// Requests are small and answered at once, so that waiting for more to send only costs time. A client may be silent
/// for as long as it likes; one that is gone without a word (its machine lost power) must not take a place for ever.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let probes = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&probes)
}

fn advice(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => {
            "no file handle is left: raise the limit of the process (ulimit -n, LimitNOFILE), or lower \
             server.max_connections"
        }
        Some(Errno::NFILE) => "no file handle is left on this machine (fs.file-max)",
        _ => "trying again",
    }
}

fn log_panic(port: &'static str, ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        error!(port, %error, "a connection ended by a fault of the server");
    }
}
