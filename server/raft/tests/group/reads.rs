//! Reads that must be current, at each node of a group.

use std::time::Duration;

use boltq_raft::ReadError;

use super::cluster::{Cluster, DEADLINE};
use super::support::add;

const SHORT: Duration = Duration::from_millis(1_500);

/// Members of every kind see a command at once that was answered before, whoever is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_current_read_sees_what_was_answered_before_at_every_node() {
    let cluster = Cluster::start(3, 1).await;
    let mut sum = 0;
    for round in 1..=40 {
        cluster.leader().await.group.propose(add(&[round])).await.unwrap();
        sum += round;
        for node in &cluster.nodes {
            node.group.catch_up(DEADLINE).await.unwrap();
            assert_eq!(*node.adder.sum.lock(), sum, "node {} in round {round}", node.id);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_is_asked_as_soon_as_there_is_one() {
    let mut cluster = Cluster::start(3, 0).await;
    cluster.leader().await.group.propose(add(&[1])).await.unwrap();
    for round in 0..3 {
        let dead = cluster.leader().await.id;
        cluster.kill(dead).await;
        // Nobody leads now; the calls wait until somebody does.
        for node in &cluster.nodes {
            node.group.catch_up(DEADLINE).await.unwrap();
            assert_eq!(*node.adder.sum.lock(), 1 + round);
        }
        cluster.leader().await.group.propose(add(&[1])).await.unwrap();
        cluster.restart(dead).await;
        cluster.node(dead.0).group.catch_up(DEADLINE).await.unwrap();
        assert_eq!(*cluster.node(dead.0).adder.sum.lock(), 2 + round);
    }
}

/// What it has may be old, and it says so: the others may have gone on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cut_off_refuses_in_time() {
    let cluster = Cluster::start(3, 1).await;
    cluster.leader().await.group.propose(add(&[1])).await.unwrap();
    cluster.all_have(1).await;
    let old = cluster.leader().await;
    for cut in [4, 2, 3, 1].map(|id| cluster.node(id)) {
        cluster.mesh.isolate(cut.id);
        let refused = cut.group.catch_up(SHORT).await.unwrap_err();
        assert!(
            matches!(
                refused,
                ReadError::NoLeader | ReadError::NoMajority | ReadError::NotReached(_)
            ),
            "{refused}"
        );
        cluster.mesh.heal();
        cut.group.catch_up(DEADLINE).await.unwrap();
    }
    // A leader that was replaced and does not know it yet is no exception.
    cluster.mesh.isolate(old.id);
    let new = cluster.leader_but(Some(old.id)).await;
    new.group.propose(add(&[10])).await.unwrap();
    assert!(old.group.catch_up(SHORT).await.is_err());
    cluster.mesh.heal();
    old.group.catch_up(DEADLINE).await.unwrap();
    assert_eq!(*old.adder.sum.lock(), 11);
}

/// The leader answers, and this node has not yet what it answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lags_waits_for_what_it_lacks() {
    let cluster = Cluster::start(3, 1).await;
    cluster.leader().await.group.propose(add(&[1])).await.unwrap();
    cluster.all_have(1).await;
    let learner = cluster.node(4);
    cluster.mesh.lose_entries(learner.id);
    cluster.leader().await.group.propose(add(&[10])).await.unwrap();
    let refused = learner.group.catch_up(SHORT).await.unwrap_err();
    assert!(matches!(refused, ReadError::Behind { .. }), "{refused}");
    assert_eq!(*learner.adder.sum.lock(), 1);
    let waiting = learner.group.clone();
    let waiting = tokio::spawn(async move { waiting.catch_up(DEADLINE).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    cluster.mesh.heal();
    waiting.await.unwrap().unwrap();
    assert_eq!(*learner.adder.sum.lock(), 11);
}
