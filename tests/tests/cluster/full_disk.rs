//! Disks that are full: who leads, what the others answer, and how a node comes back.

use std::time::{Duration, Instant};

use boltq_proto::queue::v1::PublishRequest;
use boltq_tests::harness::binary::{BinaryClient, command, status};
use boltq_tests::harness::grpc::{QueueCalls, connect, message, reason};
use boltq_tests::harness::{Cluster, ServerOptions, eventually, http};
use serde_json::json;
use tonic::Status;

const WITHIN: Duration = Duration::from_secs(60);
const QUEUE: &str = "q";
const PAYLOAD_BYTES: usize = 50_000;
const DISK_MIB: usize = 16;

fn options() -> ServerOptions {
    ServerOptions::disk().set("storage.wal_file_bytes", 1 << 20)
}

fn metric(cluster: &Cluster, node: usize, name: &str) -> Option<f64> {
    let metrics = http::get(cluster.node(node).admin(), "/metrics").ok()?;
    let value = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    metrics.text().lines().find_map(value)
}

fn is_writable(cluster: &Cluster, node: usize) -> bool {
    metric(cluster, node, "boltq_storage_writable") == Some(1.0)
}

async fn publish_at(cluster: &Cluster, node: usize) -> Result<(), Status> {
    let mut client = connect(cluster.node(node).messaging()).await;
    let request = PublishRequest {
        queue: QUEUE.to_owned(),
        message: Some(message(vec![7; PAYLOAD_BYTES])),
    };
    client.publish(request).await.map(drop)
}

/// Publishes at whoever leads until `done` says so; refusals are no harm. Returns how many were stored.
async fn publish_until(cluster: &Cluster, mut done: impl FnMut() -> bool) -> usize {
    let started = Instant::now();
    let mut stored = 0;
    while !done() {
        assert!(started.elapsed() < WITHIN, "not after {stored} messages");
        match publish_at(cluster, cluster.leader()).await {
            Ok(()) => stored += 1,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    stored
}

async fn transfer_queue(cluster: &Cluster, to: usize) {
    let body = json!({"group": "queue", "node_id": cluster.node(to).name()}).to_string();
    eventually(WITHIN, "leadership is handed over", || {
        let admin = cluster.node(to).admin();
        let answer = http::request(admin, "POST", "/cluster/transfer", &[], body.as_bytes()).ok()?;
        (answer.status == 200).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_is_full_says_who_leads() {
    let Some(cluster) = Cluster::start_on_disks(&[0, DISK_MIB, 0], &options()) else {
        return;
    };
    publish_until(&cluster, || !is_writable(&cluster, 1)).await;
    eventually(WITHIN, "another node leads", || (cluster.leader() != 1).then_some(()));
    let body = json!({"topic": QUEUE, "payload": 1}).to_string();
    for command in [command::PUBLISH, command::CONSUME] {
        let answer = BinaryClient::connect(cluster.node(1).messaging()).call(command, &body);
        assert_eq!(answer.status, status::NOT_LEADER, "{}", answer.text());
    }
    publish_at(&cluster, 1).await.expect("passed on to the node that leads");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_full_gives_leadership_to_a_node_that_has_room() {
    let Some(cluster) = Cluster::start_on_disks(&[0, DISK_MIB, 0], &options()) else {
        return;
    };
    transfer_queue(&cluster, 1).await;
    cluster.node(1).disk().fill();
    publish_until(&cluster, || !is_writable(&cluster, 1)).await;
    let mut went_on = 0;
    publish_until(&cluster, || {
        went_on += 1;
        cluster.leader() != 1 && went_on > 20
    })
    .await;
    // Nobody gives it back as long as it is full.
    assert!(!is_writable(&cluster, 1));
    assert_ne!(cluster.leader(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_all_disks_full_the_leader_stays_and_says_so() {
    let Some(cluster) = Cluster::start_on_disks(&[DISK_MIB, DISK_MIB, DISK_MIB], &options()) else {
        return;
    };
    publish_until(&cluster, || (0..3).all(|node| !is_writable(&cluster, node))).await;
    let leader = cluster.leader();
    let refused = publish_at(&cluster, leader).await.unwrap_err();
    assert_eq!(reason(&refused), "STORAGE_FULL", "{refused}");
    // What settles makes room everywhere.
    let mut client = connect(cluster.node(leader).messaging()).await;
    loop {
        let deliveries = client.take(QUEUE, 20).await;
        if deliveries.is_empty() {
            break;
        }
        client.done(&deliveries).await;
    }
    eventually(WITHIN, "there is room everywhere again", || {
        (0..3).all(|node| is_writable(&cluster, node)).then_some(())
    });
    publish_until(&cluster, || true).await;
}
