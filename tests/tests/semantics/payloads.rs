//! One message, several doors: what was published here is what is delivered there.

use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, message};
use boltq_tests::harness::{Server, ServerOptions};
use serde_json::json;

async fn both_doors() -> (Server, QueueClient, BinaryClient) {
    let server = Server::start(&ServerOptions::memory());
    let grpc = connect(server.messaging()).await;
    let binary = BinaryClient::connect(server.messaging());
    (server, grpc, binary)
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `TestPublishConsume`.
#[tokio::test]
async fn a_publish_over_one_door_is_a_delivery_over_the_other() {
    let (_server, mut grpc, mut binary) = both_doors().await;
    let id = binary.publish_with(&json!({"topic": "q", "payload": {"a": [1.0]}, "headers": {"k": "v"}, "priority": 3}));
    let delivery = grpc.take_one("q").await;
    assert_eq!(
        (hex(&delivery.message_id), &delivery.payload[..]),
        (id, &br#"{"a":[1.0]}"#[..])
    );
    assert_eq!(
        (delivery.headers.get("k").map(String::as_str), delivery.priority),
        (Some("v"), 3)
    );
    assert_eq!(delivery.content_type, "application/json");
}

#[tokio::test]
async fn bytes_that_are_no_json_are_base64_on_the_binary_door() {
    let (_server, mut grpc, mut binary) = both_doors().await;
    for (payload, base64) in [
        (&b"\xff\x00\xfe"[..], "/wD+"),
        (b"", ""),
        (b"plain text", "cGxhaW4gdGV4dA=="),
        (b"17", "MTc="),
    ] {
        let id = grpc.put("q", message(payload)).await;
        let taken = binary.consume("q").unwrap();
        assert_eq!(
            (taken.id.as_str(), taken.payload()),
            (hex(&id).as_str(), &json!(base64))
        );
        assert_eq!(taken.body["payload_encoding"], "base64");
    }
}

#[tokio::test]
async fn json_from_grpc_is_embedded_as_it_is() {
    let (_server, mut grpc, mut binary) = both_doors().await;
    let published = Message {
        content_type: "application/json".into(),
        ..message(r#"{"n":1.50}"#)
    };
    grpc.put("q", published).await;
    let reply = binary.call(0x03, r#"{"topic":"q"}"#);
    assert!(reply.text().contains(r#""payload":{"n":1.50}"#), "{}", reply.text());
    assert!(reply.json().get("payload_encoding").is_none());
}

#[tokio::test]
async fn the_content_type_travels_with_the_message() {
    let (_server, mut grpc, _) = both_doors().await;
    for content_type in ["", "text/plain; charset=utf-8", "application/json", "x"] {
        grpc.put(
            "q",
            Message {
                content_type: content_type.into(),
                ..message("1")
            },
        )
        .await;
        assert_eq!(grpc.take_one("q").await.content_type, content_type);
    }
}

/// A client library sends objects as a JSON string that contains JSON: deliver a string, do not unwrap.
#[tokio::test]
async fn json_inside_a_string_stays_a_string() {
    let (_server, mut grpc, mut binary) = both_doors().await;
    binary.publish("q", &json!(r#"{"a":1}"#));
    assert_eq!(binary.consume("q").unwrap().payload(), &json!(r#"{"a":1}"#));
    binary.publish("q", &json!(r#"{"a":1}"#));
    assert_eq!(grpc.take_one("q").await.payload, r#""{\"a\":1}""#);
}

#[tokio::test]
async fn a_message_taken_over_one_door_is_settled_over_the_other() {
    let (_server, mut grpc, mut binary) = both_doors().await;
    let id = grpc.put("q", message("x")).await;
    grpc.take_one("q").await;
    binary.ack(&hex(&id)).ok();
    binary.publish("q", &json!(1));
    let taken = binary.consume("q").unwrap();
    let id: Vec<u8> = (0..16)
        .map(|at| u8::from_str_radix(&taken.id[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    let request = boltq_proto::queue::v1::AckRequest {
        message_ids: vec![id.into()],
        ..Default::default()
    };
    assert_eq!(grpc.ack(request).await.unwrap().into_inner().settled, 1);
}
