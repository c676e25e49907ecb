//! kill -9 in the middle of the work, again and again, at random moments.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use boltq_proto::queue::v1::PublishStreamRequest;
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::binary::{BinaryClient, command, frame, status};
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, channel, connect, message};
use boltq_tests::harness::{Random, Server, ServerOptions};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::ledger::{Event, Ledger};

const QUEUE: &str = "work";
const CYCLES: u32 = 50;
/// The whole content is read back after so many cycles; in between it piles up over several crashes.
const CYCLES_PER_CHECK: u32 = 5;
const BINARY_PUBLISHERS: u64 = 6;
const GRPC_PUBLISHERS: u64 = 2;
const PIPELINED: usize = 16;

/// Small files, so that they are filled, recycled and compacted many times.
fn options() -> ServerOptions {
    ServerOptions::disk()
        .set("storage.wal_file_bytes", 256 * 1024)
        .set("storage.compaction_threshold", 1 << 20)
        .set("queue.retry_backoff", "1ms")
        .set("queue.max_retry", 1000)
}

/// Every acknowledged publish is there once, and nothing that was acknowledged as consumed comes back.
#[test]
fn fifty_kills_lose_nothing_and_repeat_nothing() {
    let mut random = Random::from_environment("fifty_kills");
    let mut server = Server::start(&options());
    let (mut ledger, numbers) = (Ledger::default(), Arc::new(AtomicU64::new(0)));
    for cycle in 1..=CYCLES {
        let clients = Clients::start(server.messaging(), &numbers, &mut random);
        std::thread::sleep(Duration::from_millis(random.within(20..400)));
        server.kill();
        clients.stop(&mut ledger);
        server.restart();
        let mut client = BinaryClient::connect(server.messaging());
        let ready = client.stats()["Queues"][QUEUE].as_u64().unwrap_or_default();
        assert!(
            ledger.bounds().contains(&ready),
            "cycle {cycle}: {ready} are ready, not {:?}",
            ledger.bounds()
        );
        if cycle % CYCLES_PER_CHECK == 0 {
            ledger.settle(&drain(server.messaging()));
            assert_eq!(client.stats()["Queues"][QUEUE], 0);
        }
    }
    println!("{} messages over {CYCLES} kills", numbers.load(Ordering::Relaxed));
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

fn in_runtime(client: impl Future<Output = Vec<Event>>) -> Vec<Event> {
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

/// Takes and acknowledges up to 50 at once.
async fn consume_grpc(address: SocketAddr) -> Vec<Event> {
    let mut events = Vec::new();
    let Ok(channel) = channel(address).await else {
        return events;
    };
    let mut client = QueueClient::new(channel);
    loop {
        let request = boltq_proto::queue::v1::ConsumeRequest {
            queue: QUEUE.to_owned(),
            max_messages: 50,
            ..Default::default()
        };
        let Ok(response) = client.consume(request).await else {
            return events;
        };
        let deliveries = response.into_inner().deliveries;
        let taken: Vec<u64> = deliveries.iter().map(|delivery| number_in(&delivery.payload)).collect();
        let request = boltq_proto::queue::v1::AckRequest {
            delivery_tokens: deliveries.into_iter().map(|delivery| delivery.delivery_token).collect(),
            ..Default::default()
        };
        match client.ack(request).await {
            Ok(answer) => {
                assert_eq!(answer.into_inner().failures, []);
                events.extend(taken.into_iter().map(Event::Acked));
            }
            Err(_) => {
                events.extend(taken.into_iter().map(Event::AckUnanswered));
                return events;
            }
        }
    }
}

/// Takes and acknowledges all there is.
fn drain(address: SocketAddr) -> Vec<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (mut client, mut numbers) = (connect(address).await, Vec::new());
        loop {
            let deliveries = client.take(QUEUE, 1000).await;
            numbers.extend(deliveries.iter().map(|delivery| number_in(&delivery.payload)));
            client.done(&deliveries).await;
            if deliveries.is_empty() && client.look(QUEUE).await.ready == 0 {
                return numbers;
            }
        }
    })
}

fn number_in(payload: &[u8]) -> u64 {
    number_of(&serde_json::from_slice(payload).expect("a payload of this test"))
}

fn number_of(payload: &serde_json::Value) -> u64 {
    payload["n"].as_u64().expect("a payload of this test")
}
