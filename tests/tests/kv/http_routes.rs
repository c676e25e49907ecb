//! HTTP admin API, section 6: what each route answers, and in which order it checks.

use boltq_tests::harness::{Server, ServerOptions, http};
use serde_json::{Value, json};

use super::client::{done, get, look, now_ms, post};

const WITH_KEY: [(&str, &str); 6] = [
    ("GET", "get"),
    ("GET", "exists"),
    ("POST", "set"),
    ("POST", "del"),
    ("POST", "expire"),
    ("POST", "incr"),
];
const OTHERS: [(&str, &str); 3] = [("GET", "keys"), ("GET", "entries"), ("POST", "flush")];

fn server() -> Server {
    Server::start(&ServerOptions::memory())
}

fn ask(server: &Server, method: &str, route: &str, body: &[u8]) -> http::Response {
    http::request(server.admin(), method, &format!("/cache/{route}"), &[], body).unwrap()
}

#[test]
fn every_route_answers_with_the_members_of_the_specification() {
    let server = server();
    let admin = server.admin();
    let before = now_ms();
    let set = done(admin, "set", &json!({"key": "k", "value": {"a": 1}, "ttl": 60_000}));
    assert_eq!(set, json!({"status": "ok", "key": "k"}));
    let mut entry = look(admin, "get?key=k");
    let created = entry["created_at"].take().as_u64().unwrap();
    assert!((before..=now_ms()).contains(&(created / 1_000_000)), "{created}");
    assert!((1..=60_000).contains(&entry["ttl"].take().as_u64().unwrap()));
    let wanted = json!({"key": "k", "value": {"a": 1}, "ttl": null, "created_at": null});
    assert_eq!(entry, wanted);

    assert_eq!(look(admin, "exists?key=k"), json!({"key": "k", "exists": true}));
    assert_eq!(look(admin, "exists?key=none"), json!({"key": "none", "exists": false}));
    assert_eq!(get(admin, "get?key=none"), (404, json!({"error": "key not found"})));
    assert_eq!(look(admin, "keys"), json!({"keys": ["k"], "count": 1}));

    let expire = done(admin, "expire", &json!({"key": "k", "ttl": 0}));
    assert_eq!(expire, json!({"status": "ok", "key": "k", "found": true}));
    let entries = look(admin, "entries");
    let wanted = json!({"key": "k", "value": {"a": 1}, "ttl": -1, "created_at": created, "size": 7});
    assert_eq!(entries, json!({"entries": [wanted], "total": 1}));

    let incr = done(admin, "incr", &json!({"key": "n", "delta": 41}));
    assert_eq!(incr, json!({"key": "n", "value": 41}));
    assert_eq!(
        done(admin, "del", &json!({"key": "k"})),
        json!({"status": "ok", "deleted": true})
    );
    assert_eq!(
        done(admin, "del", &json!({"key": "k"})),
        json!({"status": "ok", "deleted": false})
    );
    let stats = json!({"key_count": 1, "memory_used": 3, "hits": 1, "misses": 1, "sets": 2, "deletes": 1, "expired": 0,
        "evicted": 0});
    assert_eq!(look(admin, "stats"), json!({"enabled": true, "stats": stats}));
    assert_eq!(
        ask(&server, "POST", "flush", b"").json(),
        json!({"status": "flushed", "removed": 1})
    );
    assert_eq!(ask(&server, "POST", "flush", b"{").status, 200, "the body is ignored");
    assert_eq!(look(admin, "keys"), json!({"keys": [], "count": 0}));
    assert_eq!(look(admin, "entries"), json!({"entries": [], "total": 0}));
}

#[test]
fn what_is_missing_or_malformed_is_a_bad_request() {
    let server = server();
    let missing = json!({"error": "key is required"});
    for (method, route) in WITH_KEY {
        let body: &[u8] = if method == "POST" { b"{}" } else { b"" };
        let response = ask(&server, method, route, body);
        assert_eq!((response.status, response.json()), (400, missing.clone()), "{route}");
        if method == "POST" {
            for body in [&b""[..], b"{", b"[]", b"{\"key\":1}"] {
                let response = ask(&server, method, route, body);
                assert_eq!(
                    (response.status, response.json()),
                    (400, json!({"error": "invalid json"})),
                    "{route}"
                );
            }
        }
    }
    let admin = server.admin();
    assert_eq!(get(admin, "get?key=").1, missing);
    assert_eq!(post(admin, "set", &json!({"key": "k", "value": 1, "ttl": "5"})).0, 400);
    done(admin, "set", &json!({"KEY": "k", "Value": 1, "whatever": {"x": []}}));
    assert_eq!(look(admin, "get?key=k&key=other&x=%C3%BC")["value"], 1);
    let not_utf8 = json!({"error": "the query is not UTF-8 when its %-escapes are decoded"});
    assert_eq!(get(admin, "get?key=k&x=%FF"), (400, not_utf8));
}

#[test]
fn keys_in_queries_and_bodies_are_any_text() {
    let server = server();
    for (key, query) in [
        ("a b&c=d", "a%20b%26c%3Dd"),
        ("größe/😀", "gr%C3%B6%C3%9Fe/%F0%9F%98%80"),
        ("\"\\\n", "%22%5C%0A"),
    ] {
        done(server.admin(), "set", &json!({"key": key, "value": key}));
        let entry = look(server.admin(), &format!("get?key={query}"));
        assert_eq!((&entry["key"], &entry["value"]), (&json!(key), &json!(key)));
        assert_eq!(
            look(server.admin(), &format!("keys?pattern={query}"))["keys"],
            json!([key])
        );
    }
}

/// Key, then method, then whether there is a cache, then the body, then its members.
#[test]
fn checks_come_in_the_order_of_the_specification() {
    let options = ServerOptions::memory().set("security.api_key", "s3cret");
    let server = Server::start(&options);
    let key = [("x-api-key", "s3cret")];
    let all = WITH_KEY.iter().chain(&OTHERS).chain(&[("GET", "stats")]);
    for (method, route) in all {
        let other = if *method == "GET" { "POST" } else { "GET" };
        let ask = |method: &str, headers: &[(&str, &str)]| {
            http::request(server.admin(), method, &format!("/cache/{route}"), headers, b"").unwrap()
        };
        assert_eq!(ask("OPTIONS", &[]).status, 204, "{route}");
        for method in [*method, other] {
            let response = ask(method, &[]);
            assert_eq!(
                (response.status, response.json()),
                (401, json!({"error": "unauthorized"})),
                "{route}"
            );
        }
        let wrong = ask(other, &key);
        assert_eq!(
            (wrong.status, wrong.json()),
            (405, json!({"error": "method not allowed"})),
            "{route}"
        );
        assert_ne!(ask(method, &key).status, 405, "{route}");
    }
}

#[test]
fn without_a_cache_every_route_but_the_statistics_says_so() {
    let server = Server::start(&ServerOptions::memory().set("cache.enabled", false));
    for (method, route) in WITH_KEY.into_iter().chain(OTHERS) {
        for body in [&b""[..], b"{", b"{\"key\":\"k\"}"] {
            let response = ask(&server, method, route, body);
            let wanted: Value = json!({"error": "cache not enabled"});
            assert_eq!((response.status, response.json()), (503, wanted), "{route}");
        }
        let other = if method == "GET" { "POST" } else { "GET" };
        assert_eq!(ask(&server, other, route, b"").status, 405, "{route}");
    }
    assert_eq!(look(server.admin(), "stats"), json!({"enabled": false}));
}
