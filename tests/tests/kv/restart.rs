//! What is there after a kill and after a stop.

use boltq_proto::kv::v1::{Entry, GetStatsRequest};
use boltq_tests::harness::{Server, ServerOptions, eventually};
use serde_json::json;

use super::client::{KvClient, SOON, connect, done, entry, get, keys, look, put};

async fn entries(client: &mut KvClient, keys: &[&str]) -> Vec<Option<Entry>> {
    let mut entries = Vec::new();
    for key in keys {
        entries.push(entry(client, key).await);
    }
    entries
}

/// Twice: once from the log alone, once from the checkpoint that a stop writes.
#[tokio::test(flavor = "multi_thread")]
async fn values_versions_ends_and_counts_survive() {
    let mut server = Server::start(&ServerOptions::disk());
    let admin = server.admin();
    let mut client = connect(server.messaging()).await;
    put(&mut client, "plain", "value").await;
    put(&mut client, "gone", "value").await;
    done(
        admin,
        "set",
        &json!({"key": "ends", "value": {"a": 1}, "ttl": 3_600_000}),
    );
    done(admin, "incr", &json!({"key": "n", "delta": 41}));
    done(admin, "del", &json!({"key": "gone"}));
    let all = ["plain", "gone", "ends", "n"];
    let before = entries(&mut client, &all).await;
    assert!(before[1].is_none() && before[2].as_ref().unwrap().expires_at.is_some());
    for round in ["kill", "stop", "kill"] {
        match round {
            "kill" => server.kill(),
            _ => assert!(server.terminate().success()),
        }
        server.restart();
        let mut client = connect(server.messaging()).await;
        assert_eq!(entries(&mut client, &all).await, before, "{round}");
        let stats = client.get_stats(GetStatsRequest {}).await.unwrap().into_inner();
        assert_eq!((stats.keys, stats.sets, stats.deletes), (3, 4, 1), "{round}");
        assert_eq!((stats.hits, stats.misses), (3, 1), "of this process");
    }
    let mut client = connect(server.messaging()).await;
    let version = put(&mut client, "new", "value").await;
    let newest = before.iter().flatten().map(|entry| entry.version).max();
    assert!(Some(version) > newest, "versions go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_while_the_server_is_away_does_not_come_back() {
    let mut server = Server::start(&ServerOptions::disk());
    done(server.admin(), "set", &json!({"key": "k", "value": 1, "ttl": 300}));
    done(server.admin(), "set", &json!({"key": "stays", "value": 1}));
    server.kill();
    server.restart();
    let admin = server.admin();
    eventually(SOON, "the end of the value", || {
        (get(admin, "get?key=k").0 == 404).then_some(())
    });
    server.kill();
    server.restart();
    assert_eq!(keys(server.admin(), "*"), ["stays"]);
}

/// In which order keys were used is state like everything else.
#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_use_survives() {
    let mut server = Server::start(&ServerOptions::disk().set("cache.max_keys", 3));
    let admin = server.admin();
    for key in ["a", "b", "c"] {
        done(admin, "set", &json!({"key": key, "value": 1}));
    }
    look(admin, "get?key=a");
    // Reads are told with the next write.
    done(admin, "set", &json!({"key": "c", "value": 2}));
    server.kill();
    server.restart();
    done(server.admin(), "set", &json!({"key": "d", "value": 1}));
    assert_eq!(keys(server.admin(), "*"), ["a", "c", "d"]);
    assert!(server.terminate().success());
    server.restart();
    done(server.admin(), "set", &json!({"key": "e", "value": 1}));
    assert_eq!(keys(server.admin(), "*"), ["c", "d", "e"]);
}
