//! Binary protocol: the bodies of replies, and that payloads come back as they went in (weakness B23).

use std::time::{SystemTime, UNIX_EPOCH};

use boltq_tests::harness::binary::{BinaryClient, Frame, command, status};
use boltq_tests::harness::{Server, ServerOptions};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

fn connected() -> (Server, BinaryClient) {
    let server = Server::start(&ServerOptions::memory());
    let client = BinaryClient::connect(server.messaging());
    (server, client)
}

fn keys(object: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = object
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys
}

/// The text of the payload of a delivery, as it stands in the frame.
fn payload_text(frame: &Frame) -> &str {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        payload: &'a RawValue,
    }
    serde_json::from_str::<Body<'_>>(frame.text())
        .expect("a delivery")
        .payload
        .get()
}

fn is_id(text: &str) -> bool {
    text.len() == 32
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[test]
fn a_publish_is_answered_with_id_and_topic_and_nothing_else() {
    let (_server, mut client) = connected();
    let reply = client
        .call(command::PUBLISH, r#"{"topic":"a \"quoted\" näme","payload":1}"#)
        .ok();
    assert_eq!(keys(&reply), ["id", "topic"]);
    assert_eq!(reply["topic"], "a \"quoted\" näme");
    assert!(is_id(reply["id"].as_str().unwrap()), "{reply}");
}

#[test]
fn ids_do_not_repeat() {
    let (_server, mut client) = connected();
    let mut ids: Vec<String> = (0..500)
        .map(|number| client.publish(&format!("q{}", number % 7), &json!(1)))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 500);
}

#[test]
fn a_delivery_has_the_members_of_the_specification() {
    let (_server, mut client) = connected();
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let headers = json!({"tenant": "acme", "quote": "\"\\\n\u{1}", "": "empty key"});
    client.publish_with(&json!({"topic": "full", "payload": {"image": 981}, "headers": headers}));
    let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let taken = client.consume("full").unwrap().body;
    assert_eq!(
        (&taken["topic"], &taken["payload"]),
        (&json!("full"), &json!({"image": 981}))
    );
    assert_eq!((&taken["headers"], &taken["retry"]), (&headers, &json!(0)));
    let timestamp = u128::from(taken["timestamp"].as_u64().expect("an integer"));
    assert!(
        (before..=after).contains(&timestamp),
        "{before} <= {timestamp} <= {after}"
    );
    assert!(taken.get("subscriber_id").is_none(), "only pushes may carry it");
}

#[test]
fn a_delivery_without_headers_has_no_member_for_them() {
    let (_server, mut client) = connected();
    client.publish("bare", &json!(1));
    let taken = client.consume("bare").unwrap().body;
    assert!(taken.get("headers").is_none());
    assert!(taken.get("payload_encoding").is_none());
}

/// B23, and section 4: "number text included: `1.0` stays `1.0`, big integers stay exact, member order stays".
#[test]
fn payloads_are_passed_through_byte_for_byte() {
    let (_server, mut client) = connected();
    for payload in [
        "1.0",
        "-0",
        "1E400",
        "123456789012345678901234567890",
        "0.1000000000000000055511151231257827",
        r#"{"z":1,"a":2,"z":3}"#,
        "{ \"spaces\" :\t[ 1 ,\r\n 2 ] }",
        r#""<script>&amp;\u003c\/\u2028""#,
        "\"\u{2028}\u{2029}é😀\"",
        r#""{\"a\":1}""#,
        r#"{"subscriber_id":"x","topic":"y"}"#,
        "true",
        "null",
        "[]",
        r#""""#,
    ] {
        client
            .call(command::PUBLISH, &format!(r#"{{"topic":"raw","payload":{payload}}}"#))
            .ok();
        let delivery = client.call(command::CONSUME, r#"{"topic":"raw"}"#);
        assert_eq!(delivery.status, status::OK);
        assert_eq!(payload_text(&delivery), payload);
    }
}

#[test]
fn an_absent_payload_is_delivered_as_null() {
    let (_server, mut client) = connected();
    client.call(command::PUBLISH, r#"{"topic":"none"}"#).ok();
    let delivery = client.call(command::CONSUME, r#"{"topic":"none"}"#);
    assert_eq!(payload_text(&delivery), "null");
}

#[test]
fn statistics_have_five_members_that_are_always_there() {
    let (_server, mut client) = connected();
    let empty = json!({"Queues": {}, "Topics": {}, "DeadLetters": {}, "PendingCount": 0, "DelayedCount": 0});
    assert_eq!(client.call(command::STATS, "ignored").ok(), empty);
}

#[test]
fn statistics_count_ready_leased_and_delayed_apart() {
    let (_server, mut client) = connected();
    for number in 0..3 {
        client.publish("jobs", &json!(number));
    }
    client.publish_with(&json!({"topic": "jobs", "delay": 3_600_000_000_000_u64}));
    client.publish("other \"queue\"", &json!(1));
    client.consume("jobs").unwrap();
    let expected = json!({"Queues": {"jobs": 2, "other \"queue\"": 1}, "Topics": {}, "DeadLetters": {},
        "PendingCount": 1, "DelayedCount": 1});
    assert_eq!(client.stats(), expected);
}

#[test]
fn taking_from_a_queue_that_is_not_there_answers_empty_and_creates_it() {
    let (_server, mut client) = connected();
    assert!(client.consume("new").is_none());
    assert_eq!(client.stats()["Queues"], json!({"new": 0}));
}
