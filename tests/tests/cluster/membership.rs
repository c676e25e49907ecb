//! Who belongs to the cluster, and how that changes.

use std::time::Duration;

use boltq_tests::harness::binary::{BinaryClient, command, status};
use boltq_tests::harness::{Cluster, ServerOptions, eventually, http};
use serde_json::{Value, json};

use super::load::Load;

const WITHIN: Duration = Duration::from_secs(60);

fn post(cluster: &Cluster, node: usize, path: &str, body: &Value) -> (u16, Value) {
    let admin = cluster.node(node).admin();
    let response = http::request(admin, "POST", path, &[], body.to_string().as_bytes()).unwrap();
    (response.status, response.json())
}

fn names(status: &Value) -> Vec<String> {
    let peers = status["cluster"]["peers"].as_array().expect("peers");
    let name = |peer: &Value| peer.as_str().unwrap().split('@').next().unwrap().to_owned();
    let mut names: Vec<String> = peers.iter().map(name).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_read_replica_joins_serves_statistics_and_is_removed() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.node(cluster.leader()).messaging();
    let mut client = BinaryClient::connect(leader);
    for number in 0..7 {
        client.publish("jobs", &json!(number));
    }
    let learner = cluster.add(false);
    cluster.await_settled();
    let node = cluster.node(learner);
    eventually(Duration::from_secs(10), "the replica has everything", || {
        let stats = http::get(node.admin(), "/stats").ok()?.json();
        (stats["Queues"] == json!({"jobs": 7})).then_some(())
    });
    assert_eq!(
        BinaryClient::connect(node.messaging()).stats()["Queues"],
        json!({"jobs": 7})
    );
    let status = node.status().unwrap();
    assert_eq!(status["cluster"]["state"], "Follower");
    assert_eq!(names(&status), ["n1", "n2", "n3", "n4"]);

    let (code, body) = post(&cluster, 0, "/cluster/leave", &json!({"node_id": "n4"}));
    assert_eq!(
        (code, &body["status"], &body["node_id"]),
        (200, &json!("removed"), &json!("n4"))
    );
    cluster.forget(learner);
    cluster.await_settled();
    assert_eq!(names(&cluster.node(0).status().unwrap()), ["n1", "n2", "n3"]);
}

#[test]
fn a_node_with_a_new_disk_comes_back_under_its_name() {
    let mut cluster = Cluster::start(3);
    let load = Load::start(&cluster);
    let wiped = cluster.follower();
    cluster.wipe(wiped);
    cluster.start_node(wiped);
    cluster.await_settled();
    load.await_progress();
    let promised = load.stop();
    assert_eq!(names(&cluster.node(wiped).status().unwrap()), ["n1", "n2", "n3"]);
    // It has what it lost: with it, the other of the two is enough.
    let leader = cluster.leader();
    cluster.kill(leader);
    promised.check(&cluster);
}

#[test]
fn seeds_that_are_down_are_asked_until_one_lets_the_node_in() {
    let cluster = Cluster::start_founder_last(3, |cluster| {
        for node in &cluster.nodes()[1..] {
            eventually(WITHIN, "the seeds were asked more than once", || {
                let (log, seed) = (node.log(), format!("seed=\"{}\"", cluster.node(0).admin()));
                let rounds = log
                    .lines()
                    .filter(|line| line.contains("not let into the cluster") && line.contains(&seed));
                (rounds.count() >= 2).then_some(())
            });
            assert_eq!(http::get(node.admin(), "/readyz").unwrap().status, 503);
        }
    });
    assert_eq!(names(&cluster.node(1).status().unwrap()), ["n1", "n2", "n3"]);
}

#[test]
fn a_founder_that_lost_its_disk_joins_the_others_and_founds_nothing() {
    let mut cluster = Cluster::start(3);
    let load = Load::start(&cluster);
    cluster.wipe_founder(0);
    cluster.start_node(0);
    cluster.await_settled();
    load.await_progress();
    let promised = load.stop();
    for node in cluster.nodes() {
        assert_eq!(names(&node.status().unwrap()), ["n1", "n2", "n3"]);
    }
    let other = (0..3).find(|node| *node != 0 && *node != cluster.leader()).unwrap();
    cluster.kill(other);
    promised.check(&cluster);
}

#[test]
fn joining_again_is_harmless() {
    let cluster = Cluster::start_with(3, &ServerOptions::memory());
    let term = |node: usize| cluster.node(node).status().unwrap()["cluster"]["term"].clone();
    let before = term(0);
    let request = json!({"node_id": "n2", "addr": cluster.node(1).raft().to_string()});
    for asked in 0..3 {
        let (code, body) = post(&cluster, asked, "/cluster/join", &request);
        let wanted = json!({"status": "joined", "node_id": "n2", "role": "voter", "groups": ["metadata", "queue"]});
        assert_eq!((code, body), (200, wanted));
    }
    cluster.await_settled();
    assert_eq!(term(0), before, "nobody had to be elected");
}

#[test]
fn a_node_with_another_secret_does_not_get_in_and_learns_nothing() {
    let mut cluster = Cluster::start_with(1, &ServerOptions::memory());
    let stranger = cluster.add_stranger("the secret of another cluster");
    eventually(Duration::from_secs(20), "the stranger has asked", || {
        cluster
            .node(stranger)
            .log()
            .contains("not let into the cluster")
            .then_some(())
    });
    assert_eq!(names(&cluster.node(0).status().unwrap()), ["n1"]);
    let status = cluster.node(stranger).status().unwrap();
    assert_eq!(
        (&status["cluster"]["leader_id"], &status["cluster"]["cluster_id"]),
        (&json!(""), &json!(""))
    );
}

#[test]
fn a_node_with_other_groups_is_told_of_or_not_let_in() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::disk());
    let other = cluster.follower();
    cluster.kill(other);
    cluster.configure(other, "cluster.stream_groups", 2);
    cluster.start_node(other);
    eventually(WITHIN, "a leader tells of it", || {
        let told = |log: String| log.contains("a node has another number of stream groups than this one");
        cluster.nodes().iter().any(|node| told(node.log())).then_some(())
    });
    let (code, body) = post(&cluster, other, "/cluster/transfer", &json!({"group": "stream-1"}));
    let text = body["error"].as_str().unwrap();
    assert!(code == 409 && text.contains("stream-1 has no members"), "{code} {text}");
    cluster.wipe(other);
    cluster.start_node(other);
    eventually(WITHIN, "it is not let in", || {
        let log = cluster.node(other).log();
        log.contains("has 2 stream groups, and this cluster 0").then_some(())
    });
}

/// It is for two what a leave is, only that the node stays.
#[test]
fn a_vote_that_would_take_the_majority_with_it_stays() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let dead = cluster.follower();
    let other = (0..3).find(|node| *node != leader && *node != dead).unwrap();
    cluster.kill(dead);
    let demote = |cluster: &Cluster| {
        let (name, address) = (cluster.node(other).name(), cluster.node(other).raft().to_string());
        let request = json!({"node_id": name, "addr": address, "non_voter": true});
        post(cluster, leader, "/cluster/join", &request)
    };
    let (code, body) = demote(&cluster);
    let text = body["error"].as_str().unwrap();
    assert!(code == 400 && text.contains("only 1 of the 2 voters"), "{code} {text}");
    BinaryClient::connect(cluster.node(cluster.leader()).messaging()).publish("jobs", &json!(1));
    cluster.start_node(dead);
    cluster.await_settled();
    let mut answer = Value::Null;
    eventually(WITHIN, "with all three, it goes", || {
        let (code, body) = demote(&cluster);
        answer = body;
        (code == 200).then_some(())
    });
    assert_eq!(answer["role"], "non-voter", "{answer}");
}

#[test]
fn two_voters_of_which_one_dies_answer_soon_and_were_warned() {
    // What is answered before is answered because no majority answers.
    let options = ServerOptions::disk().set("cluster.proposal_timeout", "5m");
    let mut cluster = Cluster::start_with(2, &options);
    eventually(2 * WITHIN, "it is said that two survive nothing", || {
        let warned = |log: String| log.contains("two voters survive the loss of neither");
        cluster.nodes().iter().any(|node| warned(node.log())).then_some(())
    });
    let leader = cluster.leader();
    let mut client = BinaryClient::connect(cluster.node(leader).messaging());
    client.publish("jobs", &json!(1));
    cluster.kill(1 - leader);
    let body = json!({"topic": "jobs", "payload": 2}).to_string();
    let answer = client.call(command::PUBLISH, &body);
    // A slow machine finds out before it is asked.
    let known = [status::ERROR, status::NOT_LEADER].contains(&answer.status);
    assert!(known, "{} {}", answer.status, answer.text());
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let cluster = Cluster::start_with(1, &ServerOptions::memory());
    let error = |path: &str, body: Value| {
        let (code, body) = post(&cluster, 0, path, &body);
        (code, body["error"].as_str().unwrap().to_owned())
    };
    assert_eq!(
        error("/cluster/join", json!({})),
        (400, "node_id is required".to_owned())
    );
    let no_address = error("/cluster/join", json!({"node_id": "n4"}));
    assert_eq!(no_address, (400, "addr or meta_addr is required".to_owned()));
    assert_eq!(error("/cluster/join", json!([])), (400, "invalid json".to_owned()));
    let (code, text) = error("/cluster/join", json!({"node_id": "n4", "addr": "127.0.0.1:1"}));
    assert_eq!(code, 400);
    assert!(
        text.starts_with("no consensus group on this node accepted the join: "),
        "{text}"
    );
    assert_eq!(
        error("/cluster/leave", json!({})),
        (400, "node_id is required".to_owned())
    );
    let unknown = error("/cluster/leave", json!({"node_id": "n9"}));
    assert_eq!(unknown, (500, "node \"n9\" is not in the cluster".to_owned()));
    let (code, _) = error("/cluster/leave", json!({"node_id": "n1"}));
    assert_eq!(code, 500, "the only voter stays");
    assert_eq!(error("/cluster/transfer", json!({"group": "nope"})).0, 404);
    assert_eq!(
        error("/cluster/transfer", json!({"group": "queue", "node_id": "n9"})).0,
        404
    );
    assert_eq!(error("/cluster/transfer", json!({"group": "queue"})).0, 409);
}
