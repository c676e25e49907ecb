//! Nodes on hosts of their own, whose cables are pulled while messages are published. Unlike a process that dies, a host that
//! is cut off closes no connection: everybody finds out by waiting.

use std::time::{Duration, Instant};

use boltq_proto::queue::v1::PublishRequest;
use boltq_tests::harness::binary::{BinaryClient, command, status};
use boltq_tests::harness::grpc::{connect, message};
use boltq_tests::harness::network::{self, Host, Network};
use boltq_tests::harness::{Cluster, ClusterNode, eventually, http};
use serde_json::json;
use tonic::Code;

use super::load::{Load, QUEUE};

/// For writing to go on after the leader was cut off.
const GAP_WORST: Duration = Duration::from_secs(4);
/// Longer than all patience of the nodes with each other.
const CUT: Duration = Duration::from_secs(8);
/// Long enough for a node that asks for votes again and again to be noticed by its terms.
const DEAF: Duration = Duration::from_secs(20);
/// A node that asks every time its election timeout is over would make more than twice as many.
const DEAF_TERMS: u64 = 12;

#[test]
fn a_leader_that_is_cut_off_is_replaced_and_says_so() {
    if !network::inside("cable::a_leader_that_is_cut_off_is_replaced_and_says_so") {
        return;
    }
    let cluster = Cluster::start_on(&Network::set_up(), 3);
    let load = Load::start(&cluster);
    let old = cluster.leader();
    let cut_at = Instant::now();
    cluster.node(old).host().pull_cable();
    eventually(Duration::from_secs(20), "another node leads", || {
        (cluster.leader() != old).then_some(())
    });
    std::thread::sleep(CUT.saturating_sub(cut_at.elapsed()));
    cut_off_nobody_is_lied_to(&cluster, old);
    cluster.node(old).host().plug_in();
    all_is_well(&cluster, load, cut_at);
}

/// The cable is plugged in again: what was acknowledged is there once, and there was no long time without acknowledgements.
fn all_is_well(cluster: &Cluster, load: Load, cut_at: Instant) {
    let plugged_in_at = Instant::now();
    cluster.await_settled();
    load.await_progress();
    let promised = load.stop();
    let gap = promised.longest_gap(cut_at, plugged_in_at);
    println!("{} acknowledged, write gap {gap:?}", promised.messages);
    promised.check(cluster);
    assert!(gap < GAP_WORST, "{gap:?}");
}

/// Whoever sits beside it and asks it.
fn cut_off_nobody_is_lied_to(cluster: &Cluster, node: usize) {
    let node = cluster.node(node);
    node.host().run(|| {
        assert_eq!(http::get(node.admin(), "/readyz").unwrap().status, 503);
        let mut client = BinaryClient::connect(node.messaging());
        let refused = client.call(command::PUBLISH, &json!({"topic": QUEUE, "payload": 1}).to_string());
        let nobody = json!({"error": "not leader", "leader": "", "leader_id": "", "leader_raft_addr": ""});
        assert_eq!((refused.status, refused.json()), (status::NOT_LEADER, nobody));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let mut client = connect(node.messaging()).await;
            let request = PublishRequest {
                queue: QUEUE.to_owned(),
                message: Some(message("never")),
            };
            let refused = client.publish(request).await.unwrap_err();
            assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        });
    });
}

#[test]
fn a_follower_that_is_cut_off_holds_nobody_up_and_catches_up() {
    if !network::inside("cable::a_follower_that_is_cut_off_holds_nobody_up_and_catches_up") {
        return;
    }
    let cluster = Cluster::start_on(&Network::set_up(), 3);
    let load = Load::start(&cluster);
    let follower = cluster.follower();
    let cut_at = Instant::now();
    cluster.node(follower).host().pull_cable();
    std::thread::sleep(CUT);
    cluster.node(follower).host().plug_in();
    // The gap is no longer than for a publisher to leave the node that it cannot reach: there are seven others.
    all_is_well(&cluster, load, cut_at);
}

#[test]
fn without_a_network_nobody_writes_and_with_it_all_go_on() {
    if !network::inside("cable::without_a_network_nobody_writes_and_with_it_all_go_on") {
        return;
    }
    let cluster = Cluster::start_on(&Network::set_up(), 3);
    let load = Load::start(&cluster);
    let hosts = || cluster.nodes().iter().map(ClusterNode::host);
    hosts().for_each(Host::pull_cable);
    std::thread::sleep(CUT);
    hosts().for_each(Host::plug_in);
    load.await_progress();
    cluster.await_settled();
    let promised = load.stop();
    println!("{} acknowledged", promised.messages);
    promised.check(&cluster);
}

#[test]
fn a_leader_that_hears_nobody_is_replaced() {
    if !network::inside("cable::a_leader_that_hears_nobody_is_replaced") {
        return;
    }
    let cluster = Cluster::start_on(&Network::set_up(), 3);
    let leader = cluster.leader();
    deaf(&cluster, leader);
}

#[test]
fn a_follower_that_hears_nobody_holds_nobody_up() {
    if !network::inside("cable::a_follower_that_hears_nobody_holds_nobody_up") {
        return;
    }
    let cluster = Cluster::start_on(&Network::set_up(), 3);
    let follower = cluster.follower();
    deaf(&cluster, follower);
}

/// The others hear the node all the time, its heartbeats or its calls for votes, and go on all the same.
fn deaf(cluster: &Cluster, node: usize) {
    let load = Load::start(cluster);
    let deaf = cluster.node(node).host();
    let others = || {
        let others = (0..3).filter(|other| *other != node);
        others.map(|other| cluster.node(other).host())
    };
    let before = term(cluster);
    let cut_at = Instant::now();
    deaf.go_deaf_to(others());
    eventually(Duration::from_secs(20), "one of the others leads", || {
        (cluster.leader() != node).then_some(())
    });
    std::thread::sleep(DEAF.saturating_sub(cut_at.elapsed()));
    let meanwhile = term(cluster);
    deaf.hear_again(others());
    all_is_well(cluster, load, cut_at);
    let after = term(cluster);
    println!("terms: {before}, {meanwhile}, {after}");
    assert!(after - before <= DEAF_TERMS, "from term {before} to {after}");
}

/// The highest term of the queue plane that a node knows.
fn term(cluster: &Cluster) -> u64 {
    let terms = cluster.nodes().iter().filter_map(|node| {
        let status = node.status()?;
        let groups = status["cluster"]["groups"].as_array()?.iter();
        groups.filter_map(|group| group["term"].as_u64()).max()
    });
    terms.max().unwrap()
}
