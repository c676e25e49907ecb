//! Binary protocol, section 2: who may speak.

use std::time::Duration;

use boltq_tests::harness::binary::{BinaryClient, command, frame};
use boltq_tests::harness::{Server, ServerOptions};
use serde_json::json;

const KEY: &str = "s3cret";

fn locked() -> Server {
    Server::start(&ServerOptions::memory().set("security.api_key", KEY))
}

fn connect(server: &Server) -> BinaryClient {
    let mut client = BinaryClient::connect(server.messaging());
    client.set_timeout(Duration::from_secs(5));
    client
}

fn auth(client: &mut BinaryClient, key: &str) -> boltq_tests::harness::binary::Frame {
    client.call(command::AUTH, &json!({"api_key": key}).to_string())
}

#[test]
fn without_a_key_every_auth_is_ok_whatever_its_body() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(&server);
    for body in ["", "not JSON", r#"{"api_key":"any"}"#, r#"{"api_key":7}"#] {
        assert_eq!(client.call(command::AUTH, body).ok(), json!({"status": "ok"}), "{body}");
    }
}

#[test]
fn the_right_key_opens_the_connection() {
    let server = locked();
    let mut client = connect(&server);
    assert_eq!(auth(&mut client, KEY).ok(), json!({"status": "ok"}));
    client.publish("q", &json!(1));
}

#[test]
fn any_other_first_frame_is_refused_and_the_connection_closed() {
    let server = locked();
    for code in [
        command::PING,
        command::PUBLISH,
        command::STATS,
        command::CLUSTER_STATUS,
        0x18,
    ] {
        let mut client = connect(&server);
        assert_eq!(
            client.call(code, "{}").error(),
            "authentication required, send AUTH first",
            "{code:#04x}"
        );
        assert!(client.ends(), "{code:#04x}");
    }
}

#[test]
fn what_was_pipelined_behind_a_refused_first_frame_is_not_carried_out() {
    let server = locked();
    let mut client = connect(&server);
    let requests = [
        frame(command::PING, b""),
        frame(command::AUTH, br#"{"api_key":"s3cret"}"#),
        frame(command::PUBLISH, br#"{"topic":"q"}"#),
    ];
    client.send_bytes(&requests.concat()).unwrap();
    assert_eq!(
        client.receive().unwrap().error(),
        "authentication required, send AUTH first"
    );
    assert!(client.ends());
    let mut other = connect(&server);
    auth(&mut other, KEY).ok();
    assert_eq!(other.stats()["Queues"], json!({}));
}

#[test]
fn a_wrong_or_missing_key_is_refused_and_may_be_tried_again() {
    let server = locked();
    let mut client = connect(&server);
    for body in [
        r#"{"api_key":"wrong"}"#,
        r#"{"api_key":""}"#,
        "{}",
        r#"{"api_key":"s3cret "}"#,
        r#"{"api_key":null}"#,
    ] {
        assert_eq!(client.call(command::AUTH, body).error(), "unauthorized", "{body}");
    }
    auth(&mut client, KEY).ok();
}

#[test]
fn an_invalid_body_is_named_and_the_connection_stays_open() {
    let server = locked();
    let mut client = connect(&server);
    for body in ["", "{", r#"{"api_key":7}"#, r#"["s3cret"]"#] {
        assert_eq!(
            client.call(command::AUTH, body).error(),
            "invalid auth payload",
            "{body}"
        );
    }
    auth(&mut client, KEY).ok();
}

#[test]
fn a_frame_after_a_failed_attempt_is_still_a_frame_before_authentication() {
    let server = locked();
    let mut client = connect(&server);
    assert_eq!(auth(&mut client, "wrong").error(), "unauthorized");
    assert_eq!(
        client.call(command::PING, "").error(),
        "authentication required, send AUTH first"
    );
    assert!(client.ends());
}

#[test]
fn a_wrong_key_after_the_right_one_is_an_error_that_changes_nothing() {
    let server = locked();
    let mut client = connect(&server);
    auth(&mut client, KEY).ok();
    assert_eq!(auth(&mut client, "wrong").error(), "unauthorized");
    client.call(command::PING, "").ok();
    auth(&mut client, KEY).ok();
}

/// Weakness C6: attempts were unlimited.
#[test]
fn guessing_ends_the_connection() {
    let server = locked();
    let mut client = connect(&server);
    let attempts = (1..=50).find(|number| {
        client
            .try_call(
                command::AUTH,
                &json!({"api_key": format!("guess {number}")}).to_string(),
            )
            .is_err()
    });
    let attempts = attempts.expect("fifty guesses on one connection");
    assert!(
        (2..=11).contains(&attempts),
        "the connection ended at attempt {attempts}"
    );
}

/// Weakness C5: a stranger could make the server hold 4 MiB.
#[test]
fn a_stranger_may_not_send_large_frames() {
    let server = locked();
    let mut client = connect(&server);
    client.send_bytes(&[command::AUTH, 0x00, 0x00, 0x20, 0x00]).unwrap();
    assert!(client.ends());
}
