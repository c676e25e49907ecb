//! How HTTP connections are served.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::access::{Access, Client};
use crate::doors::intake::{Bodies, Intake, serve_request};
use crate::tls::PortTls;

/// A batch of 1,000 messages fits, so that a sender does not stop in the middle of one.
const STREAM_WINDOW_BYTES_MAX: u32 = 4 << 20;
/// Clients multiplex: a thousand subscriptions over one connection are as good as over a thousand.
const STREAMS_MAX: u32 = 1_024;
const HEADER_BYTES_MAX: u32 = 64 << 10;
const HTTP1_BUFFER_BYTES_MAX: usize = 64 << 10;
/// How soon a peer that is gone without a word is noticed: interval plus timeout.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// For the whole head of a request, and for the next request on an idle HTTP/1 connection: half a request holds a place
/// among the connections no longer than a whole one.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of HTTP connections, shared by those of a port.
pub(super) type Http = Builder<TokioExecutor>;

/// What is behind a port that speaks HTTP/1.1 alone; clones are cheap.
#[derive(Clone)]
pub struct HttpPort {
    http: Arc<Http>,
    router: Router,
    intake: Arc<Intake>,
    tls: PortTls,
    access: Arc<Access>,
}

impl HttpPort {
    /// Every request goes to `router`.
    pub fn new(router: Router, intake: Arc<Intake>, tls: PortTls, access: Arc<Access>) -> Self {
        Self {
            http: Arc::new(http1_and_2().http1_only()),
            router,
            intake,
            tls,
            access,
        }
    }

    /// Serves one connection until it ends, or soon after `stop` is cancelled.
    pub async fn serve(self, stream: TcpStream, stop: CancellationToken) {
        let Some(stream) = self.tls.accept(stream, &stop).await else {
            return;
        };
        let client = Arc::new(Client::new(stream.peer()));
        let serving = pin!(serve(
            stream,
            &self.http,
            self.router,
            Bodies::Plain,
            (&self.intake, &client),
            &stop,
        ));
        self.access.while_patient(&client, serving).await;
    }
}

/// HTTP/2 with prior knowledge, and HTTP/1.1.
pub(super) fn http1_and_2() -> Http {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HTTP1_BUFFER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .adaptive_window(false)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// Serves one connection. When `stop` is cancelled it takes no more requests and ends with the last one in progress.
pub(super) async fn serve<S>(
    io: S,
    http: &Http,
    router: Router,
    bodies: Bodies,
    (intake, client): (&Arc<Intake>, &Arc<Client>),
    stop: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let window = intake.window();
    let mut http = http.clone();
    http.http2()
        .initial_connection_window_size(window.bytes())
        .initial_stream_window_size(window.bytes().min(STREAM_WINDOW_BYTES_MAX));
    let budget = intake.connection();
    let service = service_fn(|mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(client.clone());
        serve_request(router.clone(), budget.clone(), bodies, request)
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(io), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = budget.evicted() => return,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // What clients do wrong or leave undone is theirs to see; here it is of interest only to who looks for it.
        debug!(%error, "HTTP connection ended early");
    }
}
