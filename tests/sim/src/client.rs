//! Clients: they publish, consume and settle through whichever node says that it leads, and believe nothing else.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boltq_server::service::{
    Consumer, DEAD_LETTER_SUFFIX, Delivery, Handle, NewMessage, Queues, ServiceError, SettleError, Settlement,
};
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::ledger::{Publish, Times, Told, lease_of};
use crate::node::{Node, SETTINGS};
use crate::random::Random;

/// How long a client waits for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);
const LEASES_MS: [u64; 3] = [300, 1_000, SETTINGS.ack_timeout_ms];

/// One client, until the load ends.
pub(crate) struct Client {
    cluster: Arc<Cluster>,
    random: Random,
}

/// What an error says of the outcome.
pub(crate) fn told(error: &ServiceError) -> Told {
    match error {
        ServiceError::Stopped | ServiceError::NoMajority | ServiceError::NotInSync => Told::Unknown,
        _ => Told::Refused,
    }
}

/// Publishes on a node; what the client is told, and the ids.
pub(crate) async fn publish(cluster: &Cluster, node: &Node, publishes: &[Publish]) -> Told {
    let begun = cluster.ledger.begin(node.index, node.term());
    cluster.ledger.publishing(begun, publishes);
    let (queues, batch) = (node.queues.clone(), publishes.to_vec());
    let answer = node
        .ask(PATIENCE, async move { publish_there(&queues, &batch).await })
        .await;
    let (told, ids) = match answer {
        None => (Told::Unknown, Vec::new()),
        Some(Ok(ids)) => (Told::Done, ids),
        Some(Err(error)) => (told(&error), Vec::new()),
    };
    cluster.ledger.published(begun, publishes, told, &ids);
    told
}

async fn publish_there(queues: &Queues, publishes: &[Publish]) -> Result<Vec<boltq_core::MessageId>, ServiceError> {
    let mut batch = queues.batch();
    for publish in publishes {
        let ns = |ms: u64| i64::try_from(ms * 1_000_000).unwrap_or(i64::MAX);
        let message = NewMessage {
            payload: &publish.payload,
            json: false,
            priority: publish.priority,
            delay_ns: ns(publish.delay_ms),
            ttl_ns: ns(publish.ttl_ms),
        };
        batch.push(&publish.queue, &message, std::iter::empty())?;
    }
    queues.publish(batch).await
}

/// Takes messages from a node and enters them; with their numbers.
pub(crate) async fn consume(
    cluster: &Cluster,
    node: &Node,
    consumer: Arc<Consumer>,
    queue: &str,
    max: usize,
    lease_ms: u64,
) -> Option<Vec<(u64, Delivery)>> {
    let begun = cluster.ledger.begin(node.index, node.term());
    let (queues, name) = (node.queues.clone(), queue.to_owned());
    let lease = Some(Duration::from_millis(lease_ms));
    let work = async move { queues.consume(&consumer, &name, max, lease, Duration::ZERO).await };
    let deliveries = node.ask(PATIENCE, work).await?.ok()?;
    let times = Times {
        lease_ms,
        cluster_ms: node.plane.with(|plane| plane.machine().now().0),
    };
    let entered = deliveries.into_iter().filter_map(|delivery| {
        let tag = cluster.ledger.delivered(begun, queue, &delivery, times)?;
        Some((tag, delivery))
    });
    Some(entered.collect())
}

/// Settles messages with one request, and enters what came of each.
pub(crate) async fn settle(cluster: &Cluster, node: &Node, messages: &[(u64, Delivery)], how: Settlement, by_id: bool) {
    let ack = how == Settlement::Ack;
    let begun = cluster.ledger.begin(node.index, node.term());
    for (tag, delivery) in messages {
        cluster.ledger.lets_go(*tag, lease_of(delivery));
        if ack {
            cluster.ledger.acking(*tag);
        }
    }
    let handle = |(_, delivery): &(u64, Delivery)| match by_id {
        true => Handle::Id(delivery.id),
        false => Handle::Token(delivery.token),
    };
    let handles: Vec<_> = messages.iter().map(handle).collect();
    let queues = node.queues.clone();
    let answer = node
        .ask(PATIENCE, async move { queues.settle(how, &handles).await })
        .await;
    for (n, (tag, delivery)) in messages.iter().enumerate() {
        let told = match &answer {
            None => Told::Unknown,
            Some(Err(error)) => told(error),
            Some(Ok(results)) => match results.get(n) {
                Some(Ok(())) => Told::Done,
                Some(Err(SettleError::NotSettled(error))) => told(error),
                Some(Err(_)) | None => Told::Refused,
            },
        };
        // An id settles whatever lease there is.
        let number = if by_id { u64::MAX } else { lease_of(delivery) };
        cluster.ledger.settled(begun, *tag, number, ack, told, node.term());
    }
}

impl Client {
    pub(crate) fn new(cluster: Arc<Cluster>, random: Random) -> Self {
        Self { cluster, random }
    }

    pub(crate) async fn run(mut self) {
        while self.cluster.loaded.load(Ordering::Relaxed) {
            let pause = self.random.below(self.cluster.plan.pace_ms);
            sleep(Duration::from_millis(pause + 1)).await;
            let Some(node) = self.cluster.leader_or_any(&mut self.random) else {
                continue;
            };
            match self.random.below(1_000) {
                0..500 => self.publish(&node).await,
                500..990 => self.consume(&node).await,
                _ => self.purge(&node).await,
            }
        }
    }

    fn queue(&mut self) -> String {
        format!("q{}", self.random.below(self.cluster.plan.queues))
    }

    async fn publish(&mut self, node: &Node) {
        let count = self.random.pick(&[1, 1, 1, 3, 8]);
        let mut publishes = Vec::new();
        let queue = self.queue();
        for _ in 0..count {
            let tag = self.cluster.ledger.tag();
            let mut payload = tag.to_le_bytes().to_vec();
            let bytes = self.random.below(self.cluster.plan.payload_max);
            let fill = self.random.next() as u8;
            payload.extend((0..bytes).map(|_| fill));
            let delayed = self.random.permille(150);
            let mortal = self.random.permille(100);
            let queue = if self.random.permille(900) {
                queue.clone()
            } else {
                self.queue()
            };
            publishes.push(Publish {
                tag,
                queue,
                payload,
                priority: i64::try_from(self.random.pick(&[0u64, 0, 0, 4, 9])).unwrap_or(0),
                delay_ms: if delayed { self.random.between(1, 2_500) } else { 0 },
                ttl_ms: if mortal { self.random.between(1, 3_000) } else { 0 },
            });
        }
        publish(&self.cluster, node, &publishes).await;
    }

    async fn consume(&mut self, node: &Arc<Node>) {
        let mut queue = self.queue();
        if self.random.permille(80) {
            queue += DEAD_LETTER_SUFFIX;
        }
        let connected = self.random.permille(500);
        let consumer = Arc::new(if connected {
            node.queues.consumer()
        } else {
            node.queues.detached_consumer()
        });
        let max = usize::try_from(self.random.between(1, 9)).unwrap_or(1);
        let lease_ms = self.random.pick(&LEASES_MS);
        let taken = consume(&self.cluster, node, consumer.clone(), &queue, max, lease_ms).await;
        let mut taken = taken.unwrap_or_default();
        let mut left = Vec::new();
        while !taken.is_empty() {
            let count = if self.random.permille(500) { taken.len() } else { 1 };
            let messages: Vec<_> = taken.drain(..count).collect();
            if !self.treat(node, &messages).await {
                left.extend(messages.iter().map(|(tag, delivery)| (*tag, lease_of(delivery))));
            }
        }
        if connected {
            // What it still holds goes to others when the connection ends.
            for (tag, number) in left {
                self.cluster.ledger.lets_go(tag, number);
            }
        }
    }

    /// Does something with messages; whether they were settled, or tried to.
    async fn treat(&mut self, node: &Arc<Node>, messages: &[(u64, Delivery)]) -> bool {
        if self.random.permille(150) {
            sleep(Duration::from_millis(self.random.between(1, 1_500))).await;
        }
        // As a client does that was sent elsewhere meanwhile.
        let node = match self.random.permille(100) {
            true => self.cluster.leader_or_any(&mut self.random),
            false => Some(node.clone()),
        };
        let Some(node) = node else { return false };
        match self.random.below(1_000) {
            0..700 => {
                let by_id = self.random.permille(100);
                settle(&self.cluster, &node, messages, Settlement::Ack, by_id).await;
            }
            700..850 => {
                let how = Settlement::Nack {
                    delay: self.random.permille(200).then_some(Duration::from_millis(200)),
                    dead_letter: self.random.permille(150),
                };
                settle(&self.cluster, &node, messages, how, false).await;
            }
            850..900 => {
                for (tag, delivery) in messages {
                    self.extend(&node, *tag, delivery);
                }
                return false;
            }
            _ => return false,
        }
        true
    }

    fn extend(&mut self, node: &Node, tag: u64, delivery: &Delivery) {
        if !node.process.is_running() {
            return;
        }
        let lease_ms = self.random.pick(&LEASES_MS);
        let begun = self.cluster.ledger.begin(node.index, node.term());
        let lease = Duration::from_millis(lease_ms);
        let extended = node.queues.extend(&[Handle::Token(delivery.token)], lease);
        let told = match extended.map(|mut results| results.pop()) {
            Ok(Some(Ok(()))) => Told::Done,
            _ => Told::Refused,
        };
        self.cluster
            .ledger
            .extended(begun, tag, lease_of(delivery), lease_ms, told);
    }

    async fn purge(&mut self, node: &Node) {
        let queue = self.queue();
        let (queues, name) = (node.queues.clone(), queue.clone());
        let answer = node.ask(PATIENCE, async move { queues.purge(&name).await }).await;
        let (told, count) = match answer {
            None => (Told::Unknown, 0),
            Some(Ok(count)) => (Told::Done, count),
            Some(Err(error)) => (told(&error), 0),
        };
        self.cluster.ledger.purged(&queue, told, count);
    }
}
