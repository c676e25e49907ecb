//! Dead letters can be consumed and say where they come from (weaknesses A5, B6).

use std::time::Duration;

use boltq_proto::queue::v1::{NackRequest, PeekRequest};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, message};
use boltq_tests::harness::{Server, ServerOptions, eventually};
use serde_json::json;

async fn connected() -> (Server, QueueClient) {
    let options = ServerOptions::memory()
        .set("queue.max_retry", 1)
        .set("queue.retry_backoff", "1ms")
        .set("queue.ack_timeout", "1s");
    let server = Server::start(&options);
    let client = connect(server.messaging()).await;
    (server, client)
}

fn nack(token: &bytes::Bytes, dead_letter: bool) -> NackRequest {
    NackRequest {
        delivery_tokens: vec![token.clone()],
        dead_letter,
        ..Default::default()
    }
}

#[tokio::test]
async fn a_dead_letter_keeps_everything_and_says_why_it_died_and_where() {
    let (_server, mut client) = connected().await;
    let published = Message {
        headers: [("tenant".to_owned(), "acme".to_owned())].into(),
        content_type: "text/plain".into(),
        ..message("poison")
    };
    let id = client.put("q", published.clone()).await;
    let first = client.take_one("q").await;
    client.nack(nack(&first.delivery_token, false)).await.unwrap();
    let second = client.take_one("q").await;
    client.nack(nack(&second.delivery_token, false)).await.unwrap();
    let dead = client.take_one("q_dead_letter").await;
    assert_eq!(
        (&dead.message_id, &dead.payload, &dead.content_type),
        (&id, &published.payload, &published.content_type)
    );
    assert_eq!(dead.published_at, first.published_at);
    assert_eq!(dead.headers.get("tenant").map(String::as_str), Some("acme"));
    assert_eq!(dead.headers.get("x-death-queue").map(String::as_str), Some("q"));
    assert_eq!(dead.headers.get("x-death-attempts").map(String::as_str), Some("2"));
    assert!(!dead.headers["x-death-reason"].is_empty());
    let died: u64 = dead.headers["x-death-time-ms"].parse().unwrap();
    assert!(died as i64 / 1000 >= first.published_at.unwrap().seconds);
}

#[tokio::test]
async fn the_reasons_differ() {
    let (_server, mut client) = connected().await;
    for payload in ["failed", "timed out", "given up"] {
        client.put("q", message(payload)).await;
    }
    let taken = client.take("q", 3).await;
    client.nack(nack(&taken[2].delivery_token, true)).await.unwrap();
    client.nack(nack(&taken[0].delivery_token, false)).await.unwrap();
    let again = client.take_one("q").await;
    client.nack(nack(&again.delivery_token, false)).await.unwrap();
    // The second one times out twice.
    let again = client.take_one("q").await;
    assert_eq!(again.payload, "timed out");
    let mut reasons = std::collections::BTreeMap::new();
    for _ in 0..3 {
        let dead = client.take_one("q_dead_letter").await;
        reasons.insert(dead.payload.clone(), dead.headers["x-death-reason"].clone());
        client.done(&[dead]).await;
    }
    let distinct: std::collections::BTreeSet<&String> = reasons.values().collect();
    assert_eq!(distinct.len(), 3, "{reasons:?}");
}

#[tokio::test]
async fn dead_letters_are_taken_acknowledged_and_looked_at_like_any_message() {
    let (server, mut client) = connected().await;
    for number in 0..3_u8 {
        client.put("q", message(vec![number])).await;
    }
    for delivery in client.take("q", 3).await {
        client.nack(nack(&delivery.delivery_token, true)).await.unwrap();
    }
    let peek = PeekRequest {
        queue: "q_dead_letter".into(),
        max_messages: 10,
        ..PeekRequest::default()
    };
    let seen = client.peek(peek).await.unwrap().into_inner().deliveries;
    assert_eq!(
        seen.iter().map(|delivery| delivery.payload[0]).collect::<Vec<_>>(),
        [0, 1, 2],
        "first in, first out"
    );
    let mut binary = BinaryClient::connect(server.messaging());
    assert_eq!(binary.stats()["DeadLetters"], json!({"q_dead_letter": 3}));
    let taken = binary.consume("q_dead_letter").unwrap();
    assert_eq!(taken.body["headers"]["x-death-queue"], "q");
    binary.ack(&taken.id).ok();
    let rest = client.take("q_dead_letter", 10).await;
    assert_eq!(client.done(&rest).await, 2);
    assert_eq!(client.look("q").await.dead_letters, 0);
}

/// The id leads to the message wherever it lies.
#[tokio::test]
async fn a_dead_letter_is_settled_by_the_id_that_its_publisher_knows() {
    let (server, mut client) = connected().await;
    let id = client.put("q", message("x")).await;
    let delivery = client.take_one("q").await;
    client.nack(nack(&delivery.delivery_token, true)).await.unwrap();
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut binary = BinaryClient::connect(server.messaging());
    assert_eq!(binary.consume("q_dead_letter").unwrap().id, hex);
    binary.ack(&hex).ok();
    assert_eq!(binary.ack(&hex).error(), format!("message {hex} not found in pending"));
}

#[tokio::test]
async fn a_dead_letter_that_fails_is_never_lost() {
    let (server, mut client) = connected().await;
    client.put("q", message("x")).await;
    let delivery = client.take_one("q").await;
    client.nack(nack(&delivery.delivery_token, true)).await.unwrap();
    let mut binary = BinaryClient::connect(server.messaging());
    for _ in 0..4 {
        let taken = eventually(Duration::from_secs(5), "it comes again", || {
            binary.consume("q_dead_letter")
        });
        binary.nack(&taken.id).ok();
    }
    let stats = binary.stats();
    let dead: u64 = stats["DeadLetters"]
        .as_object()
        .unwrap()
        .values()
        .map(|count| count.as_u64().unwrap())
        .sum();
    assert_eq!(dead, 1, "{stats}");
}
