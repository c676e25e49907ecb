//! Requests of the binary protocol: a code byte, then the body.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../server/src/doors/tcp/bodies.rs"]
mod bodies;
#[allow(dead_code, reason = "parts of it are for replies")]
#[path = "../../server/src/doors/body.rs"]
mod body;
#[path = "../../server/src/doors/tcp/command.rs"]
mod command;
#[path = "../../server/src/doors/tcp/request.rs"]
mod request;
#[allow(dead_code, reason = "parts of it are for carrying them out")]
#[path = "../../server/src/doors/requests.rs"]
mod requests;

/// As the server has it.
mod doors {
    pub(crate) use super::{body, requests};
}

use command::Command;
use request::{Request, Single};
use requests::Publish;

/// Errors quote what was sent, but never all of it.
const REFUSAL_BYTES_MAX: usize = 300;

fuzz_target!(|data: &[u8]| {
    let Some((code, body)) = data.split_first() else { return };
    match Request::read(Command::of(*code), body) {
        Request::Publish(publish) | Request::PublishTopic(publish) => check(&publish, body),
        Request::PublishExchange(publish) => check_payload(publish.payload(), body),
        Request::Single(Single::Subscribe(subscribe)) => assert!(!subscribe.subscriber.is_empty()),
        Request::Consume(name) | Request::Ack(name) | Request::Nack(name) => assert!(!name.is_empty()),
        Request::Single(Single::Refused(text)) => assert!(text.len() <= REFUSAL_BYTES_MAX, "{}", text.len()),
        Request::Single(_) => {}
    }
});

/// The payload goes into other frames as it is, so it has to be one JSON value. It never grows, and keys are unique.
fn check(publish: &Publish<'_>, body: &[u8]) {
    assert!(!publish.topic.is_empty());
    check_payload(publish.payload(), body);
    assert!(publish.headers.is_sorted_by(|a, b| a.0 < b.0));
}

fn check_payload(payload: &[u8], body: &[u8]) {
    assert!(payload.len() <= body.len() || payload == b"null");
    let raw: &serde_json::value::RawValue = serde_json::from_slice(payload).expect("one JSON value");
    assert_eq!(raw.get().as_bytes(), payload);
}
