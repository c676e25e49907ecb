//! Requests with JSON bodies.

use std::net::SocketAddr;
use std::time::Duration;

use boltq_tests::harness::{Server, ServerOptions, eventually, http};
use serde_json::{Value, json};

/// Longer than anything takes on a machine that stands still now and then.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn server() -> Server {
    Server::start(&ServerOptions::memory())
}

pub(crate) fn get(admin: SocketAddr, path: &str) -> http::Response {
    http::get(admin, path).unwrap()
}

pub(crate) fn post(admin: SocketAddr, path: &str, body: &Value) -> http::Response {
    http::request(admin, "POST", path, &[], body.to_string().as_bytes()).unwrap()
}

/// The body of an answer that has to be 200.
#[track_caller]
pub(crate) fn done(response: &http::Response) -> Value {
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("content-type"), Some("application/json"));
    response.json()
}

/// Status and text of an error.
#[track_caller]
pub(crate) fn refused(response: &http::Response) -> (u16, String) {
    let body = response.json();
    let members = body.as_object().expect("an object");
    assert_eq!(members.len(), 1, "{body}");
    (response.status, body["error"].as_str().expect("a text").to_owned())
}

/// Publishes, and returns the id.
#[track_caller]
pub(crate) fn publish(admin: SocketAddr, body: &Value) -> String {
    let published = done(&post(admin, "/publish", body));
    let id = published["id"].as_str().expect("an id").to_owned();
    assert_eq!(published, json!({"status": "published", "id": id}));
    assert!(
        id.len() == 32 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)),
        "{id}"
    );
    id
}

/// The next message of a queue, if there is one now.
#[track_caller]
pub(crate) fn take(admin: SocketAddr, queue: &str) -> Option<Value> {
    let response = get(admin, &format!("/consume?topic={queue}"));
    if response.status == 204 {
        assert!(response.body.is_empty() && response.header("content-type").is_none());
        return None;
    }
    Some(done(&response))
}

/// The next message of a queue, when there is one.
#[track_caller]
pub(crate) fn await_message(admin: SocketAddr, queue: &str) -> Value {
    eventually(PATIENCE, "a message", || take(admin, queue))
}

pub(crate) fn id(message: &Value) -> &str {
    message["id"].as_str().expect("an id")
}
