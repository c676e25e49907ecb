//! `server.tcp_forward`: clients of the binary protocol may connect to any node.

use std::time::Duration;

use boltq_tests::harness::binary::{BinaryClient, command, status};
use boltq_tests::harness::{Cluster, ServerOptions, eventually};
use serde_json::json;

const PUBLISH: &str = r#"{"topic":"q","payload":1}"#;

#[test]
fn a_connection_to_a_follower_is_one_to_the_leader() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::memory().set("server.tcp_forward", true));
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut client = BinaryClient::connect(cluster.node(follower).messaging());
    what_belongs_to_a_connection_holds(&mut client);
    let answered = client.call(command::CLUSTER_STATUS, "").ok();
    assert_eq!(answered["cluster"]["node_id"], cluster.node(leader).name());
    what_ends_here_ends_there(&cluster, leader, follower);
    marked_connections_stay(&cluster, follower);
    cluster.kill(leader);
    assert!(client.ends(), "what was passed on to it ends");
    eventually(
        Duration::from_secs(20),
        "the next connection finds the next leader",
        || {
            let mut client = BinaryClient::connect(cluster.node(follower).messaging());
            let reply = client.try_call(command::PUBLISH, PUBLISH).ok()?;
            (reply.status == status::OK).then_some(())
        },
    );
}

fn what_belongs_to_a_connection_holds(client: &mut BinaryClient) {
    client.call(command::PREFETCH, r#"{"count":1}"#).ok();
    client.call(command::CONFIRM_SELECT, "").ok();
    for seq_no in 1..=2 {
        assert_eq!(client.call(command::PUBLISH, PUBLISH).ok()["seq_no"], json!(seq_no));
    }
    let taken = client.consume("q").expect("the first message");
    assert_eq!(
        client.call(command::CONSUME, r#"{"topic":"q"}"#).status,
        status::ERROR,
        "prefetch"
    );
    client.ack(&taken.id).ok();
    let taken = client.consume("q").expect("the second message");
    client.ack(&taken.id).ok();
}

fn what_ends_here_ends_there(cluster: &Cluster, leader: usize, follower: usize) {
    let mut passed_on = BinaryClient::connect(cluster.node(follower).messaging());
    passed_on.call(command::PUBLISH, PUBLISH).ok();
    let held = passed_on.consume("q").expect("the message").id;
    let mut direct = BinaryClient::connect(cluster.node(leader).messaging());
    assert!(direct.consume("q").is_none(), "somebody holds it");
    drop(passed_on);
    let taken = eventually(Duration::from_secs(5), "the lease ends with the connection", || {
        direct.consume("q")
    });
    assert_eq!(taken.id, held);
    direct.ack(&taken.id).ok();
}

/// As they come from another node: they are never passed on a second time.
fn marked_connections_stay(cluster: &Cluster, follower: usize) {
    let mut client = BinaryClient::connect(cluster.node(follower).messaging());
    client.send_bytes(&[0xff; 5]).unwrap();
    assert_eq!(client.call(command::PUBLISH, PUBLISH).status, status::NOT_LEADER);
    client.call(command::PING, "").ok();
}
