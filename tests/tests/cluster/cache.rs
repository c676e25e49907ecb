//! The key-value cache of a cluster: any node takes any call, and what was answered is there whoever leads.

use std::net::SocketAddr;

use boltq_proto::kv::v1::kv_service_client::KvServiceClient;
use boltq_proto::kv::v1::watch_response::Event;
use boltq_proto::kv::v1::{DeleteRequest, GetRequest, IncrementRequest, KeysRequest, SetRequest, WatchRequest};
use boltq_tests::harness::grpc::{channel, reason};
use boltq_tests::harness::{Cluster, ServerOptions, eventually_async, http, within};
use serde_json::{Value, json};
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Code, Status};

const SOON: Duration = Duration::from_secs(60);

type KvClient = KvServiceClient<Channel>;

async fn connect(node: SocketAddr) -> KvClient {
    KvServiceClient::new(channel(node).await.unwrap())
}

async fn set(client: &mut KvClient, key: &str, value: &str) -> Result<u64, Status> {
    let request = SetRequest {
        key: key.to_owned(),
        value: value.to_owned().into(),
        ..SetRequest::default()
    };
    client.set(request).await.map(|response| response.into_inner().version)
}

async fn get(client: &mut KvClient, key: &str) -> Result<Option<String>, Status> {
    let request = GetRequest { key: key.to_owned() };
    let entry = client.get(request).await?.into_inner().entry;
    Ok(entry.map(|entry| String::from_utf8(entry.value.into()).unwrap()))
}

/// What a node answers as soon as it can.
async fn at_last<T, F: Future<Output = Result<T, Status>>>(mut ask: impl FnMut() -> F) -> T {
    eventually_async(SOON, "an answer", || {
        let asked = ask();
        async {
            match asked.await {
                Err(status) if status.code() == Code::Unavailable => None,
                answer => Some(answer.unwrap()),
            }
        }
    })
    .await
}

fn post(node: SocketAddr, route: &str, body: &Value) -> (u16, Value) {
    let path = format!("/cache/{route}");
    let response = http::request(node, "POST", &path, &[], body.to_string().as_bytes()).unwrap();
    (response.status, response.json())
}

fn look(node: SocketAddr, path: &str) -> (u16, Value) {
    let response = http::get(node, &format!("/cache/{path}")).unwrap();
    (response.status, response.json())
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_takes_any_call_by_both_doors() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::memory());
    cluster.add(false);
    cluster.await_settled();
    let admins: Vec<SocketAddr> = cluster.nodes().iter().map(|node| node.admin()).collect();
    for (index, node) in cluster.nodes().iter().enumerate() {
        let mut client = connect(node.messaging()).await;
        set(&mut client, &format!("grpc{index}"), "g").await.unwrap();
        let body = json!({"key": format!("http{index}"), "value": {"n": index}});
        assert_eq!(post(node.admin(), "set", &body).0, 200, "{}", node.name());
        assert_eq!(post(node.admin(), "incr", &json!({"key": "n"})).1["value"], index + 1);
        // Whoever is asked has what was just answered.
        for other in cluster.nodes() {
            let mut client = connect(other.messaging()).await;
            assert_eq!(
                get(&mut client, &format!("http{index}")).await.unwrap(),
                Some(json!({"n": index}).to_string())
            );
            assert_eq!(look(other.admin(), &format!("get?key=grpc{index}")).1["value"], "g");
        }
    }
    for admin in admins {
        assert_eq!(look(admin, "keys").1["count"], 9);
        assert_eq!(look(admin, "keys?pattern=http*").1["count"], 4);
        assert_eq!(look(admin, "entries?search=GRPC").1["total"], 4);
        // What is refused is refused in the same words.
        assert_eq!(look(admin, "get?key=none"), (404, json!({"error": "key not found"})));
        assert_eq!(
            post(admin, "set", &json!({})),
            (400, json!({"error": "key is required"}))
        );
        assert_eq!(look(admin, "set").0, 405);
        let answer = http::get(admin, "/cache/exists?key=n").unwrap();
        let allowed = answer
            .headers
            .iter()
            .filter(|(name, _)| name == "access-control-allow-origin");
        assert_eq!(allowed.count(), 1);
    }
    let large = "x".repeat(3_000_000);
    let follower = cluster.node(cluster.follower()).admin();
    assert_eq!(post(follower, "set", &json!({"key": "large", "value": large})).0, 200);
    assert!(look(follower, "get?key=large").1["value"] == large);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_the_api_goes_on_to_the_leader() {
    let cluster = Cluster::start_with(3, &ServerOptions::memory().set("security.api_key", "s3cret"));
    let follower = cluster.node(cluster.follower()).admin();
    let body = br#"{"key":"k","value":1}"#;
    let ask = |headers: &[(&str, &str)], query: &str| {
        http::request(follower, "POST", &format!("/cache/set{query}"), headers, body)
            .unwrap()
            .status
    };
    assert_eq!(ask(&[], ""), 401);
    assert_eq!(ask(&[("x-api-key", "s3cret")], ""), 200);
    assert_eq!(ask(&[], "?api_key=s3cret"), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_there_when_the_leader_is_killed() {
    let mut cluster = Cluster::start(3);
    let mut newest = 0;
    let mut counted = 0;
    for round in 0..3 {
        let leader = cluster.leader();
        let follower = cluster.node(cluster.follower()).messaging();
        let mut client = connect(follower).await;
        for number in 0..20 {
            let version = at_last(|| {
                let mut client = client.clone();
                async move { set(&mut client, &format!("k{round}-{number}"), "v").await }
            });
            newest = newest.max(version.await);
            let one = IncrementRequest {
                key: "n".to_owned(),
                delta: None,
            };
            counted = client
                .increment(one)
                .await
                .map_or(counted, |sum| sum.into_inner().value);
        }
        cluster.kill(leader);
        let keys = at_last(|| {
            let mut client = client.clone();
            let all = KeysRequest {
                pattern: "k*".to_owned(),
                page_size: 1_000,
                ..KeysRequest::default()
            };
            async move { client.keys(all).await }
        });
        assert_eq!(keys.await.into_inner().keys.len(), 20 * (round + 1));
        let count = get(&mut client, "n").await.unwrap().unwrap();
        assert!(count.parse::<i64>().unwrap() >= counted, "{count} of {counted}");
        let version = at_last(|| {
            let mut client = client.clone();
            async move { set(&mut client, "version", "v").await }
        });
        let version = version.await;
        assert!(version > newest, "versions go on: {version} after {newest}");
        newest = version;
        cluster.start_node(leader);
        cluster.await_settled();
    }
    cluster.kill_all();
    for node in 0..3 {
        cluster.start_node(node);
    }
    cluster.await_settled();
    let admin = cluster.node(cluster.follower()).admin();
    assert_eq!(look(admin, "keys?pattern=k*").1["count"], 60);
}

/// It answers from what it has, and others may have written since it was paused.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_paused_answers_nothing_that_is_old() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::memory());
    for round in 0..5 {
        let leader = cluster.leader();
        let old = connect(cluster.node(leader).messaging()).await;
        let mut other = connect(cluster.node(cluster.follower()).messaging()).await;
        set(&mut other, "k", &format!("old{round}")).await.unwrap();
        cluster.pause(leader);
        let value = format!("new{round}");
        at_last(|| {
            let (mut other, value) = (other.clone(), value.clone());
            async move { set(&mut other, "k", &value).await }
        })
        .await;
        let asked = (0..8).map(|_| {
            let mut old = old.clone();
            tokio::spawn(async move { get(&mut old, "k").await })
        });
        let asked: Vec<_> = asked.collect();
        cluster.resume(leader);
        for task in asked {
            match task.await.unwrap() {
                Ok(seen) => assert_eq!(seen, Some(value.clone())),
                Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
            }
        }
        cluster.await_settled();
    }
}

async fn next(watch: &mut tonic::Streaming<boltq_proto::kv::v1::WatchResponse>) -> Event {
    let next = within(SOON, "an event", watch.message()).await.unwrap();
    next.unwrap().event.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_tells_its_watchers_what_the_leaders_do() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::memory());
    let leader = cluster.leader();
    let (follower, other) = match leader {
        0 => (1, 2),
        1 => (0, 2),
        _ => (0, 1),
    };
    let client = connect(cluster.node(other).messaging()).await;
    let write = async |value: &str| {
        let value = value.to_owned();
        at_last(|| {
            let (mut client, value) = (client.clone(), value.clone());
            async move { set(&mut client, "k", &value).await }
        })
        .await
    };
    write("1").await;
    let mut watcher = connect(cluster.node(follower).messaging()).await;
    // Nobody else is asked.
    eventually_async(SOON, "the follower has it", || {
        let admin = cluster.node(follower).admin();
        async move { (look(admin, "stats").1["stats"]["key_count"] == 1).then_some(()) }
    })
    .await;
    let all = WatchRequest {
        pattern: "*".to_owned(),
        initial: true,
    };
    let mut watch = watcher.watch(all).await.unwrap().into_inner();
    let value = |event: Event| match event {
        Event::Put(entry) => String::from_utf8(entry.value.into()).unwrap(),
        other => format!("{other:?}"),
    };
    assert_eq!(value(next(&mut watch).await), "1");
    assert!(matches!(next(&mut watch).await, Event::Ready(_)));
    write("2").await;
    assert_eq!(value(next(&mut watch).await), "2");
    cluster.kill(leader);
    let version = write("3").await;
    let seen = next(&mut watch).await;
    assert!(
        matches!(&seen, Event::Put(entry) if entry.version == version && entry.value == "3"),
        "{seen:?}"
    );
    let delete = DeleteRequest {
        key: "k".to_owned(),
        if_version: Some(version),
    };
    client.clone().delete(delete).await.unwrap();
    assert!(matches!(next(&mut watch).await, Event::Removed(removed) if removed.key == "k"));
}

/// A node that comes late gets the cache with the snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_joins_later_has_the_cache() {
    let options = ServerOptions::disk().set("cluster.snapshot_threshold", 20);
    let mut cluster = Cluster::start_with(1, &options);
    let mut client = connect(cluster.node(0).messaging()).await;
    for number in 0..100 {
        set(&mut client, &format!("k{number}"), "v").await.unwrap();
    }
    let late = cluster.add(false);
    cluster.await_settled();
    let admin = cluster.node(late).admin();
    eventually_async(SOON, "the cache is there", || async move {
        (look(admin, "stats").1["stats"]["key_count"] == 100).then_some(())
    })
    .await;
    let stats = look(admin, "stats").1["stats"].take();
    assert_eq!((&stats["sets"], &stats["hits"]), (&json!(100), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_cache_no_leader_is_asked() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::memory().set("cache.enabled", false));
    let leader = cluster.leader();
    let follower = cluster.node(cluster.follower());
    let (admin, messaging) = (follower.admin(), follower.messaging());
    cluster.pause(leader);
    assert_eq!(look(admin, "get?key=k"), (503, json!({"error": "cache not enabled"})));
    assert_eq!(look(admin, "stats"), (200, json!({"enabled": false})));
    let refused = get(&mut connect(messaging).await, "k").await.unwrap_err();
    assert_eq!(
        (refused.code(), &*reason(&refused)),
        (Code::FailedPrecondition, "CACHE_NOT_ENABLED")
    );
    cluster.resume(leader);
}
