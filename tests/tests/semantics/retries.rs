//! Failed attempts: counted, with a growing pause between them (weakness B3).

use std::time::{Duration, Instant};

use boltq_tests::harness::binary::{BinaryClient, Taken};
use boltq_tests::harness::{Server, ServerOptions, eventually};
use serde_json::json;

fn connected(options: &ServerOptions) -> (Server, BinaryClient) {
    let server = Server::start(options);
    let client = BinaryClient::connect(server.messaging());
    (server, client)
}

fn quick_retries(max_retry: i64) -> ServerOptions {
    ServerOptions::memory()
        .set("queue.max_retry", max_retry)
        .set("queue.retry_backoff", "1ms")
}

fn wait_for(client: &mut BinaryClient, queue: &str) -> Taken {
    eventually(Duration::from_secs(5), "a delivery", || client.consume(queue))
}

/// Example 2 of the specification.
#[test]
fn with_two_retries_the_third_failure_is_the_last() {
    let (_server, mut client) = connected(&quick_retries(2));
    client.publish("q", &json!("poison"));
    for retry in 0..3 {
        let taken = wait_for(&mut client, "q");
        assert_eq!(taken.retry(), retry);
        client.nack(&taken.id).ok();
    }
    std::thread::sleep(Duration::from_millis(100));
    assert!(client.consume("q").is_none());
    let stats = client.stats();
    assert_eq!(stats["DeadLetters"], json!({"q_dead_letter": 1}));
    assert_eq!((&stats["Queues"]["q"], &stats["PendingCount"]), (&json!(0), &json!(0)));
}

#[test]
fn the_default_is_five_retries() {
    let (_server, mut client) = connected(&ServerOptions::memory().set("queue.retry_backoff", "1ms"));
    client.publish("q", &json!("poison"));
    let mut deliveries = 0;
    eventually(Duration::from_secs(10), "it dies", || {
        if let Some(taken) = client.consume("q") {
            deliveries += 1;
            client.nack(&taken.id).ok();
        }
        (client.stats()["DeadLetters"] == json!({"q_dead_letter": 1})).then_some(())
    });
    assert_eq!(deliveries, 6);
}

/// Weakness C15: "no retries" could not be configured.
#[test]
fn without_retries_the_first_failure_is_the_last() {
    let (_server, mut client) = connected(&quick_retries(-1));
    client.publish("q", &json!("poison"));
    let taken = client.consume("q").unwrap();
    client.nack(&taken.id).ok();
    assert_eq!(wait_for(&mut client, "q_dead_letter").id, taken.id);
    assert!(client.consume("q").is_none());
}

/// 100 ms, doubling, with jitter.
#[test]
fn the_pause_between_attempts_grows() {
    let (_server, mut client) = connected(&ServerOptions::memory());
    client.publish("q", &json!("fails"));
    let mut taken = client.consume("q").unwrap();
    for base_ms in [100, 200, 400] {
        client.nack(&taken.id).ok();
        let failed = Instant::now();
        taken = wait_for(&mut client, "q");
        let pause = failed.elapsed();
        // Jitter may take half of it away or add half to it; the rest is the machine's slack.
        let allowed = Duration::from_millis(base_ms / 2)..Duration::from_millis(base_ms * 3 / 2 + 150);
        assert!(allowed.contains(&pause), "{pause:?} after a pause of {base_ms} ms");
    }
}

#[test]
fn a_message_in_its_pause_does_not_block_the_others() {
    let (_server, mut client) = connected(&ServerOptions::memory().set("queue.retry_backoff", "20s"));
    for number in 0..3 {
        client.publish("q", &json!(number));
    }
    let first = client.consume("q").unwrap();
    client.nack(&first.id).ok();
    assert_eq!(client.consume("q").unwrap().payload(), 1);
    assert_eq!(client.consume("q").unwrap().payload(), 2);
    assert!(client.consume("q").is_none());
    assert_eq!(
        client.stats()["Queues"]["q"],
        1,
        "what waits for its next attempt counts as ready"
    );
}

/// Example 5 of the specification.
#[test]
fn a_lease_that_times_out_is_a_failed_attempt() {
    let (_server, mut client) = connected(&quick_retries(5).set("queue.ack_timeout", "1s"));
    client.publish("q", &json!("forgotten"));
    let taken = client.consume("q").unwrap();
    let leased = Instant::now();
    let again = wait_for(&mut client, "q");
    assert_eq!((&again.id, again.retry()), (&taken.id, 1));
    let held = leased.elapsed();
    assert!(
        (Duration::from_millis(990)..Duration::from_millis(2500)).contains(&held),
        "{held:?}"
    );
}

#[test]
fn timeouts_lead_to_the_dead_letters_too() {
    let (_server, mut client) = connected(&quick_retries(1).set("queue.ack_timeout", "1s"));
    client.publish("q", &json!("forgotten"));
    client.consume("q").unwrap();
    wait_for(&mut client, "q");
    let dead = wait_for(&mut client, "q_dead_letter");
    assert_eq!(dead.payload(), "forgotten");
    assert!(client.consume("q").is_none());
}

/// Weakness B1: a clean end of the connection is not the message's fault.
#[test]
fn a_disconnect_is_not_a_failed_attempt() {
    let (server, mut client) = connected(&quick_retries(1));
    client.publish("q", &json!("x"));
    for _ in 0..5 {
        let mut other = BinaryClient::connect(server.messaging());
        assert_eq!(wait_for(&mut other, "q").retry(), 0);
    }
    assert_eq!(client.stats()["DeadLetters"], json!({}));
}
