//! How long things take.

use std::time::Duration;

use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::grpc::{QueueCalls, connect, message};
use boltq_tests::harness::{Server, ServerOptions, http};
use serde_json::json;

use super::scrape::Scrape;

fn count(scrape: &Scrape, histogram: &str, labels: &str) -> f64 {
    let braces = |inner: &str| match (labels, inner) {
        ("", "") => String::new(),
        ("", inner) => format!("{{{inner}}}"),
        (labels, "") => format!("{{{labels}}}"),
        (labels, inner) => format!("{{{labels},{inner}}}"),
    };
    let count = scrape.value(&format!("{histogram}_count{}", braces("")));
    let all = braces(r#"le="+Inf""#);
    assert_eq!(scrape.value(&format!("{histogram}_bucket{all}")), count, "{histogram}");
    count
}

#[tokio::test]
async fn publishes_are_timed_by_door() {
    let server = Server::start(&ServerOptions::disk());
    let mut grpc = connect(server.messaging()).await;
    for _ in 0..3 {
        grpc.put("q", message("x")).await;
    }
    BinaryClient::connect(server.messaging()).publish("q", &json!(1));
    let body = json!({"topic": "t", "payload": 1}).to_string();
    for _ in 0..2 {
        let published = http::request(server.admin(), "POST", "/publish/topic", &[], body.as_bytes()).unwrap();
        assert_eq!(published.status, 200);
    }
    let scrape = Scrape::of(server.admin());
    let publishes = |door: &str| count(&scrape, "boltq_publish_seconds", &format!(r#"door="{door}""#));
    assert_eq!(
        (publishes("grpc"), publishes("binary"), publishes("http")),
        (3.0, 1.0, 2.0)
    );
    // Each of them was waited for, and needed an entry that was synced.
    for of_the_group in [
        "boltq_raft_commit_seconds",
        "boltq_raft_entry_proposals",
        "boltq_raft_append_seconds",
    ] {
        assert!(
            count(&scrape, of_the_group, r#"group="queue""#) >= 6.0,
            "{of_the_group}"
        );
    }
    assert!(count(&scrape, "boltq_storage_sync_seconds", "") >= 6.0);
    assert!(scrape.value(r#"boltq_publish_seconds_sum{door="grpc"}"#) > 0.0);
}

#[tokio::test]
async fn messages_are_timed_until_their_first_delivery_and_their_settlement() {
    let server = Server::start(&ServerOptions::memory().set("queue.retry_backoff", "0s"));
    let mut client = connect(server.messaging()).await;
    for _ in 0..4 {
        client.put("q", message("x")).await;
    }
    let delay = Duration::from_millis(1);
    let mut late = message("y");
    late.delay = boltq_tests::harness::grpc::duration(delay);
    client.put("q", late).await;
    let deliveries = client.take("q", 4).await;
    assert_eq!(deliveries.len(), 4);
    // One is late, and waits for its time only.
    let fifth = client.take_one("q").await;
    let nack = boltq_proto::queue::v1::NackRequest {
        delivery_tokens: vec![fifth.delivery_token],
        ..boltq_proto::queue::v1::NackRequest::default()
    };
    client.nack(nack).await.unwrap();
    // It was delivered before.
    let again = client.take_one("q").await;
    assert_eq!(again.attempts, 1);
    assert_eq!(client.done(&deliveries).await, 4);
    let scrape = Scrape::of(server.admin());
    assert_eq!(count(&scrape, "boltq_delivery_wait_seconds", ""), 5.0);
    assert_eq!(count(&scrape, "boltq_lease_seconds", ""), 5.0);
    // Whoever has died is not counted as if it had been settled.
    assert!(scrape.value("boltq_delivery_wait_seconds_sum") > 0.0);
}
