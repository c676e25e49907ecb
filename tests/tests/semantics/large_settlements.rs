//! Many or large messages settled at once: in portions, bounded in memory, while others get their turn.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use boltq_proto::queue::v1::{ConsumeRequest, Delivery, NackRequest, SettleFailureReason};
use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, message};
use boltq_tests::harness::{Server, ServerOptions, eventually, within};
use rustix::process::Signal;
use serde_json::json;

const MIB: u64 = 1 << 20;

async fn connected(options: &ServerOptions) -> (Server, QueueClient) {
    let server = Server::start(options);
    let client = connect(server.messaging()).await.max_decoding_message_size(8 << 20);
    (server, client)
}

/// Publishes `count` messages of `bytes` and takes them all.
async fn leased(client: &mut QueueClient, count: usize, bytes: usize) -> Vec<Delivery> {
    for number in 0..count {
        client.put("q", message(vec![number as u8; bytes])).await;
    }
    let mut taken = Vec::new();
    while taken.len() < count {
        let request = ConsumeRequest {
            queue: "q".into(),
            max_messages: 1_000,
            ..ConsumeRequest::default()
        };
        let deliveries = client.consume(request).await.unwrap().into_inner().deliveries;
        assert!(!deliveries.is_empty(), "{} of {count}", taken.len());
        taken.extend(deliveries);
    }
    taken
}

fn to_dead_letters(taken: &[Delivery]) -> NackRequest {
    NackRequest {
        delivery_tokens: taken.iter().map(|delivery| delivery.delivery_token.clone()).collect(),
        dead_letter: true,
        ..NackRequest::default()
    }
}

/// The largest answer of a publish to another queue while `until` says that it goes on.
fn slowest_publish(server: &Server, going_on: impl Fn() -> bool) -> Duration {
    let mut client = BinaryClient::connect(server.messaging());
    client.set_timeout(Duration::from_secs(30));
    let mut slowest = Duration::ZERO;
    while going_on() {
        let asked = Instant::now();
        client.publish("other", &json!("small"));
        slowest = slowest.max(asked.elapsed());
    }
    slowest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_die_together_without_memory_and_without_holding_up_others() {
    const COUNT: usize = 48;
    let (server, mut client) = connected(&ServerOptions::disk()).await;
    let taken = leased(&mut client, COUNT, 4_000_000).await;
    let before = server.stat().rss_bytes();
    let nack = to_dead_letters(&taken);
    drop(taken);
    let dying = tokio::spawn(async move { client.nack(nack).await });
    let slowest = tokio::task::block_in_place(|| slowest_publish(&server, || !dying.is_finished()));
    let answer = dying.await.unwrap().unwrap().into_inner();
    assert_eq!((answer.settled as usize, answer.failures), (COUNT, Vec::new()));
    let grown = server.stat().peak_rss_bytes().saturating_sub(before);
    assert!(grown < 96 * MIB, "{grown} bytes for {COUNT} messages of 4 MB");
    assert!(slowest < Duration::from_secs(2), "a publish took {slowest:?}");
    let mut client = BinaryClient::connect(server.messaging());
    assert_eq!(client.stats()["DeadLetters"], json!({"q_dead_letter": COUNT}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_large_messages_that_end_together_hold_up_nobody() {
    const COUNT: usize = 40;
    let options = ServerOptions::disk()
        .set("queue.max_retry", -1)
        .set("queue.ack_timeout", "5s");
    let (server, mut client) = connected(&options).await;
    drop(leased(&mut client, COUNT, 4_000_000).await);
    // As a machine that is suspended for a while: all of them end while nobody looks.
    server.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(6));
    server.signal(Signal::CONT);
    let before = server.stat().rss_bytes();
    let mut binary = BinaryClient::connect(server.messaging());
    binary.publish_with(&json!({"topic": "delayed", "delay": 100_000_000}));
    let dead = json!({"q_dead_letter": COUNT});
    let until = Instant::now() + Duration::from_secs(30);
    let slowest = slowest_publish(&server, || {
        assert!(Instant::now() < until, "not all leases have ended");
        binary_stats(&server)["DeadLetters"] != dead
    });
    assert!(slowest < Duration::from_secs(2), "a publish took {slowest:?}");
    let grown = server.stat().peak_rss_bytes().saturating_sub(before);
    assert!(grown < 96 * MIB, "{grown} bytes for {COUNT} messages of 4 MB");
    assert!(binary.consume("delayed").is_some());
}

fn binary_stats(server: &Server) -> serde_json::Value {
    BinaryClient::connect(server.messaging()).stats()
}

/// Their records are found in the log in one go, whatever the length of what was written together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_messages_die_together_in_time_that_grows_with_their_bytes_only() {
    let (_server, mut client) = connected(&ServerOptions::disk()).await;
    let taken = leased(&mut client, 600, 100_000).await;
    let nack = within(
        Duration::from_secs(15),
        "60 MB become dead letters",
        client.nack(to_dead_letters(&taken)),
    );
    assert_eq!(nack.await.unwrap().into_inner().settled, 600);
}

/// Flips a bit of the payload that consists of `byte`, in whatever file of the log it stands.
fn damage(server: &Server, byte: u8) {
    let mut directories = vec![server.directory().data()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            if let Some(at) = bytes.windows(64).position(|window| window == [byte; 64]) {
                let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.write_all_at(&[byte ^ 1], at as u64).unwrap();
                return;
            }
        }
    }
    panic!("no payload of {byte}");
}

/// Messages of 20 kB, one in each frame of the log, none in memory; that of `bad` cannot be read.
async fn damaged(count: u8, bad: u8) -> (Server, QueueClient) {
    let options = ServerOptions::disk().set("storage.cache_bytes", 0);
    let (mut server, mut client) = connected(&options).await;
    for number in 0..count {
        client.put("q", message(vec![number + 100; 20_000])).await;
    }
    drop(client);
    // A checkpoint stands for what is damaged after the start.
    server.terminate();
    server.restart();
    damage(&server, bad + 100);
    let client = connect(server.messaging()).await;
    (server, client)
}

#[tokio::test]
async fn what_stands_in_front_of_a_damaged_record_is_delivered() {
    let (server, mut client) = damaged(10, 6).await;
    let taken = client.take("q", 10).await;
    assert_eq!(
        taken
            .iter()
            .map(|delivery| delivery.payload[0] - 100)
            .collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5]
    );
    let request = ConsumeRequest {
        queue: "q".into(),
        max_messages: 10,
        ..ConsumeRequest::default()
    };
    let error = client.consume(request).await.unwrap_err();
    assert!(error.message().contains("wal-"), "{error:?}");
    let stats = binary_stats(&server);
    assert_eq!((&stats["PendingCount"], &stats["Queues"]["q"]), (&json!(6), &json!(4)));
}

/// It cannot be moved without being read. The others are, and the answer says which was not.
#[tokio::test]
async fn a_message_that_can_no_longer_be_read_does_not_keep_others_from_the_dead_letters() {
    let (mut server, mut client) = connected(&ServerOptions::disk().set("storage.cache_bytes", 0)).await;
    drop(client);
    server.terminate();
    server.restart();
    client = connect(server.messaging()).await;
    for number in 0..6_u8 {
        client.put("q", message(vec![number + 100; 20_000])).await;
    }
    let taken = client.take("q", 6).await;
    assert_eq!(taken.len(), 6);
    damage(&server, 102);
    let answer = client.nack(to_dead_letters(&taken)).await.unwrap().into_inner();
    assert_eq!(answer.settled, 5);
    assert_eq!(answer.failures.len(), 1);
    assert_eq!(answer.failures[0].token, taken[2].delivery_token);
    assert_eq!(answer.failures[0].reason(), SettleFailureReason::NotSettled);
    let stats = eventually(Duration::from_secs(2), "the lease is over", || {
        let stats = binary_stats(&server);
        (stats["PendingCount"] == 0).then_some(stats)
    });
    assert_eq!(
        (&stats["DeadLetters"]["q_dead_letter"], &stats["Queues"]["q"]),
        (&json!(5), &json!(1))
    );
}
