//! Messages that expire: never delivered, never settled, counted (weakness B5).

use std::time::Duration;

use boltq_proto::admin::v1::GetStatsRequest;
use boltq_proto::admin::v1::admin_service_client::AdminServiceClient;
use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::grpc::channel;
use boltq_tests::harness::{Server, ServerOptions, eventually};
use serde_json::json;

fn connected(options: &ServerOptions) -> (Server, BinaryClient) {
    let server = Server::start(options);
    let client = BinaryClient::connect(server.messaging());
    (server, client)
}

fn publish(client: &mut BinaryClient, ttl_ms: u64) -> String {
    client.publish_with(&json!({"topic": "q", "payload": "short-lived", "ttl": ttl_ms * 1_000_000}))
}

/// Example 4 of the specification.
#[test]
fn an_expired_message_is_not_delivered() {
    let (_server, mut client) = connected(&ServerOptions::memory());
    publish(&mut client, 100);
    client.publish("q", &json!("stays"));
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(client.consume("q").unwrap().payload(), "stays");
    assert!(client.consume("q").is_none());
}

#[test]
fn a_message_that_lives_is_delivered() {
    let (_server, mut client) = connected(&ServerOptions::memory());
    let id = publish(&mut client, 60_000);
    assert_eq!(client.consume("q").unwrap().id, id);
    client.ack(&id).ok();
}

#[test]
fn a_message_that_expires_while_it_is_leased_cannot_be_acknowledged() {
    let (_server, mut client) = connected(&ServerOptions::memory());
    let id = publish(&mut client, 150);
    assert_eq!(client.consume("q").unwrap().id, id);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.ack(&id).error(), format!("message {id} not found in pending"));
    let pending = || (client.stats()["PendingCount"] == 0).then_some(());
    eventually(Duration::from_secs(3), "its lease is gone", pending);
}

#[test]
fn a_message_that_expires_while_it_is_leased_does_not_come_back() {
    let options = ServerOptions::memory()
        .set("queue.retry_backoff", "1ms")
        .set("queue.max_retry", 1);
    let (_server, mut client) = connected(&options);
    let id = publish(&mut client, 150);
    client.consume("q").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    // Whether the failure is still accepted is open; that nothing comes of it is not.
    client.nack(&id);
    std::thread::sleep(Duration::from_millis(100));
    assert!(client.consume("q").is_none());
    assert_eq!(client.stats()["DeadLetters"], json!({}));
}

#[test]
fn a_delay_that_is_not_shorter_than_the_ttl_is_never_delivered() {
    let (_server, mut client) = connected(&ServerOptions::memory());
    for (delay, ttl) in [(200, 200), (300, 100)] {
        client.publish_with(&json!({"topic": "q", "delay": delay * 1_000_000, "ttl": ttl * 1_000_000}));
    }
    std::thread::sleep(Duration::from_millis(600));
    assert!(client.consume("q").is_none());
    let stats = client.stats();
    assert_eq!((&stats["DelayedCount"], &stats["Queues"]["q"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn expired_messages_are_counted() {
    let (server, mut client) = connected(&ServerOptions::memory());
    for _ in 0..3 {
        publish(&mut client, 50);
    }
    std::thread::sleep(Duration::from_millis(150));
    assert!(client.consume("q").is_none());
    let mut admin = AdminServiceClient::new(channel(server.messaging()).await.unwrap());
    let stats = admin.get_stats(GetStatsRequest {}).await.unwrap().into_inner();
    assert_eq!((stats.expired, stats.published, stats.consumed), (3, 3, 0));
}

#[test]
fn a_dead_letter_does_not_expire() {
    let options = ServerOptions::memory()
        .set("queue.max_retry", 1)
        .set("queue.retry_backoff", "1ms");
    let (_server, mut client) = connected(&options);
    let id = publish(&mut client, 1_000);
    for _ in 0..2 {
        let taken = eventually(Duration::from_millis(900), "it is delivered", || client.consume("q"));
        client.nack(&taken.id).ok();
    }
    std::thread::sleep(Duration::from_millis(1_300));
    let dead = client
        .consume("q_dead_letter")
        .expect("the TTL of a dead letter is ignored");
    assert_eq!(dead.id, id);
    client.ack(&id).ok();
}
