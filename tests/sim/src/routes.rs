//! What is published to topics and exchanges, and the queues that it goes to. They are there before the load, and stay.

use std::sync::Arc;
use std::time::Duration;

use boltq_server::service::{
    ExchangeKind, HeaderRule, NewBinding, NewExchange, NewMessage, NewSubscription, Queues, ServiceError,
};
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::door::{PATIENCE, told};
use crate::ledger::{Publish, Told};
use crate::node::Node;
use crate::plan::Broken;
use crate::random::Random;

const TOPIC: &str = "t";
const SUBSCRIPTIONS: [&str; 2] = ["s0", "s1"];
const DIRECT: &str = "direct";
const FANOUT: &str = "fanout";
/// Behind the exchanges; each is bound to the direct one by its own name.
const BOUND: [&str; 2] = ["x0", "x1"];
/// Everything that copies are in: the backlogs of the subscriptions, and what is bound.
pub(crate) const QUEUES: [&str; 4] = ["t:s0", "t:s1", "x0", "x1"];

/// Where something is published to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Topic,
    Fanout,
    /// The direct exchange, with this key.
    Direct(&'static str),
}

impl Route {
    pub(crate) fn draw(random: &mut Random) -> Self {
        match random.below(3) {
            0 => Self::Topic,
            1 => Self::Fanout,
            _ => Self::Direct(random.pick(&BOUND)),
        }
    }

    /// The queues that get a copy.
    fn queues(self) -> Vec<&'static str> {
        match self {
            Self::Topic => QUEUES[..2].to_vec(),
            Self::Fanout => QUEUES[2..].to_vec(),
            Self::Direct(key) => vec![key],
        }
    }

    /// In a build that is broken, where it is published to instead.
    fn astray(self, broken: Broken) -> Self {
        match (broken, self) {
            (Broken::LeavesOutQueues, Self::Fanout) => Self::Direct(BOUND[0]),
            (Broken::RoutesElsewhere, Self::Direct(_)) => Self::Fanout,
            _ => self,
        }
    }
}

/// Makes topic, exchanges and bindings.
pub(crate) async fn declare(cluster: &Cluster) {
    while !cluster.trace.is_broken() {
        if let Some(leader) = cluster.leader() {
            let queues = leader.queues.clone();
            let work = Box::pin(async move { declare_there(&queues).await });
            if let Some(Ok(())) = leader.ask(PATIENCE, work).await {
                return;
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn declare_there(queues: &Queues) -> Result<(), ServiceError> {
    for (name, kind) in [(DIRECT, ExchangeKind::Direct), (FANOUT, ExchangeKind::Fanout)] {
        let new = NewExchange {
            name,
            kind,
            durable: true,
            alternate: "",
        };
        queues.declare_exchange(new).await?;
        for queue in BOUND {
            let rule = HeaderRule::default();
            let binding = NewBinding {
                exchange: name,
                queue,
                key: queue,
                rule: &rule,
            };
            queues.bind(binding).await?;
        }
    }
    for id in SUBSCRIPTIONS {
        let new = NewSubscription {
            topic: TOPIC,
            id: Some(id),
            durable: true,
            buffer: 1,
        };
        // From now on it has a backlog, which is consumed as any queue.
        drop(queues.subscribe(new).await?);
    }
    Ok(())
}

/// Publishes something to a topic or an exchange of a node.
pub(crate) async fn publish(cluster: &Cluster, node: &Arc<Node>, route: Route, fill: &[u8], ttl_ms: u64) {
    let ttl_ms = if route == Route::Topic { ttl_ms } else { 0 };
    let tag = cluster.ledger.tag();
    let mut payload = tag.to_le_bytes().to_vec();
    payload.extend(fill);
    let copy = |queue: &str| Publish {
        tag: cluster.ledger.tag(),
        queue: queue.to_owned(),
        payload: payload.clone(),
        priority: 0,
        delay_ms: 0,
        ttl_ms,
        ordering_key: String::new(),
        idempotency_key: String::new(),
        again: false,
    };
    let copies: Vec<_> = route.queues().into_iter().map(copy).collect();
    let begun = cluster.ledger.begin(node.index, node.first_lease());
    cluster.ledger.routing(begun, tag, &copies);
    let (queues, there) = (node.queues.clone(), route.astray(cluster.kit.broken));
    let work = Box::pin(async move { publish_there(&queues, there, &payload, ttl_ms).await });
    let (told, mut queues) = match node.ask(PATIENCE, work).await {
        None => (Told::Unknown, 0),
        Some(Ok(queues)) => (Told::Done, queues),
        Some(Err(error)) => (told(&error), 0),
    };
    if told == Told::Done && there != route {
        queues = copies.len();
    }
    cluster.ledger.routed(begun, tag, &copies, told, queues);
}

async fn publish_there(queues: &Queues, route: Route, payload: &[u8], ttl_ms: u64) -> Result<usize, ServiceError> {
    let message = NewMessage {
        payload,
        json: false,
        priority: 0,
        delay_ns: 0,
        ttl_ns: i64::try_from(ttl_ms * 1_000_000).unwrap_or(i64::MAX),
        ordering_key: "",
    };
    let mut batch = queues.routed_batch()?;
    let none = std::iter::empty();
    match route {
        Route::Topic => batch.push_topic(TOPIC, None, &message, none)?,
        Route::Fanout => batch.push_exchange(FANOUT, "", None, &message, none)?,
        Route::Direct(key) => batch.push_exchange(DIRECT, key, None, &message, none)?,
    }
    let routed = batch.publish().await?.pop().unwrap_or(Err(ServiceError::Stopped))?;
    Ok(routed.queues)
}
