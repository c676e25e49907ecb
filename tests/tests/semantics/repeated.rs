//! Publishes that are repeated with the same key: one message, and the answer of the first publish.

use std::collections::BTreeSet;
use std::time::Duration;

use boltq_proto::queue::v1::{AckLevel, PublishRequest, PublishStreamRequest, PublishStreamResponse};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::binary::{BinaryClient, command, frame};
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

/// Whether each message was stored, and the reasons of those that were not.
fn told(answer: &PublishStreamResponse) -> (Vec<bool>, Vec<(u32, &str)>) {
    let stored = answer.message_ids.iter().map(|id| !id.is_empty()).collect();
    let failures = answer.failures.iter();
    (
        stored,
        failures
            .map(|failure| (failure.index, failure.reason.as_str()))
            .collect(),
    )
}

#[tokio::test]
async fn when_no_more_keys_are_remembered_only_messages_with_a_new_one_are_refused() {
    let options = ServerOptions::memory()
        .set("queue.dedup_max_keys", 1)
        .set("publish.min_ack_level", "LEADER");
    let (_server, mut grpc) = started(&options).await;
    let first = grpc.put("q", keyed("first", "known")).await;
    let request = |queue: &str, messages: Vec<Message>, level: AckLevel| PublishStreamRequest {
        queue: queue.to_owned(),
        messages,
        ack_level: level.into(),
    };
    let mixed = || {
        vec![
            message("a"),
            keyed("refused", "new"),
            keyed("first again", "known"),
            message("b"),
        ]
    };
    // They arrive together, so that they are one proposal, but for the one that waits for less.
    let requests = tokio_stream::iter([
        request("q", mixed(), AckLevel::Quorum),
        request("", vec![keyed("refused", "newer")], AckLevel::Quorum),
        request("", vec![message("c")], AckLevel::Quorum),
        request("", mixed(), AckLevel::Leader),
    ]);
    let mut stream = grpc.publish_stream(requests).await.unwrap().into_inner();
    let mut answers = Vec::new();
    while let Some(answer) = stream.message().await.unwrap() {
        answers.push(answer);
    }
    let full = "IDEMPOTENCY_KEYS_FULL";
    let expected = [
        (vec![true, false, true, true], vec![(1, full)]),
        (vec![false], vec![(0, full)]),
        (vec![true], vec![]),
        (vec![], vec![(1, full)]),
    ];
    assert_eq!(answers.iter().map(told).collect::<Vec<_>>(), expected);
    assert!(answers[0].failures[0].retriable);
    assert_eq!(answers[0].message_ids[2], first, "it is known and needs no room");
    let taken = grpc.take("q", 99).await;
    let payloads: Vec<_> = taken.iter().map(|delivery| &delivery.payload[..]).collect();
    assert_eq!(payloads, [&b"first"[..], b"a", b"b", b"c", b"a", b"b"]);
}

#[test]
fn pipelined_publishes_without_a_key_are_stored_beside_those_that_no_room_is_for() {
    let server = Server::start(&ServerOptions::memory().set("queue.dedup_max_keys", 1));
    let mut binary = BinaryClient::connect(server.messaging());
    let body = |payload: u32, key: &str| json!({"topic": "q", "payload": payload, "idempotency_key": key});
    let first = binary.publish_with(&body(1, "known"));
    let keys = ["", "new", "known", ""];
    let frames = (2..).zip(keys).map(|(payload, key)| {
        let body = body(payload, key).to_string();
        frame(command::PUBLISH, body.as_bytes())
    });
    binary.send_bytes(&frames.collect::<Vec<_>>().concat()).unwrap();
    let answers: Vec<_> = keys.iter().map(|_| binary.receive().unwrap()).collect();
    assert!(answers[0].ok()["id"].is_string() && answers[3].ok()["id"].is_string());
    let refused = answers[1].error();
    assert!(refused.contains("queue.dedup_max_keys"), "{refused}");
    assert_eq!(answers[2].ok()["id"], first);
    let payloads = [(); 4].map(|()| binary.consume("q").map(|taken| taken.payload().clone()));
    assert_eq!(payloads, [Some(json!(1)), Some(json!(2)), Some(json!(5)), None]);
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
