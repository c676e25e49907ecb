//! Durable subscriptions. A topic is here as long as it has one.

use std::collections::BTreeMap;
use std::sync::Arc;

use boltq_core::Millis;

use super::RoutingRefusal;
use crate::place::QueueId;

/// A durable subscription to a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscription {
    /// Its backlog.
    pub queue: QueueId,
    /// When somebody was last known to be attached.
    pub attached: Millis,
}

/// The name of the queue that is the backlog of a subscription.
#[must_use]
pub fn backlog_queue(topic: &str, subscription: &str) -> String {
    format!("{topic}:{subscription}")
}

type Subscriptions = BTreeMap<Arc<str>, Subscription>;

#[derive(Debug, Default)]
pub(crate) struct Topics {
    topics: BTreeMap<Arc<str>, Subscriptions>,
    /// Whose backlog a queue is. `a:b` of topic `x` and `b` of topic `x:a` would have the same.
    backlogs: BTreeMap<QueueId, (Arc<str>, Arc<str>)>,
}

impl Topics {
    pub(crate) fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// Topics in the byte order of their names, each with its subscriptions in the byte order of their ids.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Subscriptions)> {
        self.topics.iter().map(|(name, subscriptions)| (&**name, subscriptions))
    }

    /// The subscriptions of a topic, in the byte order of their ids.
    pub(crate) fn subscriptions(&self, topic: &str) -> impl Iterator<Item = (&str, Subscription)> {
        let subscriptions = self.topics.get(topic).into_iter().flatten();
        subscriptions.map(|(id, subscription)| (&**id, *subscription))
    }

    pub(crate) fn get(&self, topic: &str, id: &str) -> Option<Subscription> {
        self.topics.get(topic)?.get(id).copied()
    }

    /// The topic and the id of the subscription that a queue is the backlog of.
    pub(crate) fn backlog(&self, queue: QueueId) -> Option<(&str, &str)> {
        self.backlogs.get(&queue).map(|(topic, id)| (&**topic, &**id))
    }

    /// Refuses a backlog that another subscription has.
    pub(super) fn check_backlog(&self, topic: &str, id: &str, queue: QueueId) -> Result<(), RoutingRefusal> {
        match self.backlogs.get(&queue) {
            Some((its_topic, its_id)) if (&**its_topic, &**its_id) != (topic, id) => {
                Err(RoutingRefusal::BacklogTaken {
                    topic: (&**its_topic).into(),
                    subscription: (&**its_id).into(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Creates a subscription, or notes that somebody is attached to it. Its backlog was checked.
    pub(super) fn attach(&mut self, topic: &str, id: &str, queue: QueueId, now: Millis) {
        if let Some(there) = self.topics.get_mut(topic).and_then(|topic| topic.get_mut(id)) {
            there.attached = there.attached.max(now);
            return;
        }
        let (topic, id): (Arc<str>, Arc<str>) = (topic.into(), id.into());
        self.backlogs.insert(queue, (Arc::clone(&topic), Arc::clone(&id)));
        let subscription = Subscription { queue, attached: now };
        self.topics.entry(topic).or_default().insert(id, subscription);
    }

    pub(super) fn remove(&mut self, topic: &str, id: &str) {
        let Some(subscriptions) = self.topics.get_mut(topic) else {
            return;
        };
        if let Some(removed) = subscriptions.remove(id) {
            self.backlogs.remove(&removed.queue);
        }
        if subscriptions.is_empty() {
            self.topics.remove(topic);
        }
    }
}
