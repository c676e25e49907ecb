//! Devices that are full.

use std::sync::Arc;
use std::time::Duration;

use boltq_core::NodeId;
use boltq_log::testing::SimFiles;
use boltq_log::{FileLayer, Space};
use tokio::time::{sleep, timeout};

use super::cluster::{Cluster, DEADLINE, Node};
use super::support::add;

async fn start(voters: u64) -> (Cluster, Vec<SimFiles>) {
    let devices: Vec<SimFiles> = (0..voters).map(|_| SimFiles::new()).collect();
    let files = devices
        .iter()
        .map(|device| Arc::new(device.clone()) as Arc<dyn FileLayer>);
    (Cluster::start_on(files.collect(), voters, |_| ()).await, devices)
}

fn device<'a>(devices: &'a [SimFiles], node: &Node) -> &'a SimFiles {
    &devices[usize::try_from(node.id.0).unwrap() - 1]
}

/// As if there were no room, also for what would make some.
fn set_full(device: &SimFiles, full: bool) {
    const ENOSPC: i32 = 28;
    let errno = full.then_some(ENOSPC);
    device.fail_create(errno);
    device.fail_rename(errno);
}

/// Proposes at whoever leads, until the device of `node` is full.
async fn write_until_full(cluster: &Cluster, node: &Node) {
    let full = async {
        while node.group.log().space() == Space::Ample {
            let leader = cluster.leader().await;
            let _ = timeout(Duration::from_secs(2), leader.group.propose(add(&[1; 10_000]))).await;
        }
    };
    timeout(DEADLINE, full).await.expect("the device is full");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_room_gives_leadership_to_a_voter_that_has_some() {
    let (cluster, devices) = start(5).await;
    let old = cluster.leader().await;
    // Of the others, one has no room either.
    let full = cluster.nodes.iter().find(|node| node.id != old.id).unwrap();
    for node in [full, old] {
        set_full(device(&devices, node), true);
    }
    write_until_full(&cluster, old).await;
    write_until_full(&cluster, full).await;
    let group = || async { &cluster.leader().await.group };
    for node in &cluster.nodes {
        let has_room = node.id != old.id && node.id != full.id;
        assert_eq!(group().await.has_room(node.id).await, has_room, "node {}", node.id);
    }
    assert!(!group().await.has_room(NodeId(99)).await, "a stranger");
    let another_leads = async {
        while [NodeId(0), old.id, full.id].contains(&cluster.leader_id()) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(2 * DEADLINE, another_leads)
        .await
        .expect("a node with room leads");
    timeout(DEADLINE, async {
        while group().await.propose(add(&[1])).await.is_err() {}
    })
    .await
    .expect("somebody commits");
    assert!(!group().await.too_few_have_room());
    for device in &devices {
        set_full(device, false);
    }
    let sum = *cluster.leader().await.adder.sum.lock();
    cluster.all_have(sum).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_knows_that_too_few_have_room() {
    let (cluster, devices) = start(3).await;
    let leader = cluster.leader().await.id;
    let others = || cluster.nodes.iter().filter(|node| node.id != leader);
    others().for_each(|node| set_full(device(&devices, node), true));
    let too_few = async |wanted: bool| {
        let known = async {
            while cluster.leader().await.group.too_few_have_room() != wanted {
                if !wanted || others().any(|node| node.group.log().space() == Space::Ample) {
                    let _ = timeout(
                        Duration::from_secs(2),
                        cluster.leader().await.group.propose(add(&[1; 1_000])),
                    )
                    .await;
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(2 * DEADLINE, known)
            .await
            .unwrap_or_else(|_| panic!("too few have room: {wanted}"));
    };
    too_few(true).await;
    // What they keep is there still.
    let sum = cluster.leader().await.group.propose(add(&[1])).await.unwrap()[0];
    cluster.all_have(sum).await;
    devices.iter().for_each(|device| set_full(device, false));
    too_few(false).await;
}

/// openraft would wait for the append, and not even answer heartbeats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_without_room_refuses_entries_and_goes_on_following() {
    let (cluster, devices) = start(3).await;
    let leader = cluster.leader().await;
    let follower = cluster.nodes.iter().find(|node| node.id != leader.id).unwrap();
    set_full(device(&devices, follower), true);
    write_until_full(&cluster, follower).await;
    let mut behind = 0;
    let starved = async {
        // More than fits into what it has prepared, whoever leads meanwhile.
        while behind < 50 {
            let leader = cluster.leader().await;
            let _ = timeout(Duration::from_secs(2), leader.group.propose(add(&[1; 10_000]))).await;
            let last = |node: &Node| node.group.status().last.map_or(0, |last| last.0);
            behind = last(leader).saturating_sub(last(follower));
        }
    };
    timeout(DEADLINE, starved).await.expect("it falls behind");
    let answers = async {
        loop {
            let members = cluster.leader().await.group.members();
            let answers = members
                .iter()
                .any(|member| member.peer.node == follower.id && member.answers);
            if answers && follower.group.status().leader.is_some() {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, answers).await.expect("it answers, and follows");
    set_full(device(&devices, follower), false);
    let sum = *cluster.leader().await.adder.sum.lock();
    cluster.all_have(sum).await;
}
