//! Messages that expire: never delivered, never settled, counted (weakness B5).

use std::time::{Duration, Instant};

use boltq_proto::admin::v1::GetStatsRequest;
use boltq_proto::admin::v1::admin_service_client::AdminServiceClient;
use boltq_tests::harness::binary::{BinaryClient, Taken, command, frame};
use boltq_tests::harness::grpc::{QueueCalls, channel, connect};
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
    let stats = admin.get_stats(GetStatsRequest::default()).await.unwrap().into_inner();
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

/// Publishes messages that are over before anybody can take them.
fn publish_expired(client: &mut BinaryClient, queue: &str, count: usize) {
    let body = json!({"topic": queue, "payload": "over", "ttl": 1_000_000}).to_string();
    let requests = frame(command::PUBLISH, body.as_bytes());
    for start in (0..count).step_by(1_000) {
        let portion = (count - start).min(1_000);
        client.send_bytes(&requests.repeat(portion)).unwrap();
        for _ in 0..portion {
            client.receive().unwrap().ok();
        }
    }
    std::thread::sleep(Duration::from_millis(5));
}

/// Asks until something comes, and says how long the longest answer took.
fn take_patiently(client: &mut BinaryClient, queue: &str) -> (Taken, Duration) {
    let mut longest = Duration::ZERO;
    let taken = eventually(Duration::from_secs(20), "what lives is found", || {
        let asked = Instant::now();
        let taken = client.consume(queue);
        longest = longest.max(asked.elapsed());
        taken
    });
    (taken, longest)
}

#[test]
fn no_request_waits_until_a_long_row_of_expired_messages_is_gone() {
    let (_server, mut client) = connected(&ServerOptions::disk());
    publish_expired(&mut client, "q", 30_000);
    client.publish("q", &json!("alive"));
    client.publish("q", &json!("alive too"));
    let (taken, longest) = take_patiently(&mut client, "q");
    assert_eq!(taken.payload(), "alive");
    assert!(longest < Duration::from_secs(1), "one answer took {longest:?}");
    assert_eq!(client.consume("q").unwrap().payload(), "alive too");
    eventually(Duration::from_secs(5), "what was walked past is gone", || {
        let stats = client.stats();
        (stats["PendingCount"] == 2 && stats["Queues"]["q"] == 0).then_some(())
    });
}

/// The first request that comes upon them is enough: the rest goes on by itself.
#[test]
fn expired_messages_that_a_request_did_not_get_to_are_removed_in_the_background() {
    let (_server, mut client) = connected(&ServerOptions::memory());
    for queue in ["a", "b"] {
        publish_expired(&mut client, queue, 25_000);
        assert!(client.consume(queue).is_none());
    }
    eventually(Duration::from_secs(20), "the queues are empty", || {
        let stats = client.stats();
        (stats["Queues"]["a"] == 0 && stats["Queues"]["b"] == 0 && stats["PendingCount"] == 0).then_some(())
    });
}

#[test]
fn who_waits_gets_what_stands_behind_expired_messages() {
    let (server, mut client) = connected(&ServerOptions::memory());
    publish_expired(&mut client, "q", 25_000);
    client.publish("q", &json!("alive"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let delivery = runtime.block_on(async {
        let mut client = connect(server.messaging()).await;
        client.take_one("q").await
    });
    assert_eq!(delivery.payload, "\"alive\"");
}

/// Looking ahead leases more than was asked for; what is not delivered keeps its place, and counts no attempt.
#[test]
fn what_lives_behind_expired_messages_keeps_its_order() {
    let (_server, mut client) = connected(&ServerOptions::memory());
    publish_expired(&mut client, "q", 100);
    for number in 0..50 {
        client.publish("q", &json!(number));
        publish_expired(&mut client, "q", 3);
    }
    for number in 0..50 {
        let taken = client.consume("q").unwrap();
        assert_eq!((taken.payload(), taken.retry()), (&json!(number), 0));
    }
    assert!(client.consume("q").is_none());
    assert_eq!(client.stats()["Queues"]["q"], json!(0));
}

/// With nobody consuming: at its time, not when it is come upon.
#[test]
fn a_message_goes_when_its_time_is_over_also_behind_one_that_lives_longer() {
    let (mut server, mut client) = connected(&ServerOptions::disk());
    client.publish("q", &json!("lives for ever"));
    for _ in 0..20 {
        publish(&mut client, 400);
    }
    client.publish_with(
        &json!({"topic": "q", "payload": "over while delayed", "delay": 3_600_000_000_000_i64, "ttl": 400_000_000}),
    );
    let left = |client: &mut BinaryClient| {
        let stats = client.stats();
        (
            stats["Queues"]["q"].as_u64().unwrap(),
            stats["DelayedCount"].as_u64().unwrap(),
        )
    };
    eventually(Duration::from_secs(20), "they are gone", || {
        (left(&mut client) == (1, 0)).then_some(())
    });
    // Those that were not over when the server died go after its start.
    for _ in 0..20 {
        publish(&mut client, 1_000);
    }
    server.kill();
    server.restart();
    let mut client = BinaryClient::connect(server.messaging());
    eventually(Duration::from_secs(20), "they are gone", || {
        (left(&mut client) == (1, 0)).then_some(())
    });
    assert_eq!(client.consume("q").unwrap().payload(), "lives for ever");
}

/// Given back after its time was over, it goes at once.
#[test]
fn a_message_that_expires_while_somebody_holds_it_goes_when_that_ends() {
    let (server, mut client) = connected(&ServerOptions::memory());
    client.publish("q", &json!("lives for ever"));
    publish(&mut client, 300);
    let mut holder = BinaryClient::connect(server.messaging());
    for _ in 0..2 {
        holder.consume("q").unwrap();
    }
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(client.stats()["PendingCount"], 2);
    drop(holder);
    eventually(Duration::from_secs(20), "one is ready and one is gone", || {
        let stats = client.stats();
        (stats["Queues"]["q"] == 1 && stats["PendingCount"] == 0).then_some(())
    });
}
