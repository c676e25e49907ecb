//! Many keys and several consumers that reject, die and change nodes: the messages of each key are done in order.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boltq_proto::queue::v1::subscribe_request::Request as Kind;
use boltq_proto::queue::v1::{
    AckRequest, Delivery, NackRequest, PublishStreamRequest, SubscribeInit, SubscribeRequest,
};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, channel, connect, duration, message};
use boltq_tests::harness::{Cluster, Random, Server, ServerOptions, eventually_async};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

const KEYS: usize = 50;
const MESSAGES_OF_A_KEY: usize = 40;
const CONSUMERS: u64 = 4;
const DONE_WITHIN: Duration = Duration::from_secs(180);
/// Of this many deliveries one is rejected, and of as many of the first consumer it dies with one.
const MISHAP_OF: u64 = 10;

/// What is known of the messages of a key: numbers of messages.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Those before it are done for certain.
    done: usize,
    /// Those before it were acknowledged, whether that arrived or not.
    acknowledged: usize,
    /// Those before it were delivered.
    delivered: usize,
}

struct Work {
    nodes: Vec<SocketAddr>,
    keys: Mutex<Vec<Progress>>,
    stop: AtomicBool,
}

impl Work {
    fn progress(&self, key: usize, change: impl FnOnce(&mut Progress)) {
        change(&mut self.keys.lock().unwrap()[key]);
    }

    fn done(&self) -> usize {
        self.keys.lock().unwrap().iter().map(|progress| progress.done).sum()
    }

    /// A message came: all before it are done, so they were acknowledged.
    fn delivered(&self, key: usize, number: usize) {
        self.progress(key, |progress| {
            assert!(
                number <= progress.acknowledged,
                "message {number} of key {key} came: {progress:?}"
            );
            progress.done = progress.done.max(number);
            progress.delivered = progress.delivered.max(number + 1);
        });
    }

    fn done_of(&self, key: usize) -> usize {
        self.keys.lock().unwrap()[key].done
    }
}

async fn publish(client: &mut QueueClient) {
    let numbers = (0..MESSAGES_OF_A_KEY).flat_map(|number| (0..KEYS).map(move |key| (key, number)));
    let messages: Vec<_> = numbers
        .map(|(key, number)| Message {
            ordering_key: format!("key {key}"),
            ..message(format!("{key} {number}"))
        })
        .collect();
    let batches: Vec<_> = messages
        .chunks(100)
        .map(|messages| PublishStreamRequest {
            queue: "q".to_owned(),
            messages: messages.to_vec(),
            ..PublishStreamRequest::default()
        })
        .collect();
    let mut answers = client
        .publish_stream(tokio_stream::iter(batches))
        .await
        .unwrap()
        .into_inner();
    while let Some(answer) = answers.message().await.unwrap() {
        assert!(answer.failures.is_empty(), "{:?}", answer.failures);
    }
}

/// Consumes until it is told to stop, from one node after the other if that fails.
async fn consume(work: Arc<Work>, number: u64) {
    let mut random = Random::seeded(number);
    let mut turn = usize::try_from(number).unwrap();
    while !work.stop.load(Ordering::Relaxed) {
        // It ends when the consumer dies or the node does.
        let _ = consume_from(&work, work.nodes[turn % work.nodes.len()], number == 0, &mut random).await;
        turn += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn consume_from(work: &Work, node: SocketAddr, dies: bool, random: &mut Random) -> Result<(), Status> {
    let connected = channel(node)
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let mut client = QueueClient::new(connected);
    let (requests, outbound) = mpsc::channel(1);
    let init = SubscribeInit {
        queue: "q".to_owned(),
        max_in_flight: 20,
        max_batch: 8,
        lease: None,
    };
    let init = SubscribeRequest {
        request: Some(Kind::Init(init)),
    };
    requests.send(init).await.unwrap();
    let mut responses = client.subscribe(ReceiverStream::new(outbound)).await?.into_inner();
    while !work.stop.load(Ordering::Relaxed) {
        let next = tokio::time::timeout(Duration::from_millis(500), responses.message()).await;
        let Ok(next) = next else { continue };
        let Some(response) = next? else { return Ok(()) };
        for delivery in response.deliveries {
            let (key, number) = read(&delivery);
            work.delivered(key, number);
            if dies && random.within(0..MISHAP_OF) == 0 {
                return Ok(());
            }
            // What a dead node had sent may be old. Then somebody else has it by now, or had, and it cannot be settled.
            let before = work.done_of(key);
            let settled = if random.within(0..MISHAP_OF) == 0 {
                reject(&mut client, delivery, random.within(0..30)).await?
            } else {
                work.progress(key, |progress| {
                    progress.acknowledged = progress.acknowledged.max(number + 1);
                });
                let settled = acknowledge(&mut client, delivery).await?;
                if settled {
                    work.progress(key, |progress| progress.done = progress.done.max(number + 1));
                }
                settled
            };
            assert!(
                !settled || number >= before,
                "message {number} of key {key} was settled after {before}"
            );
        }
    }
    Ok(())
}

fn read(delivery: &Delivery) -> (usize, usize) {
    let text = std::str::from_utf8(&delivery.payload).unwrap();
    let (key, number) = text.split_once(' ').unwrap();
    assert_eq!(delivery.ordering_key, format!("key {key}"));
    (key.parse().unwrap(), number.parse().unwrap())
}

async fn acknowledge(client: &mut QueueClient, delivery: Delivery) -> Result<bool, Status> {
    let request = AckRequest {
        delivery_tokens: vec![delivery.delivery_token],
        ..AckRequest::default()
    };
    Ok(client.ack(request).await?.into_inner().settled == 1)
}

async fn reject(client: &mut QueueClient, delivery: Delivery, rest_ms: u64) -> Result<bool, Status> {
    let request = NackRequest {
        delivery_tokens: vec![delivery.delivery_token],
        delay: duration(Duration::from_millis(rest_ms)),
        ..NackRequest::default()
    };
    Ok(client.nack(request).await?.into_inner().settled == 1)
}

/// Publishes to the first node, and consumes from all of them while `disturb` runs.
async fn run(nodes: Vec<SocketAddr>, disturb: impl AsyncFnOnce(&Work) -> SocketAddr) {
    publish(&mut connect(nodes[0]).await).await;
    let work = Arc::new(Work {
        nodes,
        keys: Mutex::new(vec![Progress::default(); KEYS]),
        stop: AtomicBool::new(false),
    });
    let consumers: Vec<_> = (0..CONSUMERS)
        .map(|number| tokio::spawn(consume(Arc::clone(&work), number)))
        .collect();
    let node = disturb(&work).await;
    let nothing_left = || async {
        if consumers.iter().any(|consumer| consumer.is_finished()) {
            return Some(());
        }
        let queue = connect(node).await.look("q").await;
        (queue.ready + queue.leased == 0).then_some(())
    };
    eventually_async(DONE_WITHIN, "everything is done", nothing_left).await;
    work.stop.store(true, Ordering::Relaxed);
    for consumer in consumers {
        consumer.await.expect("a consumer that saw the right order");
    }
    for (key, progress) in work.keys.lock().unwrap().iter().enumerate() {
        assert_eq!(progress.delivered, MESSAGES_OF_A_KEY, "key {key}");
    }
}

fn options(options: ServerOptions) -> ServerOptions {
    options.set("queue.max_retry", 1_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_that_reject_and_die_get_each_key_in_order() {
    let server = Server::start(&options(ServerOptions::memory()));
    let node = server.messaging();
    run(vec![node], async |_| node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_killed_changes_no_order() {
    let mut cluster = Cluster::start_with(3, &options(ServerOptions::disk()));
    let nodes = cluster.messaging();
    run(nodes, async |work| {
        let some_done = || async { (work.done() > KEYS * MESSAGES_OF_A_KEY / 3).then_some(()) };
        eventually_async(DONE_WITHIN, "a third is done", some_done).await;
        let leader = cluster.leader();
        cluster.kill(leader);
        let next = cluster.leader();
        cluster.node(next).messaging()
    })
    .await;
}
