//! What comes and goes all the time: the disk holds what there is, and not what there was.

use boltq_proto::kv::v1::kv_service_client::KvServiceClient;
use boltq_proto::kv::v1::{GetRequest, SetRequest};
use boltq_proto::topic::v1::DeleteSubscriptionRequest;
use boltq_proto::topic::v1::topic_service_client::TopicServiceClient;
use boltq_tests::harness::binary::{BinaryClient, command, frame};
use boltq_tests::harness::grpc::{QueueCalls, channel, connect};
use boltq_tests::harness::{Cluster, Server, ServerOptions, eventually};
use serde_json::json;

use super::calls::{Calls, PATIENCE, disk_bytes};
use super::leader_change::publish_megabytes;

const MIB: u64 = 1 << 20;

/// One node of a cluster, with checkpoints of the queues after so many entries.
fn one_node(options: &ServerOptions, entries: u64) -> Cluster {
    let options = options
        .clone()
        .set("storage.sync", "never")
        .set("cluster.snapshot_threshold", entries);
    let cluster = Cluster::start_with(1, &options);
    cluster.leader();
    cluster
}

fn await_below(bytes: u64, mut used: impl FnMut() -> u64) {
    let mut seen = 0;
    eventually(PATIENCE, "files are given up", || {
        seen = used();
        (seen < bytes).then_some(())
    });
    println!("{seen} bytes are left");
}

/// A checkpoint is due after 32 MiB of log; the rest is that of files that are being filled, and of two checkpoints.
#[tokio::test]
async fn values_that_are_overwritten_again_and_again_give_their_disk_back() {
    const KEYS: usize = 20;
    const ROUNDS: usize = 50;
    const VALUE_BYTES: usize = 100_000;
    let options = ServerOptions::disk()
        .set("storage.sync", "never")
        .set("storage.wal_file_bytes", MIB);
    let mut server = Server::start(&options);
    let mut cache = KvServiceClient::new(channel(server.messaging()).await.unwrap());
    for round in 0..ROUNDS {
        for key in 0..KEYS {
            let set = SetRequest {
                key: format!("k{key}"),
                value: vec![round as u8; VALUE_BYTES].into(),
                ..SetRequest::default()
            };
            cache.set(set).await.unwrap();
        }
    }
    let written = (ROUNDS * KEYS * VALUE_BYTES) as u64;
    await_below(written / 2, || server.directory().data_bytes());
    server.restart();
    let mut cache = KvServiceClient::new(channel(server.messaging()).await.unwrap());
    let get = GetRequest { key: "k7".to_owned() };
    let entry = cache.get(get).await.unwrap().into_inner().entry.unwrap();
    assert_eq!(entry.value, vec![ROUNDS as u8 - 1; VALUE_BYTES]);
}

/// The group of the registry writes a few bytes when the cluster begins, and then nothing for days.
#[tokio::test(flavor = "multi_thread")]
async fn what_passes_through_a_cluster_gives_its_disk_back_though_other_groups_are_quiet() {
    const ROUNDS: u64 = 40;
    const AT_ONCE: usize = 10;
    let cluster = one_node(&ServerOptions::disk(), 8_192);
    let address = cluster.node(0).messaging();
    let mut client = connect(address).await;
    for _ in 0..ROUNDS {
        publish_megabytes(address, AT_ONCE).await;
        let mut done = 0;
        while done < AT_ONCE {
            let taken = client.take("large", 3).await;
            done += client.done(&taken).await as usize;
        }
    }
    // Twice of what a group may write until its next checkpoint and keep, a checkpoint's worth more, and some files.
    let passed = ROUNDS * AT_ONCE as u64 * MIB;
    await_below(passed / 2 + 24 * MIB, || disk_bytes(&cluster.node(0).data()));
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_subscriptions_that_come_and_go_leave_little_on_the_disk() {
    const PORTIONS: usize = 30;
    let options = ServerOptions::disk()
        .set("storage.wal_file_bytes", 65_536)
        .set("storage.compaction_threshold", 65_536);
    let cluster = one_node(&options, 500);
    let address = cluster.node(0).messaging();
    let mut client = BinaryClient::connect(address);
    client.subscribe("t", "stays", true);
    let mut topics = TopicServiceClient::new(channel(address).await.unwrap());
    for portion in 0..PORTIONS {
        let names: Vec<String> = (0..50).map(|number| format!("{}-{number}", portion % 2)).collect();
        let frames = names.iter().map(|name| {
            let body = json!({"topic": "t", "id": name, "durable": true}).to_string();
            frame(command::CONSUME, body.as_bytes())
        });
        let mut comes = BinaryClient::connect(address);
        comes.send_bytes(&frames.collect::<Vec<_>>().concat()).unwrap();
        for _ in &names {
            comes.receive().unwrap().ok();
        }
        for name in names {
            let delete = DeleteSubscriptionRequest {
                topic: "t".to_owned(),
                subscription: name,
            };
            topics.delete_subscription(delete).await.unwrap();
        }
    }
    await_below(2 * MIB, || disk_bytes(&cluster.node(0).data()));
    client
        .send(command::PUBLISH_TOPIC, br#"{"topic":"t","payload":1}"#)
        .unwrap();
    let heard = [client.receive().unwrap().ok(), client.receive().unwrap().ok()];
    assert!(heard.iter().any(|body| body["subscriber_id"] == "stays"), "{heard:?}");
}
