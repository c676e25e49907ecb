//! What went wrong in openraft for others, and does not here. The numbers are those of its issues; `docs/openraft.md` says
//! what each of them is about, and which of them need no test of their own.

use std::time::Duration;

use boltq_core::NodeId;
use boltq_raft::ProposeError;
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::cluster::{Cluster, DEADLINE, Node, forgetful, peer, write_until_purged};
use super::support::add;

/// Proposes until it succeeds, at whichever of `nodes` leads.
async fn write(nodes: &[&Node]) {
    let written = async {
        loop {
            for node in nodes.iter().filter(|node| node.adder.leads()) {
                let proposed = timeout(Duration::from_secs(2), node.group.propose(add(&[1]))).await;
                if matches!(proposed, Ok(Ok(_))) {
                    return;
                }
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DEADLINE, written).await.expect("somebody leads and commits");
}

/// 2080: a leader without a majority reaches one voter of a connected majority, and its heartbeats keep that one from voting
/// for another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_reaches_one_voter_only_does_not_keep_the_others_from_electing() {
    let cluster = Cluster::start(5, 0).await;
    let old = cluster.leader().await;
    old.group.propose(add(&[1])).await.unwrap();
    let others: Vec<&Node> = cluster.nodes.iter().filter(|node| node.id != old.id).collect();
    let (bridge, pair, lone) = (others[0], [others[1], others[2]], others[3]);
    cluster.mesh.isolate(lone.id);
    for node in pair {
        cluster.mesh.cut_both_ways(old.id, node.id);
    }
    write(&[bridge, pair[0], pair[1]]).await;
    cluster.mesh.heal();
    cluster.all_have(2).await;
}

/// 2088, 1747: a transfer to a node that does not take over stops all writes until there is another leader, and reads that
/// must be current must not put that off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_that_fails_is_over_soon_even_while_nodes_read() {
    let cluster = Cluster::start(3, 0).await;
    let old = cluster.leader().await;
    let target = cluster.nodes.iter().find(|node| node.id != old.id).unwrap();
    cluster.mesh.isolate(target.id);
    old.group.hand_over(target.id).await;
    let there: Vec<&Node> = cluster.nodes.iter().filter(|node| node.id != target.id).collect();
    let reads = async {
        loop {
            let _ = timeout(Duration::from_millis(20), old.group.catch_up(DEADLINE)).await;
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = write(&there) => {}
        () = reads => {}
    }
    cluster.mesh.heal();
    cluster.all_have(1).await;
}

/// 2095: nobody knows whether an entry that this node had to give up was committed elsewhere. 1761: what waits for an entry
/// that a snapshot covers is told, and does not end the group. 1808: members that were never agreed upon go with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_leader_gives_up_for_a_snapshot_is_unknown_to_its_callers_and_its_members_are_those_of_the_others() {
    let cluster = Cluster::start_with(3, 0, forgetful).await;
    let old = cluster.leader().await;
    old.group.propose(add(&[1])).await.unwrap();
    let before = old.group.status().last;
    cluster.mesh.isolate(old.id);
    let (writing, adding) = (old.group.clone(), old.group.clone());
    let given_up = tokio::spawn(async move { writing.propose(add(&[1_000])).await });
    // On a machine that stood still, it knows already that it leads no more, and refuses.
    while old.group.status().last == before && !given_up.is_finished() {
        sleep(Duration::from_millis(1)).await;
    }
    let appended = old.group.status().last > before;
    let added = tokio::spawn(async move { adding.add_learner(&peer(NodeId(9))).await });
    let new = cluster.leader_but(Some(old.id)).await;
    let last = old.group.status().last.unwrap().0 + 10;
    let sum = 1 + write_until_purged(new, last).await;
    cluster.mesh.heal();
    let outcome = timeout(DEADLINE, given_up).await.unwrap().unwrap();
    assert!(outcome.is_err(), "{outcome:?}");
    if appended {
        assert!(matches!(outcome, Err(ProposeError::Stopped)), "{outcome:?}");
    }
    assert!(timeout(DEADLINE, added).await.unwrap().unwrap().is_err());
    cluster.all_have(sum).await;
    let members = |node: &Node| -> Vec<u64> { node.group.members().iter().map(|member| member.peer.node.0).collect() };
    for node in &cluster.nodes {
        node.group.catch_up(DEADLINE).await.unwrap();
        assert_eq!(members(node), [1, 2, 3], "at node {}", node.id);
    }
    assert_eq!(old.group.status().failed, None);
}

/// 2116: entries go while they are still to be applied, when snapshots come faster than a follower keeps up. A follower that
/// is cut off again and again under load gets one snapshot after the other, and entries right behind each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_under_load_end_no_group() {
    let cluster = Cluster::start_with(3, 0, forgetful).await;
    let leader = cluster.leader().await;
    let follower = cluster.nodes.iter().find(|node| node.id != leader.id).unwrap();
    let installed = || follower.group.figures().installed.done;
    let mut sum = 0;
    for round in 1..=8 {
        cluster.mesh.isolate(follower.id);
        let last = leader.group.status().last.unwrap().0;
        sum += write_until_purged(leader, last).await;
        cluster.mesh.heal();
        let behind = async {
            while installed() < round {
                let proposals = (0..16).map(|_| leader.group.propose(add(&[1])));
                let outcomes = join_all(proposals).await;
                sum += outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64;
            }
        };
        timeout(DEADLINE, behind).await.expect("the follower gets a snapshot");
        cluster.all_have(sum).await;
    }
    assert!(cluster.nodes.iter().all(|node| node.group.status().failed.is_none()));
}

/// 1810: a follower that takes requests and never answers must not hold up the leader, not even when it is removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_hangs_can_be_removed_while_the_others_go_on() {
    let cluster = Cluster::start(3, 1).await;
    let leader = cluster.leader().await;
    cluster.mesh.hang(NodeId(4));
    leader.group.propose(add(&[1])).await.unwrap();
    timeout(DEADLINE, leader.group.remove(NodeId(4)))
        .await
        .unwrap()
        .unwrap();
    timeout(DEADLINE, leader.group.propose(add(&[1])))
        .await
        .unwrap()
        .unwrap();
}

/// 1770: a node that was cut off has not counted its term up, and costs nobody the leadership when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_cut_off_disturbs_nobody_when_it_is_back() {
    let cluster = Cluster::start(3, 0).await;
    // On a machine that stands still for a while, anybody may stand for election.
    for attempt in 1.. {
        let leader = cluster.leader().await;
        let away = cluster.nodes.iter().find(|node| node.id != leader.id).unwrap();
        let term = leader.group.status().term;
        cluster.mesh.isolate(away.id);
        // Long enough for several elections that come to nothing.
        sleep(Duration::from_secs(5)).await;
        cluster.mesh.heal();
        away.group.catch_up(DEADLINE).await.unwrap();
        let now = cluster.leader().await;
        if (now.id, now.group.status().term) == (leader.id, term) {
            return;
        }
        assert!(
            attempt < 4,
            "led by {} in term {} before, by {} now",
            leader.id,
            term.0,
            now.id
        );
    }
}
