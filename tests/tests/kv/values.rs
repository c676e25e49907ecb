//! What is stored comes back.

use boltq_proto::kv::v1::SetRequest;
use boltq_tests::harness::{Server, ServerOptions};
use serde_json::{Value, json};

use super::client::{connect, done, entry, look};

fn server() -> Server {
    Server::start(&ServerOptions::memory())
}

/// Conformance case 8 of the admin API, and its neighbours.
#[test]
fn over_http_a_value_is_json_if_it_can_be_and_text_otherwise() {
    let server = server();
    for (given, back) in [
        (json!("007"), json!("007")),
        (json!("7"), json!(7)),
        (json!("true"), json!(true)),
        (json!("{}"), json!({})),
        (json!("text"), json!("text")),
        (json!(""), json!("")),
        (json!(null), json!(null)),
        (json!("null"), json!(null)),
        (json!(7.25), json!(7.25)),
        (
            json!({"b": [1, {"a": null}], "ä": "\u{1}"}),
            json!({"b": [1, {"a": null}], "ä": "\u{1}"}),
        ),
    ] {
        done(server.admin(), "set", &json!({"key": "k", "value": given}));
        let value = look(server.admin(), "get?key=k")["value"].take();
        // `null` is what an absent value is.
        let back = if given.is_null() { json!("") } else { back };
        assert_eq!(value, back, "{given}");
    }
    done(server.admin(), "set", &json!({"key": "k"}));
    assert_eq!(look(server.admin(), "get?key=k")["value"], "");
}

#[tokio::test(flavor = "multi_thread")]
async fn over_grpc_a_value_is_its_bytes() {
    let server = server();
    let mut client = connect(server.messaging()).await;
    assert!(entry(&mut client, "k").await.is_none());
    let bytes: Vec<u8> = (0..=255).collect();
    let set = SetRequest {
        key: "k".to_owned(),
        value: bytes.clone().into(),
        ..SetRequest::default()
    };
    let version = client.set(set).await.unwrap().into_inner().version;
    let stored = entry(&mut client, "k").await.unwrap();
    assert_eq!(
        (stored.key.as_str(), &stored.value[..], stored.version),
        ("k", &bytes[..], version)
    );
    assert!(stored.created_at.is_some() && stored.expires_at.is_none());
    // JSON has no bytes: what is no text is shown as replacement characters.
    let shown = look(server.admin(), "get?key=k")["value"].take();
    assert!(shown.as_str().unwrap().starts_with("\u{0}\u{1}"), "{shown}");
    assert!(shown.as_str().unwrap().ends_with("\u{fffd}\u{fffd}"), "{shown}");
    assert_eq!(look(server.admin(), "entries")["entries"][0]["size"], 256);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_doors_see_the_same() {
    let server = server();
    let mut client = connect(server.messaging()).await;
    done(server.admin(), "set", &json!({"key": "k", "value": {"a": [1, 2]}}));
    let stored = entry(&mut client, "k").await.unwrap();
    let value: Value = serde_json::from_slice(&stored.value).unwrap();
    assert_eq!(value, json!({"a": [1, 2]}));
    done(server.admin(), "set", &json!({"key": "k", "value": "plain"}));
    let again = entry(&mut client, "k").await.unwrap();
    assert_eq!(&again.value[..], b"plain");
    assert!(again.version > stored.version);
}
