//! Highest priority first, then first in, first out; and what comes back comes back at the front.

use std::time::Duration;

use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::grpc::{QueueCalls, connect, message};
use boltq_tests::harness::{Server, ServerOptions, eventually};
use serde_json::json;

fn connected(options: &ServerOptions) -> (Server, BinaryClient) {
    let server = Server::start(options);
    let client = BinaryClient::connect(server.messaging());
    (server, client)
}

/// Takes and acknowledges everything, and returns the payloads.
fn drain(client: &mut BinaryClient, queue: &str) -> Vec<serde_json::Value> {
    let mut payloads = Vec::new();
    while let Some(taken) = client.consume(queue) {
        client.ack(&taken.id).ok();
        payloads.push(taken.payload().clone());
    }
    payloads
}

/// Example 1 of the specification.
#[test]
fn higher_priorities_come_first() {
    let (_server, mut client) = connected(&ServerOptions::memory());
    for (name, priority) in [("A", 1), ("B", 9), ("C", 1)] {
        client.publish_with(&json!({"topic": "q", "payload": name, "priority": priority}));
    }
    assert_eq!(drain(&mut client, "q"), ["B", "A", "C"]);
}

/// `TestPriorityDefaultZero`, `TestPriorityQueueClampPriority`.
#[test]
fn the_default_is_zero_and_values_outside_are_clamped() {
    let (_server, mut client) = connected(&ServerOptions::memory());
    client.publish("q", &json!("none"));
    for (name, priority) in [("-1", -1), ("9", 9), ("99", 99), ("0", 0), ("1", 1)] {
        client.publish_with(&json!({"topic": "q", "payload": name, "priority": priority}));
    }
    assert_eq!(drain(&mut client, "q"), ["9", "99", "1", "none", "-1", "0"]);
}

/// `TestSpillToDisk`: more than fits into the caches; all come back, in order.
#[test]
fn a_long_backlog_keeps_its_order() {
    let options = ServerOptions::disk()
        .set("storage.cache_bytes", 1 << 20)
        .set("storage.wal_file_bytes", 1 << 20)
        .set("storage.sync", "never");
    let (_server, mut client) = connected(&options);
    let filler = "x".repeat(500);
    for thousand in 0..20 {
        let mut requests = Vec::new();
        for number in 0..1000 {
            let body = json!({"topic": "long", "payload": [thousand * 1000 + number, filler]}).to_string();
            requests.extend(boltq_tests::harness::binary::frame(0x01, body.as_bytes()));
        }
        client.send_bytes(&requests).unwrap();
        for _ in 0..1000 {
            client.receive().unwrap().ok();
        }
    }
    let payloads = drain(&mut client, "long");
    assert_eq!(payloads.len(), 20_000);
    for (number, payload) in payloads.iter().enumerate() {
        assert_eq!(payload[0], number);
    }
}

#[test]
fn what_was_released_comes_before_what_waited_behind_it() {
    let (server, mut client) = connected(&ServerOptions::memory());
    for number in 0..5 {
        client.publish("q", &json!(number));
    }
    let mut other = BinaryClient::connect(server.messaging());
    other.consume("q").unwrap();
    other.consume("q").unwrap();
    drop(other);
    eventually(Duration::from_secs(2), "the leases end", || {
        (client.stats()["PendingCount"] == 0).then_some(())
    });
    assert_eq!(drain(&mut client, "q"), [0, 1, 2, 3, 4]);
}

/// Weakness B3: a failed message went to the tail.
#[test]
fn what_failed_comes_before_what_waited_behind_it() {
    let (_server, mut client) = connected(&ServerOptions::memory().set("queue.retry_backoff", "50ms"));
    for number in 0..3 {
        client.publish("q", &json!(number));
    }
    let first = client.consume("q").unwrap();
    client.nack(&first.id).ok();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(drain(&mut client, "q"), [0, 1, 2]);
}

/// `TestPriorityWithRetry`, `TestPriorityDeadLetter`.
#[tokio::test]
async fn priority_survives_retries_and_death() {
    let options = ServerOptions::memory()
        .set("queue.max_retry", 1)
        .set("queue.retry_backoff", "1ms");
    let server = Server::start(&options);
    let mut client = connect(server.messaging()).await;
    for (payload, priority) in [("low", 0), ("high", 7)] {
        client
            .put(
                "q",
                boltq_proto::r#type::v1::Message {
                    priority,
                    ..message(payload)
                },
            )
            .await;
    }
    for _ in 0..2 {
        let delivery = client.take_one("q").await;
        assert_eq!((&delivery.payload[..], delivery.priority), (&b"high"[..], 7));
        let nack = boltq_proto::queue::v1::NackRequest {
            delivery_tokens: vec![delivery.delivery_token],
            ..Default::default()
        };
        client.nack(nack).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let dead = client.take_one("q_dead_letter").await;
    assert_eq!((&dead.payload[..], dead.priority), (&b"high"[..], 7));
    assert_eq!(client.take_one("q").await.payload, "low");
}

/// From the integration scripts of a client library: five consumers share a hundred messages.
#[test]
fn five_consumers_share_a_queue_without_duplicates() {
    let (server, mut client) = connected(&ServerOptions::memory());
    for number in 0..100 {
        client.publish("shared", &json!(number));
    }
    let consumers: Vec<_> = (0..5)
        .map(|_| {
            let mut client = BinaryClient::connect(server.messaging());
            std::thread::spawn(move || drain(&mut client, "shared"))
        })
        .collect();
    let mut all: Vec<u64> = Vec::new();
    for consumer in consumers {
        all.extend(consumer.join().unwrap().iter().map(|payload| payload.as_u64().unwrap()));
    }
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
}
