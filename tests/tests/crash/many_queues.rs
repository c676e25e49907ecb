//! Many queues that were used and are empty, and one message that stays while much goes past.

use std::time::Duration;

use boltq_proto::queue::v1::PublishStreamRequest;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, message};
use boltq_tests::harness::{Server, ServerOptions, eventually};
use futures_util::stream::{self, StreamExt};

const PATIENCE: Duration = Duration::from_secs(60);

async fn publish(client: &mut QueueClient, requests: impl Iterator<Item = PublishStreamRequest> + Send + 'static) {
    let stream = tokio_stream::iter(requests);
    let mut responses = client.publish_stream(stream).await.unwrap().into_inner();
    while let Some(response) = responses.message().await.unwrap() {
        assert!(response.failures.is_empty(), "{response:?}");
    }
}

fn batch(queue: &str, count: usize, bytes: usize) -> PublishStreamRequest {
    PublishStreamRequest {
        queue: queue.to_owned(),
        messages: vec![message(vec![b'x'; bytes]); count],
        ..PublishStreamRequest::default()
    }
}

/// 10,000 queues with 10 messages of 1 KiB each are 100 MiB. When all are acknowledged, what the queues themselves need is left:
/// their names and figures, some hundred bytes each. So memory may have grown by 4 KiB for each queue, which is 40 MiB and
/// much less than the messages; and of the disk the files are left that are kept for what comes.
#[tokio::test]
async fn ten_thousand_queues_that_were_emptied_give_disk_and_memory_back() {
    const QUEUES: usize = 10_000;
    const MESSAGES: usize = 10;
    let options = ServerOptions::disk()
        .set("storage.sync", "never")
        .set("storage.wal_file_bytes", 4 << 20)
        .set("storage.compaction_threshold", 20 << 20);
    let server = Server::start(&options);
    let mut client = connect(server.messaging()).await;
    publish(&mut client, [batch("first", 1, 10)].into_iter()).await;
    let before = server.stat().rss_bytes();
    publish(
        &mut client,
        (0..QUEUES).map(|n| batch(&format!("q{n}"), MESSAGES, 1_024)),
    )
    .await;
    let full = server.directory().data_bytes();
    assert!(full >= (QUEUES * MESSAGES * 1_024) as u64, "{full}");
    let drains = stream::iter(0..QUEUES).map(|n| {
        let mut client = client.clone();
        async move {
            let taken = client.take(&format!("q{n}"), 10).await;
            assert_eq!(client.done(&taken).await as usize, MESSAGES, "q{n}");
        }
    });
    drains.buffer_unordered(64).collect::<Vec<()>>().await;
    eventually(PATIENCE, "the disk is given back", || {
        (server.directory().data_bytes() < full * 6 / 10).then_some(())
    });
    eventually(PATIENCE, "the memory is given back", || {
        let grown = server.stat().rss_bytes().saturating_sub(before);
        (grown < 4_096 * QUEUES as u64 + (16 << 20)).then_some(())
    });
}

/// The promise: while one message is held for a week and 20 GB go past, the disk holds at most twice what lives and 1 GB.
///
/// Scaled down by 100, with the sizes that files have by default divided by 10: 200 MB go past, and the bound is twice what lives, which
/// is a few bytes, and 80 MB: files of 2.2 MB instead of 22, and compaction from 10 MB on instead of 100. What a server keeps that is not
/// alive is the threshold of compaction, and a handful of files that are being written, prepared or given up. So the bound is below half
/// of what went past, and does not grow with that. A week is no different from a minute: the message is leased for longer than the test
/// takes, and nothing that decides about files looks at a clock.
#[tokio::test]
async fn one_message_that_is_held_does_not_pin_what_goes_past() {
    const ROUND: usize = 100;
    const BYTES: usize = 10_000;
    let options = ServerOptions::disk()
        .set("storage.sync", "never")
        .set("queue.ack_timeout", "168h")
        .set("storage.wal_file_bytes", 2_200_000)
        .set("storage.compaction_threshold", 10_000_000);
    let mut server = Server::start(&options);
    let mut client = connect(server.messaging()).await;
    client.put("pinned", message("stays")).await;
    let held = client.take_one("pinned").await;
    let mut most = 0;
    for _ in 0..200_000_000 / (ROUND * BYTES) {
        publish(&mut client, [batch("passing", ROUND, BYTES)].into_iter()).await;
        let taken = client.take("passing", 1_000).await;
        assert_eq!(client.done(&taken).await as usize, ROUND);
        most = most.max(server.directory().data_bytes());
    }
    assert!(most < 80_000_000, "{most} bytes");
    // What was written since the last checkpoint, of which there is one for each 32 MiB, is kept for the next start; to that come what
    // compaction leaves, 10 MB, and half a dozen files.
    eventually(PATIENCE, "files are given up", || {
        (server.directory().data_bytes() < 60_000_000).then_some(())
    });
    assert_eq!(client.done(&[held]).await, 1);
    client.put("pinned", message("still here")).await;
    server.restart();
    let mut client = connect(server.messaging()).await;
    assert_eq!(&client.take_one("pinned").await.payload[..], b"still here");
}
