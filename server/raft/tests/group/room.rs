//! Devices that are full.

use std::sync::Arc;
use std::time::Duration;

use boltq_core::NodeId;
use boltq_log::testing::SimFiles;
use boltq_log::{FileLayer, Space};
use tokio::time::{sleep, timeout};

use super::cluster::{Cluster, DEADLINE, Node};
use super::support::add;

async fn start() -> (Cluster, Vec<SimFiles>) {
    let devices: Vec<SimFiles> = (0..3).map(|_| SimFiles::new()).collect();
    let files = devices
        .iter()
        .map(|device| Arc::new(device.clone()) as Arc<dyn FileLayer>);
    (Cluster::start_on(files.collect(), 3, |_| ()).await, devices)
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
    let (cluster, devices) = start().await;
    let old = cluster.leader().await;
    // Of the other two, one has no room either.
    let mut others = cluster.nodes.iter().filter(|node| node.id != old.id);
    let (full, free) = (others.next().unwrap(), others.next().unwrap());
    for node in [full, old] {
        set_full(device(&devices, node), true);
    }
    write_until_full(&cluster, old).await;
    write_until_full(&cluster, full).await;
    let has_room = async |node: &Node| cluster.leader().await.group.has_room(node.id).await;
    assert!(!has_room(old).await && !has_room(full).await && has_room(free).await);
    assert!(!has_room_of_a_stranger(&cluster).await);
    let free_leads = async {
        while !free.adder.leads() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, free_leads).await.expect("the node with room leads");
    for device in &devices {
        set_full(device, false);
    }
    timeout(DEADLINE, async {
        while cluster.leader().await.group.propose(add(&[1])).await.is_err() {}
    })
    .await
    .expect("somebody commits");
    let sum = *cluster.leader().await.adder.sum.lock();
    cluster.all_have(sum).await;
}

async fn has_room_of_a_stranger(cluster: &Cluster) -> bool {
    cluster.leader().await.group.has_room(NodeId(99)).await
}
