//! HTTP admin API, section 10: its checklist, line by line. Where a line tells what older servers do and the tables of the
//! specification ask for something better (204 and 404 instead of 404 and 500), it is the tables that hold.

use std::time::{Duration, Instant};

use boltq_tests::harness::{Server, ServerOptions, http};
use serde_json::{Value, json};

use super::client::{done, get, id, post, publish, refused, server, take};

#[test]
fn line_01_a_preflight_needs_no_key_and_has_three_headers() {
    let server = Server::start(&ServerOptions::memory().set("security.api_key", "k"));
    let response = http::request(server.admin(), "OPTIONS", "/publish", &[], b"").unwrap();
    assert_eq!((response.status, response.body.len()), (204, 0));
    for (name, value) in [
        ("access-control-allow-origin", "*"),
        ("access-control-allow-methods", "GET, POST, DELETE, OPTIONS"),
        ("access-control-allow-headers", "Content-Type, X-API-Key"),
    ] {
        assert_eq!(response.header(name), Some(value));
    }
}

#[test]
fn line_02_the_key_is_taken_from_header_or_query_and_probes_need_none() {
    let server = Server::start(&ServerOptions::memory().set("security.api_key", "s3cret"));
    let admin = server.admin();
    assert_eq!(refused(&get(admin, "/stats")), (401, "unauthorized".to_owned()));
    let with_header = http::request(admin, "GET", "/stats", &[("x-api-key", "s3cret")], b"").unwrap();
    assert_eq!(
        (with_header.status, get(admin, "/stats?api_key=s3cret").status),
        (200, 200)
    );
    assert_eq!(
        (get(admin, "/health").status, get(admin, "/metrics").status),
        (200, 200)
    );
}

#[test]
fn line_03_consuming_from_nothing_is_answered_at_once() {
    let server = server();
    // A machine stands still at times, but not each time.
    let quick = (0..20).any(|n| {
        let started = Instant::now();
        let response = get(server.admin(), &format!("/consume?topic=none{n}"));
        assert_eq!((response.status, response.body.len()), (204, 0));
        started.elapsed() < Duration::from_millis(500)
    });
    assert!(quick);
}

#[test]
fn line_04_what_was_published_is_consumed_and_acknowledged_once() {
    let server = server();
    let admin = server.admin();
    publish(admin, &json!({"topic": "q", "payload": {"a": 1}}));
    let taken = done(&get(admin, "/consume?topic=q&payload=base64"));
    assert_eq!(taken["payload"], "eyJhIjoxfQ==", r#"the base64 of {{"a":1}}"#);
    let body = json!({"id": id(&taken)});
    assert_eq!(post(admin, "/ack", &body).status, 200);
    assert_eq!(
        refused(&post(admin, "/ack", &body)),
        (404, format!("message {} not found in pending", id(&taken)))
    );
}

#[test]
fn line_05_metrics_are_an_object_for_who_accepts_json() {
    let server = server();
    let response = http::request(
        server.admin(),
        "GET",
        "/metrics",
        &[("accept", "application/json")],
        b"",
    )
    .unwrap();
    assert!(done(&response)["messages_published"].is_u64());
}

#[test]
fn line_06_a_wrong_method_is_refused_before_the_body_is_looked_at() {
    let server = server();
    let response = http::request(server.admin(), "GET", "/publish", &[], b"{").unwrap();
    assert_eq!(refused(&response), (405, "method not allowed".to_owned()));
}

#[test]
fn line_07_a_purge_names_a_queue_that_is_not_there_and_counts_otherwise() {
    let server = server();
    let admin = server.admin();
    let unknown = refused(&post(admin, "/queues/purge", &json!({"queue": "jobs"})));
    assert_eq!(unknown, (500, "queue jobs not found".to_owned()));
    publish(admin, &json!({"topic": "jobs"}));
    assert_eq!(
        done(&post(admin, "/queues/purge", &json!({"queue": "jobs"})))["purged_count"],
        1
    );
    assert_eq!(take(admin, "jobs"), None);
}

#[test]
fn line_08_values_of_the_cache_are_json_if_they_can_be() {
    let server = server();
    let admin = server.admin();
    for (value, wanted) in [("007", json!("007")), ("7", json!(7))] {
        done(&post(admin, "/cache/set", &json!({"key": "k", "value": value})));
        assert_eq!(done(&get(admin, "/cache/get?key=k"))["value"], wanted);
    }
}

#[test]
fn line_09_without_clustering_the_status_says_so_and_joining_is_refused() {
    let server = server();
    assert_eq!(done(&get(server.admin(), "/cluster/status")), json!({"enabled": false}));
    let join = json!({"node_id": "n2", "addr": "127.0.0.1:1"});
    assert_eq!(
        refused(&post(server.admin(), "/cluster/join", &join)),
        (400, "clustering is not enabled".to_owned())
    );
}

#[test]
fn line_10_a_node_alone_is_ready() {
    let server = server();
    let body: Value = done(&get(server.admin(), "/readyz"));
    assert_eq!((&body["ready"], &body["clustered"]), (&json!(true), &json!(false)));
}
