//! Times to live.

use std::time::Duration;

use boltq_proto::kv::v1::{ExpireRequest, SetRequest};
use boltq_tests::harness::grpc::{duration, reason};
use boltq_tests::harness::{Server, ServerOptions, eventually};
use serde_json::json;
use tonic::Code;

use super::client::{SOON, connect, done, entry, get, keys, look, now_ms, put};

const HOUR_MS: u64 = 3_600_000;

/// Cleaning up far too late to matter.
fn server() -> Server {
    Server::start(&ServerOptions::memory().set("cache.cleanup_sec", 3_600))
}

fn ttl(server: &Server, key: &str) -> i64 {
    look(server.admin(), &format!("get?key={key}"))["ttl"].as_i64().unwrap()
}

#[test]
fn nothing_is_seen_of_a_value_from_its_end_on() {
    let server = server();
    let admin = server.admin();
    done(admin, "set", &json!({"key": "stays", "value": 1}));
    done(admin, "set", &json!({"key": "k", "value": 1, "ttl": 400}));
    let mut end = None;
    eventually(SOON, "the end of the value", || {
        let asked = now_ms();
        let (status, answer) = get(admin, "get?key=k");
        if status == 404 {
            return Some(());
        }
        let created = answer["created_at"].as_u64().unwrap() / 1_000_000;
        end = Some(created + 400);
        // Server and test have one clock.
        assert!(asked < created + 400, "seen at {asked}: {answer}");
        assert!((0..=400).contains(&answer["ttl"].as_i64().unwrap()), "{answer}");
        None
    });
    if let Some(end) = end {
        assert!(now_ms() >= end, "gone too early");
    }
    assert_eq!(look(admin, "exists?key=k")["exists"], false);
    assert_eq!(keys(admin, "*"), ["stays"]);
    assert_eq!(look(admin, "entries")["total"], 1);
    assert_eq!(
        done(admin, "expire", &json!({"key": "k", "ttl": 1_000}))["found"],
        false
    );
    assert_eq!(done(admin, "del", &json!({"key": "k"}))["deleted"], false);
}

#[test]
fn a_set_replaces_the_time_to_live_and_expire_changes_it() {
    let server = server();
    let admin = server.admin();
    done(admin, "set", &json!({"key": "k", "value": 1, "ttl": HOUR_MS}));
    assert!((1..=3_600_000).contains(&ttl(&server, "k")));
    done(admin, "set", &json!({"key": "k", "value": 2}));
    assert_eq!(ttl(&server, "k"), -1);
    let created = look(admin, "get?key=k")["created_at"].take();
    assert_eq!(
        done(admin, "expire", &json!({"key": "k", "ttl": 2 * HOUR_MS}))["found"],
        true
    );
    assert!((3_600_001..=7_200_000).contains(&ttl(&server, "k")));
    assert_eq!(look(admin, "get?key=k")["created_at"], created);
    for none in [0, -5] {
        done(admin, "expire", &json!({"key": "k", "ttl": HOUR_MS}));
        done(admin, "expire", &json!({"key": "k", "ttl": none}));
        assert_eq!(ttl(&server, "k"), -1, "{none}");
    }
    assert_eq!(done(admin, "expire", &json!({"key": "none", "ttl": 1}))["found"], false);
    // Longer than any clock.
    done(admin, "set", &json!({"key": "k", "value": 1, "ttl": i64::MAX}));
    assert!(ttl(&server, "k") > 1 << 60);
}

#[test]
fn a_value_of_which_nothing_is_said_lives_as_configured() {
    let server = Server::start(&ServerOptions::memory().set("cache.default_ttl_ms", HOUR_MS));
    let admin = server.admin();
    for body in [
        json!({"key": "k", "value": 1}),
        json!({"key": "k", "value": 1, "ttl": 0}),
    ] {
        done(admin, "set", &body);
        assert!((1..=3_600_000).contains(&ttl(&server, "k")), "{body}");
    }
    done(admin, "set", &json!({"key": "k", "value": 1, "ttl": -1}));
    assert_eq!(ttl(&server, "k"), -1);
    done(admin, "incr", &json!({"key": "n"}));
    assert_eq!(ttl(&server, "n"), -1, "the default is one of set");
}

#[tokio::test(flavor = "multi_thread")]
async fn over_grpc_unset_is_the_default_zero_is_for_ever_and_a_part_of_a_millisecond_is_a_whole_one() {
    let server = Server::start(&ServerOptions::memory().set("cache.default_ttl_ms", HOUR_MS));
    let mut client = connect(server.messaging()).await;
    let set = |ttl| SetRequest {
        key: "k".to_owned(),
        ttl,
        ..SetRequest::default()
    };
    let lives = |entry: boltq_proto::kv::v1::Entry| {
        let nanos = |time: prost_types::Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
        entry
            .expires_at
            .map(|end| nanos(end) - nanos(entry.created_at.unwrap()))
    };
    put(&mut client, "k", "").await;
    let default = i128::from(HOUR_MS) * 1_000_000;
    assert_eq!(lives(entry(&mut client, "k").await.unwrap()), Some(default));
    client.set(set(duration(Duration::ZERO))).await.unwrap();
    assert_eq!(lives(entry(&mut client, "k").await.unwrap()), None);
    client.set(set(duration(Duration::new(60, 1)))).await.unwrap();
    assert_eq!(lives(entry(&mut client, "k").await.unwrap()), Some(60_001_000_000));
    let negative = prost_types::Duration { seconds: -1, nanos: 0 };
    let refused = client.set(set(Some(negative))).await.unwrap_err();
    assert_eq!(
        (refused.code(), &*reason(&refused)),
        (Code::InvalidArgument, "INVALID_ARGUMENT")
    );

    let expire = |ttl| ExpireRequest {
        key: "k".to_owned(),
        ttl,
    };
    for none in [None, Some(negative), duration(Duration::ZERO)] {
        client.expire(expire(duration(Duration::from_secs(60)))).await.unwrap();
        assert!(entry(&mut client, "k").await.unwrap().expires_at.is_some());
        assert!(client.expire(expire(none)).await.unwrap().into_inner().found);
        assert!(entry(&mut client, "k").await.unwrap().expires_at.is_none(), "{none:?}");
    }
}

#[test]
fn what_is_over_is_removed_without_anybody_asking_for_it() {
    let server = Server::start(&ServerOptions::memory().set("cache.cleanup_sec", 1));
    let admin = server.admin();
    done(admin, "set", &json!({"key": "k", "value": "12345", "ttl": 1}));
    done(admin, "set", &json!({"key": "stays", "value": "1"}));
    let stats = eventually(SOON, "the value is removed", || {
        let stats = look(admin, "stats")["stats"].take();
        (stats["expired"] == 1).then_some(stats)
    });
    assert_eq!((&stats["key_count"], &stats["memory_used"]), (&json!(1), &json!(6)));
}
