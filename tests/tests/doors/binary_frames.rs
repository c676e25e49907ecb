//! Binary protocol, sections 1, 10 and 11: frames, limits, order, unknown commands, the end of a connection.

use std::time::Duration;

use boltq_tests::harness::binary::{BinaryClient, command, frame, status};
use boltq_tests::harness::{Server, ServerOptions};
use serde_json::{Value, json};

const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;

fn connected() -> (Server, BinaryClient) {
    let server = Server::start(&ServerOptions::memory());
    let client = BinaryClient::connect(server.messaging());
    (server, client)
}

#[test]
fn the_examples_of_the_specification_hold_byte_for_byte() {
    let (_server, mut client) = connected();
    let mut exchange = |request: &[u8], header: [u8; 5], body: &str| {
        client.send_bytes(request).unwrap();
        let reply = client.receive().unwrap();
        assert_eq!(reply.text(), body);
        assert_eq!(frame(reply.status, &reply.body)[..5], header);
    };
    exchange(&[0x06, 0, 0, 0, 0], [0x00, 0x11, 0, 0, 0], r#"{"status":"pong"}"#);
    exchange(b"\x03\x0d\x00\x00\x00{\"topic\":\"q\"}", [0x02, 0, 0, 0, 0], "");
    exchange(
        &[0x7f, 0, 0, 0, 0],
        [0x01, 0x21, 0, 0, 0],
        r#"{"error":"unknown command: 0x7f"}"#,
    );
    client.send_bytes(&[0x01, 0x01, 0x00, 0x40, 0x00]).unwrap();
    assert!(
        client.ends(),
        "a frame above the limit ends the connection without a frame"
    );
}

#[test]
fn a_body_of_four_mebibytes_is_read() {
    let (_server, mut client) = connected();
    client.send(command::PING, &vec![b'x'; FRAME_BYTES_MAX]).unwrap();
    assert_eq!(client.receive().unwrap().ok(), json!({"status": "pong"}));
}

#[test]
fn one_byte_more_ends_the_connection_and_no_other() {
    let (server, mut client) = connected();
    client.set_timeout(Duration::from_secs(5));
    client.call(command::PING, "").ok();
    client.send_bytes(&[command::PING, 0x01, 0x00, 0x40, 0x00]).unwrap();
    assert!(client.ends());
    BinaryClient::connect(server.messaging()).call(command::PING, "").ok();
}

#[test]
fn the_largest_length_that_a_header_can_say_ends_the_connection() {
    let (_server, mut client) = connected();
    client.send_bytes(&[command::PUBLISH, 0xff, 0xff, 0xff, 0xff]).unwrap();
    assert!(client.ends());
}

#[test]
fn a_frame_that_comes_byte_by_byte_is_a_frame() {
    let (_server, mut client) = connected();
    for byte in frame(command::PUBLISH, br#"{"topic":"drip","payload":[1,2]}"#) {
        client.send_bytes(&[byte]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    client.receive().unwrap().ok();
    assert_eq!(client.consume("drip").unwrap().payload(), &json!([1, 2]));
}

#[test]
fn a_connection_may_be_silent_before_its_first_frame_and_after() {
    let (_server, mut client) = connected();
    std::thread::sleep(Duration::from_secs(1));
    client.call(command::PING, "").ok();
    std::thread::sleep(Duration::from_secs(1));
    client.call(command::PING, "").ok();
}

#[test]
fn every_unassigned_command_is_named_and_leaves_the_connection_open() {
    let (_server, mut client) = connected();
    client.call(command::PING, "").ok();
    for code in [0x00].into_iter().chain(0x0a..=0x0f).chain(0x19..=0xff) {
        let reply = client.call(code, "not even JSON");
        assert_eq!(reply.error(), format!("unknown command: {code:#04x}"));
    }
    client.call(command::PING, "").ok();
}

#[test]
fn a_command_whose_body_makes_no_sense_leaves_the_connection_open() {
    let (_server, mut client) = connected();
    for code in [command::PUBLISH_TOPIC]
        .into_iter()
        .chain(command::EXCHANGE_DECLARE..=command::PUBLISH_EXCHANGE)
    {
        let error = client.call(code, r#"{"topic":1,"name":1,"exchange":1}"#).error();
        assert!(error.starts_with("invalid json: "), "{code:#04x}: {error}");
    }
    client.call(command::PING, "").ok();
}

#[test]
fn a_node_alone_says_that_clustering_is_off_before_it_reads_the_body() {
    let (_server, mut client) = connected();
    for code in [command::CLUSTER_JOIN, command::CLUSTER_LEAVE] {
        assert_eq!(client.call(code, "{").error(), "clustering is not enabled");
    }
    assert_eq!(
        client.call(command::CLUSTER_STATUS, "ignored").ok(),
        json!({"enabled": false})
    );
}

#[test]
fn pipelined_requests_are_answered_in_their_order_one_frame_each() {
    let (_server, mut client) = connected();
    let requests = [
        frame(command::PUBLISH, br#"{"topic":"order","payload":1}"#),
        frame(command::PUBLISH, br#"{"topic":"","payload":2}"#),
        frame(command::PUBLISH, br#"{"topic":"order","payload":3}"#),
        frame(command::CONSUME, br#"{"topic":"order"}"#),
        frame(command::PING, b""),
        frame(command::CONSUME, br#"{"topic":"order"}"#),
        frame(command::CONSUME, br#"{"topic":"order"}"#),
        frame(command::ACK, br#"{"id":"nobody"}"#),
        frame(0x0a, b"{}"),
        frame(command::NACK, b""),
        frame(command::PING, b"{}"),
    ];
    client.send_bytes(&requests.concat()).unwrap();
    let replies: Vec<_> = requests.iter().map(|_| client.receive().unwrap()).collect();
    assert_eq!(replies[0].ok()["topic"], "order");
    assert_eq!(replies[1].error(), "topic is required");
    let second = replies[2].ok()["id"].clone();
    assert_eq!(replies[3].ok()["payload"], 1);
    assert_eq!(replies[4].ok(), json!({"status": "pong"}));
    assert_eq!(
        (&replies[5].ok()["payload"], &replies[5].ok()["id"]),
        (&json!(3), &second)
    );
    assert_eq!(replies[6].status, status::EMPTY);
    assert_eq!(replies[7].error(), "message nobody not found in pending");
    assert_eq!(replies[8].error(), "unknown command: 0x0a");
    assert_eq!(replies[9].error(), "invalid json");
    assert_eq!(replies[10].ok(), json!({"status": "pong"}));
}

#[test]
fn a_thousand_pipelined_publishes_and_acks_keep_their_positions() {
    let (_server, mut client) = connected();
    let mut requests = Vec::new();
    for number in 0..1000 {
        let body = json!({"topic": format!("q{}", number % 3), "payload": number}).to_string();
        requests.extend(frame(command::PUBLISH, body.as_bytes()));
    }
    client.send_bytes(&requests).unwrap();
    let published: Vec<Value> = (0..1000).map(|_| client.receive().unwrap().ok()).collect();
    for (number, reply) in published.iter().enumerate() {
        assert_eq!(reply["topic"], format!("q{}", number % 3));
    }
    for number in 0..1000 {
        let body = json!({"topic": format!("q{}", number % 3)}).to_string();
        client.send(command::CONSUME, body.as_bytes()).unwrap();
    }
    let mut acks = Vec::new();
    for (number, sent) in published.iter().enumerate() {
        let taken = client.receive().unwrap().ok();
        assert_eq!((&taken["id"], &taken["payload"]), (&sent["id"], &json!(number)));
        acks.extend(frame(command::ACK, json!({"id": sent["id"]}).to_string().as_bytes()));
    }
    client.send_bytes(&acks).unwrap();
    for _ in 0..1000 {
        assert_eq!(client.receive().unwrap().ok(), json!({"status": "acked"}));
    }
    assert_eq!(client.stats()["PendingCount"], 0);
}

#[test]
fn after_a_half_close_what_was_sent_is_answered_and_the_connection_ends() {
    let (server, mut client) = connected();
    for number in 0..100 {
        client
            .send(
                command::PUBLISH,
                json!({"topic": "half", "payload": number}).to_string().as_bytes(),
            )
            .unwrap();
    }
    client.finish_sending();
    for _ in 0..100 {
        client.receive().unwrap().ok();
    }
    assert!(client.ends());
    let stats = BinaryClient::connect(server.messaging()).stats();
    assert_eq!(stats["Queues"]["half"], 100);
}

#[test]
fn a_request_that_the_close_cuts_off_is_not_carried_out() {
    let (server, mut client) = connected();
    client.call(command::PING, "").ok();
    let whole = frame(command::PUBLISH, br#"{"topic":"cut","payload":1}"#);
    client.send_bytes(&whole[..whole.len() - 1]).unwrap();
    client.finish_sending();
    assert!(client.ends());
    let stats = BinaryClient::connect(server.messaging()).stats();
    assert_eq!(stats["Queues"], json!({}));
}

#[test]
fn shutdown_answers_what_was_asked_and_closes_idle_connections() {
    let (mut server, mut client) = connected();
    client.call(command::PING, "").ok();
    assert!(server.terminate().success());
    assert!(client.ends());
}
