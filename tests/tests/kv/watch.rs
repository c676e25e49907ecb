//! Watching what changes.

use std::collections::BTreeMap;
use std::time::Duration;

use boltq_proto::kv::v1::kv_service_client::KvServiceClient;
use boltq_proto::kv::v1::watch_response::Event;
use boltq_proto::kv::v1::{DeleteRequest, FlushRequest, IncrementRequest, WatchRequest, WatchResponse};
use boltq_tests::harness::grpc::reason;
use boltq_tests::harness::{Random, Server, ServerOptions, within};
use futures_util::{StreamExt, stream};
use serde_json::json;
use tonic::transport::Endpoint;
use tonic::{Code, Status, Streaming};

use super::client::{KvClient, SOON, connect, done, entry, put};

type Watch = Streaming<WatchResponse>;

async fn watch(client: &mut KvClient, pattern: &str, initial: bool) -> Watch {
    let pattern = pattern.to_owned();
    client
        .watch(WatchRequest { pattern, initial })
        .await
        .unwrap()
        .into_inner()
}

async fn next(watch: &mut Watch) -> Result<Event, Status> {
    let next = within(SOON, "an event", watch.message()).await?;
    Ok(next.expect("a watch ends with a status").event.expect("an event"))
}

/// An event in short: what, which key, which value.
async fn told(watch: &mut Watch) -> String {
    match next(watch).await.unwrap() {
        Event::Put(entry) => format!("{}={}", entry.key, String::from_utf8_lossy(&entry.value)),
        Event::Removed(removed) => format!("-{}", removed.key),
        Event::Flushed(_) => "flushed".to_owned(),
        Event::Ready(_) => "ready".to_owned(),
    }
}

async fn delete(client: &mut KvClient, key: &str) {
    let request = DeleteRequest {
        key: key.to_owned(),
        if_version: None,
    };
    client.delete(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_there_is_comes_first_if_it_is_wanted_and_then_what_changes() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    for key in ["b", "a", "c"] {
        put(&mut client, key, "1").await;
    }
    let (mut all, mut changes) = (watch(&mut client, "", true).await, watch(&mut client, "", false).await);
    for wanted in ["a=1", "b=1", "c=1", "ready"] {
        assert_eq!(told(&mut all).await, wanted);
    }
    assert_eq!(told(&mut changes).await, "ready");
    let version = put(&mut client, "a", "2").await;
    for watch in [&mut all, &mut changes] {
        let Event::Put(told) = next(watch).await.unwrap() else {
            panic!("a value was set");
        };
        assert_eq!(Some(told), entry(&mut client, "a").await);
    }
    delete(&mut client, "b").await;
    delete(&mut client, "none").await;
    let removed = next(&mut all).await.unwrap();
    assert!(matches!(&removed, Event::Removed(removed) if removed.key == "b" && removed.version > version));
    client.flush(FlushRequest {}).await.unwrap();
    client.flush(FlushRequest {}).await.unwrap();
    put(&mut client, "d", "3").await;
    assert_eq!(told(&mut changes).await, "-b");
    for watch in [&mut all, &mut changes] {
        assert_eq!(told(watch).await, "flushed");
        assert_eq!(told(watch).await, "d=3", "to flush nothing is no change");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_names_the_keys_that_are_told() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    put(&mut client, "user:1", "1").await;
    put(&mut client, "job:1", "1").await;
    let mut users = watch(&mut client, "user:*", true).await;
    put(&mut client, "job:2", "1").await;
    delete(&mut client, "job:1").await;
    put(&mut client, "user:2", "1").await;
    for wanted in ["user:1=1", "ready", "user:2=1"] {
        assert_eq!(told(&mut users).await, wanted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_end_by_themselves_are_told_as_well() {
    let options = ServerOptions::memory()
        .set("cache.cleanup_sec", 1)
        .set("cache.max_keys", 2);
    let server = Server::start(&options);
    let mut client = connect(server.messaging()).await;
    put(&mut client, "a", "1").await;
    let mut all = watch(&mut client, "*", false).await;
    assert_eq!(told(&mut all).await, "ready");
    put(&mut client, "b", "1").await;
    put(&mut client, "c", "1").await;
    for wanted in ["b=1", "c=1", "-a"] {
        assert_eq!(told(&mut all).await, wanted, "its place was needed");
    }
    done(server.admin(), "set", &json!({"key": "c", "value": 2, "ttl": 500}));
    let mut seen = told(&mut all).await;
    // A busy machine may see it end before it is told.
    if seen == "c=2" {
        seen = told(&mut all).await;
    }
    assert_eq!(seen, "-c", "its time was over");
}

/// While what there is is read piece by piece, others write, delete and flush: what the watcher makes of it is what there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_begins_in_the_middle_of_changes_ends_up_with_what_there_is() {
    let mut random = Random::from_environment("watched");
    let server = Server::start(&ServerOptions::memory());
    let client = connect(server.messaging()).await;
    let puts = stream::iter(0..3_500_u32).map(|number| {
        let mut client = client.clone();
        async move { put(&mut client, &format!("k{number:04}"), "0").await }
    });
    puts.buffer_unordered(64).collect::<Vec<_>>().await;
    let mut writer = client.clone();
    let writing = tokio::spawn(async move {
        for round in 1..=400_u32 {
            let key = format!("k{:04}", random.within(0..3_600));
            match round % 10 {
                3 => delete(&mut writer, &key).await,
                _ => drop(put(&mut writer, &key, &round.to_string()).await),
            }
            if round == 390 {
                writer.flush(FlushRequest {}).await.unwrap();
            }
        }
        put(&mut writer, "~last", "").await;
    });
    let mut client = client;
    let mut watches = Vec::new();
    for _ in 0..4 {
        watches.push(watch(&mut client, "", true).await);
    }
    let mut seen_by_all = Vec::new();
    for mut watch in watches {
        let (mut seen, mut newest) = (BTreeMap::new(), BTreeMap::new());
        loop {
            match next(&mut watch).await.unwrap() {
                Event::Put(entry) => {
                    let before = newest.insert(entry.key.clone(), entry.version);
                    assert!(before < Some(entry.version), "{} goes back", entry.key);
                    if entry.key == "~last" {
                        break;
                    }
                    seen.insert(entry.key, entry.value);
                }
                Event::Removed(removed) => {
                    let before = newest.insert(removed.key.clone(), removed.version);
                    assert!(before < Some(removed.version), "{} goes back", removed.key);
                    seen.remove(&removed.key);
                }
                Event::Flushed(_) => seen.clear(),
                Event::Ready(_) => {}
            }
        }
        seen_by_all.push(seen);
    }
    writing.await.unwrap();
    let listed = super::client::keys(server.admin(), "k*");
    assert!(!listed.is_empty() && listed.len() <= 10);
    for seen in seen_by_all {
        assert_eq!(seen.keys().cloned().collect::<Vec<_>>(), listed);
        for (key, value) in seen {
            assert_eq!(entry(&mut client, &key).await.unwrap().value, value);
        }
    }
}

/// Nobody is held up by it: it is told to begin again.
#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_does_not_read_is_given_up() {
    let server = Server::start(&ServerOptions::memory());
    let client = connect(server.messaging()).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", server.messaging())).unwrap();
    let narrow = endpoint.initial_stream_window_size(65_535).connect().await.unwrap();
    let mut lazy = KvServiceClient::new(narrow);
    let mut unread = watch(&mut lazy, "", false).await;
    let mut read = watch(&mut client.clone(), "", false).await;
    // More than its window has room for, and the 4,096 changes that it may be behind.
    let counts = stream::iter(0..5_500_u32).map(|number| {
        let mut client = client.clone();
        let increment = IncrementRequest {
            key: format!("{}{:02}", "k".repeat(900), number % 50),
            delta: None,
        };
        async move { client.increment(increment).await.unwrap() }
    });
    let reading = tokio::spawn(async move {
        loop {
            if let Event::Put(entry) = next(&mut read).await.unwrap()
                && entry.key == "last"
            {
                return;
            }
        }
    });
    counts.buffer_unordered(64).collect::<Vec<_>>().await;
    put(&mut client.clone(), "last", "").await;
    let ended = within(SOON, "the end of the watch", async {
        loop {
            if let Err(status) = next(&mut unread).await {
                return status;
            }
        }
    });
    let ended = ended.await;
    assert_eq!(
        (ended.code(), &*reason(&ended)),
        (Code::ResourceExhausted, "WATCH_TOO_SLOW")
    );
    reading.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_says_so() {
    let mut server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let mut all = watch(&mut client, "", false).await;
    assert_eq!(told(&mut all).await, "ready");
    let stopping = tokio::task::spawn_blocking(move || server.terminate());
    let ended = next(&mut all).await.unwrap_err();
    assert_eq!((ended.code(), &*reason(&ended)), (Code::Unavailable, "STOPPED"));
    assert!(
        within(Duration::from_secs(60), "the end of the server", stopping)
            .await
            .unwrap()
            .success()
    );
}
