//! Makes connections to other nodes: name, TCP, TLS, HTTP/2, proof. What comes out is proved and never reconnects by
//! itself: a new connection needs a proof of its own.

use std::io;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use boltq_core::NodeId;
use boltq_proto::internal::v1::peer_service_client::PeerServiceClient;
use boltq_proto::internal::v1::{ProveRequest, ProveResponse, prove_request, prove_response};
use http::uri::{Authority, Scheme, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::either::Either;
use tonic::body::Body;
use tonic::{Status, Streaming};
use tower::Service;

use super::config::{
    CONNECT_MAX, CONNECTION_WINDOW_BYTES, FRAME_BYTES, HEADER_BYTES_MAX, PING_INTERVAL, PING_TIMEOUT, PeerLimits,
    PeerSecret, SEND_BUFFER_BYTES, STREAM_WINDOW_BYTES,
};
use super::info::InfoSource;
use super::metrics::PeerMetrics;
use super::proof::{Caller, Party, ProofError};
use super::tls::Tls;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("no connection: {0}")]
    Connect(io::Error),
    #[error("{0:?} is not host:port")]
    Address(String),
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("HTTP/2: {0}")]
    Http2(#[from] hyper::Error),
    #[error("{0}")]
    Proof(#[from] ProofError),
    #[error("the other node refuses: {0}")]
    Refused(String),
    #[error("the proof broke off: {0}")]
    Broken(String),
    #[error("no connection within {} s", CONNECT_MAX.as_secs())]
    TimedOut,
}

impl From<Status> for DialError {
    fn from(status: Status) -> Self {
        match status.code() {
            tonic::Code::Unauthenticated | tonic::Code::FailedPrecondition => Self::Refused(message(&status)),
            _ => Self::Broken(message(&status)),
        }
    }
}

/// A status in words, with what the transport says is behind it.
pub(super) fn message(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// A peer that does not answer a ping is gone.
    Calls,
    /// Pings stand behind megabytes, so only progress counts.
    Transfer,
}

/// Calls of one connection.
pub(super) type PeerClient = PeerServiceClient<Http2>;

/// A proved connection; closed when it is dropped.
pub(super) struct Connection {
    pub(super) client: PeerClient,
    pub(super) party: Party,
    _tasks: Arc<Tasks>,
}

/// What HTTP/2 runs for one connection. Left alone it would keep the socket until the last stream has ended, which a peer
/// that hangs decides.
#[derive(Default)]
struct Tasks(Mutex<JoinSet<()>>);

#[derive(Clone)]
struct Spawner(Weak<Tasks>);

impl<F> Executor<F> for Spawner
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        if let Some(tasks) = self.0.upgrade() {
            let mut tasks = tasks.0.lock();
            while tasks.try_join_next().is_some() {}
            tasks.spawn(async move { drop(task.await) });
        }
    }
}

/// Everything that connecting needs.
pub(super) struct Dialer {
    pub(super) info: InfoSource,
    pub(super) secret: Option<PeerSecret>,
    pub(super) tls: Option<Tls>,
    pub(super) limits: PeerLimits,
    pub(super) metrics: Arc<PeerMetrics>,
}

impl Dialer {
    /// A connection to `wanted` at `address`.
    pub(super) async fn dial(&self, address: &str, wanted: NodeId, purpose: Use) -> Result<Connection, DialError> {
        let connected = timeout(CONNECT_MAX, self.connect(address, wanted, purpose)).await;
        let connected = connected.unwrap_or(Err(DialError::TimedOut));
        match connected {
            Ok(_) => self.metrics.connects.add(1),
            Err(_) => self.metrics.connect_failures.add(1),
        }
        connected
    }

    async fn connect(&self, address: &str, wanted: NodeId, purpose: Use) -> Result<Connection, DialError> {
        let authority: Authority = address.parse().map_err(|_| DialError::Address(address.to_owned()))?;
        let stream = TcpStream::connect(address).await.map_err(DialError::Connect)?;
        prepare(&stream).map_err(DialError::Connect)?;
        let io = match &self.tls {
            None => Either::Left(stream),
            Some(tls) => {
                // IPv6 addresses stand in brackets in a URI.
                let host = authority
                    .host()
                    .trim_start_matches('[')
                    .trim_end_matches(']')
                    .to_owned();
                let name = ServerName::try_from(host).map_err(|_| DialError::Address(address.to_owned()))?;
                let stream = tls.connector.connect(name, stream).await.map_err(DialError::Tls)?;
                Either::Right(stream)
            }
        };
        self.start(io, authority, wanted, purpose).await
    }

    async fn start<I>(&self, io: I, authority: Authority, wanted: NodeId, purpose: Use) -> Result<Connection, DialError>
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let tasks = Arc::new(Tasks::default());
        let spawner = Spawner(Arc::downgrade(&tasks));
        let mut builder = http2::Builder::new(spawner.clone());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .max_header_list_size(HEADER_BYTES_MAX)
            .max_send_buf_size(SEND_BUFFER_BYTES);
        if purpose == Use::Calls {
            builder
                .keep_alive_interval(PING_INTERVAL)
                .keep_alive_timeout(PING_TIMEOUT)
                .keep_alive_while_idle(true);
        }
        let (requests, connection) = builder.handshake::<_, Body>(TokioIo::new(io)).await?;
        spawner.execute(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a peer broke");
            }
        });
        let mut origin = Uri::default().into_parts();
        origin.scheme = Some(Scheme::HTTP);
        origin.authority = Some(authority);
        origin.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        let origin = Uri::from_parts(origin).map_err(|error| DialError::Address(error.to_string()))?;
        let mut client = PeerClient::with_origin(Http2(requests), origin)
            .max_decoding_message_size(self.limits.message_bytes_max + MESSAGE_OVERHEAD_BYTES)
            .max_encoding_message_size(self.limits.message_bytes_max + MESSAGE_OVERHEAD_BYTES);
        let party = self.prove(&mut client, wanted).await?;
        Ok(Connection {
            client,
            party,
            _tasks: tasks,
        })
    }

    async fn prove(&self, client: &mut PeerClient, wanted: NodeId) -> Result<Party, DialError> {
        let info = (self.info)();
        let own = Party {
            node: info.node,
            cluster: info.cluster,
        };
        let (caller, hello) = Caller::hello(self.secret.as_ref(), own, wanted)?;
        let (steps, requests) = mpsc::channel(1);
        let broken = |_| DialError::Broken("the other node closed the connection".to_owned());
        let hello = prove_request::Step::Hello(hello);
        steps.send(ProveRequest { step: Some(hello) }).await.map_err(broken)?;
        let mut answers = client.prove(ReceiverStream::new(requests)).await?.into_inner();
        let prove_response::Step::Challenge(challenge) = step(&mut answers).await? else {
            return Err(ProofError::Malformed.into());
        };
        let (proved, proof) = caller.prove(&challenge)?;
        let proof = prove_request::Step::Proof(proof);
        steps.send(ProveRequest { step: Some(proof) }).await.map_err(broken)?;
        let prove_response::Step::Proof(proof) = step(&mut answers).await? else {
            return Err(ProofError::Malformed.into());
        };
        Ok(proved.accept(&proof)?)
    }
}

/// Members of a message other than the payload.
pub(super) const MESSAGE_OVERHEAD_BYTES: usize = 64;

async fn step(answers: &mut Streaming<ProveResponse>) -> Result<prove_response::Step, DialError> {
    let answer = answers.message().await?;
    Ok(answer.and_then(|answer| answer.step).ok_or(ProofError::Malformed)?)
}

/// Waiting for more to send only costs time; and what the system holds unsent cannot be overtaken.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(super::config::UNSENT_BYTES)?;
    Ok(())
}

/// HTTP/2 on one connection, as gRPC clients want it.
#[derive(Clone)]
pub(super) struct Http2(SendRequest<Body>);

impl Service<http::Request<Body>> for Http2 {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = futures_util::future::BoxFuture<'static, Result<Self::Response, hyper::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
