//! Exchanges on three nodes.

use boltq_proto::exchange::v1::exchange_service_client::ExchangeServiceClient;
use boltq_proto::exchange::v1::{ListRequest, PublishRequest};
use boltq_tests::harness::binary::{BinaryClient, command, status};
use boltq_tests::harness::grpc::{QueueCalls, channel, connect, message};
use boltq_tests::harness::{Cluster, eventually, http};
use serde_json::{Value, json};
use std::time::Duration;

use super::exchanges::ExchangeCalls;

/// A change of leaders takes a second or two; machines stand still at times.
const PATIENCE: Duration = Duration::from_secs(60);

fn post(cluster: &Cluster, node: usize, path: &str, body: &Value) -> http::Response {
    http::request(
        cluster.node(node).admin(),
        "POST",
        path,
        &[],
        body.to_string().as_bytes(),
    )
    .unwrap()
}

/// Weakness E1: copies have the same ids on every replica.
#[test]
fn exchanges_work_through_every_node_and_survive_their_leader() {
    let mut cluster = Cluster::start(3);
    let (leader, follower) = (cluster.leader(), cluster.follower());

    // Over HTTP and gRPC any node does, over the binary protocol the leader.
    let declared = post(
        &cluster,
        follower,
        "/exchange/declare",
        &json!({"name": "t", "type": "topic"}),
    );
    assert_eq!(
        (declared.status, declared.json()),
        (200, json!({"status": "ok"})),
        "{}",
        declared.text()
    );
    let mut client = BinaryClient::connect(cluster.node(follower).messaging());
    for (code, body) in [
        (command::EXCHANGE_DECLARE, json!({"name": "t", "type": "topic"})),
        (command::EXCHANGE_DELETE, json!({"name": "t"})),
        (command::BIND_QUEUE, json!({"exchange": "t", "queue": "q"})),
        (command::UNBIND_QUEUE, json!({"exchange": "t", "queue": "q"})),
        (command::PUBLISH_EXCHANGE, json!({"exchange": "t"})),
    ] {
        assert_eq!(
            client.call(code, &body.to_string()).status,
            status::NOT_LEADER,
            "{code:#04x}"
        );
    }
    let mut client = BinaryClient::connect(cluster.node(leader).messaging());
    client.bind("t", "one", "a.#");
    client.bind("t", "two", "*.b");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let address = cluster.node(follower).messaging();
    runtime.block_on(async {
        let mut exchanges = ExchangeServiceClient::new(channel(address).await.unwrap());
        let publish = PublishRequest {
            exchange: "t".to_owned(),
            routing_key: "a.b".to_owned(),
            message: Some(message("through a follower")),
        };
        assert_eq!(exchanges.publish(publish).await.unwrap().into_inner().routed, 2);
        let list = ListRequest {
            linearizable: true,
            ..ListRequest::default()
        };
        let listed = exchanges.list(list).await.unwrap().into_inner().exchanges;
        assert_eq!((listed.len(), listed[0].bindings), (1, 2));
    });
    client.route("t", "a.b", json!("second"));
    // The first copy in one queue is done, that in the other is not.
    let taken = client.take("one");
    client.ack(&taken.id).ok();
    let open = client.take("two");

    cluster.kill(leader);
    let leader = cluster.leader();
    let address = cluster.node(leader).messaging();
    let mut client = BinaryClient::connect(address);
    let ids = eventually(PATIENCE, "the new leader hands out what is left", || {
        let reply = client.call(command::CONSUME, r#"{"topic":"one"}"#);
        (reply.status == status::OK).then(|| reply.json()["payload"].clone())
    });
    assert_eq!(ids, "second", "what was acknowledged came again");
    let again = client.take("two");
    assert_eq!(again.id, open.id, "the copy has another id on another replica");
    client.ack(&again.id).ok();
    assert_eq!(client.take("two").payload(), "second");
    assert_eq!(client.route("t", "a.b", json!("third"))["routed"], 2);
    runtime.block_on(async {
        let mut queues = connect(address).await;
        assert_eq!(queues.look("one").await.ready, 1);
    });
}
