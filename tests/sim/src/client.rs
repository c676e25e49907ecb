//! Clients: they publish, consume and settle through whichever node says that it leads, and believe nothing else. They read
//! at any node.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boltq_server::ack_level::AckLevel;
use boltq_server::service::{DEAD_LETTER_SUFFIX, Delivery, Settlement};
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::door;
use crate::ledger::{Publish, Told, lease_of};
use crate::node::{Node, SETTINGS};
use crate::random::Random;
use crate::routes::{self, Route};

/// How often something is published that is to be stored once.
const ATTEMPTS_MAX: usize = 4;
const LEASES_MS: [u64; 3] = [300, 1_000, SETTINGS.ack_timeout_ms];

/// One client, until the load ends.
pub(crate) struct Client {
    cluster: Arc<Cluster>,
    random: Random,
}

impl Client {
    pub(crate) fn new(cluster: Arc<Cluster>, random: Random) -> Self {
        Self { cluster, random }
    }

    pub(crate) async fn run(mut self) {
        while self.cluster.loaded.load(Ordering::Relaxed) {
            let pause = self.random.below(self.cluster.plan.pace_ms);
            sleep(Duration::from_millis(pause + 1)).await;
            let action = self.random.below(1_000);
            let node = match action {
                0..40 => self.cluster.any(&mut self.random),
                _ => self.cluster.leader_or_any(&mut self.random),
            };
            let Some(node) = node else { continue };
            match action {
                0..40 => door::read(&self.cluster, &node).await,
                40..100 => self.publish_once(node).await,
                100..160 => self.route(&node).await,
                160..520 => self.publish(&node).await,
                520..990 => self.consume(&node).await,
                _ => {
                    let queue = self.any_queue();
                    door::purge(&self.cluster, &node, &queue).await;
                }
            }
        }
    }

    fn queue(&mut self) -> String {
        format!("q{}", self.random.below(self.cluster.plan.queues))
    }

    /// One that clients publish to, or that copies go to.
    fn any_queue(&mut self) -> String {
        match self.random.permille(200) {
            true => self.random.pick(&routes::QUEUES).to_owned(),
            false => self.queue(),
        }
    }

    /// With an idempotency key for each message, and again until it is answered, or once more although it is.
    async fn publish_once(&mut self, node: Arc<Node>) {
        let queue = self.queue();
        let publish = |tag: u64| Publish {
            tag,
            queue: queue.clone(),
            payload: tag.to_le_bytes().to_vec(),
            priority: 0,
            delay_ms: 0,
            ttl_ms: 0,
            ordering_key: String::new(),
            idempotency_key: format!("once-{tag}"),
            again: false,
        };
        let count = self.random.pick(&[1, 1, 3]);
        let mut publishes: Vec<_> = (0..count).map(|_| publish(self.cluster.ledger.tag())).collect();
        let mut node = Some(node);
        for _ in 0..ATTEMPTS_MAX {
            let Some(there) = node else { return };
            let told = door::publish(&self.cluster, &there, &publishes, AckLevel::Quorum).await;
            if told == Told::Done && self.random.permille(700) {
                return;
            }
            self.cluster.trace.count("publishes repeated");
            publishes.iter_mut().for_each(|publish| publish.again = true);
            sleep(Duration::from_millis(self.random.between(1, 300))).await;
            node = self.cluster.leader_or_any(&mut self.random);
        }
    }

    /// To a topic or an exchange.
    async fn route(&mut self, node: &Arc<Node>) {
        let route = Route::draw(&mut self.random);
        let bytes = usize::try_from(self.random.below(self.cluster.plan.payload_max)).unwrap_or(0);
        let fill = vec![self.random.next() as u8; bytes];
        let ttl_ms = match self.random.permille(100) {
            true => self.random.between(1, 3_000),
            false => 0,
        };
        routes::publish(&self.cluster, node, route, &fill, ttl_ms).await;
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
            let ordered = !delayed && self.random.permille(300);
            let queue = if self.random.permille(900) {
                queue.clone()
            } else {
                self.queue()
            };
            publishes.push(Publish {
                tag,
                queue,
                payload,
                priority: match ordered {
                    true => 0,
                    false => i64::try_from(self.random.pick(&[0u64, 0, 0, 4, 9])).unwrap_or(0),
                },
                delay_ms: if delayed { self.random.between(1, 2_500) } else { 0 },
                ttl_ms: if mortal { self.random.between(1, 3_000) } else { 0 },
                ordering_key: match ordered {
                    true => format!("k{}", self.random.below(3)),
                    false => String::new(),
                },
                idempotency_key: String::new(),
                again: false,
            });
        }
        let level = match self.random.below(1_000) {
            0..40 => AckLevel::None,
            40..80 => AckLevel::Leader,
            _ => AckLevel::Quorum,
        };
        door::publish(&self.cluster, node, &publishes, level).await;
    }

    async fn consume(&mut self, node: &Arc<Node>) {
        let mut queue = self.any_queue();
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
        let taken = door::consume(&self.cluster, node, consumer.clone(), &queue, max, lease_ms).await;
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
        if self.random.permille(250) {
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
                door::settle(&self.cluster, &node, messages, Settlement::Ack, by_id).await;
            }
            700..850 => {
                let how = Settlement::Nack {
                    delay: self.random.permille(200).then_some(Duration::from_millis(200)),
                    dead_letter: self.random.permille(150),
                };
                door::settle(&self.cluster, &node, messages, how, false).await;
            }
            850..900 => {
                for (tag, delivery) in messages {
                    let lease_ms = self.random.pick(&LEASES_MS);
                    door::extend(&self.cluster, &node, *tag, delivery, lease_ms);
                }
                return false;
            }
            _ => return false,
        }
        true
    }
}
