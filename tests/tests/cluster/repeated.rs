//! Publishes that are repeated with the same key, at another node and after a failover.

use boltq_proto::queue::v1::PublishRequest;
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueCalls, connect, message};
use boltq_tests::harness::{Cluster, ServerOptions};
use bytes::Bytes;
use tonic::Code;

fn keyed() -> Message {
    Message {
        idempotency_key: "k".to_owned(),
        ..message("x")
    }
}

/// As a publisher does who does not give up.
async fn put(cluster: &Cluster, index: usize) -> Bytes {
    let mut client = connect(cluster.node(index).messaging()).await;
    loop {
        let request = PublishRequest {
            queue: "q".to_owned(),
            message: Some(keyed()),
        };
        match client.publish(request).await {
            Ok(answer) => return answer.into_inner().message_id,
            Err(status) if status.code() == Code::Unavailable => {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            Err(status) => panic!("{status}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_leader_knows_what_was_published_before() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::disk());
    let leader = cluster.leader();
    let first = put(&cluster, cluster.follower()).await;
    assert_eq!(put(&cluster, leader).await, first);
    cluster.kill(leader);
    let next = cluster.leader();
    assert_eq!(put(&cluster, next).await, first);
    let mut client = connect(cluster.node(next).messaging()).await;
    let taken = client.take_one("q").await;
    assert_eq!(client.done(&[taken]).await, 1);
    cluster.start_node(leader);
    cluster.await_settled();
    cluster.kill(next);
    cluster.leader();
    let other = cluster.follower();
    assert_eq!(put(&cluster, other).await, first);
    let mut client = connect(cluster.node(other).messaging()).await;
    assert_eq!(client.look("q").await.ready, 0);
}
