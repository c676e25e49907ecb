//! What a group counts.

use std::time::Duration;

use boltq_core::NodeId;

use super::cluster::{Cluster, forgetful, open, peer, write_until_purged};
use super::support::add;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_are_counted_at_every_node_with_the_time_that_they_took() {
    let cluster = Cluster::start(2, 0).await;
    let before = cluster.node(2).group.figures().appends;
    for _ in 0..10 {
        cluster.leader().await.group.propose(add(&[1])).await.unwrap();
    }
    cluster.all_have(10).await;
    let appends = cluster.node(2).group.figures().appends;
    assert!(appends.count() >= before.count() + 10, "{appends:?}");
    assert!(appends.sum > before.sum);
    let (nothing, figures) = (Duration::ZERO, cluster.node(2).group.figures());
    assert_eq!((figures.sent.time, figures.installed.time), (nothing, nothing));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_proposes_counts_entries_with_their_proposals_and_the_time_until_they_were_applied() {
    let cluster = Cluster::start(2, 0).await;
    let leader = cluster.leader().await;
    let before = leader.group.figures();
    for _ in 0..10 {
        leader.group.propose(add(&[1])).await.unwrap();
    }
    let figures = leader.group.figures();
    // Each was waited for, so each is an entry.
    assert_eq!(figures.commits.count() - before.commits.count(), 10);
    assert!(figures.commits.sum > before.commits.sum);
    assert_eq!(figures.entries.count() - before.entries.count(), 10);
    assert_eq!(figures.entries.sum - before.entries.sum, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_are_counted_where_they_come_from_and_where_they_go() {
    let mut cluster = Cluster::start_with(1, 0, forgetful).await;
    let sum = write_until_purged(cluster.node(1), 10).await;
    let node = open(&cluster.mesh, cluster.dir.path(), NodeId(2), forgetful).await;
    cluster.nodes.push(node);
    cluster.node(1).group.add_learner(&peer(NodeId(2))).await.unwrap();
    cluster.all_have(sum).await;
    // The leader hears of it after the other has it.
    let sent = async {
        loop {
            let sent = cluster.node(1).group.figures().sent;
            if sent.done > 0 {
                return sent;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let sent = tokio::time::timeout(Duration::from_secs(20), sent).await.unwrap();
    let installed = cluster.node(2).group.figures().installed;
    assert_eq!(
        (sent.done, sent.failed, sent.bytes),
        (installed.done, 0, installed.bytes)
    );
    assert!(sent.bytes > 0 && sent.time > Duration::ZERO && installed.time > Duration::ZERO);
}
