//! Keys as the tests use them. Their hashes were made with `sha256sum`.

use boltq_tests::harness::binary::{BinaryClient, command};
use boltq_tests::harness::{Server, ServerOptions};
use serde_json::{Value, json};
use tonic::Request;

pub(crate) const ADMIN: &str = "the key of the administrator";
pub(crate) const PRODUCER: &str = "producer-0123456789abcdef0123456789abcdef";
pub(crate) const CONSUMER: &str = "consumer-0123456789abcdef0123456789abcdef";
pub(crate) const BOTH: &str = "both-0123456789abcdef0123456789abcdef";

const PRODUCER_HASH: &str = "sha256:96feefc3cea1e0868b79985bc48a167e12a7f41166b2fb5081f1dc619c809e41";
const CONSUMER_HASH: &str = "sha256:2f2cbbb5c014628d3ff51f42935897a9bb1336b4482f5e33d3f383acb894c8df";
const BOTH_HASH: &str = "sha256:bfaa166a35f7949937ce2dfd7b8f542be8df48463226eae4f7d3a1624b68e61e";

/// A key of the configuration.
pub(crate) fn producer() -> Value {
    json!({"id": "shop", "hash": PRODUCER_HASH, "role": "producer"})
}

/// A key of the configuration.
pub(crate) fn consumer() -> Value {
    json!({"id": "mail", "hash": CONSUMER_HASH, "role": "consumer"})
}

/// With an administrator, a producer, a consumer, and one who is both.
pub(crate) fn options() -> ServerOptions {
    let both = json!({"id": "bridge", "hash": BOTH_HASH, "role": ["producer", "consumer"]});
    ServerOptions::memory()
        .set("security.api_key", ADMIN)
        .set("security.keys", json!([producer(), consumer(), both]))
}

pub(crate) fn with_key<T>(message: T, key: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-api-key", key.parse().unwrap());
    request
}

/// A connection that has shown this key.
pub(crate) fn binary(server: &Server, key: &str) -> BinaryClient {
    let mut client = BinaryClient::connect(server.messaging());
    let auth = json!({"api_key": key}).to_string();
    assert_eq!(client.call(command::AUTH, &auth).ok(), json!({"status": "ok"}));
    client
}
