//! `/overview`, and `/metrics` as JSON.

use boltq_tests::harness::{Server, ServerOptions, http};
use serde_json::{Value, json};

use super::client::{done, get, post, publish, server, take};

const COUNTERS: [&str; 9] = [
    "messages_published",
    "messages_consumed",
    "messages_acked",
    "messages_nacked",
    "retry_count",
    "dead_letter_count",
    "raft_apply_count",
    "snapshot_count",
    "leader_changes",
];

fn names(object: &Value) -> Vec<&str> {
    object
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect()
}

fn sorted<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut sorted: Vec<_> = names.into_iter().collect();
    sorted.sort_unstable();
    sorted
}

/// Names exactly as the specification has them: the dashboard reads them.
#[test]
fn an_overview_has_exactly_the_members_that_dashboards_read() {
    let server = Server::start(&ServerOptions::disk().set("storage.compaction_threshold", 1 << 20));
    let admin = server.admin();
    publish(admin, &json!({"topic": "jobs"}));
    done(&post(admin, "/cache/set", &json!({"key": "k", "value": "v"})));
    let overview = done(&get(admin, "/overview"));
    assert_eq!(
        sorted(names(&overview)),
        sorted([
            "health",
            "stats",
            "metrics",
            "storage",
            "system",
            "uptime_ms",
            "cluster",
            "cache"
        ])
    );
    assert_eq!(overview["health"], "ok");
    assert_eq!(overview["stats"], done(&get(admin, "/stats")));
    assert_eq!(overview["stats"]["Queues"], json!({"jobs": 1}));
    assert_eq!(sorted(names(&overview["metrics"])), sorted(COUNTERS));
    assert_eq!(overview["metrics"]["messages_published"], 1);
    let storage = &overview["storage"];
    assert_eq!(sorted(names(storage)), ["compaction_threshold", "mode", "size"]);
    assert_eq!(
        (&storage["mode"], &storage["compaction_threshold"]),
        (&json!("disk"), &json!(1 << 20))
    );
    assert!(storage["size"].as_u64() > Some(0), "{storage}");
    assert_eq!(sorted(names(&overview["system"])), ["goroutines", "memory"]);
    assert!(overview["system"]["goroutines"].as_u64() > Some(1), "{overview}");
    assert!(overview["uptime_ms"].is_u64());
    assert_eq!(overview["cluster"], json!({"enabled": false}));
    assert_eq!(overview["cache"]["enabled"], true);
    assert_eq!(
        (
            &overview["cache"]["stats"]["key_count"],
            &overview["cache"]["stats"]["sets"]
        ),
        (&json!(1), &json!(1))
    );
}

#[test]
fn the_memory_of_an_overview_is_that_of_the_process() {
    let server = server();
    let memory = done(&get(server.admin(), "/overview"))["system"]["memory"]
        .as_u64()
        .unwrap();
    let resident = server.stat().rss_bytes();
    assert!(memory.abs_diff(resident) < resident / 2, "{memory} of {resident}");
}

#[test]
fn without_a_cache_an_overview_says_so() {
    let server = Server::start(&ServerOptions::memory().set("cache.enabled", false));
    let overview = done(&get(server.admin(), "/overview"));
    assert_eq!(
        (&overview["cache"], &overview["storage"]["mode"]),
        (&json!({"enabled": false}), &json!("memory"))
    );
}

/// Weakness B21: publishes over HTTP were not counted.
#[test]
fn metrics_as_json_are_thirteen_integers_that_count_this_door_too() {
    let server = server();
    let admin = server.admin();
    publish(admin, &json!({"topic": "q"}));
    let taken = take(admin, "q").unwrap();
    done(&post(admin, "/nack", &json!({"id": taken["id"], "requeue": false})));
    done(&post(admin, "/cache/set", &json!({"key": "k", "value": 1})));
    get(admin, "/cache/get?key=k");
    get(admin, "/cache/get?key=none");
    done(&post(admin, "/cache/del", &json!({"key": "k"})));
    for accept in ["application/json", "text/html, application/json;q=0.9"] {
        let metrics = http::request(admin, "POST", "/metrics", &[("accept", accept)], b"")
            .unwrap()
            .json();
        let all = COUNTERS
            .into_iter()
            .chain(["cache_hits", "cache_misses", "cache_sets", "cache_deletes"]);
        assert_eq!(sorted(names(&metrics)), sorted(all));
        assert!(metrics.as_object().unwrap().values().all(Value::is_u64), "{metrics}");
        for (name, count) in [
            ("messages_published", 1),
            ("messages_consumed", 1),
            ("messages_nacked", 1),
            ("dead_letter_count", 1),
            ("cache_hits", 1),
            ("cache_misses", 1),
            ("cache_sets", 1),
            ("cache_deletes", 1),
        ] {
            assert_eq!(metrics[name], count, "{name}");
        }
    }
}
