//! Durable subscriptions from outside: deleting, abandoned ones, and what there is.

use std::time::Duration;

use boltq_core::Millis;
use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_queue::{Outcome, Subscription, command};

use super::error::ServiceError;
use super::queue::Queues;
use super::routed::check_named;

impl Queues {
    /// Removes a durable subscription with its backlog, and returns how many messages were in it. Who is attached is cut
    /// off.
    ///
    /// # Errors
    /// There is none, or nothing was done.
    pub async fn delete_subscription(&self, topic: &str, id: &str) -> Result<u64, ServiceError> {
        check_named("topic", topic)?;
        check_named("subscription", id)?;
        self.remove_subscription(topic, id, Millis::MAX)
            .await?
            .ok_or_else(|| ServiceError::SubscriptionNotFound {
                topic: topic.to_owned(),
                subscription: id.to_owned(),
            })
    }

    /// `None`: there is none, or somebody was attached after `attached_until`.
    async fn remove_subscription(
        &self,
        topic: &str,
        id: &str,
        attached_until: Millis,
    ) -> Result<Option<u64>, ServiceError> {
        let remove = |out: &mut bytes::BytesMut| command::delete_subscription(out, topic, id, attached_until);
        match self.change_subscription(remove).await? {
            Outcome::SubscriptionRemoved(removed) => {
                if removed.is_some() {
                    self.inner.plane.hub().close(topic, id);
                }
                Ok(removed)
            }
            _ => Err(ServiceError::Stopped),
        }
    }

    /// Removes durable subscriptions to which nobody was attached for so long. Of those that are attached it notes so, often
    /// enough for another leader to know. For the leader; returns at once elsewhere.
    pub(crate) async fn expire_subscriptions(&self, after: Duration) {
        if !self.is_leading() {
            return;
        }
        let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        let now = (self.inner.plane.sources().clock)().millis().0;
        let (until, doubtful) = (now.saturating_sub(after_ms), now.saturating_sub(after_ms / 4));
        let old: Vec<(String, String, Millis)> = self.inner.plane.with(|plane| {
            let machine = plane.machine();
            let topics = machine.topics().map(|(topic, _)| topic);
            let all = topics.flat_map(|topic| machine.subscriptions(topic).map(move |(id, there)| (topic, id, there)));
            let old = all.filter(|(.., there): &(_, _, Subscription)| there.attached.0 <= doubtful);
            old.map(|(topic, id, there)| (topic.to_owned(), id.to_owned(), there.attached))
                .collect()
        });
        for (topic, id, attached) in old {
            let removed = if self.inner.plane.hub().is_occupied(&topic, &id) {
                self.touch(&topic, &id).await.map(|()| None)
            } else if attached.0 <= until {
                self.remove_subscription(&topic, &id, Millis(until)).await
            } else {
                Ok(None)
            };
            match removed {
                Ok(Some(messages)) => {
                    tracing::warn!(topic, id, messages, "an abandoned durable subscription was removed");
                }
                Ok(None) => {}
                Err(error) => tracing::debug!(topic, id, %error, "an abandoned subscription could not be removed"),
            }
        }
    }

    /// Topics that have a durable subscription or, on this node, somebody who listens: those after a name, `max` at most;
    /// and whether there are more.
    #[must_use]
    pub fn topics(&self, after: &str, max: usize) -> (Vec<TopicInfo>, bool) {
        let mut topics = std::collections::BTreeMap::<String, TopicInfo>::new();
        let new = |name: &str| TopicInfo {
            name: name.to_owned(),
            ..TopicInfo::default()
        };
        for (name, listeners) in self.inner.plane.hub().topics() {
            topics.entry(name.clone()).or_insert_with(|| new(&name)).subscribers = listeners;
        }
        self.inner.plane.with(|plane| {
            for (name, durable) in plane.machine().topics() {
                topics
                    .entry(name.to_owned())
                    .or_insert_with(|| new(name))
                    .durable_subscriptions = durable;
            }
        });
        let mut found = topics.into_values().filter(|topic| topic.name.as_str() > after);
        let page: Vec<_> = found.by_ref().take(max).collect();
        (page, found.next().is_some())
    }

    /// Durable subscriptions of a topic in the byte order of their ids: those after an id, `max` at most; and whether there
    /// are more.
    #[must_use]
    pub fn subscriptions(&self, topic: &str, after: &str, max: usize) -> (Vec<SubscriptionInfo>, bool) {
        let max = max.min(BATCH_MESSAGES_MAX);
        self.inner.plane.with(|plane| {
            let mut found = plane.machine().subscriptions(topic).filter(|(id, _)| *id > after);
            let info = |(id, there): (&str, Subscription)| SubscriptionInfo {
                id: id.to_owned(),
                queue: plane.queue_name(there.queue).unwrap_or_default().to_owned(),
                backlog: plane
                    .stats(there.queue)
                    .map_or(0, |stats| stats.ready + stats.leased + stats.delayed),
                attached: there.attached,
            };
            let page: Vec<_> = found.by_ref().take(max).map(info).collect();
            (page, found.next().is_some())
        })
    }

    /// Messages that listeners of this node were told, and that were dropped because one was too slow.
    #[must_use]
    pub fn told_and_dropped(&self) -> (u64, u64) {
        use std::sync::atomic::Ordering::Relaxed;
        let hub = self.inner.plane.hub();
        (hub.told.load(Relaxed), hub.dropped.load(Relaxed))
    }
}

/// A topic as it is now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicInfo {
    /// Its name.
    pub name: String,
    /// Number of durable subscriptions.
    pub durable_subscriptions: usize,
    /// Who is attached on this node, durably or not.
    pub subscribers: u64,
}

/// A durable subscription as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionInfo {
    /// Its id.
    pub id: String,
    /// Its backlog.
    pub queue: String,
    /// Messages in it.
    pub backlog: u64,
    /// When somebody was last known to be attached.
    pub attached: Millis,
}
