//! Disks that are full: who leads, what the others answer, and how a node comes back.

use std::time::{Duration, Instant};

use boltq_proto::queue::v1::PublishRequest;
use boltq_tests::harness::binary::{BinaryClient, command, status};
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, message, reason};
use boltq_tests::harness::{Cluster, ServerOptions, eventually, eventually_async, http};
use serde_json::{Value, json};
use tonic::Status;

const WITHIN: Duration = Duration::from_secs(60);
const QUEUE: &str = "q";
const PAYLOAD_BYTES: usize = 50_000;
/// Messages that are published before it is looked again.
const BETWEEN_LOOKS: usize = 5;
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
    publish(&mut connect(cluster.node(node).messaging()).await).await
}

async fn publish(client: &mut QueueClient) -> Result<(), Status> {
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
        assert!(started.elapsed() < 2 * WITHIN, "not after {stored} messages");
        let mut client = connect(cluster.node(cluster.leader()).messaging()).await;
        for _ in 0..BETWEEN_LOOKS {
            match publish(&mut client).await {
                Ok(()) => stored += 1,
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    break;
                }
            }
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
async fn with_all_disks_full_publishing_stops_and_settling_makes_room() {
    publishing_stops_and_settling_makes_room(&[DISK_MIB, DISK_MIB, DISK_MIB]).await;
}

/// The one that has room could go on taking messages that nobody else has room for, until nothing can be committed any more.
#[tokio::test(flavor = "multi_thread")]
async fn with_most_disks_full_publishing_stops_and_settling_makes_room() {
    publishing_stops_and_settling_makes_room(&[0, DISK_MIB, DISK_MIB]).await;
}

async fn publishing_stops_and_settling_makes_room(mib: &[usize]) {
    let Some(cluster) = Cluster::start_on_disks(mib, &options()) else {
        return;
    };
    publish_until(&cluster, || (1..3).all(|node| !is_writable(&cluster, node))).await;
    eventually_async(WITHIN, "publishes are refused", async || {
        let refused = publish_at(&cluster, cluster.leader()).await.err()?;
        (reason(&refused) == "STORAGE_FULL").then_some(())
    })
    .await;
    drain(&cluster).await;
    eventually(WITHIN, "there is room everywhere again", || {
        (0..3).all(|node| is_writable(&cluster, node)).then_some(())
    });
    publish_at(&cluster, cluster.leader()).await.unwrap();
}

/// Takes and settles everything.
async fn drain(cluster: &Cluster) {
    let mut client = connect(cluster.node(cluster.leader()).messaging()).await;
    loop {
        let deliveries = client.take(QUEUE, 20).await;
        if deliveries.is_empty() {
            break;
        }
        assert_eq!(client.done(&deliveries).await as usize, deliveries.len());
    }
}

/// It has no room for the entries that would tell it that everything may go.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_was_full_comes_back_when_the_backlog_is_consumed_elsewhere() {
    let Some(cluster) = Cluster::start_on_disks(&[0, DISK_MIB, 0], &options()) else {
        return;
    };
    let behind = |node: usize| {
        let leader = cluster.node(cluster.leader()).status()?;
        let status = cluster.node(node).status()?;
        let index = |status: &Value| {
            let groups = status["cluster"]["groups"].as_array()?;
            groups.iter().find(|group| group["name"] == "queue")?["applied_index"].as_u64()
        };
        Some(index(&leader)?.saturating_sub(index(&status)?))
    };
    // More than it can take.
    publish_until(&cluster, || !is_writable(&cluster, 1) && behind(1) > Some(50)).await;
    drain(&cluster).await;
    eventually(2 * WITHIN, "it has everything, and room", || {
        (is_writable(&cluster, 1) && behind(1) == Some(0)).then_some(())
    });
    let stats = http::get(cluster.node(1).admin(), "/stats").unwrap().json();
    assert_eq!(stats["Queues"], json!({QUEUE: 0}), "{stats}");
    // Its log, and those of the others, tell of it and not of each attempt.
    for node in 0..3 {
        let log = cluster.node(node).log();
        let told = |what: &str| log.lines().filter(|line| line.contains(what)).count();
        for what in [
            "no room for what the leader sends",
            "the log waits for room",
            "the connection broke",
        ] {
            assert!(told(what) <= 3, "{what}: {} times", told(what));
        }
    }
}
