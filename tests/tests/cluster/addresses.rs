//! Nodes that come back at other addresses, copies of nodes, and who may leave.

use std::time::Duration;

use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::{Cluster, eventually, http};
use serde_json::json;

use super::load::Load;

const WITHIN: Duration = Duration::from_secs(60);

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
    eventually(WITHIN, "all know where all are", || {
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

#[test]
fn a_copy_of_a_node_does_not_take_its_place_while_it_is_there() {
    let mut cluster = Cluster::start(3);
    let original = cluster.follower();
    cluster.kill(original);
    let copy = cluster.add_copy(original);
    cluster.start_node(original);
    cluster.await_settled();
    let wanted = addresses(&cluster, original);
    cluster.start_node(copy);
    eventually(WITHIN, "the copy is refused", || {
        cluster.node(copy).log().contains("which is still there").then_some(())
    });
    assert_eq!(addresses(&cluster, original), wanted);
    cluster.kill(copy);
    cluster.await_settled();
}

#[test]
fn a_leave_that_would_take_the_majority_away_is_refused() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let dead = cluster.follower();
    let other = (0..3).find(|node| *node != leader && *node != dead).unwrap();
    cluster.kill(dead);
    let leave = |cluster: &Cluster, node: usize| {
        let body = json!({"node_id": cluster.node(node).name()}).to_string();
        let admin = cluster.node(leader).admin();
        http::request(admin, "POST", "/cluster/leave", &[], body.as_bytes()).unwrap()
    };
    let refused = leave(&cluster, other);
    assert_eq!(refused.status, 500, "{}", refused.text());
    let wanted = format!("without {:?}, only 1 of the 2 voters", cluster.node(other).name());
    assert!(
        refused.text().replace("\\\"", "\"").contains(&wanted),
        "{}",
        refused.text()
    );
    let mut client = BinaryClient::connect(cluster.node(cluster.leader()).messaging());
    client.publish("jobs", &json!(1));
    // The one that is down may go.
    eventually(WITHIN, "the node that is down is removed", || {
        (leave(&cluster, dead).status == 200).then_some(())
    });
    cluster.forget(dead);
    cluster.await_settled();
    client.publish("jobs", &json!(2));
}
