//! Publishes to topics and exchanges that are repeated with the same key, at another node and after a failover.

use std::future::Future;
use std::time::Duration;

use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::grpc::QueueCalls;
use boltq_tests::harness::{Cluster, ServerOptions, within};
use tonic::{Code, Status};

use super::exchanges::ExchangeCalls;
use super::repeated::{Clients, keyed};
use super::topics_grpc::subscription;

const PATIENCE: Duration = Duration::from_secs(60);

/// As a publisher does who does not give up.
async fn insist<T, F: Future<Output = Result<T, Status>>>(mut publish: impl FnMut() -> F) -> T {
    within(PATIENCE, "an answer", async {
        loop {
            match publish().await {
                Ok(answer) => return answer,
                Err(status) if status.code() == Code::Unavailable => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(status) => panic!("{status}"),
            }
        }
    })
    .await
}

/// The ids, and numbers of queues, of a publish to the topic and of one to the exchange.
async fn publish(cluster: &Cluster, node: usize) -> [(Vec<u8>, u64); 2] {
    let address = cluster.node(node).messaging();
    let told = insist(|| async {
        let mut clients = Clients::connect(address).await;
        clients.tell("t", keyed("1", "k")).await
    });
    let told = told.await;
    let routed = insist(|| async {
        let mut clients = Clients::connect(address).await;
        clients.route(("e", "a"), keyed("1", "k")).await
    });
    let routed = routed.await;
    [
        (told.message_id.to_vec(), told.durable_subscriptions),
        (routed.message_id.to_vec(), routed.routed),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_leader_knows_what_was_published_before() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::disk());
    let leader = cluster.leader();
    let address = cluster.node(leader).messaging();
    let mut binary = BinaryClient::connect(address);
    binary.declare("e", "fanout");
    binary.bind("e", "q", "");
    let mut clients = Clients::connect(address).await;
    drop(clients.topics.subscribe(subscription("t", "s", true)).await.unwrap());

    let first = publish(&cluster, cluster.follower()).await;
    assert_eq!([first[0].1, first[1].1], [1, 1]);
    assert_eq!(publish(&cluster, leader).await, first);
    // The number of queues is that of then.
    binary.bind("e", "later", "");
    cluster.kill(leader);
    let next = cluster.leader();
    assert_eq!(publish(&cluster, next).await, first);
    let mut clients = Clients::connect(cluster.node(next).messaging()).await;
    let taken = clients.queues.take_one("q").await;
    assert_eq!(clients.queues.done(&[taken]).await, 1);
    cluster.start_node(leader);
    cluster.await_settled();
    cluster.kill(next);
    cluster.leader();
    let other = cluster.follower();
    assert_eq!(publish(&cluster, other).await, first);
    let mut clients = Clients::connect(cluster.node(other).messaging()).await;
    assert_eq!(clients.queues.look("q").await.ready, 0);
    assert_eq!(clients.queues.look("later").await.ready, 0);
    assert_eq!(clients.queues.look("t:s").await.ready, 1);
}
