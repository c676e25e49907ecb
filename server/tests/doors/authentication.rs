//! The API key on the binary protocol.

use boltq_server::config::ApiKey;
use serde_json::json;

use crate::harness::*;

async fn locked() -> Server {
    Server::start_with(|config| config.security.api_key = ApiKey::new("s3cret")).await
}

#[tokio::test]
async fn without_a_key_every_auth_is_fine() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for body in ["", "not JSON", r#"{"api_key":"x"}"#] {
        assert_eq!(client.ask(AUTH, body).await, status("ok"));
    }
}

#[tokio::test]
async fn with_a_key_another_first_frame_is_refused_and_the_connection_closed() {
    let server = locked().await;
    for request in [frame(PING, ""), frame(0x7f, ""), frame(PUBLISH, &"x".repeat(1_000_000))] {
        let mut client = server.client().await;
        client.send(&request).await;
        assert_eq!(client.reply().await, error("authentication required, send AUTH first"));
        assert_eq!(client.closed().await, b"");
    }
}

#[tokio::test]
async fn auth_may_be_tried_again() {
    let server = locked().await;
    let mut client = server.client().await;
    for (body, refused) in [
        (r#"{"api_key":"wrong"}"#, "unauthorized"),
        ("{}", "unauthorized"),
        (r#"{"api_key":null}"#, "unauthorized"),
        (r#"{"api_key":5}"#, "invalid auth payload"),
        ("", "invalid auth payload"),
    ] {
        assert_eq!(client.ask(AUTH, body).await, error(refused));
    }
    assert_eq!(client.ask(AUTH, r#"{"api_key":"s3cret"}"#).await, status("ok"));
    assert_eq!(client.ask(PING, "").await, status("pong"));
    // A wrong key now changes nothing.
    assert_eq!(client.ask(AUTH, r#"{"api_key":"wrong"}"#).await, error("unauthorized"));
    client.publish("q", &json!(1)).await;
}

#[tokio::test]
async fn auth_and_what_follows_may_be_sent_together() {
    let server = locked().await;
    let mut client = server.client().await;
    let mut requests = frame(AUTH, r#"{"api_key":"s3cret"}"#);
    requests.extend(frame(PUBLISH, r#"{"topic":"q"}"#));
    client.send(&requests).await;
    assert_eq!(client.reply().await, status("ok"));
    assert_eq!(client.reply().await.0, OK);
}

#[tokio::test]
async fn after_ten_failures_the_connection_is_closed() {
    let server = locked().await;
    let mut client = server.client().await;
    client.send(&frame(AUTH, r#"{"api_key":"wrong"}"#).repeat(11)).await;
    for _ in 0..10 {
        assert_eq!(client.reply().await, error("unauthorized"));
    }
    assert_eq!(client.closed().await, b"");
}

#[tokio::test]
async fn before_authentication_frames_are_short() {
    let server = locked().await;
    let mut client = server.client().await;
    let mut header = vec![AUTH];
    header.extend(65_537_u32.to_le_bytes());
    client.send(&header).await;
    assert_eq!(client.closed().await, b"");

    let mut client = server.client().await;
    let long = format!(r#"{{"api_key":"s3cret"{}}}"#, " ".repeat(65_516));
    assert_eq!(long.len(), 65_536);
    assert_eq!(client.ask(AUTH, &long).await, status("ok"));
}
