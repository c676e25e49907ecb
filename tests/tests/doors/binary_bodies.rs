//! Binary protocol, section 1 "Body parsing" and the error tables of sections 4 and 5.

use boltq_tests::harness::binary::{BinaryClient, command, status};
use boltq_tests::harness::{Server, ServerOptions};
use serde_json::json;

fn connected() -> (Server, BinaryClient) {
    let server = Server::start(&ServerOptions::memory());
    let client = BinaryClient::connect(server.messaging());
    (server, client)
}

#[test]
fn a_publish_that_is_no_json_object_of_the_right_types_is_invalid_json() {
    let (_server, mut client) = connected();
    for body in [
        "",
        "{",
        "nonsense",
        r#"{"topic":"q"} x"#,
        r#"{"topic":"q"}{"topic":"q"}"#,
        r#"[{"topic":"q"}]"#,
        r#""q""#,
        "3",
        r#"{"topic":5}"#,
        r#"{"topic":["q"]}"#,
        r#"{"topic":"q","headers":[]}"#,
        r#"{"topic":"q","headers":"k=v"}"#,
        r#"{"topic":"q","headers":{"k":1}}"#,
        r#"{"topic":"q","headers":{"k":{"a":"b"}}}"#,
        r#"{"topic":"q","delay":1.5}"#,
        r#"{"topic":"q","delay":"1s"}"#,
        r#"{"topic":"q","delay":9223372036854775808}"#,
        r#"{"topic":"q","ttl":true}"#,
        r#"{"topic":"q","priority":"high"}"#,
        r#"{"topic":"q","priority":4.2}"#,
        r#"{"topic":"q","payload":tru}"#,
        r#"{"topic":"q","payload":{"a":}}"#,
        r#"{"topic":"q","payload":01}"#,
        "{\"topic\":\"q\",\"payload\":\"\u{1}\"}",
    ] {
        let error = client.call(command::PUBLISH, body).error();
        let detail = error
            .strip_prefix("invalid json: ")
            .unwrap_or_else(|| panic!("{body}: {error}"));
        assert!(!detail.is_empty(), "{body}");
    }
    assert_eq!(client.stats()["Queues"], json!({}), "nothing was published");
}

#[test]
fn bytes_that_are_not_utf8_are_invalid_json() {
    let (_server, mut client) = connected();
    for body in [
        &b"{\"topic\":\"\xff\"}"[..],
        b"{\"topic\":\"q\",\"payload\":\"\xc3\"}",
        b"\xfe\xff",
    ] {
        client.send(command::PUBLISH, body).unwrap();
        assert!(client.receive().unwrap().error().starts_with("invalid json: "));
    }
}

#[test]
fn space_around_the_value_unknown_members_and_null_are_fine() {
    let (_server, mut client) = connected();
    for body in [
        " {\"topic\":\"q\"}\r\n\t ",
        r#"{"topic":"q","unknown":{"deep":[1,2,{"topic":3}]},"retry":"x"}"#,
        r#"{"topic":"q","payload":null,"headers":null,"delay":null,"ttl":null,"priority":null}"#,
        r#"{"topic":"q","headers":{}}"#,
    ] {
        client.call(command::PUBLISH, body).ok();
        let taken = client.consume("q").unwrap();
        assert_eq!(
            (taken.payload(), taken.body.get("headers")),
            (&json!(null), None),
            "{body}"
        );
    }
}

#[test]
fn member_names_match_without_regard_to_case() {
    let (_server, mut client) = connected();
    client
        .call(
            command::PUBLISH,
            r#"{"Topic":"case","PAYLOAD":7,"Headers":{"K":"V"},"priority":1}"#,
        )
        .ok();
    let taken = client.call(command::CONSUME, r#"{"TOPIC":"case"}"#).ok();
    assert_eq!((&taken["payload"], &taken["headers"]), (&json!(7), &json!({"K": "V"})));
    let ack = json!({"ID": taken["id"]}).to_string();
    assert_eq!(client.call(command::ACK, &ack).ok(), json!({"status": "acked"}));
}

#[test]
fn escapes_in_names_are_understood() {
    let (_server, mut client) = connected();
    client
        .call(
            command::PUBLISH,
            r#"{"t\u006fpic":"gr\u00f6\u00dfe \ud83d\ude00","payload":1}"#,
        )
        .ok();
    let taken = client.consume("größe 😀").unwrap();
    assert_eq!(taken.body["topic"], "größe 😀");
}

#[test]
fn a_topic_is_required() {
    let (_server, mut client) = connected();
    for command in [command::PUBLISH, command::CONSUME] {
        for body in ["{}", r#"{"topic":""}"#, r#"{"topic":null}"#, r#"{"payload":1}"#] {
            assert_eq!(
                client.call(command, body).error(),
                "topic is required",
                "{command:#04x} {body}"
            );
        }
    }
}

#[test]
fn a_consume_that_does_not_parse_is_refused() {
    let (_server, mut client) = connected();
    for body in ["", "{", r#"{"topic":7}"#, r#"{"topic":"q"}]"#] {
        let error = client.call(command::CONSUME, body).error();
        assert!(error.starts_with("invalid json"), "{body}: {error}");
    }
}

#[test]
fn acks_and_nacks_have_the_texts_of_the_table() {
    let (_server, mut client) = connected();
    for command in [command::ACK, command::NACK] {
        for body in ["", "{", "[]", r#"{"id":7}"#, r#"{"id":"a"} b"#] {
            assert_eq!(
                client.call(command, body).error(),
                "invalid json",
                "{command:#04x} {body}"
            );
        }
        for body in ["{}", r#"{"id":""}"#, r#"{"id":null}"#] {
            assert_eq!(
                client.call(command, body).error(),
                "id is required",
                "{command:#04x} {body}"
            );
        }
        for id in [
            "x",
            "5f0c9a1be2d34f7786a1c0ffee123456",
            &"0".repeat(32),
            "id \\ \" with quotes",
            "größe",
        ] {
            let error = client.call(command, &json!({"id": id}).to_string()).error();
            assert_eq!(error, format!("message {id} not found in pending"), "{command:#04x}");
        }
    }
}

#[test]
fn a_message_is_settled_once() {
    let (_server, mut client) = connected();
    let id = client.publish("once", &json!("x"));
    assert_eq!(
        client.ack(&id).error(),
        format!("message {id} not found in pending"),
        "it is ready, not taken"
    );
    assert_eq!(client.consume("once").unwrap().id, id);
    assert_eq!(client.ack(&id).ok(), json!({"status": "acked"}));
    assert_eq!(client.ack(&id).error(), format!("message {id} not found in pending"));
    assert_eq!(client.nack(&id).error(), format!("message {id} not found in pending"));
}

#[test]
fn any_connection_may_settle_a_message() {
    let (server, mut client) = connected();
    let id = client.publish("any", &json!("x"));
    client.consume("any").unwrap();
    let mut other = BinaryClient::connect(server.messaging());
    assert_eq!(other.ack(&id).ok(), json!({"status": "acked"}));
    assert_eq!(client.ack(&id).error(), format!("message {id} not found in pending"));
}

#[test]
fn numbers_at_the_ends_of_their_ranges_are_taken() {
    let (_server, mut client) = connected();
    client
        .call(command::PUBLISH, r#"{"topic":"late","delay":9223372036854775807}"#)
        .ok();
    client
        .call(
            command::PUBLISH,
            r#"{"topic":"n","payload":"low","delay":-9223372036854775808,"priority":-5}"#,
        )
        .ok();
    client
        .call(
            command::PUBLISH,
            r#"{"topic":"n","payload":"high","ttl":9223372036854775807,"priority":99}"#,
        )
        .ok();
    assert_eq!(client.consume("n").unwrap().payload(), "high");
    assert_eq!(client.consume("n").unwrap().payload(), "low");
    assert_eq!(
        client.call(command::CONSUME, r#"{"topic":"late"}"#).status,
        status::EMPTY
    );
    assert_eq!(client.stats()["DelayedCount"], 1);
}

#[test]
fn names_that_break_the_rules_are_refused_and_the_connection_goes_on() {
    let (_server, mut client) = connected();
    for name in [
        "x".repeat(201),
        "ü".repeat(101),
        "a\0b".to_owned(),
        "line\nbreak".to_owned(),
        "\u{85}".to_owned(),
    ] {
        for command in [command::PUBLISH, command::CONSUME] {
            let error = client.call(command, &json!({"topic": name}).to_string()).error();
            assert!(error.starts_with("queue name has "), "{name:?}: {error}");
        }
    }
    assert_eq!(client.stats()["Queues"], json!({}));
    client.publish(&"x".repeat(200), &json!(1));
}

#[test]
fn what_was_accepted_fits_into_a_frame_when_it_is_delivered() {
    let (_server, mut client) = connected();
    let largest = 4 * 1024 * 1024 - 64 * 1024;
    // Two bytes of the payload are its quotes.
    let payload = json!("x".repeat(largest - 2));
    let id = client.publish("big", &payload);
    let taken = client.consume("big").unwrap();
    assert_eq!((taken.id.as_str(), taken.payload() == &payload), (id.as_str(), true));
    let body = json!({"topic": "big", "payload": "x".repeat(largest - 1)}).to_string();
    let error = client.call(command::PUBLISH, &body).error();
    assert!(error.contains("bytes"), "{error}");
    client.call(command::PING, "").ok();
}

/// 60 kB of control characters are 360 kB of JSON escapes: more than the head-room of a frame. With a payload that leaves
/// room they are delivered; with the largest one the publish or the delivery is refused, and the connection goes on.
#[test]
fn headers_that_need_many_escapes_never_make_a_frame_over_the_limit() {
    let (_server, mut client) = connected();
    let value = "\u{1}".repeat(60_000);
    let largest = 4 * 1024 * 1024 - 64 * 1024 - 60_000 - 3;
    let small = json!({"topic": "small", "payload": "y".repeat(largest - 360_000), "headers": {"k": value}});
    client.publish_with(&small);
    assert_eq!(client.consume("small").unwrap().body["headers"]["k"], value);
    // Escaped the request would be over the limit too; as raw UTF-8 above U+001F it is not: U+007F needs no escape.
    let quotes = "\"".repeat(60_000);
    let body = json!({"topic": "large", "payload": "y".repeat(largest), "headers": {"k": quotes}}).to_string();
    if client.call(command::PUBLISH, &body).status == status::OK {
        let delivery = client.call(command::CONSUME, r#"{"topic":"large"}"#);
        assert!(delivery.status == status::ERROR || delivery.body.len() <= 4 * 1024 * 1024);
    }
    client.call(command::PING, "").ok();
}
