//! The longest key, the largest value, and what is said of more.

use boltq_proto::kv::v1::{
    DeleteRequest, ExistsRequest, ExpireRequest, FlushRequest, GetRequest, GetStatsRequest, IncrementRequest,
    KeysRequest, SetRequest, WatchRequest,
};
use boltq_tests::harness::grpc::{channel, reason};
use boltq_tests::harness::{Server, ServerOptions, http};
use serde_json::json;
use tonic::{Code, Request, Status};

use super::client::{KvClient, connect, done, entry, get, keys, look, post, put};

const KEY_BYTES_MAX: usize = 1_024;
const VALUE_BYTES_MAX: usize = (4 << 20) - (16 << 10);

/// Every call that takes a key.
async fn with_key(client: &mut KvClient, key: &str) -> Vec<Result<(), Status>> {
    let key = || key.to_owned();
    let (get, exists) = (GetRequest { key: key() }, ExistsRequest { key: key() });
    let set = SetRequest {
        key: key(),
        ..SetRequest::default()
    };
    let delete = DeleteRequest {
        key: key(),
        if_version: None,
    };
    let expire = ExpireRequest { key: key(), ttl: None };
    let increment = IncrementRequest {
        key: key(),
        delta: None,
    };
    vec![
        client.get(get).await.map(drop),
        client.increment(increment).await.map(drop),
        client.exists(exists).await.map(drop),
        client.expire(expire).await.map(drop),
        client.delete(delete).await.map(drop),
        client.set(set).await.map(drop),
    ]
}

/// Every other call, except for the one that is always answered.
async fn without_key(client: &mut KvClient) -> Vec<Result<(), Status>> {
    vec![
        client.keys(KeysRequest::default()).await.map(drop),
        client.flush(FlushRequest {}).await.map(drop),
        client.watch(WatchRequest::default()).await.map(drop),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_have_1_to_1024_bytes() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let longest = "ö".repeat(KEY_BYTES_MAX / 2);
    for result in with_key(&mut client, &longest).await {
        result.unwrap();
    }
    assert_eq!(keys(server.admin(), "*"), [longest.as_str()]);
    for key in [String::new(), format!("{longest}x")] {
        for result in with_key(&mut client, &key).await {
            let refused = result.unwrap_err();
            assert_eq!(
                (refused.code(), &*reason(&refused)),
                (Code::InvalidArgument, "INVALID_KEY")
            );
        }
    }
    let long = "x".repeat(KEY_BYTES_MAX + 1);
    let text = json!({"error": "key has 1025 bytes; 1 to 1024 are allowed"});
    assert_eq!(
        post(server.admin(), "set", &json!({"key": long, "value": 1})),
        (400, text.clone())
    );
    assert_eq!(get(server.admin(), &format!("get?key={long}")), (400, text));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_value_is_stored_and_comes_back_by_both_doors() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let longest_key = "k".repeat(KEY_BYTES_MAX);
    // Six bytes for each in JSON.
    let largest = "\u{1}".repeat(VALUE_BYTES_MAX);
    done(server.admin(), "set", &json!({"key": longest_key, "value": largest}));
    assert_eq!(
        entry(&mut client, &longest_key).await.unwrap().value.len(),
        VALUE_BYTES_MAX
    );
    let shown = look(server.admin(), &format!("get?key={longest_key}"));
    assert!(shown["value"] == largest);
    put(&mut client, &longest_key, &"1".repeat(VALUE_BYTES_MAX)).await;

    let more = "x".repeat(VALUE_BYTES_MAX + 1);
    let (status, answer) = post(server.admin(), "set", &json!({"key": "k", "value": more}));
    let text = format!("value has {} bytes; at most {VALUE_BYTES_MAX} are allowed", more.len());
    assert_eq!((status, answer), (400, json!({"error": text})));
    let set = SetRequest {
        key: "k".to_owned(),
        value: more.into(),
        ..SetRequest::default()
    };
    let refused = client.set(set).await.unwrap_err();
    assert_eq!(
        (refused.code(), &*reason(&refused)),
        (Code::InvalidArgument, "VALUE_TOO_LARGE")
    );
    assert!(entry(&mut client, "k").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_cache_every_call_but_the_statistics_says_so() {
    let server = Server::start(&ServerOptions::memory().set("cache.enabled", false));
    let mut client = connect(server.messaging()).await;
    let mut results = with_key(&mut client, "k").await;
    results.extend(without_key(&mut client).await);
    for result in results {
        let refused = result.unwrap_err();
        assert_eq!(
            (refused.code(), &*reason(&refused)),
            (Code::FailedPrecondition, "CACHE_NOT_ENABLED")
        );
    }
    let stats = client.get_stats(GetStatsRequest {}).await.unwrap().into_inner();
    assert_eq!(stats, boltq_proto::kv::v1::GetStatsResponse::default());
    let text = http::get(server.admin(), "/metrics").unwrap();
    assert!(text.text().contains("\nboltq_cache_keys 0\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_needs_the_key() {
    let server = Server::start(&ServerOptions::memory().set("security.api_key", "s3cret"));
    let mut client = connect(server.messaging()).await;
    let mut results = with_key(&mut client, "k").await;
    results.extend(without_key(&mut client).await);
    results.push(client.get_stats(GetStatsRequest {}).await.map(drop));
    for result in results {
        assert_eq!(result.unwrap_err().code(), Code::Unauthenticated);
    }
    let keyed = |mut request: Request<()>| {
        request.metadata_mut().insert("x-api-key", "s3cret".parse().unwrap());
        Ok(request)
    };
    let channel = channel(server.messaging()).await.unwrap();
    let mut client = boltq_proto::kv::v1::kv_service_client::KvServiceClient::with_interceptor(channel, keyed);
    client.get_stats(GetStatsRequest {}).await.unwrap();
}
