//! A backlog lies on the disk: it is longer than memory, comes back whole and once, and costs little.

use std::time::Duration;

use boltq_proto::queue::v1::PublishStreamRequest;
use boltq_tests::harness::binary::{BinaryClient, command, frame};
use boltq_tests::harness::grpc::{QueueCalls, connect, message};
use boltq_tests::harness::{Server, ServerOptions, eventually};
use serde_json::json;

use super::calls::PATIENCE;

const MIB: u64 = 1 << 20;

/// Publishes all bodies, a thousand at a time.
fn publish_all(client: &mut BinaryClient, bodies: impl Iterator<Item = String>) {
    let frames: Vec<Vec<u8>> = bodies.map(|body| frame(command::PUBLISH, body.as_bytes())).collect();
    for portion in frames.chunks(1_000) {
        client.send_bytes(&portion.concat()).unwrap();
        for _ in portion {
            client.receive().unwrap().ok();
        }
    }
}

/// Takes, and acknowledges, up to so many; their numbers.
fn take(client: &mut BinaryClient, queue: &str, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.len() < count
        && let Some(taken) = client.consume(queue)
    {
        client.ack(&taken.id).ok();
        numbers.push(taken.payload()[0].as_u64().unwrap());
    }
    numbers
}

#[test]
fn a_backlog_longer_than_memory_comes_back_once_and_in_order_after_kills() {
    const MESSAGES: u64 = 9_000;
    let options = ServerOptions::disk()
        .set("storage.cache_bytes", MIB)
        .set("storage.wal_file_bytes", MIB)
        .set("storage.compaction_threshold", MIB)
        .set("storage.sync", "never");
    let mut server = Server::start(&options);
    let mut client = BinaryClient::connect(server.messaging());
    let filler = "x".repeat(700);
    let body = |number: u64| json!({"topic": "q", "payload": [number, filler], "priority": number % 3}).to_string();
    publish_all(&mut client, (0..MESSAGES).map(body));
    let mut wanted: Vec<u64> = (0..MESSAGES).collect();
    wanted.sort_by_key(|number| (2 - number % 3, *number));
    for portion in [1_000, 2_500, MESSAGES as usize] {
        let rest = wanted.split_off(portion.min(wanted.len()));
        assert_eq!(take(&mut client, "q", portion), wanted);
        wanted = rest;
        server.kill();
        server.restart();
        client = BinaryClient::connect(server.messaging());
        assert_eq!(client.stats()["Queues"]["q"], wanted.len());
    }
    assert!(client.consume("q").is_none());
}

#[tokio::test]
async fn a_backlog_that_nobody_takes_costs_disk_and_no_memory() {
    const BATCHES: usize = 60;
    let server = Server::start(&ServerOptions::disk().set("storage.sync", "never"));
    let mut client = connect(server.messaging()).await;
    let batch = PublishStreamRequest {
        queue: "q".to_owned(),
        messages: vec![message(vec![b'x'; 10_000]); 200],
        ..PublishStreamRequest::default()
    };
    let mut publish = async |batches: usize| {
        let requests = tokio_stream::iter(std::iter::repeat_n(batch.clone(), batches));
        let mut answers = client.publish_stream(requests).await.unwrap().into_inner();
        while let Some(answer) = answers.message().await.unwrap() {
            assert_eq!(answer.failures, []);
        }
    };
    // What the server needs in any case.
    publish(BATCHES / 4).await;
    let before = server.stat().rss_bytes();
    publish(BATCHES).await;
    let payloads = (BATCHES * 200 * 10_000) as u64;
    assert!(server.directory().data_bytes() > payloads);
    eventually(PATIENCE, "memory that is a fraction of the backlog", || {
        let grown = server.stat().rss_bytes().saturating_sub(before);
        (grown < payloads / 4).then_some(())
    });
    assert_eq!(client.take("q", 1).await.len(), 1);
}

#[test]
fn thousands_of_messages_that_a_lost_connection_held_are_ready_again_in_their_order() {
    const MESSAGES: u64 = 3_000;
    let server = Server::start(&ServerOptions::disk().set("storage.sync", "never"));
    let mut client = BinaryClient::connect(server.messaging());
    let filler = "x".repeat(10_000);
    publish_all(
        &mut client,
        (0..MESSAGES).map(|number| json!({"topic": "q", "payload": [number, filler]}).to_string()),
    );
    let before = server.stat().rss_bytes();
    let mut lost = BinaryClient::connect(server.messaging());
    for number in 0..MESSAGES {
        assert_eq!(lost.consume("q").unwrap().payload()[0], number);
    }
    let grown = server.stat().rss_bytes().saturating_sub(before);
    assert!(grown < MESSAGES * 10_000 / 2, "{} MiB for what is leased", grown / MIB);
    drop(lost);
    eventually(PATIENCE, "all are ready again", || {
        let stats = client.stats();
        (stats["PendingCount"] == 0 && stats["Queues"]["q"] == MESSAGES).then_some(())
    });
    for number in 0..MESSAGES {
        let taken = client.consume("q").unwrap();
        assert_eq!((&taken.payload()[0], taken.retry()), (&json!(number), 0));
    }
}

/// Leases are the leader's own business: to take a message and to give it back is no entry of the log.
#[test]
fn taking_messages_and_losing_them_again_writes_nothing() {
    let server = Server::start(&ServerOptions::disk());
    let mut client = BinaryClient::connect(server.messaging());
    publish_all(
        &mut client,
        (0..50).map(|number| json!({"topic": "q", "payload": [number]}).to_string()),
    );
    let entries = || super::calls::metric(server.admin(), "boltq_raft_apply_count");
    let before = entries();
    for _ in 0..5 {
        let mut other = BinaryClient::connect(server.messaging());
        for _ in 0..50 {
            other.consume("q").unwrap();
        }
        assert!(other.consume("q").is_none());
        drop(other);
        eventually(PATIENCE, "they are given back", || {
            (client.stats()["PendingCount"] == 0).then_some(())
        });
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(entries(), before);
    let taken = client.consume("q").unwrap();
    client.ack(&taken.id).ok();
    assert!(entries() > before, "an acknowledgement is one");
}
