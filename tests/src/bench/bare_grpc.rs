//! gRPC without a broker: every batch is decoded as the broker has to decode it, and answered with its number and an id
//! for each message.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use boltq_proto::queue::v1::{PublishStreamRequest, PublishStreamResponse};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

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
