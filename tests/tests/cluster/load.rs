//! Publishers that go on whatever happens to single nodes, and remember what they were promised.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use boltq_proto::queue::v1::{AckRequest, ConsumeRequest, Delivery, PublishStreamRequest};
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, channel, connect, message};
use boltq_tests::harness::{Cluster, Event, Ledger, eventually, eventually_async};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

pub(crate) const QUEUE: &str = "work";
const PUBLISHERS: usize = 8;
/// Messages in a batch.
const BATCH: u64 = 5;
/// Batches of a publisher that are not answered yet, at most.
const OUTSTANDING: usize = 4;
/// Between two batches of a publisher: this is about what is lost, not about how much goes through.
const PAUSE: Duration = Duration::from_millis(10);
/// A node that does not answer for so long is left for the next one.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);

/// Publishers at work.
pub(crate) struct Load {
    shared: Arc<Shared>,
    publishers: Vec<JoinHandle<Vec<Event>>>,
}

struct Shared {
    nodes: Vec<SocketAddr>,
    stop: AtomicBool,
    numbers: AtomicU64,
    /// When batches were acknowledged.
    acknowledged: Mutex<Vec<Instant>>,
}

/// What publishers were promised, and when.
pub(crate) struct Promised {
    ledger: Ledger,
    /// Moments at which a batch was acknowledged, in order.
    acknowledged: Vec<Instant>,
    /// Messages that were acknowledged.
    pub(crate) messages: usize,
}

impl Load {
    /// Starts publishers, each on another node than the one before.
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let shared = Arc::new(Shared {
            nodes: cluster.messaging(),
            stop: AtomicBool::new(false),
            numbers: AtomicU64::new(0),
            acknowledged: Mutex::default(),
        });
        let publishers = (0..PUBLISHERS)
            .map(|number| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                    runtime.expect("a runtime").block_on(publish(&shared, number))
                })
            })
            .collect();
        let load = Self { shared, publishers };
        load.await_progress();
        load
    }

    /// Waits until something is acknowledged that was not when this was called, and returns how long that took.
    pub(crate) fn await_progress(&self) -> Duration {
        let started = Instant::now();
        eventually(Duration::from_secs(30), "a publish is acknowledged", || {
            let acknowledged = self.shared.acknowledged.lock().unwrap();
            acknowledged.last().filter(|last| **last > started).copied()
        })
        .duration_since(started)
    }

    /// Lets the publishers get their last answers.
    pub(crate) fn stop(self) -> Promised {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut ledger = Ledger::default();
        let mut messages = 0;
        for publisher in self.publishers {
            let events = publisher.join().expect("a publisher");
            let published = |event: &&Event| matches!(event, Event::Published(_));
            messages += events.iter().filter(published).count();
            ledger.record(events);
        }
        let mut acknowledged = std::mem::take(&mut *self.shared.acknowledged.lock().unwrap());
        acknowledged.sort_unstable();
        Promised {
            ledger,
            acknowledged,
            messages,
        }
    }
}

impl Promised {
    /// The longest time between the two moments, or until the last acknowledgement, in which there was none.
    pub(crate) fn longest_gap(&self, from: Instant, to: Instant) -> Duration {
        let to = self.acknowledged.last().map_or(to, |last| to.min(*last));
        let between = self.acknowledged.iter().filter(|moment| (from..to).contains(*moment));
        let moments: Vec<Instant> = [from].into_iter().chain(between.copied()).chain([to]).collect();
        let gaps = moments.windows(2).map(|pair| pair[1].duration_since(pair[0]));
        gaps.max().expect("two moments")
    }

    /// Takes everything out of the queue and compares it with what was promised: all of it is there, once.
    pub(crate) fn check(mut self, cluster: &Cluster) {
        self.ledger.settle(&drain(cluster));
    }
}

/// Takes and acknowledges everything that the queue has.
pub(crate) fn drain(cluster: &Cluster) -> Vec<u64> {
    let address = cluster.node(cluster.leader()).messaging();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut client = connect(address).await;
        let mut numbers = Vec::new();
        // Leadership may be dealt anew meanwhile: then it is not known whether these are done, or come again.
        let mut unsure = BTreeSet::new();
        loop {
            let deliveries = take(&client).await;
            if deliveries.is_empty() {
                let left = client.look(QUEUE).await;
                assert_eq!((left.ready, left.leased, left.delayed), (0, 0, 0));
                let counted: BTreeSet<_> = numbers.iter().copied().collect();
                numbers.extend(unsure.difference(&counted));
                return numbers;
            }
            let number = |payload: &[u8]| std::str::from_utf8(payload).ok()?.parse::<u64>().ok();
            let taken = deliveries
                .iter()
                .map(|delivery| number(&delivery.payload).expect("a number"));
            let request = AckRequest {
                delivery_tokens: deliveries
                    .iter()
                    .map(|delivery| delivery.delivery_token.clone())
                    .collect(),
                ..AckRequest::default()
            };
            match client.ack(request).await {
                Ok(answer) if answer.get_ref().settled as usize == deliveries.len() => numbers.extend(taken),
                Ok(_) | Err(_) => unsure.extend(taken),
            }
        }
    })
}

/// A leader that was just elected first applies what its log has.
async fn take(client: &QueueClient) -> Vec<Delivery> {
    eventually_async(Duration::from_secs(20), "the leader delivers", || {
        let mut client = client.clone();
        async move {
            let request = ConsumeRequest {
                queue: QUEUE.to_owned(),
                max_messages: 1_000,
                ..ConsumeRequest::default()
            };
            match client.consume(request).await {
                Ok(response) => Some(response.into_inner().deliveries),
                Err(status) if status.code() == Code::Unavailable => None,
                Err(status) => panic!("{status}"),
            }
        }
    })
    .await
}

/// From node to node until the load is stopped.
async fn publish(shared: &Shared, number: usize) -> Vec<Event> {
    let mut events = Vec::new();
    for node in shared.nodes.iter().cycle().skip(number) {
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        publish_to(*node, shared, &mut events).await;
        tokio::time::sleep(PAUSE).await;
    }
    events
}

/// Until the node fails, or says that it cannot.
async fn publish_to(node: SocketAddr, shared: &Shared, events: &mut Vec<Event>) {
    let Ok(Ok(channel)) = timeout(CONNECTED_WITHIN, channel(node)).await else {
        return;
    };
    let mut client = QueueClient::new(channel);
    let (requests, outbound) = mpsc::channel(OUTSTANDING);
    let opening = client.publish_stream(ReceiverStream::new(outbound));
    let mut waiting = VecDeque::new();
    // A node may answer the call only when it has seen the first request.
    send_batch(shared, &requests, &mut waiting).await;
    if let Ok(Ok(opened)) = timeout(ANSWER_WITHIN, opening).await {
        let mut responses = opened.into_inner();
        loop {
            let stopping = shared.stop.load(Ordering::Relaxed);
            if !stopping {
                while waiting.len() < OUTSTANDING && send_batch(shared, &requests, &mut waiting).await {}
            } else if waiting.is_empty() {
                break;
            }
            let Ok(Ok(Some(response))) = timeout(ANSWER_WITHIN, responses.message()).await else {
                break;
            };
            if !response.failures.is_empty() {
                // Whether it was carried out is unknown if no majority has confirmed it.
                break;
            }
            shared.acknowledged.lock().unwrap().push(Instant::now());
            let batch = waiting.pop_front().expect("an answer to a request");
            assert_eq!(response.message_ids.len() as u64, BATCH);
            events.extend(batch.map(Event::Published));
            tokio::time::sleep(PAUSE).await;
        }
    }
    events.extend(waiting.into_iter().flatten().map(Event::PublishUnanswered));
}

/// Whether the stream still takes requests.
async fn send_batch(
    shared: &Shared,
    requests: &mpsc::Sender<PublishStreamRequest>,
    waiting: &mut VecDeque<std::ops::Range<u64>>,
) -> bool {
    let first = shared.numbers.fetch_add(BATCH, Ordering::Relaxed);
    let batch = first..first + BATCH;
    let request = PublishStreamRequest {
        queue: QUEUE.to_owned(),
        messages: batch.clone().map(|number| message(number.to_string())).collect(),
        ..PublishStreamRequest::default()
    };
    waiting.push_back(batch);
    requests.send(request).await.is_ok()
}
