//! Nodes that were removed: they notice it, say so, serve nothing, and come back when they are told to.

use std::time::Duration;

use boltq_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use boltq_proto::cluster::v1::{JoinRequest, LeaveRequest};
use boltq_proto::queue::v1::GetQueueRequest;
use boltq_tests::harness::binary::{BinaryClient, command};
use boltq_tests::harness::grpc::{QueueCalls, channel, connect, message, reason};
use boltq_tests::harness::{Cluster, ServerOptions, eventually, http};
use serde_json::{Value, json};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const NOTICED_WITHIN: Duration = Duration::from_secs(60);
/// A node asks its seeds 2 s after its start, and whether it is a member after 5 s of silence.
const LONG_ENOUGH: Duration = Duration::from_secs(9);
const LINE: &str = "this node was removed from the cluster";

fn post(cluster: &Cluster, node: usize, path: &str, body: &Value) -> u16 {
    let admin = cluster.node(node).admin();
    let response = http::request(admin, "POST", path, &[], body.to_string().as_bytes());
    response.unwrap().status
}

fn leave(cluster: &mut Cluster, asked: usize, node: usize) {
    let request = json!({"node_id": cluster.node(node).name()});
    assert_eq!(post(cluster, asked, "/cluster/leave", &request), 200);
    cluster.forget(node);
}

/// Why a node is not ready; empty if it is.
fn reason_of(cluster: &Cluster, node: usize) -> Option<String> {
    let ready = http::get(cluster.node(node).admin(), "/readyz").ok()?;
    assert_eq!(ready.status == 200, ready.json()["ready"] == json!(true));
    Some(ready.json()["reason"].as_str().unwrap_or_default().to_owned())
}

/// Waits until the node is not ready for that reason, and has said so once more than `before`.
fn await_removed(cluster: &Cluster, node: usize, before: usize) {
    eventually(NOTICED_WITHIN, "the node knows that it was removed", || {
        let known = reason_of(cluster, node)? == "removed from the cluster" && lines(cluster, node) > before;
        known.then_some(())
    });
    assert_eq!(lines(cluster, node), before + 1);
}

/// Waits until the node itself knows that it belongs to the cluster: others know it before.
fn await_belonging(cluster: &Cluster, node: usize) {
    eventually(NOTICED_WITHIN, "the node knows that it is a member again", || {
        reason_of(cluster, node)?.is_empty().then_some(())
    });
}

fn lines(cluster: &Cluster, node: usize) -> usize {
    cluster.node(node).log().matches(LINE).count()
}

fn names(cluster: &Cluster, node: usize) -> Vec<String> {
    let status = cluster.node(node).status().unwrap();
    let peers = status["cluster"]["peers"].as_array().unwrap().iter();
    let mut names: Vec<String> = peers
        .map(|peer| peer.as_str().unwrap().split('@').next().unwrap().to_owned())
        .collect();
    names.sort_unstable();
    names
}

async fn is_serving(cluster: &Cluster, node: usize) -> bool {
    let channel = channel(cluster.node(node).messaging()).await.unwrap();
    let answer = HealthClient::new(channel).check(HealthCheckRequest::default()).await;
    answer.unwrap().into_inner().status == 1
}

/// Every door of a node that was removed.
async fn check_doors(cluster: &Cluster, node: usize) {
    let (messaging, admin) = (cluster.node(node).messaging(), cluster.node(node).admin());
    let mut client = connect(messaging).await;
    let get = GetQueueRequest {
        queue: "jobs".to_owned(),
        ..GetQueueRequest::default()
    };
    let publish = boltq_proto::queue::v1::PublishRequest {
        queue: "jobs".to_owned(),
        message: Some(message("x")),
    };
    for refused in [
        client.get_queue(get).await.map(drop).unwrap_err(),
        client.publish(publish).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(reason(&refused), "NODE_REMOVED", "{refused}");
    }
    eventually(NOTICED_WITHIN, "probes are told", || {
        let serving =
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(is_serving(cluster, node)));
        (!serving).then_some(())
    });
    let mut binary = BinaryClient::connect(messaging);
    for (command, body) in [
        (command::PUBLISH, r#"{"topic":"jobs","payload":1}"#),
        (command::STATS, ""),
    ] {
        let error = binary.call(command, body).error();
        assert!(error.contains("removed from its cluster"), "{error}");
    }
    let stats = http::get(admin, "/stats").unwrap();
    assert_eq!(stats.status, 503, "{}", stats.text());
    let publish = http::request(admin, "POST", "/publish", &[], br#"{"topic":"jobs"}"#).unwrap();
    assert_eq!(publish.status, 410, "{}", publish.text());
    let overview = http::get(admin, "/overview").unwrap().json();
    assert_eq!(
        (&overview["health"], &overview["cluster"]["cluster"]["removed"]),
        (&json!("removed"), &json!(true))
    );
    let metrics = http::get(admin, "/metrics").unwrap();
    assert!(metrics.text().contains("\nboltq_cluster_removed 1\n"));
    assert_eq!(cluster.node(node).status().unwrap()["cluster"]["removed"], json!(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_node_serves_nothing_and_comes_back_only_when_it_is_told_to() {
    let mut cluster = Cluster::start(3);
    let node = cluster.add(false);
    cluster.await_settled();
    let mut client = connect(cluster.node(cluster.leader()).messaging()).await;
    client.put("jobs", message("x")).await;
    leave(&mut cluster, 0, node);
    await_removed(&cluster, node, 0);
    check_doors(&cluster, node).await;

    // It has seeds, and does not ask them.
    cluster.terminate(node);
    cluster.start_node(node);
    await_removed(&cluster, node, 1);
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(reason_of(&cluster, node).as_deref(), Some("removed from the cluster"));
    assert_eq!((lines(&cluster, node), names(&cluster, 0).len()), (2, 3));

    let request = json!({"node_id": "n4", "addr": cluster.node(node).raft().to_string(), "non_voter": true});
    assert_eq!(post(&cluster, 1, "/cluster/join", &request), 200);
    cluster.remember(node);
    cluster.await_settled();
    let is_back = |cluster: &Cluster| {
        eventually(NOTICED_WITHIN, "the node serves again", || {
            reason_of(cluster, node)?.is_empty().then_some(())
        });
    };
    is_back(&cluster);
    client.put("jobs", message("y")).await;
    let stats = http::get(cluster.node(node).admin(), "/stats?linearizable=true").unwrap();
    assert_eq!(stats.json()["Queues"], json!({"jobs": 2}));
    // What it reads again at its start has the removal in it.
    cluster.kill(node);
    cluster.start_node(node);
    cluster.await_settled();
    is_back(&cluster);
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(
        (lines(&cluster, node), reason_of(&cluster, node).as_deref()),
        (2, Some(""))
    );
    assert!(is_serving(&cluster, node).await);
}

/// Nobody can tell it when it happens: it asks its seeds, or those whom it knew.
#[test]
fn a_node_that_was_removed_while_it_was_away_learns_it_when_it_is_back() {
    let mut cluster = Cluster::start(3);
    let learner = cluster.add(false);
    cluster.await_settled();
    // The first founded the cluster and so asks no seeds.
    for (away, asked) in [(learner, 0), (0, 1)] {
        cluster.kill(away);
        leave(&mut cluster, asked, away);
        cluster.await_settled();
        cluster.start_node(away);
        await_removed(&cluster, away, 0);
    }
    assert_eq!(names(&cluster, 1), ["n2", "n3"]);
}

/// What it has may be old, and nobody answers; that says nothing.
#[test]
fn a_node_that_is_alone_or_behind_does_not_take_itself_for_removed() {
    let mut cluster = Cluster::start(3);
    for away in [1, 2] {
        cluster.pause(away);
    }
    std::thread::sleep(LONG_ENOUGH);
    let reason = reason_of(&cluster, 0).unwrap();
    assert!(
        ["no leader elected yet", "joining cluster"].contains(&&*reason),
        "{reason}"
    );
    for away in [1, 2] {
        cluster.resume(away);
    }
    cluster.await_settled();
    for node in 0..3 {
        assert_eq!(reason_of(&cluster, node).as_deref(), Some(""));
        assert_eq!(lines(&cluster, node), 0);
    }
}

#[test]
fn a_node_that_leaves_when_it_is_stopped_joins_when_it_is_started() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::disk().set("cluster.leave_on_shutdown", true));
    let node = cluster.add(false);
    cluster.await_settled();
    for _ in 0..2 {
        assert!(cluster.terminate(node).success());
        cluster.forget(node);
        cluster.await_settled();
        cluster.remember(node);
        cluster.start_node(node);
        cluster.await_settled();
    }
    assert_eq!(
        (lines(&cluster, node), reason_of(&cluster, node).as_deref()),
        (0, Some(""))
    );
}

/// Through any node: who leads it is found by the node that is asked.
#[tokio::test(flavor = "multi_thread")]
async fn grpc_and_the_binary_protocol_let_nodes_go_and_take_them_in() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::memory());
    let node = cluster.add(true);
    cluster.await_settled();
    let address = cluster.node(node).raft().to_string();
    let asked = channel(cluster.node(cluster.follower()).messaging()).await.unwrap();
    let mut grpc = ClusterServiceClient::new(asked);
    let request = LeaveRequest {
        node_id: "n4".to_owned(),
    };
    let left = grpc.leave(request.clone()).await.unwrap().into_inner();
    assert_eq!(left.groups.len(), 2, "{:?}", left.groups);
    assert_eq!(grpc.leave(request).await.unwrap_err().code(), Code::NotFound);
    cluster.forget(node);
    await_removed(&cluster, node, 0);
    let request = JoinRequest {
        node_id: "n4".to_owned(),
        address: address.clone(),
        non_voter: false,
    };
    let joined = grpc.join(request).await.unwrap().into_inner().node.unwrap();
    assert_eq!(joined.node_id, "n4");
    cluster.remember(node);
    cluster.await_settled();
    await_belonging(&cluster, node);

    let mut binary = BinaryClient::connect(cluster.node(cluster.leader()).messaging());
    let leave = json!({"node_id": "n4"}).to_string();
    binary.call(command::CLUSTER_LEAVE, &leave).ok();
    cluster.forget(node);
    await_removed(&cluster, node, 1);
    // The binary protocol knows voters only.
    let join = json!({"node_id": "n4", "addr": address}).to_string();
    binary.call(command::CLUSTER_JOIN, &join).ok();
    cluster.remember(node);
    cluster.await_settled();
    await_belonging(&cluster, node);
    assert_eq!(names(&cluster, 0), ["n1", "n2", "n3", "n4"]);
}
