//! What is counted, and where it is shown.

use boltq_proto::kv::v1::GetStatsRequest;
use boltq_tests::harness::{Server, ServerOptions, eventually, http};
use serde_json::json;

use super::client::{SOON, connect, done, get, look};

#[tokio::test(flavor = "multi_thread")]
async fn all_doors_show_the_same_figures() {
    let options = ServerOptions::memory()
        .set("cache.cleanup_sec", 3_600)
        .set("cache.max_keys", 2);
    let server = Server::start(&options);
    let admin = server.admin();
    done(admin, "set", &json!({"key": "over", "value": "12", "ttl": 1}));
    eventually(SOON, "the end of the value", || {
        (get(admin, "get?key=over").0 == 404).then_some(())
    });
    // Asked for, and therefore noticed.
    done(admin, "del", &json!({"key": "over"}));
    let misses = look(admin, "stats")["stats"]["misses"].as_u64().unwrap();
    done(admin, "set", &json!({"key": "a", "value": "12345"}));
    done(admin, "set", &json!({"key": "gone", "value": 1}));
    done(admin, "incr", &json!({"key": "n"}));
    look(admin, "get?key=n");
    get(admin, "get?key=none");
    look(admin, "exists?key=n");
    done(admin, "del", &json!({"key": "gone"}));
    done(admin, "del", &json!({"key": "none"}));

    let wanted = json!({"key_count": 1, "memory_used": 2, "hits": 1, "misses": misses + 1, "sets": 4, "deletes": 1, "expired": 1,
        "evicted": 1});
    assert_eq!(look(admin, "stats"), json!({"enabled": true, "stats": wanted}));
    let mut client = connect(server.messaging()).await;
    let stats = client.get_stats(GetStatsRequest {}).await.unwrap().into_inner();
    assert_eq!((stats.enabled, stats.keys, stats.bytes), (true, 1, 2));
    assert_eq!((stats.hits, stats.misses, stats.sets), (1, misses + 1, 4));
    assert_eq!((stats.deletes, stats.expired, stats.evicted), (1, 1, 1));

    let text = http::get(admin, "/metrics").unwrap();
    for (name, kind, value) in [
        ("keys", "gauge", 1),
        ("bytes", "gauge", 2),
        ("hits", "counter", 1),
        ("misses", "counter", misses + 1),
        ("sets", "counter", 4),
        ("deletes", "counter", 1),
        ("expired", "counter", 1),
        ("evicted", "counter", 1),
    ] {
        let line = format!("\n# TYPE boltq_cache_{name} {kind}\nboltq_cache_{name} {value}\n");
        assert!(text.text().contains(&line), "{line} in {}", text.text());
    }
    let flat = http::request(admin, "GET", "/metrics", &[("accept", "application/json")], b"");
    let flat = flat.unwrap().json();
    assert_eq!(flat.as_object().unwrap().len(), 13);
    let cache = ["cache_hits", "cache_misses", "cache_sets", "cache_deletes"].map(|name| flat[name].as_u64());
    assert_eq!(cache, [Some(1), Some(misses + 1), Some(4), Some(1)]);
}

#[test]
fn a_flush_counts_what_is_over_and_keeps_the_statistics() {
    let server = Server::start(&ServerOptions::memory().set("cache.cleanup_sec", 3_600));
    let admin = server.admin();
    done(admin, "set", &json!({"key": "over", "value": 1, "ttl": 1}));
    done(admin, "set", &json!({"key": "a", "value": 1}));
    eventually(SOON, "the end of the value", || {
        (look(admin, "exists?key=over")["exists"] == false).then_some(())
    });
    assert_eq!(look(admin, "stats")["stats"]["key_count"], 1);
    assert_eq!(
        done(admin, "flush", &json!({})),
        json!({"status": "flushed", "removed": 2})
    );
    let stats = look(admin, "stats")["stats"].take();
    assert_eq!(
        (&stats["key_count"], &stats["memory_used"], &stats["sets"]),
        (&json!(0), &json!(0), &json!(2))
    );
    assert_eq!((&stats["deletes"], &stats["expired"]), (&json!(0), &json!(0)));
    assert_eq!(done(admin, "flush", &json!({}))["removed"], 0);
}
