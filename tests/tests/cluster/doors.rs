//! What the doors of a node say about its cluster.

use std::time::Duration;

use boltq_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use boltq_proto::cluster::v1::{GetStatusRequest, GroupState, JoinRequest, LeaveRequest, TransferLeadershipRequest};
use boltq_tests::harness::binary::{BinaryClient, command, status};
use boltq_tests::harness::grpc::{QueueCalls, channel, connect, message, reason};
use boltq_tests::harness::{Cluster, ServerOptions, eventually, http};
use serde_json::{Value, json};
use tonic::Code;

/// One cluster for all of it: starting one takes longer than asking.
#[test]
fn every_door_tells_who_leads() {
    let cluster = Cluster::start_with(3, &ServerOptions::memory());
    let (leader, follower) = (cluster.leader(), cluster.follower());
    a_follower_names_the_messaging_address_of_the_leader(&cluster, leader, follower);
    the_status_has_the_members_of_the_specification(&cluster, leader, follower);
    a_follower_is_ready(&cluster, leader, follower);
    metrics_tell_of_every_group(&cluster, leader, follower);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        names_that_no_node_can_have_are_wrong_arguments(&cluster, follower).await;
        grpc_calls_are_passed_on_to_the_leader(&cluster, follower).await;
        leadership_can_be_handed_over(&cluster, leader, follower).await;
    });
}

fn a_follower_names_the_messaging_address_of_the_leader(cluster: &Cluster, leader: usize, follower: usize) {
    let mut client = BinaryClient::connect(cluster.node(follower).messaging());
    let wanted = json!({"error": "not leader", "leader": cluster.node(leader).messaging().to_string(),
        "leader_id": cluster.node(leader).name(), "leader_raft_addr": cluster.node(leader).raft().to_string()});
    let id = "0".repeat(32);
    for (code, body) in [
        (command::PUBLISH, json!({"topic": "q", "payload": 1})),
        (command::CONSUME, json!({"topic": "q"})),
        (command::ACK, json!({"id": id})),
        (command::NACK, json!({"id": id})),
    ] {
        let reply = client.call(code, &body.to_string());
        assert_eq!(
            (reply.status, reply.json()),
            (status::NOT_LEADER, wanted.clone()),
            "{code:#04x}"
        );
    }
    client.call(command::CONFIRM_SELECT, "").ok();
    client.call(command::PUBLISH, r#"{"topic":"q"}"#);
    // Whoever follows the redirection gets there, and its numbers begin at 1.
    let address = wanted["leader"].as_str().unwrap().parse().unwrap();
    let mut client = BinaryClient::connect(address);
    client.call(command::CONFIRM_SELECT, "").ok();
    let confirmed = client.call(command::PUBLISH, r#"{"topic":"q","payload":1}"#).ok();
    assert_eq!((&confirmed["seq_no"], &confirmed["ack"]), (&json!(1), &json!(true)));
    let taken = client.consume("q").expect("the message");
    client.ack(&taken.id).ok();
}

fn the_status_has_the_members_of_the_specification(cluster: &Cluster, leader: usize, follower: usize) {
    let mut client = BinaryClient::connect(cluster.node(follower).messaging());
    let shown = client.call(command::CLUSTER_STATUS, "ignored").ok();
    let over_http = cluster.node(follower).status().unwrap();
    let queue = &shown["cluster"];
    let node = |index: usize| cluster.node(index);
    for status in [queue, &over_http["cluster"]] {
        assert_eq!(status["node_id"], node(follower).name());
        assert_eq!(status["raft_addr"], node(follower).raft().to_string());
        assert_eq!(status["state"], "Follower");
        assert_eq!(status["leader"], node(leader).raft().to_string());
        assert_eq!(status["leader_id"], node(leader).name());
        assert!(
            status["term"].as_u64() >= Some(1) && status["last_index"].as_u64() >= Some(1),
            "{status}"
        );
    }
    let peers: Vec<&str> = queue["peers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let wanted: Vec<String> = cluster
        .nodes()
        .iter()
        .map(|node| format!("{}@{}", node.name(), node.raft()))
        .collect();
    assert_eq!(peers, wanted);
    let groups = queue["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group["name"].as_str().unwrap());
    assert_eq!(groups.collect::<Vec<_>>(), ["meta", "queue"]);
    assert_eq!(node(leader).status().unwrap()["cluster"]["state"], "Leader");
    let stats = http::get(node(follower).admin(), "/stats").unwrap().json();
    assert_eq!(stats["cluster"]["cluster"]["leader_id"], node(leader).name());
}

fn a_follower_is_ready(cluster: &Cluster, leader: usize, follower: usize) {
    let response = http::get(cluster.node(follower).admin(), "/readyz").unwrap();
    let mut body = response.json();
    let uptime = body.as_object_mut().unwrap().remove("uptime_seconds");
    assert!(uptime.is_some_and(|uptime| uptime.is_u64()));
    let wanted = json!({"ready": true, "clustered": true, "node_id": cluster.node(follower).name(),
        "state": "Follower", "leader_id": cluster.node(leader).name()});
    assert_eq!((response.status, body), (200, wanted));
}

fn metrics_tell_of_every_group(cluster: &Cluster, leader: usize, follower: usize) {
    let text = |index: usize| {
        http::get(cluster.node(index).admin(), "/metrics")
            .unwrap()
            .text()
            .to_owned()
    };
    let (leading, following) = (text(leader), text(follower));
    for line in [
        "boltq_brokers_total 3",
        "boltq_raft_is_leader{group=\"queue\"} 1",
        "boltq_raft_members{group=\"queue\",role=\"voter\"} 3",
        "boltq_raft_members{group=\"meta\",role=\"learner\"} 0",
    ] {
        assert!(leading.lines().any(|found| found == line), "{line} in\n{leading}");
    }
    for name in [
        "boltq_raft_term",
        "boltq_raft_last_index",
        "boltq_raft_applied_index",
        "boltq_raft_leader_changes_total",
        "boltq_raft_append_seconds_count",
        "boltq_raft_append_seconds_sum",
    ] {
        for group in ["meta", "queue"] {
            let start = format!("{name}{{group=\"{group}\"}} ");
            assert!(following.lines().any(|line| line.starts_with(&start)), "{start}");
        }
    }
    let lag = format!(
        "boltq_raft_lag{{group=\"queue\",node=\"{}\"}} ",
        cluster.node(follower).name()
    );
    assert!(leading.contains(&lag), "{lag}");
    assert!(
        !following.contains("boltq_raft_lag{group=\"queue\""),
        "only the leader knows"
    );
    assert!(following.contains("boltq_raft_is_leader{group=\"queue\"} 0"));
}

async fn names_that_no_node_can_have_are_wrong_arguments(cluster: &Cluster, follower: usize) {
    let channel = channel(cluster.node(follower).messaging()).await.unwrap();
    let mut client = ClusterServiceClient::new(channel);
    for name in ["n\n1", &"x".repeat(201)] {
        let node_id = || name.to_owned();
        let leave = LeaveRequest { node_id: node_id() };
        let transfer = TransferLeadershipRequest {
            group: "queue".to_owned(),
            node_id: node_id(),
        };
        let join = JoinRequest {
            node_id: node_id(),
            address: cluster.node(follower).raft().to_string(),
            non_voter: false,
        };
        let refused = [
            client.leave(leave).await.unwrap_err(),
            client.transfer_leadership(transfer).await.unwrap_err(),
            client.join(join).await.unwrap_err(),
        ];
        for status in refused {
            assert_eq!(
                (status.code(), reason(&status).as_str()),
                (Code::InvalidArgument, "INVALID_ARGUMENT"),
                "{status:?}"
            );
            assert!(status.message().starts_with("node_id: name has "), "{status:?}");
        }
        let address = cluster.node(follower).raft().to_string();
        for (path, body) in [
            ("/cluster/leave", json!({"node_id": name})),
            ("/cluster/transfer", json!({"group": "queue", "node_id": name})),
            ("/cluster/join", json!({"node_id": name, "addr": address})),
        ] {
            let (admin, body) = (cluster.node(follower).admin(), body.to_string());
            let response = http::request(admin, "POST", path, &[], body.as_bytes()).unwrap();
            assert_eq!(response.status, 400, "{path}: {}", response.text());
            assert!(response.text().contains("node_id: name has "), "{}", response.text());
        }
    }
}

async fn grpc_calls_are_passed_on_to_the_leader(cluster: &Cluster, follower: usize) {
    let mut client = connect(cluster.node(follower).messaging()).await;
    let id = client.put("passed on", message("hello")).await;
    let delivery = client.take_one("passed on").await;
    assert_eq!((&delivery.message_id, &delivery.payload[..]), (&id, &b"hello"[..]));
    assert_eq!(client.done(&[delivery]).await, 1);
}

async fn leadership_can_be_handed_over(cluster: &Cluster, leader: usize, follower: usize) {
    let third = (0..3).find(|index| ![leader, follower].contains(index)).unwrap();
    // Asked of a node that neither leads nor is to lead.
    let channel = channel(cluster.node(third).messaging()).await.unwrap();
    let mut client = ClusterServiceClient::new(channel);
    let request = TransferLeadershipRequest {
        group: "queue".to_owned(),
        node_id: cluster.node(follower).name().to_owned(),
    };
    let answer = client.transfer_leadership(request).await.unwrap().into_inner();
    let new = answer.leader.unwrap();
    assert_eq!(new.node_id, cluster.node(follower).name());
    assert_eq!(new.messaging_address, cluster.node(follower).messaging().to_string());
    eventually(Duration::from_secs(5), "everybody knows the new leader", || {
        cluster
            .nodes()
            .iter()
            .all(|node| {
                let status = node.status();
                status.is_some_and(|status| status["cluster"]["leader_id"] == new.node_id)
            })
            .then_some(())
    });
    // The admin port calls it so.
    let request = TransferLeadershipRequest {
        group: "metadata".to_owned(),
        node_id: String::new(),
    };
    client.transfer_leadership(request).await.unwrap();
    let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert!(status.enabled && status.cluster_id.len() == 16, "{status:?}");
    let names: Vec<&str> = status.nodes.iter().map(|node| node.node_id.as_str()).collect();
    assert_eq!(names, ["n1", "n2", "n3"]);
    let queue = status.groups.iter().find(|group| group.name == "queue").unwrap();
    assert_eq!(
        (queue.state(), queue.leader_id.as_str()),
        (GroupState::Follower, new.node_id.as_str())
    );
}
