//! `boltq cluster …`.

use crate::fake::Fake;
use crate::{done, failed};

#[test]
fn a_node_alone_has_no_cluster_and_says_so() {
    let fake = Fake::start();
    let ran = fake.run(&["cluster", "status"]);
    assert_eq!(ran, done("clustering is not enabled on this node\n"));
    let ran = fake.run(&["cluster", "status", "-output", "json"]);
    assert_eq!(ran, done("{\"enabled\":false}\n"));
}

#[test]
fn nodes_join_as_voters_unless_something_else_is_asked_for() {
    let fake = Fake::start();
    assert_eq!(
        fake.run(&["cluster", "join", "10.0.0.4:9100"]),
        done("n4 joined as voter\n")
    );
    let ran = fake.run(&[
        "cluster",
        "join",
        "-non-voter",
        "-node-id",
        "n4",
        "10.0.0.4:9100",
        "-o",
        "json",
    ]);
    let node = concat!(
        r#"{"node_id":"n4","raft_address":"n4:9100","messaging_address":"","admin_address":"","#,
        r#""voter":false,"version":""}"#
    );
    assert_eq!(
        ran,
        done(&format!("{{\"node\":{node},\"groups\":[\"meta\",\"queue\"]}}\n"))
    );
    let asked = fake.asked();
    let joined: Vec<_> = asked
        .joined
        .iter()
        .map(|join| (join.node_id.as_str(), join.address.as_str(), join.non_voter))
        .collect();
    assert_eq!(joined, [("", "10.0.0.4:9100", false), ("n4", "10.0.0.4:9100", true)]);
}

#[test]
fn a_node_that_is_removed_is_named_and_an_unknown_one_is_refused() {
    let fake = Fake::start();
    assert_eq!(fake.run(&["cluster", "leave", "n4"]), done("n4 was removed\n"));
    let error = "error: node \"n9\" is not in the cluster (NODE_NOT_FOUND); see `boltq cluster status`\n";
    assert_eq!(fake.run(&["cluster", "leave", "n9"]), failed(1, error));
    assert_eq!(fake.asked().left, ["n4"]);
}

#[test]
fn leadership_goes_to_the_node_that_is_named_or_to_any() {
    let fake = Fake::start();
    for node in [None, Some("n2")] {
        let args: Vec<_> = ["cluster", "transfer", "queue"].into_iter().chain(node).collect();
        assert_eq!(fake.run(&args), done("queue is led by n2\n"));
    }
    let asked = fake.asked();
    let to: Vec<_> = asked
        .transferred
        .iter()
        .map(|call| (call.group.as_str(), call.node_id.as_str()))
        .collect();
    assert_eq!(to, [("queue", ""), ("queue", "n2")]);
}
