//! What clients ask of a node, what they are told, and what the ledger learns of it. The place of the doors of a server, and
//! of what is [broken](Broken) in front of the service.

use std::sync::Arc;
use std::time::Duration;

use boltq_core::MessageId;
use boltq_server::ack_level::AckLevel;
use boltq_server::service::{
    Consumer, Delivery, Handle, IdempotencyKey, NewMessage, Queues, ServiceError, SettleError, Settlement,
};

use crate::cluster::Cluster;
use crate::ledger::{Publish, Times, Told, lease_of};
use crate::node::Node;
use crate::plan::Broken;
use crate::trace::note;

/// How long a client waits for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);
/// For a read that has to be current: longer than the node tries.
const READ_PATIENCE: Duration = Duration::from_secs(6);
/// In the build that refuses what it stores, one of so many messages.
const REFUSED_OF: u64 = 8;

/// What an error says of the outcome.
pub(crate) fn told(error: &ServiceError) -> Told {
    match error {
        ServiceError::Stopped | ServiceError::NoMajority | ServiceError::NotInSync => Told::Unknown,
        _ => Told::Refused,
    }
}

/// Publishes on a node; what the client is told.
pub(crate) async fn publish(cluster: &Cluster, node: &Node, publishes: &[Publish], level: AckLevel) -> Told {
    let begun = cluster.ledger.begin(node.index, node.first_lease());
    cluster.ledger.publishing(begun, publishes);
    let (queues, mut batch) = (node.queues.clone(), publishes.to_vec());
    let twice = cluster.kit.broken == Broken::PublishesTwice;
    let again = publishes.iter().any(|publish| publish.again);
    if again && cluster.kit.broken == Broken::ForgetsKeys {
        batch.iter_mut().for_each(|publish| publish.idempotency_key.clear());
    }
    let work = async move {
        if twice {
            let _ = publish_there(&queues, &batch, level).await;
        }
        publish_there(&queues, &batch, level).await
    };
    let (told, ids) = match node.ask(PATIENCE, work).await {
        None => (Told::Unknown, Vec::new()),
        Some(Ok(ids)) if level == AckLevel::Quorum => (Told::Done, ids),
        // It was promised that somebody has them, not that they stay.
        Some(Ok(_)) => {
            cluster.trace.count("publishes answered early");
            (Told::Unknown, Vec::new())
        }
        Some(Err(error)) => (told(&error), Vec::new()),
    };
    let refuses = cluster.kit.broken == Broken::RefusesWhatItStores
        && publishes.iter().any(|publish| publish.tag % REFUSED_OF == 0);
    let (told, ids) = if refuses {
        (Told::Refused, Vec::new())
    } else {
        (told, ids)
    };
    cluster.ledger.published(begun, publishes, told, &ids);
    told
}

async fn publish_there(
    queues: &Queues,
    publishes: &[Publish],
    level: AckLevel,
) -> Result<Vec<MessageId>, ServiceError> {
    let mut batch = queues.batch();
    for publish in publishes {
        let ns = |ms: u64| i64::try_from(ms * 1_000_000).unwrap_or(i64::MAX);
        let message = NewMessage {
            payload: &publish.payload,
            json: false,
            priority: publish.priority,
            delay_ns: ns(publish.delay_ms),
            ttl_ns: ns(publish.ttl_ms),
            ordering_key: &publish.ordering_key,
        };
        match IdempotencyKey::read(&publish.idempotency_key)? {
            Some(key) => batch.push_once(&publish.queue, key, &message, std::iter::empty())?,
            None => batch.push(&publish.queue, &message, std::iter::empty())?,
        }
    }
    let admitted = queues.admit(batch, level).await?;
    let published = queues.publish_admitted(admitted).await?;
    Ok(published.ids)
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
    let begun = cluster.ledger.begin(node.index, node.first_lease());
    let (queues, name) = (node.queues.clone(), queue.to_owned());
    let lease = Some(Duration::from_millis(lease_ms));
    let loses = cluster.kit.broken == Broken::LosesDeliveries;
    let work = async move {
        let mut deliveries = queues.consume(&consumer, &name, max, lease, Duration::ZERO).await?;
        if loses && let Some(lost) = deliveries.pop() {
            let _ = queues.settle(Settlement::Ack, &[Handle::Token(lost.token)]).await;
        }
        Ok::<_, ServiceError>(deliveries)
    };
    let mut deliveries = node.ask(PATIENCE, work).await?.ok()?;
    if cluster.kit.broken == Broken::DeliversTwice {
        deliveries.extend(deliveries.clone());
    }
    let times = Times {
        lease_ms,
        first_lease: node.first_lease(),
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
    let begun = cluster.ledger.begin(node.index, node.first_lease());
    for (tag, delivery) in messages {
        cluster.ledger.lets_go(*tag, lease_of(delivery));
        if ack {
            cluster.ledger.acking(*tag);
        }
    }
    let by_id_there = by_id || cluster.kit.broken == Broken::IgnoresTokens;
    let handle = |(_, delivery): &(u64, Delivery)| match by_id_there {
        true => Handle::Id(delivery.id),
        false => Handle::Token(delivery.token),
    };
    let handles: Vec<_> = messages.iter().map(handle).collect();
    let queues = node.queues.clone();
    let forgets = ack && cluster.kit.broken == Broken::AcksWithoutDoing;
    let work = async move {
        if forgets {
            return Ok(handles.iter().map(|_| Ok(())).collect());
        }
        queues.settle(how, &handles).await
    };
    let answer = node.ask(PATIENCE, work).await;
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
        cluster
            .ledger
            .settled(begun, *tag, number, ack, told, node.first_lease());
    }
}

/// Moves the end of a lease.
pub(crate) fn extend(cluster: &Cluster, node: &Node, tag: u64, delivery: &Delivery, lease_ms: u64) {
    if !node.process.is_running() {
        return;
    }
    let begun = cluster.ledger.begin(node.index, node.first_lease());
    let lease = Duration::from_millis(lease_ms);
    let extended = node.queues.extend(&[Handle::Token(delivery.token)], lease);
    let told = match extended.map(|mut results| results.pop()) {
        Ok(Some(Ok(()))) => Told::Done,
        _ => Told::Refused,
    };
    cluster.ledger.extended(begun, tag, lease_of(delivery), lease_ms, told);
}

/// Removes everything from a queue.
pub(crate) async fn purge(cluster: &Cluster, node: &Node, queue: &str) {
    let (queues, name) = (node.queues.clone(), queue.to_owned());
    let answer = node.ask(PATIENCE, async move { queues.purge(&name).await }).await;
    let (told, count) = match answer {
        None => (Told::Unknown, 0),
        Some(Ok(count)) => (Told::Done, count),
        Some(Err(error)) => (told(&error), 0),
    };
    let miscounted = u64::from(told == Told::Done && cluster.kit.broken == Broken::MiscountsPurges);
    cluster.ledger.purged(queue, told, count + miscounted);
}

/// Has a node make sure that it has everything that was answered before, whoever answered it.
pub(crate) async fn read(cluster: &Cluster, node: &Node) {
    for node in cluster.nodes() {
        let applied = node.group.status().applied;
        cluster.ledger.has_applied(applied.map_or(0, |applied| applied.0));
    }
    let answered = cluster.ledger.applied();
    let (queues, group) = (node.queues.clone(), node.group.clone());
    let current = cluster.kit.broken != Broken::ReadsStale;
    let work = async move {
        queues.begin_look(current).await?;
        Ok::<_, ServiceError>(group.status().applied.map_or(0, |applied| applied.0))
    };
    match node.ask(READ_PATIENCE, work).await {
        Some(Ok(applied)) => {
            cluster.trace.count("current reads");
            note!(
                cluster.trace,
                "n{} reads at {applied} what is past {answered}",
                node.index
            );
            cluster.ledger.read(node.index, answered, applied);
        }
        Some(Err(error)) => {
            cluster.trace.count("current reads refused");
            note!(cluster.trace, "n{} does not read: {error}", node.index);
        }
        None => note!(cluster.trace, "n{} does not answer a read", node.index),
    }
}
