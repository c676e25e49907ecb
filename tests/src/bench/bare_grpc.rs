//! gRPC without a broker. Unary calls are decoded and answered; every batch is decoded as the broker has to decode it, and answered with its number and an id
//! for each message.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use boltq_proto::exchange::v1::{PublishRequest, PublishResponse};
use boltq_proto::kv::v1::{Entry, GetRequest, GetResponse, SetRequest, SetResponse};
use boltq_proto::queue::v1::{PublishStreamRequest, PublishStreamResponse};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use prost::Message;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, StreamingService, UnaryService};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::calls::payload;
use super::load::Failure;
use crate::harness::grpc::{CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES};

/// Serves until the process ends.
///
/// # Errors
/// The port is taken.
pub async fn serve(port: u16) -> Result<(), Failure> {
    Server::builder()
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .add_service(EchoServer)
        .add_service(EchoKv)
        .add_service(EchoExchange)
        .serve(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .await?;
    Ok(())
}

#[derive(Debug, Clone, Copy)]
struct EchoServer;

impl NamedService for EchoServer {
    const NAME: &'static str = "boltq.queue.v1.QueueService";
}

impl Service<http::Request<Body>> for EchoServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    /// `PublishStream` is the only call that the benchmark makes, so the path is not looked at.
    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let codec = ProstCodec::<PublishStreamResponse, PublishStreamRequest>::default();
            Ok(Grpc::new(codec).streaming(EchoPublishStream, request).await)
        })
    }
}

/// The cache: a value is set with one version, and read with as many bytes as it would have.
#[derive(Debug, Clone, Copy)]
struct EchoKv;

impl NamedService for EchoKv {
    const NAME: &'static str = "boltq.kv.v1.KvService";
}

impl Service<http::Request<Body>> for EchoKv {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        if request.uri().path().ends_with("/Set") {
            unary(request, |_: SetRequest| SetResponse { version: 1 })
        } else {
            unary(request, |GetRequest { key }| GetResponse {
                entry: Some(Entry {
                    key,
                    value: payload(),
                    version: 1,
                    ..Entry::default()
                }),
            })
        }
    }
}

/// An exchange that says of every message that it went to one queue.
#[derive(Debug, Clone, Copy)]
struct EchoExchange;

impl NamedService for EchoExchange {
    const NAME: &'static str = "boltq.exchange.v1.ExchangeService";
}

impl Service<http::Request<Body>> for EchoExchange {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        unary(request, |_: PublishRequest| PublishResponse {
            message_id: Bytes::from_static(&[0x5a; 16]),
            routed: 1,
        })
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

/// Decodes a request and answers it.
fn unary<Q, A>(request: http::Request<Body>, answer: fn(Q) -> A) -> Answer
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    Box::pin(async move {
        let mut grpc = Grpc::new(ProstCodec::<A, Q>::default());
        Ok(grpc.unary(Unary(answer), request).await)
    })
}

struct Unary<Q, A>(fn(Q) -> A);

impl<Q: Message, A: Message> UnaryService<Q> for Unary<Q, A> {
    type Response = A;
    type Future = Ready<Result<Response<A>, Status>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        ready(Ok(Response::new((self.0)(request.into_inner()))))
    }
}

struct EchoPublishStream;

impl StreamingService<PublishStreamRequest> for EchoPublishStream {
    type Response = PublishStreamResponse;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<PublishStreamResponse, Status>> + Send>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<PublishStreamRequest>>) -> Self::Future {
        let id = Bytes::from_static(&[0x5a; 16]);
        let answers = request.into_inner().enumerate().map(move |(position, request)| {
            let messages = request?.messages.len();
            Ok(PublishStreamResponse {
                batch: position as u64 + 1,
                message_ids: vec![id.clone(); messages],
                failures: Vec::new(),
            })
        });
        ready(Ok(Response::new(Box::pin(answers))))
    }
}
