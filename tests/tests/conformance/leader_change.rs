//! What a client was told by one leader holds with the next one.

use std::net::SocketAddr;

use boltq_proto::queue::v1::{PublishStreamRequest, PurgeQueueRequest};
use boltq_tests::harness::binary::{BinaryClient, command, status};
use boltq_tests::harness::grpc::{QueueCalls, connect, message};
use boltq_tests::harness::{Cluster, ServerOptions, eventually, http, within};
use serde_json::{Value, json};
use tonic::Code;

use super::calls::PATIENCE;
use super::content::{Content, options};

/// Waits until each node that runs has everything.
pub(crate) fn await_equal_figures(cluster: &Cluster) {
    eventually(PATIENCE, "all nodes have the same figures", || {
        let running = cluster.nodes().iter().filter(|node| node.runs());
        let figures: Vec<Value> = running
            .map(|node| {
                let stats = http::get(node.admin(), "/stats?linearizable=true").ok()?.json();
                Some(json!([stats["Queues"], stats["DeadLetters"], stats["DelayedCount"]]))
            })
            .collect::<Option<_>>()?;
        (figures.windows(2).all(|pair| pair[0] == pair[1]) && !figures[0][0].is_null()).then_some(())
    });
}

/// Makes the node lead the queues that ought to: leadership that is elsewhere is handed over to it sooner or later, which these
/// tests could not tell from what they look for. Voters get the groups in turn, in the order of their ids.
fn settle_leadership(cluster: &Cluster) -> usize {
    let id = |node: usize| {
        cluster.node(node).status()?["cluster"]["id"]
            .as_str()
            .map(str::to_owned)
    };
    let mut ids: Vec<(String, usize)> = (0..cluster.nodes().len())
        .map(|node| (eventually(PATIENCE, "the id of a node", || id(node)), node))
        .collect();
    ids.sort_unstable();
    let node = ids[1 % ids.len()].1;
    let transfer = json!({"group": "queue", "node_id": cluster.node(node).name()}).to_string();
    eventually(PATIENCE, "the node leads that ought to", || {
        let admin = cluster.node(node).admin();
        http::request(admin, "POST", "/cluster/transfer", &[], transfer.as_bytes()).ok()?;
        (cluster.leader() == node).then_some(())
    });
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_what_it_was_when_the_leader_was_killed() {
    let mut cluster = Cluster::start_with(3, &options());
    let leader = settle_leadership(&cluster);
    let content = Content::put(cluster.node(leader).messaging()).await;
    cluster.kill(leader);
    let next = cluster.leader();
    content.check(cluster.node(next).messaging()).await;
    cluster.start_node(leader);
    cluster.await_settled();
    await_equal_figures(&cluster);
}

/// One message each.
pub(crate) async fn publish_megabytes(address: SocketAddr, count: usize) {
    let mut client = connect(address).await;
    let one = PublishStreamRequest {
        queue: "large".to_owned(),
        messages: vec![message(vec![7; 1 << 20])],
        ..PublishStreamRequest::default()
    };
    let requests = tokio_stream::iter(std::iter::repeat_n(one, count));
    let mut answers = client.publish_stream(requests).await.unwrap().into_inner();
    while let Some(answer) = answers.message().await.unwrap() {
        assert_eq!(answer.failures, []);
    }
}

/// Of the queues, since the node was started.
pub(crate) fn snapshots_installed(cluster: &Cluster, node: usize) -> u64 {
    let metrics = http::get(cluster.node(node).admin(), "/metrics").expect("metrics");
    let start = "boltq_raft_snapshots_total{group=\"queue\",direction=\"installed\"} ";
    let value = metrics.text().lines().find_map(|line| line.strip_prefix(start));
    value.and_then(|value| value.parse().ok()).expect("a figure")
}

/// It never saw the entries that led there.
#[tokio::test(flavor = "multi_thread")]
async fn everything_is_there_at_a_leader_that_got_it_in_a_snapshot() {
    let mut cluster = Cluster::start_with(1, &options().set("cluster.snapshot_threshold", 8));
    let first = cluster.node(cluster.leader()).messaging();
    let content = Content::put(first).await;
    // More than the 32 MiB of entries that are kept for members that were away.
    publish_megabytes(first, 44).await;
    for _ in 0..2 {
        let late = cluster.add(true);
        cluster.await_settled();
        assert!(snapshots_installed(&cluster, late) > 0);
    }
    if settle_leadership(&cluster) == 0 {
        cluster.kill(0);
    }
    let late = cluster.leader();
    assert_ne!(late, 0);
    content.check(cluster.node(late).messaging()).await;
    await_equal_figures(&cluster);
}

/// Whatever is to be changed: the caller is not left waiting, and nothing is said to be done.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_whoever_wants_to_change_something_is_told_so_in_time() {
    let options = ServerOptions::disk().set("cluster.proposal_timeout", "2s");
    let mut cluster = Cluster::start_with(3, &options);
    let leader = cluster.leader();
    let (admin, address) = (cluster.node(leader).admin(), cluster.node(leader).messaging());
    connect(address).await.put("q", message("x")).await;
    let others: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    others.iter().for_each(|node| cluster.pause(*node));
    let away = cluster.node(others[0]).name();
    for (path, body) in [
        ("/exchange/declare", json!({"name": "e"})),
        ("/exchange/publish", json!({"exchange": "", "routing_key": "q"})),
        ("/publish/topic", json!({"topic": "t", "payload": 1})),
        ("/cache/set", json!({"key": "k", "value": 1})),
        ("/cache/flush", json!({})),
        ("/cluster/leave", json!({"node_id": away})),
        ("/cluster/transfer", json!({"group": "queue", "node_id": away})),
    ] {
        let answer = eventually(PATIENCE, path, || {
            http::request(admin, "POST", path, &[], body.to_string().as_bytes()).ok()
        });
        assert!(answer.status >= 400, "{path}: {} {}", answer.status, answer.text());
        assert!(answer.json()["error"].is_string(), "{path}: {}", answer.text());
    }
    let mut client = connect(address).await;
    let purge = PurgeQueueRequest { queue: "q".to_owned() };
    let refused = within(PATIENCE, "an answer", client.purge_queue(purge))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    others.iter().for_each(|node| cluster.resume(*node));
    cluster.await_settled();
}

/// An answer that nothing is there would look like an idle queue.
#[test]
fn while_nobody_leads_a_consumer_is_told_so_and_not_that_there_is_nothing() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let mut client = BinaryClient::connect(cluster.node(leader).messaging());
    client.publish("q", &json!(1));
    let left = cluster.follower();
    for other in (0..3).filter(|node| *node != left) {
        cluster.kill(other);
    }
    let mut client = BinaryClient::connect(cluster.node(left).messaging());
    eventually(PATIENCE, "it knows of no leader", || {
        let reply = client.call(command::CONSUME, r#"{"topic":"q"}"#);
        assert_eq!(reply.status, status::NOT_LEADER, "{}", reply.text());
        (reply.json()["leader_id"] == "").then_some(())
    });
    for other in (0..3).filter(|node| *node != left) {
        cluster.start_node(other);
    }
    cluster.await_settled();
    let taken = eventually(PATIENCE, "what was there is delivered", || {
        let mut client = BinaryClient::connect(cluster.node(cluster.leader()).messaging());
        let reply = client.call(command::CONSUME, r#"{"topic":"q"}"#);
        (reply.status == status::OK).then(|| reply.json())
    });
    assert_eq!(taken["payload"], 1);
}
