//! One API key guards all doors; health and metrics stay open.

use boltq_proto::admin::v1::GetStatsRequest;
use boltq_proto::admin::v1::admin_service_client::AdminServiceClient;
use boltq_proto::queue::v1::queue_service_client::QueueServiceClient;
use boltq_proto::queue::v1::{ListQueuesRequest, PublishStreamRequest, SubscribeRequest};
use boltq_tests::harness::binary::{BinaryClient, command};
use boltq_tests::harness::grpc::{channel, reason};
use boltq_tests::harness::{Server, ServerOptions, http};
use serde_json::json;
use tonic::{Code, Request, Status};

const KEY: &str = "s3cret";

fn locked() -> Server {
    Server::start(&ServerOptions::memory().set("security.api_key", KEY))
}

fn with_key<T>(message: T, key: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-api-key", key.parse().unwrap());
    request
}

#[track_caller]
fn unauthenticated(status: &Status) {
    assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
    assert!(!status.message().is_empty() && !reason(status).is_empty(), "{status:?}");
}

#[tokio::test]
async fn grpc_calls_need_the_key_in_their_metadata() {
    let server = locked();
    let channel = channel(server.messaging()).await.unwrap();
    let mut queues = QueueServiceClient::new(channel.clone());
    unauthenticated(&queues.list_queues(ListQueuesRequest::default()).await.unwrap_err());
    unauthenticated(
        &queues
            .list_queues(with_key(ListQueuesRequest::default(), "wrong"))
            .await
            .unwrap_err(),
    );
    unauthenticated(
        &queues
            .list_queues(with_key(ListQueuesRequest::default(), ""))
            .await
            .unwrap_err(),
    );
    queues
        .list_queues(with_key(ListQueuesRequest::default(), KEY))
        .await
        .unwrap();
    let mut admin = AdminServiceClient::new(channel);
    unauthenticated(&admin.get_stats(GetStatsRequest::default()).await.unwrap_err());
    admin
        .get_stats(with_key(GetStatsRequest::default(), KEY))
        .await
        .unwrap();
}

#[tokio::test]
async fn grpc_streams_need_the_key_when_they_start() {
    let server = locked();
    let mut queues = QueueServiceClient::new(channel(server.messaging()).await.unwrap());
    let batches = || tokio_stream::iter([PublishStreamRequest::default()]);
    unauthenticated(&queues.publish_stream(batches()).await.unwrap_err());
    let subscribe = || tokio_stream::iter([SubscribeRequest::default()]);
    unauthenticated(&queues.subscribe(subscribe()).await.unwrap_err());
}

#[tokio::test]
async fn grpc_health_is_open() {
    let server = locked();
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel(server.messaging()).await.unwrap());
    let request = tonic_health::pb::HealthCheckRequest::default();
    health.check(request).await.expect("a load balancer has no key");
}

#[test]
fn statistics_over_http_need_the_key_in_a_header_or_the_query() {
    let server = locked();
    let refused = http::get(server.admin(), "/stats").unwrap();
    assert_eq!(
        (refused.status, refused.json()),
        (401, json!({"error": "unauthorized"}))
    );
    assert_eq!(http::get(server.admin(), "/stats?api_key=wrong").unwrap().status, 401);
    assert_eq!(http::get(server.admin(), "/stats?api_key=s3cret").unwrap().status, 200);
    let header = |key| {
        http::request(server.admin(), "GET", "/stats", &[("x-api-key", key)], b"")
            .unwrap()
            .status
    };
    assert_eq!((header(KEY), header("s3cre"), header("s3cret2")), (200, 401, 401));
}

#[test]
fn health_metrics_and_preflights_are_open_over_http() {
    let server = locked();
    for path in ["/health", "/livez", "/readyz", "/metrics"] {
        assert_eq!(http::get(server.admin(), path).unwrap().status, 200, "{path}");
    }
    assert_eq!(
        http::request(server.admin(), "OPTIONS", "/stats", &[], b"")
            .unwrap()
            .status,
        204
    );
}

#[test]
fn the_key_is_not_written_to_the_log() {
    let mut server = Server::start(
        &ServerOptions::memory()
            .set("security.api_key", KEY)
            .set("log.level", "debug"),
    );
    http::get(server.admin(), "/stats?api_key=s3cret").unwrap();
    BinaryClient::connect(server.messaging())
        .call(command::AUTH, r#"{"api_key":"s3cret"}"#)
        .ok();
    server.terminate();
    assert!(!server.log().contains(KEY));
}
