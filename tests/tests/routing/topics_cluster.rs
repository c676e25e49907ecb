//! Topics on three nodes.

use boltq_proto::topic::v1::topic_service_client::TopicServiceClient;
use boltq_tests::harness::binary::{BinaryClient, command, status};
use boltq_tests::harness::grpc::channel;
use boltq_tests::harness::{Cluster, eventually_async, within};
use serde_json::json;

use super::topics::{PATIENCE, TopicCalls, events, payloads};
use super::topics_grpc::{TopicClient, next, publish, subscription};

async fn topics(cluster: &Cluster, node: usize) -> TopicClient {
    TopicServiceClient::new(channel(cluster.node(node).messaging()).await.unwrap())
}

/// Weaknesses A4, E4 and E6.
#[test]
fn every_node_has_subscribers_and_durable_ones_outlive_the_leader() {
    let mut cluster = Cluster::start(3);
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut refused = BinaryClient::connect(cluster.node(follower).messaging());
    let durable = json!({"topic": "t", "id": "d", "durable": true}).to_string();
    assert_eq!(refused.call(command::CONSUME, &durable).status, status::NOT_LEADER);
    let mut live: Vec<BinaryClient> = (0..3)
        .map(|node| {
            let mut client = BinaryClient::connect(cluster.node(node).messaging());
            client.subscribe("t", "live", false);
            client
        })
        .collect();
    let mut over_http = events(cluster.node(follower).admin(), "topic=t&id=http&durable=true");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut client = topics(&cluster, follower).await;
        // Passed on to the leader.
        let mut stream = client
            .subscribe(subscription("t", "grpc", true))
            .await
            .unwrap()
            .into_inner();
        let published = client.publish(publish("t", "0")).await.unwrap().into_inner();
        assert_eq!(published.durable_subscriptions, 2);
        assert_eq!(next(&mut stream, 1).await[0].payload, "0");
    });
    for client in &mut live {
        assert_eq!(client.pushed()["payload_encoding"], "base64");
    }
    assert!(over_http.next().is_some());
    // With nobody attached, and through the leader.
    let mut publisher = BinaryClient::connect(cluster.node(leader).messaging());
    for n in 1..4 {
        publisher.tell("t", json!(n));
    }
    for client in &mut live {
        assert_eq!(payloads(client, 3), [json!(1), json!(2), json!(3)]);
    }

    cluster.kill(leader);
    let leader = cluster.leader();
    runtime.block_on(async {
        let other = (0..3)
            .find(|node| cluster.node(*node).runs() && *node != leader)
            .unwrap();
        let mut client = topics(&cluster, other).await;
        let mut stream = eventually_async(PATIENCE, "the new leader takes the subscription", || {
            let mut client = client.clone();
            async move {
                let subscribed = client.subscribe(subscription("t", "grpc", true)).await;
                subscribed.ok().map(tonic::Response::into_inner)
            }
        })
        .await;
        let backlog = next(&mut stream, 3).await;
        let payloads: Vec<_> = backlog.iter().map(|message| message.payload.as_ref()).collect();
        // The acknowledgement of the first may have been lost with the leader.
        assert!(
            payloads.ends_with(&[b"1", b"2", b"3"]) || payloads == [b"0", b"1", b"2"],
            "{payloads:?}"
        );
        client.publish(publish("t", "after")).await.unwrap();
        loop {
            let more = next(&mut stream, 1).await;
            if more.last().is_some_and(|message| message.payload == "after") {
                break;
            }
        }
    });
    // Live subscribers of the nodes that are left go on.
    for node in (0..3).filter(|node| cluster.node(*node).runs()) {
        assert_eq!(live[node].pushed()["payload_encoding"], "base64");
    }
}

/// Weakness E7.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_nobody_is_told_that_a_durable_subscription_began() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    for other in (0..3).filter(|node| *node != leader) {
        cluster.kill(other);
    }
    let mut client = topics(&cluster, leader).await;
    let refused = match client.subscribe(subscription("t", "d", true)).await {
        Ok(stream) => stream.into_inner().message().await.unwrap_err(),
        Err(refused) => refused,
    };
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused}");
    let durable = json!({"topic": "t", "id": "e", "durable": true}).to_string();
    let mut binary = BinaryClient::connect(cluster.node(leader).messaging());
    assert_ne!(binary.call(command::CONSUME, &durable).status, status::OK);
}

/// It cannot make sure that it has everything that was confirmed, and begins when it has waited for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_live_subscriber_begins_on_a_node_that_hears_from_no_leader() {
    let mut cluster = Cluster::start(3);
    let alone = cluster.follower();
    let others: Vec<usize> = (0..3).filter(|node| *node != alone).collect();
    others.iter().for_each(|other| cluster.kill(*other));
    let mut client = topics(&cluster, alone).await;
    let begun = within(
        PATIENCE,
        "the subscription",
        client.subscribe(subscription("t", "live", false)),
    );
    let mut stream = begun.await.unwrap().into_inner();
    others.iter().for_each(|other| cluster.start_node(*other));
    eventually_async(PATIENCE, "a message is published", || {
        let mut client = client.clone();
        async move { client.publish(publish("t", "after")).await.ok() }
    })
    .await;
    assert_eq!(next(&mut stream, 1).await[0].payload, "after");
}
