//! Each state of a message before a restart, and what it is after.

use std::time::{Duration, Instant};

use boltq_proto::queue::v1::{NackRequest, PurgeQueueRequest};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, duration, message};
use boltq_tests::harness::{Server, ServerOptions};
use serde_json::json;

fn options() -> ServerOptions {
    ServerOptions::disk().set("queue.retry_backoff", "1ms")
}

/// How a server ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Kill,
    Stop,
}

async fn again(server: &mut Server, end: End) -> QueueClient {
    if let End::Stop = end {
        let status = server.terminate();
        assert!(status.success(), "{status}");
    }
    server.restart();
    connect(server.messaging()).await
}

async fn fail(client: &mut QueueClient, queue: &str) {
    let delivery = client.take_one(queue).await;
    let request = NackRequest {
        delivery_tokens: vec![delivery.delivery_token],
        ..Default::default()
    };
    client.nack(request).await.unwrap();
}

/// Example 6 of the specification.
#[test]
fn acknowledged_messages_stay_away_and_the_others_keep_their_order() {
    let mut server = Server::start(&options());
    let mut client = BinaryClient::connect(server.messaging());
    let ids: Vec<String> = ["first", "second", "third"]
        .iter()
        .map(|name| client.publish("q", &json!(name)))
        .collect();
    let taken: Vec<_> = (0..3).map(|_| client.consume("q").unwrap()).collect();
    client.ack(&taken[1].id).ok();
    server.restart();
    let mut client = BinaryClient::connect(server.messaging());
    let first = client.consume("q").unwrap();
    assert_eq!((first.payload(), &first.id), (&json!("first"), &ids[0]));
    assert_eq!(client.consume("q").unwrap().payload(), "third");
    assert!(client.consume("q").is_none());
}

/// Weaknesses A5 and A6: dead letters became ordinary messages, attempts were forgotten.
#[tokio::test]
async fn every_state_survives_two_kills() {
    all_states(End::Kill).await;
}

/// On two threads, so that the client can close its connection while the test waits for the end of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_state_survives_a_clean_stop() {
    all_states(End::Stop).await;
}

async fn all_states(end: End) {
    let mut server = Server::start(&options());
    let mut client = connect(server.messaging()).await;
    // Attempts of a message that is leased when the server ends.
    client.put("leased", message("tried twice")).await;
    fail(&mut client, "leased").await;
    fail(&mut client, "leased").await;
    client.take_one("leased").await;
    // Attempts of one that is ready.
    client
        .put(
            "ready",
            Message {
                priority: 3,
                ..message("tried once")
            },
        )
        .await;
    fail(&mut client, "ready").await;
    client.put("ready", message("untried")).await;
    // A dead letter.
    let dead_id = client.put("poison", message("dead")).await;
    let delivery = client.take_one("poison").await;
    let dead = NackRequest {
        delivery_tokens: vec![delivery.delivery_token],
        dead_letter: true,
        ..Default::default()
    };
    client.nack(dead).await.unwrap();
    // Messages that must not come back.
    client.put("purged", message("purged")).await;
    client
        .purge_queue(PurgeQueueRequest { queue: "purged".into() })
        .await
        .unwrap();
    client
        .put(
            "expired",
            Message {
                ttl: duration(Duration::from_millis(1)),
                ..message("expired")
            },
        )
        .await;
    for _ in 0..2 {
        client = again(&mut server, end).await;
    }
    let leased = client.take_one("leased").await;
    assert_eq!((&leased.payload[..], leased.attempts), (&b"tried twice"[..], 2));
    assert_eq!(client.done(&[leased]).await, 1);
    let ready = client.take("ready", 10).await;
    let seen: Vec<(&[u8], u32, i32)> = ready
        .iter()
        .map(|delivery| (&delivery.payload[..], delivery.attempts, delivery.priority))
        .collect();
    assert_eq!(seen, [(&b"tried once"[..], 1, 3), (&b"untried"[..], 0, 0)]);
    assert_eq!(client.look("poison").await.dead_letters, 1);
    assert!(client.take("poison", 1).await.is_empty());
    let dead = client.take_one("poison_dead_letter").await;
    assert_eq!(
        (&dead.message_id, dead.headers.get("x-death-queue").map(String::as_str)),
        (&dead_id, Some("poison"))
    );
    assert!(client.take("purged", 1).await.is_empty());
    assert!(client.take("expired", 1).await.is_empty());
}

#[tokio::test]
async fn a_delayed_message_keeps_its_due_time() {
    let mut server = Server::start(&options());
    let mut client = connect(server.messaging()).await;
    let (published, delay) = (Instant::now(), Duration::from_secs(3));
    client
        .put(
            "q",
            Message {
                delay: duration(delay),
                ..message("later")
            },
        )
        .await;
    client
        .put(
            "q",
            Message {
                delay: duration(Duration::from_secs(3600)),
                ..message("much later")
            },
        )
        .await;
    client = again(&mut server, End::Kill).await;
    if published.elapsed() < delay {
        assert_eq!(client.look("q").await.delayed, 2);
    }
    let delivery = client.take_one("q").await;
    let waited = published.elapsed();
    assert_eq!(delivery.payload, "later");
    assert!((delay..delay + Duration::from_secs(2)).contains(&waited), "{waited:?}");
    assert_eq!(client.look("q").await.delayed, 1);
}

#[tokio::test]
async fn ids_given_before_a_restart_settle_messages_after_it() {
    let mut server = Server::start(&options());
    let mut client = connect(server.messaging()).await;
    let id = client.put("q", message("x")).await;
    client.put("q", message("y")).await;
    let before = client.take("q", 1).await;
    client = again(&mut server, End::Kill).await;
    let delivery = client.take_one("q").await;
    assert_eq!(delivery.message_id, id);
    let by_id = boltq_proto::queue::v1::AckRequest {
        message_ids: vec![id],
        ..Default::default()
    };
    assert_eq!(client.ack(by_id).await.unwrap().into_inner().settled, 1);
    assert_eq!(client.done(&before).await, 0, "the lease died with the server");
}

#[test]
fn memory_mode_forgets_and_leaves_no_files() {
    let mut server = Server::start(&ServerOptions::memory());
    BinaryClient::connect(server.messaging()).publish("q", &json!(1));
    server.restart();
    assert_eq!(BinaryClient::connect(server.messaging()).stats()["Queues"], json!({}));
    assert!(!server.directory().data().exists());
}

#[test]
fn a_stop_that_is_asked_for_ends_well_and_leaves_everything_there() {
    let mut server = Server::start(&options());
    let mut client = BinaryClient::connect(server.messaging());
    for number in 0..100 {
        client.publish("q", &json!(number));
    }
    let status = server.terminate();
    assert_eq!(status.code(), Some(0), "{status}");
    server.restart();
    let mut client = BinaryClient::connect(server.messaging());
    for number in 0..100 {
        assert_eq!(client.consume("q").unwrap().payload(), &json!(number));
    }
}

/// The only thread of this client waits for the end of the server, so nobody answers when the server says goodbye.
#[tokio::test]
async fn clients_that_do_not_react_hold_up_a_stop_for_the_grace_and_no_longer() {
    let mut server = Server::start(&options().set("server.shutdown_grace", "1s"));
    let mut client = connect(server.messaging()).await;
    client.put("q", message("x")).await;
    let stopping = Instant::now();
    assert_eq!(server.terminate().code(), Some(0));
    assert!(stopping.elapsed() < Duration::from_secs(5), "{:?}", stopping.elapsed());
    server.restart();
    assert_eq!(connect(server.messaging()).await.look("q").await.ready, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_react_do_not_hold_up_a_stop() {
    let mut server = Server::start(&options());
    let mut client = connect(server.messaging()).await;
    client.put("q", message("x")).await;
    let stopping = Instant::now();
    assert_eq!(server.terminate().code(), Some(0));
    assert!(stopping.elapsed() < Duration::from_secs(5), "{:?}", stopping.elapsed());
}

#[test]
fn an_interrupt_is_a_stop_too() {
    let mut server = Server::start(&options());
    server.signal(rustix::process::Signal::INT);
    let exited = || server.exited();
    let status = boltq_tests::harness::eventually(Duration::from_secs(12), "it stops", exited);
    assert_eq!(status.code(), Some(0), "{status}");
}
