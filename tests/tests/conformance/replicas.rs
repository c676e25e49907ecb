//! Replicas that take over a snapshot: under those who listen there, and killed in the middle of it.

use std::sync::mpsc;
use std::time::Duration;

use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::{Cluster, Random, ServerOptions, eventually, http};
use serde_json::json;

use super::calls::{Calls, PATIENCE};
use super::leader_change::{await_equal_figures, publish_megabytes, snapshots_installed};

/// What was published meanwhile may have passed it by; what comes then comes.
#[tokio::test(flavor = "multi_thread")]
async fn who_listens_at_a_node_that_takes_over_a_snapshot_hears_what_comes_after_it() {
    let options = ServerOptions::disk().set("cluster.snapshot_threshold", 8);
    let mut cluster = Cluster::start_with(3, &options);
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut listener = BinaryClient::connect(cluster.node(follower).messaging());
    listener.set_timeout(10 * PATIENCE);
    listener.subscribe("t", "live", false);
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok(frame) = listener.receive() {
            if told.send(frame.ok()["payload"].clone()).is_err() {
                return;
            }
        }
    });
    let before = snapshots_installed(&cluster, follower);
    let mut taken_over = false;
    // The leader keeps entries as long as it is about to send them. It gives up to send, and then the entries, in its own time; if it
    // has not yet, they come from its log.
    for _ in 0..4 {
        cluster.pause(follower);
        for megabytes in [44, 9] {
            publish_megabytes(cluster.node(leader).messaging(), megabytes).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        cluster.resume(follower);
        eventually(PATIENCE, "it has caught up", || {
            let applied = [leader, follower].map(|node| applied(&cluster, node));
            (applied[0] == applied[1]).then_some(())
        });
        taken_over = snapshots_installed(&cluster, follower) > before;
        if taken_over {
            break;
        }
    }
    assert!(taken_over, "no snapshot was taken over");
    let admin = cluster.node(follower).admin();
    let body = json!({"topic": "t", "payload": "after"}).to_string();
    eventually(PATIENCE, "the listener hears of it", || {
        // Passed on to whoever leads.
        http::request(admin, "POST", "/publish/topic", &[], body.as_bytes()).ok()?;
        heard.try_iter().any(|payload| payload == "after").then_some(())
    });
}

/// Up to which entry of the queues.
fn applied(cluster: &Cluster, node: usize) -> u64 {
    let metrics = http::get(cluster.node(node).admin(), "/metrics").expect("metrics");
    let start = "boltq_raft_applied_index{group=\"queue\"} ";
    let value = metrics.text().lines().find_map(|line| line.strip_prefix(start));
    value.and_then(|value| value.parse().ok()).expect("a figure")
}

/// Before the snapshot has arrived, in the middle of it, and soon after; and then all nodes at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_killed_around_the_arrival_of_a_snapshot_starts_each_time() {
    let mut random = Random::from_environment("killed_around_the_arrival");
    let options = ServerOptions::disk().set("cluster.snapshot_threshold", 8);
    let mut cluster = Cluster::start_with(3, &options);
    publish_megabytes(cluster.node(cluster.leader()).messaging(), 44).await;
    let follower = cluster.follower();
    cluster.wipe(follower);
    for round in 0..6 {
        cluster.start_node(follower);
        eventually(PATIENCE, &format!("it starts in round {round}"), || {
            cluster.node(follower).status()
        });
        // It asks to be let in after two seconds.
        tokio::time::sleep(Duration::from_millis(random.within(0..4_000))).await;
        cluster.kill(follower);
    }
    cluster.start_node(follower);
    cluster.await_settled();
    await_equal_figures(&cluster);
    cluster.kill_all();
    (0..3).for_each(|node| cluster.start_node(node));
    cluster.await_settled();
    await_equal_figures(&cluster);
    let stats = http::get(cluster.node(follower).admin(), "/stats?linearizable=true").unwrap();
    assert_eq!(stats.json()["Queues"]["large"], 44);
}
