//! How HTTP connections are served.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::{BoxError, Router};
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::timed::{Timed, Times};
use crate::access::{Access, Client};
use crate::doors::intake::{Bodies, Connection, Intake, serve_request};
use crate::seldom::Seldom;
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
/// For the whole head of a request; on the messaging port also for the next request on an idle HTTP/1 connection: half a
/// request holds a place among the connections no longer than a whole one.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// For the next request on an idle connection of the admin port: clients of HTTP keep some for later.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

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
    times: Times,
}

impl HttpPort {
    /// Every request goes to `router`. A client that takes no bytes of an answer for `write_max` is gone.
    pub fn new(router: Router, intake: Arc<Intake>, tls: PortTls, access: Arc<Access>, write_max: Duration) -> Self {
        let times = Times {
            head: HEAD_TIMEOUT,
            write: write_max,
        };
        Self {
            http: Arc::new(http1()),
            router,
            intake,
            tls,
            access,
            times,
        }
    }

    /// Serves one connection until it ends, or soon after `stop` is cancelled.
    pub async fn serve(self, stream: TcpStream, stop: CancellationToken) {
        let Some(stream) = self.tls.accept(stream, &stop).await else {
            return;
        };
        let client = Arc::new(Client::new(stream.peer()));
        let serving = serve_plain(
            stream,
            &self.http,
            self.router,
            self.times,
            (&self.intake, &client),
            &stop,
        );
        self.access.while_patient(&client, pin!(serving)).await;
    }
}

/// HTTP/1.1 on connections that may rest.
fn http1() -> Http {
    let mut http = http1_and_2().http1_only();
    http.http1().header_read_timeout(IDLE_TIMEOUT);
    http
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

/// Serves one connection of the admin port.
async fn serve_plain<S>(
    io: S,
    http: &Http,
    router: Router,
    times: Times,
    (intake, client): (&Arc<Intake>, &Arc<Client>),
    stop: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = Timed::new(io, times);
    let (budget, requests) = (intake.connection(), stream.requests());
    let answer = |mut request: Request<Incoming>| {
        request.extensions_mut().insert(client.clone());
        let under_way = requests.begin();
        let answer = serve_request(router.clone(), budget.clone(), Bodies::Plain, request);
        async { Ok(under_way.answer(answer.await?)) }
    };
    run(stream, http, answer, &budget, stop).await;
}

/// Serves one connection of the messaging port.
pub(super) async fn serve<S>(
    io: S,
    http: &Http,
    router: Router,
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
    let answer = |mut request: Request<Incoming>| {
        request.extensions_mut().insert(client.clone());
        serve_request(router.clone(), budget.clone(), Bodies::Grpc, request)
    };
    run(io, &http, answer, &budget, stop).await;
}

/// Until the connection ends. When `stop` is cancelled it takes no more requests and ends with the last one in progress.
async fn run<S, A, F, B>(io: S, http: &Http, answer: A, budget: &Connection, stop: &CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let mut connection = pin!(http.serve_connection(TokioIo::new(io), service_fn(answer)));
    let (mut evicted, mut stopped) = (Seldom::new(budget.evicted()), Seldom::new(stop.cancelled()));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = evicted.happened() => return,
        () = stopped.happened() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // What clients do wrong or leave undone is theirs to see; here it is of interest only to who looks for it.
        debug!(%error, "HTTP connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::http::header::CONTENT_TYPE;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::doors::intake::intake_of;

    const PATIENCE: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(3_600);
    /// More than any socket takes by itself.
    const LARGE_BYTES: usize = 64 << 20;

    /// Where a port listens that has small and large answers, and events that never end.
    async fn port(head: Duration, write: Duration) -> SocketAddr {
        let events = || async {
            let event = || std::future::ready(Ok::<_, Infallible>(bytes::Bytes::from(vec![b'x'; 1 << 20])));
            let events = futures_util::stream::repeat_with(event);
            let events = axum::body::Body::from_stream(futures_util::StreamExt::buffered(events, 1));
            ([(CONTENT_TYPE, "text/event-stream")], events)
        };
        let router = Router::new()
            .route("/small", get(|| async { "small" }))
            .route("/large", get(|| async { vec![b'x'; LARGE_BYTES] }))
            .route("/events", get(events));
        let (http, intake) = (http1(), intake_of(1 << 20, 1 << 20, LONG));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (http, router, intake) = (http.clone(), router.clone(), intake.clone());
                tokio::spawn(async move {
                    let client = Arc::new(Client::new(None));
                    let (times, stop) = (Times { head, write }, CancellationToken::new());
                    serve_plain(stream, &http, router, times, (&intake, &client), &stop).await;
                });
            }
        });
        address
    }

    async fn ask(stream: &mut TcpStream, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
    }

    async fn answered(stream: &mut TcpStream) {
        let mut answer = Vec::new();
        while !answer.ends_with(b"small") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "it was closed");
        }
    }

    /// Whether the other side has ended the connection, within the time of a patient client.
    async fn ends(stream: &mut TcpStream) {
        let mut rest = vec![0; 1 << 20];
        let end = async { while !matches!(stream.read(&mut rest).await, Ok(0) | Err(_)) {} };
        timeout(PATIENCE, end).await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_may_rest_between_requests_for_longer_than_a_head_may_take() {
        let address = port(SHORT, LONG).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        for _ in 0..3 {
            ask(&mut stream, "/small").await;
            timeout(PATIENCE, answered(&mut stream)).await.unwrap();
            sleep(2 * SHORT).await;
        }
    }

    #[tokio::test]
    async fn a_head_that_is_not_whole_in_time_ends_its_connection() {
        let address = port(SHORT, LONG).await;
        let mut silent = TcpStream::connect(address).await.unwrap();
        ends(&mut silent).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(b"GET /small HTTP/1.1\r\n").await.unwrap();
        ends(&mut first).await;
        let mut second = TcpStream::connect(address).await.unwrap();
        ask(&mut second, "/small").await;
        answered(&mut second).await;
        // Bytes that drip make no head.
        let (mut reading, mut writing) = second.into_split();
        let dripping = async {
            for byte in b"GET /small HTTP/1.1\r\nlong: ".iter().chain(std::iter::repeat(&b'x')) {
                if writing.write_all(&[*byte]).await.is_err() {
                    break;
                }
                sleep(SHORT / 20).await;
            }
        };
        let ended = async { while !matches!(reading.read(&mut [0; 100]).await, Ok(0) | Err(_)) {} };
        let either = async {
            tokio::select! {
                () = dripping => {}
                () = ended => {}
            }
        };
        timeout(PATIENCE, either).await.unwrap();
    }

    #[tokio::test]
    async fn who_takes_no_bytes_is_gone_unless_they_are_events() {
        let address = port(LONG, SHORT).await;
        let [mut large, mut events] = [
            TcpStream::connect(address).await.unwrap(),
            TcpStream::connect(address).await.unwrap(),
        ];
        ask(&mut large, "/large").await;
        ask(&mut events, "/events").await;
        sleep(5 * SHORT).await;
        let mut taken = 0;
        let mut part = vec![0; 1 << 20];
        while let Ok(bytes @ 1..) = timeout(PATIENCE, large.read(&mut part)).await.unwrap() {
            taken += bytes;
        }
        assert!(taken < LARGE_BYTES, "it got all of it");
        let mut left = LARGE_BYTES;
        while left > 0 {
            let bytes = timeout(PATIENCE, events.read(&mut part)).await.unwrap().unwrap();
            assert_ne!(bytes, 0, "the events ended");
            left = left.saturating_sub(bytes);
        }
    }
}
