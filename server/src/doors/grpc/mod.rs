//! gRPC and gRPC-Web: one file per proto service, each method checks, calls, maps the error and answers.

mod admin;
mod auth;
mod cluster;
mod convert;
mod error;
mod exchange;
mod forward;
mod kv;
mod overview;
mod publish;
mod queue;
mod redrive;
mod scheduled;
mod settings;
mod stream;
mod subscribe;
mod topic;

use std::sync::Arc;

use axum::Router;
use boltq_core::limits::FRAME_BYTES_MAX;
use boltq_messaging::Streams;
use boltq_proto::admin::v1::admin_service_server::AdminServiceServer;
use boltq_proto::cluster::v1::cluster_service_server::ClusterServiceServer;
use boltq_proto::exchange::v1::exchange_service_server::ExchangeServiceServer;
use boltq_proto::kv::v1::kv_service_server::KvServiceServer;
use boltq_proto::queue::v1::queue_service_server::QueueServiceServer;
use boltq_proto::stream::v1::stream_service_server::StreamServiceServer;
use boltq_proto::topic::v1::topic_service_server::TopicServiceServer;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use tonic::body::Body;
use tonic::service::Routes;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_web::GrpcWebLayer;

use self::admin::AdminDoor;
use self::auth::AccessLayer;
use self::cluster::ClusterDoor;
pub(super) use self::error::DOMAIN;
use self::exchange::ExchangeDoor;
use self::forward::ForwardLayer;
use self::kv::KvDoor;
use self::overview::Observed;
use self::queue::QueueDoor;
use self::stream::StreamDoor;
use self::topic::TopicDoor;
use crate::access::Access;
use crate::doors::intake::MessageLayer;
use crate::service::{Clustering, Kv, Queues};
use crate::telemetry::DoorMetrics;
use crate::tls::Dialer;

/// Methods that take a stream of messages.
const STREAMS: &[&str] = &[
    "/boltq.queue.v1.QueueService/PublishStream",
    "/boltq.queue.v1.QueueService/Subscribe",
    "/boltq.topic.v1.TopicService/PublishStream",
    "/boltq.stream.v1.StreamService/AppendStream",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Of the messaging plane, which need not be there.
const STREAM_SERVICE: &str = "/boltq.stream.v1.StreamService/";

/// Everything that speaks gRPC on the messaging port.
///
/// # Errors
/// The descriptors of the protos are damaged, which only a broken build can do.
pub fn router(
    queues: &Queues,
    (kv, streams): (&Kv, Option<&Streams>),
    clustering: &Clustering,
    health: HealthServer<impl Health>,
    (access, dialer): (Arc<Access>, Dialer),
    metrics: Arc<DoorMetrics>,
) -> Result<Router, tonic_reflection::server::Error> {
    let queue = QueueServiceServer::new(QueueDoor::new(queues.clone()))
        .max_decoding_message_size(FRAME_BYTES_MAX)
        .max_encoding_message_size(usize::MAX);
    let exchange = ExchangeServiceServer::new(ExchangeDoor::new(queues.clone()))
        .max_decoding_message_size(FRAME_BYTES_MAX)
        .max_encoding_message_size(usize::MAX);
    let topic = TopicServiceServer::new(TopicDoor::new(queues.clone()))
        .max_decoding_message_size(FRAME_BYTES_MAX)
        .max_encoding_message_size(usize::MAX);
    let observed = Observed {
        queues: queues.clone(),
        kv: kv.clone(),
        clustering: clustering.clone(),
    };
    let admin = AdminServiceServer::new(AdminDoor::new(observed));
    let cluster = ClusterServiceServer::new(ClusterDoor::new(clustering.clone()));
    let cache = kv.is_enabled();
    let kv = KvServiceServer::new(KvDoor::new(kv.clone()))
        .max_decoding_message_size(FRAME_BYTES_MAX)
        .max_encoding_message_size(usize::MAX);
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(boltq_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let stream = streams.map(|streams| {
        StreamServiceServer::new(StreamDoor::new(streams.clone()))
            .max_decoding_message_size(FRAME_BYTES_MAX)
            .max_encoding_message_size(usize::MAX)
    });
    // Older grpcurl asks for the alpha version of reflection only.
    let mut routes = Routes::new(queue)
        .add_service(topic)
        .add_service(exchange)
        .add_service(admin)
        .add_service(cluster)
        .add_service(kv)
        .add_service(health)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?);
    if let Some(stream) = stream {
        routes = routes.add_service(stream);
    }
    // tonic's own fallback answers plain HTTP requests as if they were gRPC.
    Ok(routes
        .into_axum_router()
        .reset_fallback()
        .route_layer(ForwardLayer::new(queues.clone(), cache, dialer, metrics))
        .route_layer(MessageLayer::new(STREAMS))
        .route_layer(AccessLayer::new(access))
        .route_layer(GrpcWebLayer::new())
        .fallback(unknown))
}

/// gRPC clients get a status that they understand, everybody else a 404.
async fn unknown(request: Request<axum::body::Body>) -> Response<Body> {
    let is_grpc = |value: &HeaderValue| value.as_bytes().starts_with(b"application/grpc");
    if request.headers().get(CONTENT_TYPE).is_some_and(is_grpc) {
        if request.uri().path().starts_with(STREAM_SERVICE) {
            let text = "there is no messaging plane on this server: set messaging.stream.enabled";
            return tonic::Status::unimplemented(text).into_http();
        }
        let text = format!(
            "{} is not a method of this server; see `grpcurl -plaintext ADDRESS list`",
            request.uri().path()
        );
        return tonic::Status::unimplemented(text).into_http();
    }
    let mut response = Response::new(Body::new(String::from(
        "this port speaks gRPC and the binary protocol\n",
    )));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn the_list_of_streams_is_that_of_the_protos() {
        let descriptors = prost_types::FileDescriptorSet::decode(boltq_proto::FILE_DESCRIPTOR_SET).unwrap();
        let services = descriptors
            .file
            .iter()
            .filter(|file| !file.package().contains("internal"))
            .flat_map(|file| file.service.iter().map(move |service| (file.package(), service)));
        let mut streams = Vec::new();
        for (package, service) in services {
            let methods = service.method.iter().filter(|method| method.client_streaming());
            streams.extend(methods.map(|method| format!("/{package}.{}/{}", service.name(), method.name())));
        }
        assert!(!streams.is_empty());
        let listed = STREAMS.iter().filter(|path| path.starts_with("/boltq."));
        assert!(listed.copied().eq(streams.iter().map(String::as_str)), "{streams:?}");
    }
}
