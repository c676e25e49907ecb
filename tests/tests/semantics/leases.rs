//! One lease at a time: who holds a message, until when, and who may settle it (weaknesses B1, B2, B7).

use std::time::Duration;

use boltq_proto::queue::v1::{AckRequest, SettleFailureReason};
use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::grpc::{QueueCalls, connect, message};
use boltq_tests::harness::{Server, ServerOptions, eventually};
use serde_json::json;

fn options() -> ServerOptions {
    ServerOptions::memory()
        .set("queue.retry_backoff", "1ms")
        .set("queue.ack_timeout", "1s")
}

#[test]
fn a_leased_message_is_delivered_to_nobody_else() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = BinaryClient::connect(server.messaging());
    client.publish("q", &json!(1));
    client.consume("q").unwrap();
    assert!(client.consume("q").is_none());
    assert!(BinaryClient::connect(server.messaging()).consume("q").is_none());
}

/// Weakness B1: leases of a closed connection waited for their timeout.
#[test]
fn the_leases_of_a_closed_connection_end_at_once() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = BinaryClient::connect(server.messaging());
    for number in 0..50 {
        client.publish("q", &json!(number));
    }
    let mut leaving = BinaryClient::connect(server.messaging());
    let taken: Vec<_> = (0..20).map(|_| leaving.consume("q").unwrap()).collect();
    leaving.ack(&taken[0].id).ok();
    drop(leaving);
    eventually(Duration::from_secs(2), "they end", || {
        (client.stats()["PendingCount"] == 0).then_some(())
    });
    assert_eq!(client.stats()["Queues"]["q"], 49);
    assert_eq!(client.consume("q").unwrap().retry(), 0);
}

#[test]
fn a_half_closed_connection_gives_its_leases_back_too() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = BinaryClient::connect(server.messaging());
    client.publish("q", &json!(1));
    let mut leaving = BinaryClient::connect(server.messaging());
    leaving.consume("q").unwrap();
    leaving.finish_sending();
    eventually(Duration::from_secs(2), "it is ready again", || client.consume("q"));
}

/// A gRPC call has no connection that could end, so its leases end by time only.
#[tokio::test]
async fn the_leases_of_a_call_outlive_its_connection() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    client.put("q", message("x")).await;
    let mut leaving = connect(server.messaging()).await;
    let taken = leaving.take("q", 1).await;
    drop(leaving);
    assert!(client.take("q", 1).await.is_empty());
    assert_eq!(client.done(&taken).await, 1);
}

/// Weakness B7: nobody else has the message, so the late acknowledgement is good.
#[tokio::test]
async fn a_late_ack_is_accepted_while_nobody_else_holds_the_message() {
    // A long pause after the failed attempt: nobody takes the message before the late ack comes.
    let server = Server::start(&options().set("queue.retry_backoff", "20s"));
    let mut client = connect(server.messaging()).await;
    client.put("q", message("x")).await;
    let taken = client.take("q", 1).await;
    let mut binary = BinaryClient::connect(server.messaging());
    eventually(Duration::from_secs(4), "the lease times out", || {
        (binary.stats()["PendingCount"] == 0).then_some(())
    });
    assert_eq!(client.done(&taken).await, 1);
    let queue = client.look("q").await;
    assert_eq!((queue.ready, queue.leased), (0, 0));
}

#[tokio::test]
async fn the_token_of_a_lost_lease_settles_nothing() {
    let server = Server::start(&options());
    let mut client = connect(server.messaging()).await;
    client.put("q", message("x")).await;
    let old = client.take_one("q").await;
    let new = client.take_one("q").await;
    assert_eq!((new.attempts, &new.message_id), (1, &old.message_id));
    assert_ne!(old.delivery_token, new.delivery_token);
    let request = AckRequest {
        delivery_tokens: vec![old.delivery_token],
        ..Default::default()
    };
    let answer = client.ack(request).await.unwrap().into_inner();
    assert_eq!(
        (answer.settled, answer.failures[0].reason()),
        (0, SettleFailureReason::LeaseLost)
    );
    assert_eq!(client.done(&[new]).await, 1);
}

/// Example 9 of the specification.
#[tokio::test]
async fn leased_messages_survive_a_purge() {
    let server = Server::start(&options());
    let mut client = connect(server.messaging()).await;
    for payload in ["acked", "comes back", "purged"] {
        client.put("q", message(payload)).await;
    }
    let taken = client.take("q", 2).await;
    let purge = boltq_proto::queue::v1::PurgeQueueRequest { queue: "q".into() };
    assert_eq!(client.purge_queue(purge).await.unwrap().into_inner().purged, 1);
    assert_eq!(client.done(&taken[..1]).await, 1);
    let again = client.take_one("q").await;
    assert_eq!((&again.payload[..], again.attempts), (&b"comes back"[..], 1));
    assert!(client.take("q", 1).await.is_empty());
}

#[test]
fn messages_of_all_queues_can_be_acknowledged_by_id_alone() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = BinaryClient::connect(server.messaging());
    let ids: Vec<String> = (0..10)
        .map(|number| {
            let queue = format!("q{number}");
            let body = json!({"topic": queue, "payload": 1, "priority": number});
            let id = client.publish_with(&body);
            client.consume(&queue).unwrap();
            id
        })
        .collect();
    for id in ids {
        client.ack(&id).ok();
    }
    assert_eq!(client.stats()["PendingCount"], 0);
}
