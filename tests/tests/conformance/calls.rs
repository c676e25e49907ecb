//! Calls of the binary protocol that several of these tests make.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use boltq_tests::harness::binary::{BinaryClient, command};
use boltq_tests::harness::http;
use serde_json::{Value, json};

/// For what the server does soon; machines stand still at times.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) trait Calls {
    fn ask(&mut self, code: u8, body: &Value) -> Value;
    fn declare(&mut self, exchange: &str, kind: &str);
    fn bind(&mut self, exchange: &str, queue: &str, key: &str);
    fn subscribe(&mut self, topic: &str, id: &str, durable: bool);
    fn pushed(&mut self) -> Value;
}

impl Calls for BinaryClient {
    #[track_caller]
    fn ask(&mut self, code: u8, body: &Value) -> Value {
        self.call(code, &body.to_string()).ok()
    }

    #[track_caller]
    fn declare(&mut self, exchange: &str, kind: &str) {
        let body = json!({"name": exchange, "type": kind, "durable": true});
        self.ask(command::EXCHANGE_DECLARE, &body);
    }

    #[track_caller]
    fn bind(&mut self, exchange: &str, queue: &str, key: &str) {
        let body = json!({"exchange": exchange, "queue": queue, "binding_key": key});
        self.ask(command::BIND_QUEUE, &body);
    }

    #[track_caller]
    fn subscribe(&mut self, topic: &str, id: &str, durable: bool) {
        let body = json!({"topic": topic, "id": id, "durable": durable});
        assert_eq!(self.ask(command::CONSUME, &body), json!({"status": "subscribed"}));
    }

    #[track_caller]
    fn pushed(&mut self) -> Value {
        let push = self.receive().expect("a push").ok();
        assert!(is_push(&push), "{push}");
        push
    }
}

/// As clients tell a push from a reply.
pub(crate) fn is_push(body: &Value) -> bool {
    let filled = |member: &str| body[member].as_str().is_some_and(|text| !text.is_empty());
    filled("subscriber_id") && filled("topic")
}

/// A figure without labels.
pub(crate) fn metric(admin: SocketAddr, name: &str) -> u64 {
    let metrics = http::get(admin, "/metrics").expect("metrics");
    let value = metrics
        .text()
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in\n{}", metrics.text()))
}

/// Bytes that files below a directory take, while they come and go.
pub(crate) fn disk_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = entries.filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        let below = || disk_bytes(&entry.path());
        Some(if metadata.is_dir() {
            below()
        } else {
            metadata.blocks() * 512
        })
    });
    bytes.sum()
}
