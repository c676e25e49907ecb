//! Binary protocol, section 3: PREFETCH counts the leases that this connection holds (weakness B2).

use std::time::Duration;

use boltq_tests::harness::binary::{BinaryClient, command};
use boltq_tests::harness::{Server, ServerOptions, eventually};
use serde_json::json;

const LIMIT_REACHED: &str = "prefetch limit reached";

fn filled(options: &ServerOptions, messages: u32) -> (Server, BinaryClient) {
    let server = Server::start(options);
    let mut client = BinaryClient::connect(server.messaging());
    for number in 0..messages {
        client.publish("q", &json!(number));
    }
    (server, client)
}

fn prefetch(client: &mut BinaryClient, count: i64) {
    assert_eq!(
        client
            .call(command::PREFETCH, &json!({"count": count}).to_string())
            .ok(),
        json!({"status": "ok"})
    );
}

fn refused(client: &mut BinaryClient) -> bool {
    let reply = client.call(command::CONSUME, r#"{"topic":"q"}"#);
    reply.status != 0 && reply.error() == LIMIT_REACHED
}

#[test]
fn at_the_bound_consume_is_refused_until_something_is_settled() {
    let (_server, mut client) = filled(&ServerOptions::memory(), 5);
    prefetch(&mut client, 2);
    let first = client.consume("q").unwrap();
    let second = client.consume("q").unwrap();
    assert!(refused(&mut client));
    client.ack(&first.id).ok();
    let third = client.consume("q").unwrap();
    assert!(refused(&mut client));
    client.nack(&second.id).ok();
    client.ack(&third.id).ok();
    client.consume("q").unwrap();
    client.consume("q").unwrap();
    assert!(refused(&mut client));
}

#[test]
fn the_bound_is_looked_at_before_the_queue() {
    let (_server, mut client) = filled(&ServerOptions::memory(), 1);
    prefetch(&mut client, 1);
    client.consume("q").unwrap();
    let empty = client.call(command::CONSUME, r#"{"topic":"nothing here"}"#);
    assert_eq!(empty.error(), LIMIT_REACHED);
}

#[test]
fn zero_and_negative_counts_lift_the_bound_at_any_time() {
    let (_server, mut client) = filled(&ServerOptions::memory(), 10);
    client.consume("q").unwrap();
    for none in [0, -1, i64::from(i32::MIN)] {
        prefetch(&mut client, 1);
        assert!(refused(&mut client));
        prefetch(&mut client, none);
        client.consume("q").unwrap();
        client.consume("q").unwrap();
    }
}

#[test]
fn settling_what_another_connection_took_frees_nothing_here() {
    let (server, mut client) = filled(&ServerOptions::memory(), 5);
    let mut other = BinaryClient::connect(server.messaging());
    let foreign = other.consume("q").unwrap();
    prefetch(&mut client, 1);
    client.consume("q").unwrap();
    client.ack(&foreign.id).ok();
    assert!(refused(&mut client));
}

#[test]
fn a_message_that_another_connection_settles_is_no_longer_held() {
    let (server, mut client) = filled(&ServerOptions::memory(), 3);
    prefetch(&mut client, 1);
    let mine = client.consume("q").unwrap();
    BinaryClient::connect(server.messaging()).ack(&mine.id).ok();
    client.consume("q").unwrap();
}

#[test]
fn a_lease_that_times_out_is_no_longer_held() {
    let (_server, mut client) = filled(&ServerOptions::memory().set("queue.ack_timeout", "1s"), 3);
    prefetch(&mut client, 1);
    client.consume("q").unwrap();
    assert!(refused(&mut client));
    eventually(Duration::from_secs(5), "the lease times out", || {
        let reply = client.call(command::CONSUME, r#"{"topic":"q"}"#);
        (reply.status == 0).then_some(())
    });
}

#[test]
fn a_body_that_says_no_count_is_refused() {
    let (_server, mut client) = filled(&ServerOptions::memory(), 0);
    for body in ["", "{", r#"{"count":"many"}"#, r#"{"count":1.5}"#, "[1]"] {
        assert_eq!(
            client.call(command::PREFETCH, body).error(),
            "invalid prefetch payload",
            "{body}"
        );
    }
}
