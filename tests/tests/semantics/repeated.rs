//! Publishes that are repeated with the same key: one message, and the answer of the first publish.

use std::collections::BTreeSet;
use std::time::Duration;

use boltq_proto::queue::v1::{PublishRequest, PublishStreamRequest};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::binary::{BinaryClient, command};
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, message, reason};
use boltq_tests::harness::{Server, ServerOptions, http};
use serde_json::json;
use tonic::Code;

fn keyed(payload: &'static str, key: &str) -> Message {
    Message {
        idempotency_key: key.to_owned(),
        ..message(payload)
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn started(options: &ServerOptions) -> (Server, QueueClient) {
    let server = Server::start(options);
    let client = connect(server.messaging()).await;
    (server, client)
}

#[tokio::test]
async fn a_repeated_publish_makes_no_second_message_whatever_door_it_comes_through() {
    let (server, mut grpc) = started(&ServerOptions::memory()).await;
    let mut binary = BinaryClient::connect(server.messaging());
    let first = grpc.put("q", keyed("\"first\"", "order-17")).await;
    assert_eq!(grpc.put("q", keyed("\"other\"", "order-17")).await, first);
    let again = binary.publish_with(&json!({"topic": "q", "payload": 2, "idempotency_key": "order-17"}));
    assert_eq!(again, hex(&first));
    let other_way = binary.publish_with(&json!({"topic": "q", "payload": 3, "idempotency_key": "order-18"}));
    assert_eq!(hex(&grpc.put("q", keyed("4", "order-18")).await), other_way);
    assert_eq!(grpc.look("q").await.ready, 2);
    let elsewhere = grpc.put("other", keyed("5", "order-17")).await;
    assert_ne!(elsewhere, first);
    let metrics = http::get(server.admin(), "/metrics").unwrap();
    let text = metrics.text();
    assert!(text.contains("boltq_publishes_repeated_total 3\n"), "{text}");
    let taken = grpc.take("q", 9).await;
    let payloads: Vec<_> = taken.iter().map(|delivery| &delivery.payload[..]).collect();
    assert_eq!(payloads, [&b"\"first\""[..], b"3"]);
}

#[tokio::test]
async fn without_a_key_every_publish_is_a_message() {
    let (_server, mut grpc) = started(&ServerOptions::memory()).await;
    let ids = [grpc.put("q", keyed("x", "")).await, grpc.put("q", keyed("x", "")).await];
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn in_a_stream_messages_with_and_without_keys_keep_their_order_and_ids() {
    let (_server, mut grpc) = started(&ServerOptions::memory()).await;
    let batch = || PublishStreamRequest {
        queue: "q".to_owned(),
        messages: vec![
            message("a"),
            keyed("b", "k1"),
            keyed("c", "k2"),
            message("d"),
            keyed("b again", "k1"),
        ],
        ..PublishStreamRequest::default()
    };
    let requests = tokio_stream::iter([batch(), batch()]);
    let mut answers = grpc.publish_stream(requests).await.unwrap().into_inner();
    let first = answers.message().await.unwrap().unwrap().message_ids;
    let second = answers.message().await.unwrap().unwrap().message_ids;
    assert_eq!((first.len(), &first[1]), (5, &first[4]));
    assert_eq!((&second[1], &second[2]), (&first[1], &first[2]));
    let all: BTreeSet<_> = first.iter().chain(&second).collect();
    assert_eq!(all.len(), 6);
    let taken = grpc.take("q", 99).await;
    let payloads: Vec<_> = taken.iter().map(|delivery| &delivery.payload[..]).collect();
    assert_eq!(payloads, [&b"a"[..], b"b", b"c", b"d", b"a", b"d"]);
}

#[tokio::test]
async fn what_was_acknowledged_is_not_published_again_and_a_killed_server_remembers() {
    let (mut server, mut grpc) = started(&ServerOptions::disk()).await;
    let first = grpc.put("q", keyed("x", "k")).await;
    let taken = grpc.take("q", 1).await;
    assert_eq!(grpc.done(&taken).await, 1);
    assert_eq!(grpc.put("q", keyed("x", "k")).await, first);
    server.kill();
    server.restart();
    let mut grpc = connect(server.messaging()).await;
    assert_eq!(grpc.put("q", keyed("x", "k")).await, first);
    assert_eq!(grpc.look("q").await.ready, 0);
    // The snapshot has it too, and not only the log.
    server.terminate();
    server.restart();
    let mut grpc = connect(server.messaging()).await;
    assert_eq!(grpc.put("q", keyed("x", "k")).await, first);
}

#[tokio::test]
async fn a_key_is_forgotten_when_its_time_is_over() {
    let options = ServerOptions::memory().set("queue.dedup_ttl", "1s");
    let (_server, mut grpc) = started(&options).await;
    let first = grpc.put("q", keyed("x", "k")).await;
    let forgotten = async {
        while grpc.put("q", keyed("x", "k")).await == first {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), forgotten).await.unwrap();
    assert_eq!(grpc.look("q").await.ready, 2);
}

#[tokio::test]
async fn more_keys_than_are_allowed_are_refused_until_some_are_forgotten() {
    let options = ServerOptions::memory()
        .set("queue.dedup_ttl", "5s")
        .set("queue.dedup_max_keys", 2);
    let (_server, mut grpc) = started(&options).await;
    for key in ["a", "b"] {
        grpc.put("q", keyed("x", key)).await;
    }
    let request = || PublishRequest {
        queue: "q".to_owned(),
        message: Some(keyed("x", "c")),
    };
    let refused = grpc.publish(request()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(reason(&refused), "IDEMPOTENCY_KEYS_FULL");
    assert!(refused.message().contains("queue.dedup_max_keys"), "{refused}");
    grpc.put("q", message("without a key")).await;
    assert_eq!(grpc.look("q").await.ready, 3);
    let allowed = async {
        while grpc.publish(request()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), allowed).await.unwrap();
}

#[tokio::test]
async fn a_key_that_is_too_long_is_refused_by_name() {
    let (server, mut grpc) = started(&ServerOptions::memory()).await;
    let request = |bytes: usize| PublishRequest {
        queue: "q".to_owned(),
        message: Some(keyed("x", &"k".repeat(bytes))),
    };
    grpc.publish(request(200)).await.unwrap();
    let refused = grpc.publish(request(201)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("idempotency_key has 201 bytes"), "{refused}");
    let mut binary = BinaryClient::connect(server.messaging());
    let body = json!({"topic": "q", "payload": 1, "idempotency_key": "k".repeat(201)}).to_string();
    let error = binary.call(command::PUBLISH, &body).error();
    assert!(error.contains("idempotency_key has 201 bytes"), "{error}");
    assert_eq!(grpc.look("q").await.ready, 1);
}
