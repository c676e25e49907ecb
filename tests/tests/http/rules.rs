//! HTTP admin API, section 1: what holds for every route.

use std::collections::BTreeSet;

use boltq_tests::harness::{Server, ServerOptions, http};
use serde_json::{Value, json};

use super::client::{done, get, post, publish, refused, server, take};

const KEY: &str = "s3cret";

fn locked() -> Server {
    Server::start(
        &ServerOptions::memory()
            .set("security.api_key", KEY)
            .set("cache.enabled", false),
    )
}

fn ask(server: &Server, method: &str, path: &str, key: Option<&str>, body: &str) -> http::Response {
    let headers: Vec<_> = key.map(|key| ("x-api-key", key)).into_iter().collect();
    http::request(server.admin(), method, path, &headers, body.as_bytes()).unwrap()
}

/// Each request has everything wrong that comes later.
#[test]
fn checks_go_in_the_order_of_the_specification() {
    let server = locked();
    let key = Some(KEY);
    assert_eq!(ask(&server, "OPTIONS", "/publish", None, "{").status, 204);
    let error = |method, path, key, body| refused(&ask(&server, method, path, key, body));
    let wanted = |status: u16, text: &str| (status, text.to_owned());
    assert_eq!(error("GET", "/publish", None, "{"), wanted(401, "unauthorized"));
    assert_eq!(
        error("GET", "/publish", Some("wrong"), "{"),
        wanted(401, "unauthorized")
    );
    assert_eq!(error("GET", "/publish", key, "{"), wanted(405, "method not allowed"));
    assert_eq!(error("GET", "/cache/set", key, "{"), wanted(405, "method not allowed"));
    assert_eq!(error("POST", "/cache/set", key, "{"), wanted(503, "cache not enabled"));
    assert_eq!(
        error("POST", "/cluster/join", key, "{"),
        wanted(400, "clustering is not enabled")
    );
    assert_eq!(error("POST", "/publish", key, "{"), wanted(400, "invalid json"));
    assert_eq!(
        error("POST", "/publish", key, r#"{"idempotency_key":7}"#),
        wanted(400, "invalid json")
    );
    let long = format!(r#"{{"idempotency_key":"{}"}}"#, "k".repeat(201));
    assert_eq!(error("POST", "/publish", key, &long), wanted(400, "topic is required"));
    assert_eq!(
        error("GET", "/consume?wait=never", key, ""),
        wanted(400, "topic is required")
    );
}

/// The method is checked before anything else on a route.
#[test]
fn other_methods_are_refused_on_every_route() {
    let server = server();
    let document = done(&get(server.admin(), "/openapi.json"));
    for (path, operations) in document["paths"].as_object().unwrap() {
        let operations = operations.as_object().unwrap();
        let takes_any = operations
            .values()
            .any(|operation| operation["description"] == "Any method.");
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            let described = operations.contains_key(&method.to_ascii_lowercase());
            if takes_any {
                assert_eq!(ask(&server, method, path, None, "{").status, 200, "{method} {path}");
            } else if !described {
                let response = ask(&server, method, path, None, "{");
                assert_eq!(
                    refused(&response),
                    (405, "method not allowed".to_owned()),
                    "{method} {path}"
                );
                let allowed: BTreeSet<String> = response
                    .header("allow")
                    .unwrap()
                    .split(',')
                    .map(str::to_owned)
                    .collect();
                for operation in operations.keys() {
                    assert!(
                        allowed.contains(&operation.to_ascii_uppercase()),
                        "{method} {path}: {allowed:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn head_is_get_without_the_body_where_nothing_is_taken() {
    let server = server();
    let admin = server.admin();
    publish(admin, &json!({"topic": "q"}));
    for path in [
        "/stats",
        "/overview",
        "/queues",
        "/queues/peek?queue=q",
        "/metrics",
        "/cache/stats",
        "/openapi.json",
    ] {
        let (head, body) = (
            ask(&server, "HEAD", path, None, ""),
            ask(&server, "GET", path, None, ""),
        );
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-type"), body.header("content-type"), "{path}");
    }
    for path in ["/consume?topic=q", "/subscribe?topic=t&id=s"] {
        let head = ask(&server, "HEAD", path, None, "");
        assert_eq!((head.status, head.header("allow")), (405, Some("GET")), "{path}");
    }
    assert!(take(admin, "q").is_some(), "it was taken by HEAD");
}

#[test]
fn paths_that_are_no_routes_are_not_found() {
    let server = server();
    for path in [
        "/",
        "/publish/",
        "/PUBLISH",
        "/queues/none",
        "/publish/queue",
        "//publish",
        "/ws",
        "/internal/presence",
        "/streams",
    ] {
        for method in ["GET", "POST"] {
            let response = ask(&server, method, path, None, "{}");
            assert_eq!(refused(&response), (404, "not found".to_owned()), "{method} {path}");
        }
    }
}

/// Every route with a body: one that is none, and one without the members that have to be there.
#[test]
fn bodies_are_objects_with_their_members() {
    let server = server();
    for (path, required) in [
        ("/publish", "topic is required"),
        ("/publish/topic", "topic is required"),
        ("/ack", "id is required"),
        ("/nack", "id is required"),
        ("/queues/purge", "queue is required"),
        ("/dead-letters/purge", "queue is required"),
        ("/dead-letters/redrive", "queue is required"),
        ("/exchange/declare", "name is required"),
        ("/exchange/delete", "name is required"),
        ("/exchange/bind", "exchange and queue are required"),
        ("/exchange/unbind", "exchange and queue are required"),
        ("/cache/set", "key is required"),
        ("/cache/del", "key is required"),
        ("/cache/expire", "key is required"),
        ("/cache/incr", "key is required"),
    ] {
        for body in ["", "{", "null", "[]", r#""x""#, "{} x", "\u{feff}{}"] {
            let error = refused(&ask(&server, "POST", path, None, body));
            assert_eq!(error, (400, "invalid json".to_owned()), "{path} {body}");
        }
        for body in [
            "{}",
            r#"{"topic":"","id":"","queue":"","name":"","exchange":"","key":""}"#,
        ] {
            let error = refused(&ask(&server, "POST", path, None, body));
            assert_eq!(error, (400, required.to_owned()), "{path} {body}");
        }
    }
    for (path, required) in [
        ("/consume", "topic is required"),
        ("/subscribe", "topic is required"),
        ("/subscribe?topic=t", "id is required"),
        ("/queues/peek", "queue is required"),
        ("/cache/get", "key is required"),
        ("/cache/exists", "key is required"),
    ] {
        assert_eq!(
            refused(&get(server.admin(), path)),
            (400, required.to_owned()),
            "{path}"
        );
    }
}

#[test]
fn members_match_in_any_case_and_unknown_ones_and_content_types_do_not_matter() {
    let server = server();
    let admin = server.admin();
    let body = br#"{"TOPIC":"q","Payload":{"Topic":"kept"},"HEADERS":{"Key":"Value"},"unknown":[{"topic":1}]}"#;
    for content_type in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let headers = [("content-type", content_type)];
        done(&http::request(admin, "POST", "/publish", &headers, body).unwrap());
        let taken = take(admin, "q").unwrap();
        assert_eq!(
            (&taken["payload"], &taken["headers"]),
            (&json!({"Topic": "kept"}), &json!({"Key": "Value"}))
        );
        done(&post(
            admin,
            "/ack",
            &json!({"Id": taken["id"], "delay": "ignored here"}),
        ));
    }
    assert_eq!(done(&get(admin, "/stats?unknown=1"))["PendingCount"], 0);
}

/// A query that is not well formed is no reason for an answer that is not JSON.
#[test]
fn parameters_that_are_given_twice_or_badly_encoded_are_read_as_far_as_they_go() {
    let server = server();
    publish(server.admin(), &json!({"topic": "a"}));
    assert_eq!(
        done(&get(server.admin(), "/consume?topic=a&topic=b&%zz=%"))["topic"],
        "a"
    );
    for query in ["topic=%zz&topic=b&id=", "topic", "&&=", "%00"] {
        assert_eq!(
            refused(&get(server.admin(), &format!("/subscribe?{query}"))).0,
            400,
            "{query}"
        );
    }
}

/// Refusals by overload say so, and when to come again.
#[test]
fn a_body_that_there_is_no_room_for_is_to_come_later() {
    let options = ServerOptions::memory().set("server.max_request_bytes", 16 << 20);
    let server = Server::start(&options.set("server.max_request_bytes_per_connection", 8 << 20));
    let large = json!({"key": "k", "value": "x".repeat(12 << 20)});
    let response = post(server.admin(), "/cache/set", &large);
    assert_eq!((response.status, response.header("retry-after")), (429, Some("1")));
    let (_, text) = refused(&response);
    assert!(text.contains("server.max_request_bytes_per_connection"), "{text}");
    assert_eq!(response.header("access-control-allow-origin"), Some("*"));
    done(&get(server.admin(), "/stats"));
}

#[test]
fn names_of_any_kind_come_back_as_they_are() {
    let server = server();
    let admin = server.admin();
    let name = "quote\" back\\slash </script> é\u{2028}";
    publish(admin, &json!({"topic": name, "payload": 1}));
    let queues = done(&get(admin, "/queues"));
    assert_eq!(queues["queues"][0]["name"], name);
    let purged = done(&post(admin, "/queues/purge", &json!({"queue": name})));
    assert_eq!(
        (&purged["queue"], &purged["purged_count"]),
        (&Value::from(name), &json!(1))
    );
    let unknown = refused(&post(admin, "/queues/purge", &json!({"queue": format!("{name}!")})));
    assert_eq!(unknown, (500, format!("queue {name}! not found")));
}
