//! Both doors, in the words of the tests.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use boltq_proto::kv::v1::kv_service_client::KvServiceClient;
use boltq_proto::kv::v1::{Entry, GetRequest, SetRequest};
use boltq_tests::harness::grpc::channel;
use boltq_tests::harness::http;
use serde_json::Value;
use tonic::transport::Channel;

/// For what the server does by itself.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) type KvClient = KvServiceClient<Channel>;

/// A client that takes the largest value.
pub(crate) async fn connect(address: SocketAddr) -> KvClient {
    KvServiceClient::new(channel(address).await.unwrap()).max_decoding_message_size(8 << 20)
}

/// Status and body of `GET /cache/…`.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, Value) {
    let response = http::get(address, &format!("/cache/{path}")).unwrap();
    (response.status, response.json())
}

/// Status and body of `POST /cache/…`.
pub(crate) fn post(address: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let response = http::request(address, "POST", &format!("/cache/{path}"), &[], body.as_bytes()).unwrap();
    (response.status, response.json())
}

/// The body of a `POST /cache/…` that succeeds.
#[track_caller]
pub(crate) fn done(address: SocketAddr, path: &str, body: &Value) -> Value {
    let (status, answer) = post(address, path, body);
    assert_eq!(status, 200, "{path} {body}: {answer}");
    answer
}

/// The body of a `GET /cache/…` that succeeds.
#[track_caller]
pub(crate) fn look(address: SocketAddr, path: &str) -> Value {
    let (status, answer) = get(address, path);
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

/// All keys, sorted.
pub(crate) fn keys(address: SocketAddr, pattern: &str) -> Vec<String> {
    let answer = look(address, &format!("keys?pattern={pattern}"));
    let keys = answer["keys"].as_array().unwrap();
    assert_eq!(answer["count"], keys.len());
    let mut keys: Vec<String> = keys.iter().map(|key| key.as_str().unwrap().to_owned()).collect();
    keys.sort();
    keys
}

/// Sets a key for ever, over gRPC; returns its version.
pub(crate) async fn put(client: &mut KvClient, key: &str, value: &str) -> u64 {
    let request = SetRequest {
        key: key.to_owned(),
        value: value.to_owned().into(),
        ..SetRequest::default()
    };
    client.set(request).await.unwrap().into_inner().version
}

/// What a key has, over gRPC.
pub(crate) async fn entry(client: &mut KvClient, key: &str) -> Option<Entry> {
    let request = GetRequest { key: key.to_owned() };
    client.get(request).await.unwrap().into_inner().entry
}

/// Unix time in milliseconds.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}
