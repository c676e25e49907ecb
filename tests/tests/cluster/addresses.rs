//! Nodes that come back at other addresses.

use boltq_tests::harness::Cluster;
use boltq_tests::harness::binary::BinaryClient;
use serde_json::json;

use super::load::Load;

/// What the status of a node says of the addresses of all.
fn addresses(cluster: &Cluster, node: usize) -> Vec<String> {
    let status = cluster.node(node).status().unwrap();
    let peers = status["cluster"]["peers"].as_array().unwrap().iter();
    peers.map(|peer| peer.as_str().unwrap().to_owned()).collect()
}

fn expected(cluster: &Cluster) -> Vec<String> {
    let nodes = cluster.nodes().iter();
    nodes.map(|node| format!("{}@{}", node.name(), node.raft())).collect()
}

fn await_addresses(cluster: &Cluster) {
    cluster.await_settled();
    boltq_tests::harness::eventually(std::time::Duration::from_secs(60), "all know where all are", || {
        let known = |node| addresses(cluster, node) == expected(cluster);
        (0..cluster.nodes().len()).all(known).then_some(())
    });
}

#[test]
fn a_follower_that_comes_back_at_another_address_is_reached() {
    let mut cluster = Cluster::start(3);
    let load = Load::start(&cluster);
    let moved = cluster.follower();
    cluster.relocate(moved);
    cluster.start_node(moved);
    await_addresses(&cluster);
    // Without the third one, nothing is answered but with the one that moved.
    let leader = cluster.leader();
    let third = (0..3).find(|node| *node != moved && *node != leader);
    if let Some(third) = third {
        cluster.kill(third);
    }
    load.await_progress();
    load.stop().check(&cluster);
}

#[test]
fn nodes_that_all_come_back_at_other_addresses_find_each_other() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.node(cluster.leader()).messaging();
    BinaryClient::connect(leader).publish("jobs", &json!(1));
    cluster.kill_all();
    (0..3).for_each(|node| cluster.relocate(node));
    (0..3).for_each(|node| cluster.start_node(node));
    await_addresses(&cluster);
    let leader = cluster.node(cluster.leader()).messaging();
    let mut client = BinaryClient::connect(leader);
    client.publish("jobs", &json!(2));
    assert_eq!(client.stats()["Queues"], json!({"jobs": 2}));
}
