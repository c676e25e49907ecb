//! How much disk is left in use.

use std::time::Duration;

use boltq_proto::queue::v1::PublishStreamRequest;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, message};
use boltq_tests::harness::{Server, ServerOptions, eventually};

const PAYLOAD_BYTES: usize = 10_000;
const BATCH: usize = 200;

async fn publish(client: &mut QueueClient, batches: usize) {
    let messages = vec![message(vec![b'x'; PAYLOAD_BYTES]); BATCH];
    let request = PublishStreamRequest {
        queue: "q".into(),
        messages,
        ..PublishStreamRequest::default()
    };
    let stream = tokio_stream::iter(std::iter::repeat_n(request, batches));
    let mut responses = client.publish_stream(stream).await.unwrap().into_inner();
    while let Some(response) = responses.message().await.unwrap() {
        assert!(response.failures.is_empty(), "{response:?}");
    }
}

async fn drain(client: &mut QueueClient, messages: usize) {
    let mut settled = 0;
    while settled < messages {
        let deliveries = client.take("q", 1000).await;
        assert!(!deliveries.is_empty(), "{settled} of {messages} came");
        settled += client.done(&deliveries).await as usize;
    }
}

fn megabytes(server: &Server) -> u64 {
    server.directory().data_bytes() / 1_000_000
}

#[tokio::test]
async fn what_passes_through_an_empty_queue_leaves_less_than_100_mb() {
    let server = Server::start(&ServerOptions::disk());
    let mut client = connect(server.messaging()).await;
    let rounds = 240_000_000 / (BATCH * PAYLOAD_BYTES);
    for _ in 0..rounds {
        publish(&mut client, 1).await;
        drain(&mut client, BATCH).await;
    }
    println!("{} MB right after 240 MB", megabytes(&server));
    eventually(Duration::from_secs(5), "files are given up", || {
        (megabytes(&server) < 100).then_some(())
    });
}

#[tokio::test]
async fn a_backlog_that_was_consumed_gives_its_disk_back() {
    let server = Server::start(&ServerOptions::disk());
    let mut client = connect(server.messaging()).await;
    publish(&mut client, 100).await;
    assert!(megabytes(&server) >= 200);
    drain(&mut client, 100 * BATCH).await;
    eventually(Duration::from_secs(20), "files are given up", || {
        (megabytes(&server) < 100).then_some(())
    });
}

/// A few old messages must not keep the files of everything that passed by since.
#[tokio::test]
async fn a_few_messages_that_stay_do_not_pin_the_rest() {
    let mut server = Server::start(
        &ServerOptions::disk()
            .set("storage.wal_file_bytes", 4 << 20)
            .set("storage.compaction_threshold", 20 << 20),
    );
    let mut client = connect(server.messaging()).await;
    for round in 0..20 {
        client.put("stays", message(format!("{round}"))).await;
        publish(&mut client, 3).await;
        drain(&mut client, 3 * BATCH).await;
    }
    eventually(Duration::from_secs(20), "files are compacted", || {
        (megabytes(&server) < 60).then_some(())
    });
    server.restart();
    let mut client = connect(server.messaging()).await;
    for round in 0..20 {
        let delivery = client.take_one("stays").await;
        assert_eq!(delivery.payload, format!("{round}"));
    }
}
