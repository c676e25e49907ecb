//! Accepts connections from other nodes.
//!
//! Before its proof a connection may cost [`UNPROVED_BYTES_MAX`] and [`PROOF_MAX`], and there are at most
//! [`UNPROVED_CONNECTIONS_MAX`] of them: one more ends the oldest, so that whoever fills the port with silent
//! connections does not keep out the nodes, which need milliseconds.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use boltq_proto::internal::v1::peer_service_server::PeerServiceServer;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use super::config::{
    CONNECTION_WINDOW_BYTES, FRAME_BYTES, HEADER_BYTES_MAX, PING_INTERVAL, PING_TIMEOUT, PROOF_MAX, SEND_BUFFER_BYTES,
    STREAM_WINDOW_BYTES, STREAMS_MAX, UNPROVED_BYTES_MAX, UNPROVED_CONNECTIONS_MAX,
};
use super::dial::{MESSAGE_OVERHEAD_BYTES, prepare};
use super::door::Door;
use super::shared::Shared;

/// Wait after a failure to accept that will not go away by itself at once: no file handles, no memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How much longer than a caller a called node waits for a pong: the caller decides.
const PING_PATIENCE: u32 = 5;

/// The port.
pub(super) struct Listener {
    listener: TcpListener,
    shared: Arc<Shared>,
    proved: Arc<Semaphore>,
    unproved: Mutex<VecDeque<Arc<Gate>>>,
}

impl Listener {
    pub(super) fn new(listener: TcpListener, shared: Arc<Shared>) -> Arc<Self> {
        let connections_max = shared.dialer.limits.connections_max;
        Arc::new(Self {
            listener,
            shared,
            proved: Arc::new(Semaphore::new(connections_max)),
            unproved: Mutex::default(),
        })
    }

    /// Until the stop.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.shared.stop.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let gate = self.admit();
                    self.shared.tasks.spawn(self.clone().serve(stream, gate));
                }
                // The other side gave up before we got to it: nothing is wrong here.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    error!(%error, "cannot accept a connection of a peer; trying again");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn admit(&self) -> Arc<Gate> {
        let gate = Arc::new(Gate {
            open: AtomicBool::new(false),
            proved: self.proved.clone(),
            place: Mutex::new(None),
            closed: CancellationToken::new(),
        });
        let mut unproved = self.unproved.lock();
        unproved.retain(|gate| !gate.is_open() && !gate.closed.is_cancelled());
        if unproved.len() >= UNPROVED_CONNECTIONS_MAX
            && let Some(oldest) = unproved.pop_front()
        {
            oldest.closed.cancel();
        }
        unproved.push_back(gate.clone());
        gate
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, gate: Arc<Gate>) {
        tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => {}
            () = gate.refused() => debug!("a connection did not prove itself in time"),
            served = self.handshake(stream, &gate) => {
                if let Err(error) = served {
                    debug!(%error, "a connection of a peer ended");
                }
            }
        }
        if !gate.is_open() {
            self.shared.dialer.metrics.refused.add(1);
        }
        gate.close();
    }

    async fn handshake(
        &self,
        stream: TcpStream,
        gate: &Arc<Gate>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        prepare(&stream)?;
        match &self.shared.dialer.tls {
            None => self.http2(stream, gate).await?,
            Some(tls) => self.http2(tls.acceptor.accept(stream).await?, gate).await?,
        }
        Ok(())
    }

    async fn http2<I>(&self, io: I, gate: &Arc<Gate>) -> Result<(), hyper::Error>
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let io = Guarded {
            io,
            gate: gate.clone(),
            left: UNPROVED_BYTES_MAX,
        };
        let message_bytes_max = self.shared.dialer.limits.message_bytes_max + MESSAGE_OVERHEAD_BYTES;
        let door = PeerServiceServer::new(Door::new(self.shared.clone(), gate.clone()))
            .max_decoding_message_size(message_bytes_max)
            .max_encoding_message_size(message_bytes_max);
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .max_header_list_size(HEADER_BYTES_MAX)
            .max_concurrent_streams(STREAMS_MAX)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .keep_alive_interval(PING_INTERVAL * PING_PATIENCE)
            .keep_alive_timeout(PING_TIMEOUT * PING_PATIENCE)
            .serve_connection(TokioIo::new(io), TowerToHyperService::new(door))
            .await
    }
}

/// Whether a connection has proved itself.
pub(super) struct Gate {
    open: AtomicBool,
    proved: Arc<Semaphore>,
    /// Among the proved connections, until this one is gone.
    place: Mutex<Option<OwnedSemaphorePermit>>,
    closed: CancellationToken,
}

impl Gate {
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Says no if there are too many connections already.
    pub(super) fn open(&self) -> bool {
        let mut place = self.place.lock();
        if place.is_none() {
            *place = self.proved.clone().try_acquire_owned().ok();
        }
        if place.is_some() {
            self.open.store(true, Ordering::Release);
        }
        place.is_some()
    }

    /// Returns when the proof is late, or others need the place before it.
    async fn refused(&self) {
        tokio::select! {
            () = sleep(PROOF_MAX) => {}
            () = self.closed.cancelled() => {}
        }
        if self.is_open() {
            std::future::pending::<()>().await;
        }
    }

    fn close(&self) {
        self.closed.cancel();
        *self.place.lock() = None;
    }
}

/// Counts what arrives before the proof.
struct Guarded<I> {
    io: I,
    gate: Arc<Gate>,
    left: usize,
}

impl<I: AsyncRead + Unpin> AsyncRead for Guarded<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.gate.is_open() {
            return Pin::new(&mut self.io).poll_read(context, buffer);
        }
        if self.left == 0 {
            return Poll::Ready(Err(io::Error::other("too many bytes before a proof")));
        }
        let mut bytes = [0; 1 << 10];
        let most = self.left.min(bytes.len()).min(buffer.remaining());
        let mut part = ReadBuf::new(&mut bytes[..most]);
        ready!(Pin::new(&mut self.io).poll_read(context, &mut part))?;
        buffer.put_slice(part.filled());
        self.left -= part.filled().len();
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Guarded<I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
