//! Weakness C6: attempts were unlimited. An address that fails too often is not listened to for a while.

use std::time::Duration;

use boltq_proto::queue::v1::ListQueuesRequest;
use boltq_proto::queue::v1::queue_service_client::QueueServiceClient;
use boltq_tests::harness::binary::{BinaryClient, command};
use boltq_tests::harness::grpc::{channel, reason};
use boltq_tests::harness::{Server, eventually, http};
use serde_json::json;
use tonic::Code;

use crate::keys::{ADMIN, CONSUMER, PRODUCER, binary, options, with_key};

const WITHIN: Duration = Duration::from_secs(30);

/// So few that the bucket does not fill while a test runs: 20 s for each.
fn start() -> Server {
    Server::start(&options().set("security.auth_failures_per_minute", 3))
}

fn stats(server: &Server, key: &str) -> http::Response {
    http::request(server.admin(), "GET", "/stats", &[("x-api-key", key)], b"").unwrap()
}

fn counted(server: &Server, name: &str) -> u64 {
    let metrics = http::get(server.admin(), "/metrics").unwrap();
    let line = metrics
        .text()
        .lines()
        .find(|line| line.starts_with(&format!("{name} ")))
        .unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn who_guesses_is_not_listened_to_at_any_door_and_who_is_in_stays_in() {
    let server = start();
    let mut known = binary(&server, PRODUCER);
    let channel = channel(server.messaging()).await.unwrap();
    let mut queues = QueueServiceClient::new(channel);
    queues
        .list_queues(with_key(ListQueuesRequest::default(), CONSUMER))
        .await
        .unwrap();

    let statuses = [1, 2, 3].map(|guess| stats(&server, &format!("guess {guess}")).status);
    assert_eq!(statuses, [401; 3]);
    let refused = stats(&server, ADMIN);
    assert_eq!(refused.status, 429, "right or wrong, it is not looked at");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=20).contains(&wait), "{wait}");

    let mut stranger = BinaryClient::connect(server.messaging());
    let answer = stranger.call(command::AUTH, &json!({"api_key": ADMIN}).to_string());
    assert!(
        answer.error().starts_with("too many failed attempts from this address"),
        "{}",
        answer.text()
    );

    known.publish("q", &json!(1));
    queues
        .list_queues(with_key(ListQueuesRequest::default(), CONSUMER))
        .await
        .unwrap();
    // One who has a key must not guess another one the quicker for it.
    let guess = queues
        .list_queues(with_key(ListQueuesRequest::default(), ADMIN))
        .await
        .unwrap_err();
    assert_eq!(
        (guess.code(), reason(&guess).as_str()),
        (Code::ResourceExhausted, "TOO_MANY_FAILED_ATTEMPTS")
    );

    assert_eq!(counted(&server, "boltq_authentications_failed_total"), 3);
    assert_eq!(counted(&server, "boltq_authentications_throttled_total"), 3);
    let log = server.log();
    assert!(
        log.contains("wrong or missing API key") && log.contains("peer=127.0.0.1:"),
        "{log}"
    );
    assert!(log.contains("too many failed attempts from an address"), "{log}");
    assert!(!log.contains("guess 1"), "{log}");
}

#[test]
fn an_address_is_listened_to_again_after_a_while() {
    let server = Server::start(&options().set("security.auth_failures_per_minute", 60));
    eventually(WITHIN, "the address has failed too often", || {
        (stats(&server, "guess").status == 429).then_some(())
    });
    eventually(WITHIN, "the right key is looked at", || {
        (stats(&server, ADMIN).status == 200).then_some(())
    });
}

#[test]
fn who_shows_nothing_has_guessed_nothing() {
    let server = start();
    for _ in 0..10 {
        assert_eq!(http::get(server.admin(), "/stats").unwrap().status, 401);
    }
    assert_eq!(stats(&server, ADMIN).status, 200);
}

#[test]
fn without_a_limit_everybody_is_listened_to() {
    let server = Server::start(&options().set("security.auth_failures_per_minute", 0));
    for _ in 0..100 {
        assert_eq!(stats(&server, "guess").status, 401);
    }
    assert_eq!(stats(&server, ADMIN).status, 200);
}
