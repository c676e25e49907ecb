//! A full disk: publishes fail and say so, consuming goes on, and writing resumes by itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use boltq_proto::admin::v1::GetStatsRequest;
use boltq_proto::admin::v1::admin_service_client::AdminServiceClient;
use boltq_proto::queue::v1::{NackRequest, PublishRequest};
use boltq_tests::harness::binary::{BinaryClient, command, status};
use boltq_tests::harness::grpc::{QueueCalls, channel, connect, message, reason};
use boltq_tests::harness::{Directory, Server, ServerOptions, SmallDisk, eventually_async};
use serde_json::json;
use tonic::Code;

const DISK_MIB: usize = 48;
const PAYLOAD_BYTES: usize = 50_000;

/// A server's directory whose data lie on a small disk.
struct Disk {
    // Unmounted first.
    small: SmallDisk,
    directory: Arc<Directory>,
}

impl Disk {
    /// `None` where mounting is not allowed.
    fn mount() -> Option<Self> {
        let directory = Arc::new(Directory::new());
        let small = SmallDisk::mount(&directory.data(), DISK_MIB)?;
        Some(Self { small, directory })
    }
}

fn options() -> ServerOptions {
    ServerOptions::disk()
        .set("storage.wal_file_bytes", 2 << 20)
        .set("storage.compaction_threshold", 8 << 20)
        .set("queue.retry_backoff", "1ms")
}

fn start(disk: &Disk) -> Server {
    Server::start_in(&options(), Arc::clone(&disk.directory)).unwrap_or_else(|error| panic!("{error}"))
}

fn big() -> PublishRequest {
    PublishRequest {
        queue: "q".into(),
        message: Some(message(vec![7; PAYLOAD_BYTES])),
    }
}

#[tokio::test]
async fn a_backlog_that_fills_the_disk_stops_publishes_and_nothing_else() {
    let Some(disk) = Disk::mount() else { return };
    let server = start(&disk);
    let mut client = connect(server.messaging()).await;
    let mut published = 0_usize;
    let refusal = loop {
        match client.publish(big()).await {
            Ok(_) => published += 1,
            Err(status) => break status,
        }
        assert!(
            published * PAYLOAD_BYTES < DISK_MIB << 20,
            "more than fits was accepted"
        );
    };
    assert_eq!(
        (refusal.code(), reason(&refusal).as_str()),
        (Code::ResourceExhausted, "STORAGE_FULL"),
        "{refusal:?}"
    );
    assert!(refusal.message().contains("full"), "{}", refusal.message());
    let mut binary = BinaryClient::connect(server.messaging());
    let body = json!({"topic": "q", "payload": "x".repeat(PAYLOAD_BYTES)}).to_string();
    let error = binary.call(command::PUBLISH, &body).error();
    assert!(error.contains("full"), "{error}");
    let mut admin = AdminServiceClient::new(channel(server.messaging()).await.unwrap());
    let stats = admin.get_stats(GetStatsRequest::default()).await.unwrap().into_inner();
    assert!(!stats.storage.unwrap().writable);
    assert_eq!(
        client.look("q").await.ready,
        published as u64,
        "what was refused is not there"
    );
    // Everything that was acknowledged can be consumed and acknowledged.
    let mut settled = 0;
    while settled < published {
        let deliveries = client.take("q", 20).await;
        assert!(!deliveries.is_empty(), "{settled} of {published} came");
        settled += client.done(&deliveries).await as usize;
    }
    resumes(&server).await;
    // And it is all true after a restart.
    let mut server = server;
    server.restart();
    assert_eq!(connect(server.messaging()).await.look("q").await.ready, 1);
}

#[tokio::test]
async fn writing_resumes_when_somebody_else_makes_room() {
    let Some(disk) = Disk::mount() else { return };
    let server = start(&disk);
    let mut client = connect(server.messaging()).await;
    client.put("q", message("before")).await;
    disk.small.fill();
    eventually_async(Duration::from_secs(10), "publishes are refused", || {
        let mut client = client.clone();
        async move {
            client
                .publish(big())
                .await
                .err()
                .filter(|status| reason(status) == "STORAGE_FULL")
        }
    })
    .await;
    let delivery = client.take_one("q").await;
    assert_eq!(client.done(&[delivery]).await, 1, "settling goes on");
    disk.small.make_room();
    resumes(&server).await;
}

#[test]
fn a_full_disk_is_an_answer_and_not_the_end_of_the_connection() {
    let Some(disk) = Disk::mount() else { return };
    let server = start(&disk);
    let mut client = BinaryClient::connect(server.messaging());
    let body = json!({"topic": "q", "payload": "x".repeat(PAYLOAD_BYTES)}).to_string();
    let (mut accepted, mut refused) = (0_u64, 0_u64);
    while refused < 100 {
        let reply = client.call(command::PUBLISH, &body);
        *(if reply.status == status::OK {
            &mut accepted
        } else {
            &mut refused
        }) += 1;
    }
    assert_eq!(client.stats()["Queues"]["q"].as_u64(), Some(accepted));
    while let Some(taken) = client.consume("q") {
        client.ack(&taken.id).ok();
    }
    assert_eq!(client.stats()["Queues"]["q"], 0);
}

/// Nacks free nothing, so they can use up what is prepared. They are refused then, and the node goes on.
#[tokio::test]
async fn nacks_that_use_up_the_reserve_are_refused_and_lose_nothing() {
    const MESSAGES: usize = 1_000;
    let Some(disk) = Disk::mount() else { return };
    let options = options()
        .set("queue.retry_backoff_max", "1ms")
        .set("queue.max_retry", 1_000);
    let server = Server::start_in(&options, Arc::clone(&disk.directory)).unwrap_or_else(|error| panic!("{error}"));
    let mut client = connect(server.messaging()).await;
    for n in 0..MESSAGES {
        client.put("q", message(n.to_string())).await;
    }
    disk.small.fill();
    let mut rounds = 0;
    let refusal = loop {
        let deliveries = client.take("q", 1_000).await;
        let delivery_tokens = deliveries.into_iter().map(|delivery| delivery.delivery_token).collect();
        let request = NackRequest {
            delivery_tokens,
            ..Default::default()
        };
        if let Err(status) = client.nack(request).await {
            break status;
        }
        rounds += 1;
        assert!(rounds < 5_000, "the reserve has no end");
    };
    assert_eq!(
        (refusal.code(), reason(&refusal).as_str()),
        (Code::ResourceExhausted, "STORAGE_FULL"),
        "after {rounds} rounds: {refusal:?}"
    );
    disk.small.make_room();
    resumes(&server).await;
    let mut numbers = BTreeSet::new();
    while numbers.len() < MESSAGES {
        let deliveries = client.take("q", 1_000).await;
        assert_eq!(client.done(&deliveries).await as usize, deliveries.len());
        numbers.extend(deliveries.iter().filter_map(|delivery| {
            let text = std::str::from_utf8(&delivery.payload).ok()?;
            text.parse::<usize>().ok()
        }));
    }
}

/// Waits until a publish is accepted again.
async fn resumes(server: &Server) {
    let client = connect(server.messaging()).await;
    eventually_async(Duration::from_secs(15), "publishes are accepted again", || {
        let mut client = client.clone();
        async move { client.publish(big()).await.ok() }
    })
    .await;
}

/// What is on its way when the disk becomes full fits into what the log has left, however large the messages are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_messages_at_once_fill_the_disk_and_the_node_goes_on() {
    let Some(disk) = Disk::mount() else { return };
    let options = options().set("storage.wal_file_bytes", 1 << 20);
    let server = Server::start_in(&options, Arc::clone(&disk.directory)).unwrap_or_else(|error| panic!("{error}"));
    let publishers = (0..32).map(|_| {
        let address = server.messaging();
        tokio::spawn(async move {
            let mut client = connect(address).await;
            let mut published = 0_usize;
            loop {
                let request = PublishRequest {
                    queue: "q".into(),
                    message: Some(message(vec![7; 300_000])),
                };
                match client.publish(request).await {
                    Ok(_) => published += 1,
                    Err(status) => {
                        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                        return published;
                    }
                }
            }
        })
    });
    let mut published = 0;
    for publisher in publishers.collect::<Vec<_>>() {
        published += publisher.await.unwrap();
    }
    let mut client = connect(server.messaging()).await;
    let mut taken = 0;
    while taken < published {
        let deliveries = client.take("q", 10).await;
        assert!(!deliveries.is_empty(), "{taken} of {published} came");
        taken += client.done(&deliveries).await as usize;
    }
    eventually_async(Duration::from_secs(20), "publishes are taken again", async || {
        let mut client = connect(server.messaging()).await;
        client.publish(big()).await.ok()
    })
    .await;
}
