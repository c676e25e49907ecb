//! kill -9 in the middle of the work, again and again, at random moments.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use boltq_proto::queue::v1::{
    AckRequest, ConsumeRequest, Delivery, GetQueueRequest, NackRequest, PublishStreamRequest,
};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::binary::{BinaryClient, command, frame, status};
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, channel, connect, message};
use boltq_tests::harness::{Event, Ledger, Random, Server, ServerOptions};
use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

const QUEUE: &str = "work";
const DEAD_LETTERS: &str = "work_dead_letter";
/// The whole content is read back after so many cycles; in between it piles up over several crashes.
const CYCLES_PER_CHECK: u32 = 5;
const BINARY_PUBLISHERS: u64 = 6;
const GRPC_PUBLISHERS: u64 = 2;
const PIPELINED: usize = 16;

/// Small files, so that they are filled, recycled and compacted many times.
fn options(sync: &str) -> ServerOptions {
    ServerOptions::disk()
        .set("storage.sync", sync)
        .set("storage.wal_file_bytes", 256 * 1024)
        .set("storage.compaction_threshold", 1 << 20)
        .set("queue.retry_backoff", "1ms")
        .set("queue.max_retry", 1000)
}

/// Every acknowledged publish is there once, and nothing that was acknowledged as consumed comes back.
#[test]
fn fifty_kills_lose_nothing_and_repeat_nothing() {
    survive(50, "always", Random::from_environment("fifty_kills"));
}

/// Weakness F3: what was written outlives the process, whether it was synced or not.
#[test]
fn kills_lose_nothing_without_syncs_either() {
    survive(5, "never", Random::from_environment("kills_lose_nothing_without_syncs"));
    survive(
        5,
        "interval",
        Random::from_environment("kills_lose_nothing_without_syncs"),
    );
}

fn survive(cycles: u32, sync: &str, mut random: Random) {
    let mut server = Server::start(&options(sync));
    let (mut ledger, numbers) = (Ledger::default(), Arc::new(AtomicU64::new(0)));
    for cycle in 1..=cycles {
        let clients = Clients::start(server.messaging(), &numbers, &mut random);
        std::thread::sleep(Duration::from_millis(random.within(20..400)));
        server.kill();
        clients.stop(&mut ledger);
        server.restart();
        let ready = ready(server.messaging());
        assert!(
            ledger.bounds().contains(&ready),
            "cycle {cycle}: {ready} are ready, not {:?}",
            ledger.bounds()
        );
        if cycle % CYCLES_PER_CHECK == 0 {
            ledger.settle(&drain(server.messaging()));
            assert_eq!(self::ready(server.messaging()), 0);
        }
    }
    println!(
        "{} messages over {cycles} kills, sync {sync}",
        numbers.load(Ordering::Relaxed)
    );
}

/// Messages that wait, dead or alive.
fn ready(address: SocketAddr) -> u64 {
    let stats = BinaryClient::connect(address).stats();
    let count = |kind: &str, queue: &str| stats[kind][queue].as_u64().unwrap_or_default();
    count("Queues", QUEUE) + count("DeadLetters", DEAD_LETTERS)
}

struct Clients {
    publishers: Vec<JoinHandle<Vec<Event>>>,
    consumers: Vec<JoinHandle<Vec<Event>>>,
}

impl Clients {
    fn start(address: SocketAddr, numbers: &Arc<AtomicU64>, random: &mut Random) -> Self {
        let mut publishers = Vec::new();
        for _ in 0..BINARY_PUBLISHERS {
            let (numbers, seed) = (Arc::clone(numbers), random.number());
            publishers.push(std::thread::spawn(move || publish_binary(address, &numbers, seed)));
        }
        for _ in 0..GRPC_PUBLISHERS {
            let numbers = Arc::clone(numbers);
            publishers.push(std::thread::spawn(move || in_runtime(publish_grpc(address, numbers))));
        }
        let seed = random.number();
        let consumers = vec![
            std::thread::spawn(move || consume_binary(address, seed)),
            std::thread::spawn(move || in_runtime(consume_grpc(address))),
        ];
        Self { publishers, consumers }
    }

    /// Waits until all have noticed that the server is gone.
    fn stop(self, ledger: &mut Ledger) {
        for client in self.publishers.into_iter().chain(self.consumers) {
            ledger.record(client.join().expect("a client"));
        }
    }
}

fn in_runtime<T>(client: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(client)
}

/// In confirm mode, some pipelined, all priorities, sometimes with a payload of several kilobytes.
fn publish_binary(address: SocketAddr, numbers: &AtomicU64, seed: u64) -> Vec<Event> {
    let (mut events, mut waiting, mut random) = (Vec::new(), VecDeque::new(), Random::seeded(seed));
    let result: std::io::Result<()> = (|| {
        let mut client = BinaryClient::try_connect(address)?;
        client.try_call(command::CONFIRM_SELECT, "")?.ok();
        loop {
            while waiting.len() < PIPELINED {
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                let filler = if random.within(0..100) == 0 {
                    "x".repeat(5_000)
                } else {
                    String::new()
                };
                let payload = json!({"n": number, "filler": filler});
                let body = json!({"topic": QUEUE, "payload": payload, "priority": random.within(0..10)});
                waiting.push_back(number);
                client.send_bytes(&frame(command::PUBLISH, body.to_string().as_bytes()))?;
            }
            let reply = client.receive()?;
            assert_eq!(reply.ok()["ack"], true);
            events.extend(waiting.pop_front().map(Event::Published));
        }
    })();
    result.expect_err("it only ends with the server");
    events.extend(waiting.into_iter().map(Event::PublishUnanswered));
    events
}

/// Batches of 20, four outstanding.
async fn publish_grpc(address: SocketAddr, numbers: Arc<AtomicU64>) -> Vec<Event> {
    let (mut events, mut waiting) = (Vec::new(), VecDeque::new());
    let Ok(channel) = channel(address).await else {
        return events;
    };
    let (requests, outbound) = mpsc::channel(4);
    let Ok(opened) = QueueClient::new(channel)
        .publish_stream(ReceiverStream::new(outbound))
        .await
    else {
        return events;
    };
    let mut responses = opened.into_inner();
    loop {
        while waiting.len() < 4 {
            let first = numbers.fetch_add(20, Ordering::Relaxed);
            let batch: Vec<u64> = (first..first + 20).collect();
            let messages = batch.iter().map(|number| json_message(*number)).collect();
            waiting.push_back(batch);
            if requests
                .send(PublishStreamRequest {
                    queue: QUEUE.to_owned(),
                    messages,
                    ..PublishStreamRequest::default()
                })
                .await
                .is_err()
            {
                break;
            }
        }
        let Ok(Some(response)) = responses.message().await else {
            break;
        };
        assert!(response.failures.is_empty(), "{response:?}");
        events.extend(waiting.pop_front().into_iter().flatten().map(Event::Published));
    }
    events.extend(waiting.into_iter().flatten().map(Event::PublishUnanswered));
    events
}

/// Declared as JSON, so that the binary door delivers it as it is.
fn json_message(number: u64) -> Message {
    Message {
        content_type: "application/json".to_owned(),
        ..message(json!({"n": number}).to_string())
    }
}

/// Takes, gives back every tenth, acknowledges the rest.
fn consume_binary(address: SocketAddr, seed: u64) -> Vec<Event> {
    let (mut events, mut random) = (Vec::new(), Random::seeded(seed));
    let Ok(mut client) = BinaryClient::try_connect(address) else {
        return events;
    };
    let take = json!({"topic": QUEUE}).to_string();
    while let Ok(reply) = client.try_call(command::CONSUME, &take) {
        if reply.status == status::EMPTY {
            continue;
        }
        let taken = reply.ok();
        let number = number_of(&taken["payload"]);
        let settle = json!({"id": taken["id"]}).to_string();
        if random.within(0..10) == 0 {
            // Answered or not, the message is still there.
            let _ = client.try_call(command::NACK, &settle);
            continue;
        }
        match client.try_call(command::ACK, &settle) {
            Ok(reply) => {
                reply.ok();
                events.push(Event::Acked(number));
            }
            Err(_) => events.push(Event::AckUnanswered(number)),
        }
    }
    events
}

/// Takes up to 50 at once, sends every tenth to the dead letters, and acknowledges the rest.
async fn consume_grpc(address: SocketAddr) -> Vec<Event> {
    let mut events = Vec::new();
    let Ok(channel) = channel(address).await else {
        return events;
    };
    let mut client = QueueClient::new(channel);
    loop {
        let request = ConsumeRequest {
            queue: QUEUE.to_owned(),
            max_messages: 50,
            ..Default::default()
        };
        let Ok(response) = client.consume(request).await else {
            return events;
        };
        let (poison, good): (Vec<Delivery>, Vec<Delivery>) = response
            .into_inner()
            .deliveries
            .into_iter()
            .partition(|delivery| number_in(&delivery.payload).is_multiple_of(10));
        let nack = NackRequest {
            delivery_tokens: tokens(&poison),
            dead_letter: true,
            ..Default::default()
        };
        // Answered or not, the message is in one of the two queues.
        let nacked = client.nack(nack).await;
        assert!(nacked.is_err() || nacked.is_ok_and(|answer| answer.into_inner().failures.is_empty()));
        let taken = good.iter().map(|delivery| number_in(&delivery.payload));
        match client
            .ack(AckRequest {
                delivery_tokens: tokens(&good),
                ..Default::default()
            })
            .await
        {
            Ok(answer) => {
                assert_eq!(answer.into_inner().failures, []);
                events.extend(taken.map(Event::Acked));
            }
            Err(_) => {
                events.extend(taken.map(Event::AckUnanswered));
                return events;
            }
        }
    }
}

fn tokens(deliveries: &[Delivery]) -> Vec<Bytes> {
    deliveries
        .iter()
        .map(|delivery| delivery.delivery_token.clone())
        .collect()
}

/// Takes and acknowledges all there is, dead or alive.
fn drain(address: SocketAddr) -> Vec<u64> {
    in_runtime(async {
        let (mut client, mut numbers) = (connect(address).await, Vec::new());
        for queue in [QUEUE, DEAD_LETTERS] {
            loop {
                let deliveries = client.take(queue, 1000).await;
                numbers.extend(deliveries.iter().map(|delivery| number_in(&delivery.payload)));
                client.done(&deliveries).await;
                if deliveries.is_empty() && ready_in(&mut client, queue).await == 0 {
                    break;
                }
            }
        }
        numbers
    })
}

/// The dead-letter queue need not exist yet.
async fn ready_in(client: &mut QueueClient, queue: &str) -> u64 {
    let request = GetQueueRequest {
        queue: queue.to_owned(),
        ..GetQueueRequest::default()
    };
    client
        .get_queue(request)
        .await
        .map_or(0, |answer| answer.into_inner().queue.expect("a queue").ready)
}

fn number_in(payload: &[u8]) -> u64 {
    number_of(&serde_json::from_slice(payload).expect("a payload of this test"))
}

fn number_of(payload: &serde_json::Value) -> u64 {
    payload["n"].as_u64().expect("a payload of this test")
}
