//! HTTP admin API, sections 1 to 3.

use std::time::Duration;

use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::{Server, ServerOptions, eventually, http};
use serde_json::json;

fn server() -> Server {
    Server::start(&ServerOptions::memory())
}

#[test]
fn health_and_liveness_say_ok() {
    let server = server();
    for path in ["/health", "/livez"] {
        let response = http::get(server.admin(), path).unwrap();
        assert_eq!(
            (response.status, response.json()),
            (200, json!({"status": "ok"})),
            "{path}"
        );
        assert!(
            response.header("content-type").unwrap().starts_with("application/json"),
            "{path}"
        );
    }
    assert_eq!(
        http::request(server.admin(), "POST", "/health", &[], b"")
            .unwrap()
            .status,
        200,
        "any method"
    );
}

#[test]
fn a_node_alone_is_ready_as_soon_as_it_serves() {
    let server = server();
    let response = http::get(server.admin(), "/readyz").unwrap();
    let body = response.json();
    assert_eq!(
        (response.status, &body["ready"], &body["clustered"]),
        (200, &json!(true), &json!(false))
    );
    assert!(
        body["uptime_seconds"].is_u64() && body.get("reason").is_none(),
        "{body}"
    );
}

#[test]
fn statistics_are_those_of_the_binary_protocol() {
    let server = server();
    let mut client = BinaryClient::connect(server.messaging());
    client.publish("jobs", &json!(1));
    client.publish("jobs", &json!(2));
    client.consume("jobs").unwrap();
    let response = http::get(server.admin(), "/stats").unwrap();
    assert_eq!((response.status, response.json()), (200, client.stats()));
    assert_eq!(response.json()["Queues"], json!({"jobs": 1}));
}

#[test]
fn every_answer_carries_the_cors_headers() {
    let server = server();
    for (method, path, status) in [
        ("GET", "/health", 200),
        ("GET", "/nowhere", 404),
        ("OPTIONS", "/stats", 204),
    ] {
        let response = http::request(server.admin(), method, path, &[("origin", "http://a.example")], b"").unwrap();
        assert_eq!(response.status, status, "{path}");
        assert_eq!(response.header("access-control-allow-origin"), Some("*"), "{path}");
        assert_eq!(
            response.header("access-control-allow-methods"),
            Some("GET, POST, DELETE, OPTIONS"),
            "{path}"
        );
        assert_eq!(
            response.header("access-control-allow-headers"),
            Some("Content-Type, X-API-Key"),
            "{path}"
        );
    }
}

#[test]
fn a_preflight_has_no_body() {
    let server = server();
    assert_eq!(
        http::request(server.admin(), "OPTIONS", "/stats", &[], b"")
            .unwrap()
            .body,
        b""
    );
}

#[test]
fn wrong_methods_and_unknown_paths_are_answered_as_json() {
    let server = server();
    let wrong = http::request(server.admin(), "POST", "/stats", &[], b"").unwrap();
    assert_eq!(
        (wrong.status, wrong.json()),
        (405, json!({"error": "method not allowed"}))
    );
    let unknown = http::get(server.admin(), "/nowhere").unwrap();
    assert_eq!(unknown.status, 404);
    assert!(unknown.json()["error"].is_string());
}

/// Weakness B21: counters that never counted.
#[test]
fn metrics_count_what_happened() {
    let server = Server::start(
        &ServerOptions::memory()
            .set("queue.max_retry", 1)
            .set("queue.retry_backoff", "1ms"),
    );
    let mut client = BinaryClient::connect(server.messaging());
    for number in 0..2 {
        client.publish("q", &json!(number));
    }
    let first = client.consume("q").unwrap();
    client.ack(&first.id).ok();
    for _ in 0..2 {
        let again = eventually(Duration::from_secs(5), "the delivery after a backoff", || {
            client.consume("q")
        });
        client.nack(&again.id).ok();
    }
    let text = http::get(server.admin(), "/metrics").unwrap();
    assert_eq!(text.header("content-type"), Some("text/plain; version=0.0.4"));
    let value = |name: &str| -> u64 {
        let line = text
            .text()
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}"))
            .parse::<f64>()
            .expect("a number") as u64
    };
    assert_eq!(
        (value("boltq_messages_published"), value("boltq_messages_consumed")),
        (2, 3)
    );
    assert_eq!((value("boltq_messages_acked"), value("boltq_messages_nacked")), (1, 2));
    assert_eq!((value("boltq_retry_count"), value("boltq_dead_letter_count")), (1, 1));
    let appends = |class: &str| value(&format!("boltq_raft_append_seconds_{class}"));
    let all = appends("count{group=\"queue\"}");
    assert!(all > 0 && all == appends("bucket{group=\"queue\",le=\"+Inf\"}"));
}

#[test]
fn metrics_follow_the_text_format() {
    let server = server();
    let response = http::get(server.admin(), "/metrics").unwrap();
    let names: Vec<&str> = response
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    assert!(
        names.windows(2).all(|pair| pair[0] < pair[1]),
        "sorted, once each: {names:?}"
    );
    for name in names {
        assert_eq!(response.text().matches(&format!("# HELP {name} ")).count(), 1, "{name}");
    }
}

#[test]
fn metrics_as_json_are_one_flat_object_of_integers() {
    let server = server();
    BinaryClient::connect(server.messaging()).publish("q", &json!(1));
    let headers = [("accept", "application/json")];
    let body = http::request(server.admin(), "GET", "/metrics", &headers, b"")
        .unwrap()
        .json();
    let members = body.as_object().expect("an object");
    assert!(members.values().all(serde_json::Value::is_u64), "{body}");
    for name in [
        "messages_published",
        "messages_consumed",
        "messages_acked",
        "messages_nacked",
        "retry_count",
        "dead_letter_count",
        "raft_apply_count",
        "snapshot_count",
        "leader_changes",
    ] {
        assert!(members.contains_key(name), "{name}");
    }
    assert_eq!(body["messages_published"], 1);
}
