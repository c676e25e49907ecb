//! Subscribing to topics. Publishing to them is in [`super::routed`], what becomes of durable subscriptions in
//! [`super::subscriptions`].
//!
//! Who subscribes without `durable` listens on this node, whichever leads. A durable subscription is attached on the leader:
//! its messages are leased from its backlog, which is a queue, and acknowledged when they were handed to the client. So a
//! message that was not handed over comes again, and one that was does not.

use std::time::Duration;

use boltq_core::{MessageId, Record, check_name};
use boltq_queue::{Outcome, RoutingRefusal, backlog_queue, command};
use boltq_raft::Proposal;
use tokio::task::JoinHandle;

use super::error::ServiceError;
use super::queue::{Consumer, Queues};
use super::routed::check_named;
use super::settle::Settlement;
use super::take::ANSWER_BYTES_MAX;
use super::token::{DeliveryToken, Handle};
use crate::hub::{Inbox, Listening};
use crate::plane::Attachment;

/// Of what is handed to a client and not acknowledged. It ends with the connection, or with the leadership; a client that
/// takes nothing is cut off long before.
const LEASE: Duration = Duration::from_secs(12 * 3_600);
/// For a subscription to go that is replaced.
const GONE_MAX: Duration = Duration::from_secs(5);
/// Messages that are handed to a client together.
const TOGETHER_MAX: usize = 64;

/// What to subscribe to.
#[derive(Debug, Clone, Copy)]
pub struct NewSubscription<'a> {
    /// The topic.
    pub topic: &'a str,
    /// Names the subscription; without one it replaces none, and cannot be durable.
    pub id: Option<&'a str>,
    /// Whether messages are kept while nobody is attached.
    pub durable: bool,
    /// Messages that may wait for one that is not durable.
    pub buffer: usize,
}

/// Why a subscription has ended.
#[derive(Debug, Clone)]
pub enum SubscriptionEnd {
    /// Somebody else subscribed in its name, or it was deleted.
    Replaced,
    /// This node cannot go on with it.
    Failed(ServiceError),
}

/// A message for a subscriber.
#[derive(Debug, Clone)]
pub struct Push {
    /// The id of its publish.
    pub id: MessageId,
    /// The message.
    pub record: Record,
    /// What acknowledges it; `None` if nothing has to.
    token: Option<DeliveryToken>,
}

/// Messages for a subscriber that belong together.
#[derive(Debug, Clone, Default)]
pub struct Pushes {
    /// In their order.
    pub messages: Vec<Push>,
    /// Messages that were dropped before these.
    pub dropped: u64,
}

/// A subscription with somebody attached to it, until it is dropped.
pub struct Subscribed {
    queues: Queues,
    topic: String,
    id: Option<String>,
    /// Before `listening`: who takes the place waits until what was leased is given back.
    source: Source,
    listening: Listening,
}

enum Source {
    Live(Inbox),
    Backlog(Box<Backlog>),
}

struct Backlog {
    consumer: Consumer,
    attachment: Attachment,
    /// Of what was handed over last.
    acknowledging: Option<JoinHandle<Result<(), ServiceError>>>,
}

impl Subscribed {
    /// Its topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Its id; empty if it has none.
    #[must_use]
    pub fn id(&self) -> &str {
        self.id.as_deref().unwrap_or_default()
    }

    /// Returns when somebody else subscribed in its name, or it was deleted.
    pub async fn ended(&self) {
        self.listening.ended().await;
    }

    /// Waits for messages. From a backlog none is taken before there is `room` for an answer.
    ///
    /// # Errors
    /// See [`SubscriptionEnd`].
    pub async fn next<R, F: Future<Output = R>>(
        &mut self,
        room: impl Fn() -> F,
    ) -> Result<(Pushes, Option<R>), SubscriptionEnd> {
        let Self {
            queues,
            listening,
            source,
            ..
        } = self;
        let next = async {
            match source {
                Source::Live(inbox) => Ok((live(inbox).await, None)),
                Source::Backlog(backlog) => backlog.next(queues, room).await.map_err(|error| match error {
                    // It goes with the subscription.
                    ServiceError::QueueDeleted => SubscriptionEnd::Replaced,
                    other => SubscriptionEnd::Failed(other),
                }),
            }
        };
        tokio::select! {
            biased;
            () = listening.ended() => Err(SubscriptionEnd::Replaced),
            () = queues.stopping() => Err(SubscriptionEnd::Failed(ServiceError::Stopped)),
            next = next => next,
        }
    }

    /// Tells that messages were handed to the client: they do not come again.
    pub fn delivered(&mut self, pushes: &Pushes) {
        self.settle(pushes.messages.iter(), Settlement::Ack);
    }

    /// Tells that messages cannot be handed to this client. Of a durable subscription they become dead letters.
    pub fn undeliverable(&mut self, pushes: &[Push]) {
        let how = Settlement::Nack {
            delay: None,
            dead_letter: true,
        };
        self.settle(pushes.iter(), how);
    }

    fn settle<'p>(&mut self, pushes: impl Iterator<Item = &'p Push>, how: Settlement) {
        let Source::Backlog(backlog) = &mut self.source else {
            return;
        };
        let handles: Vec<_> = pushes.filter_map(|push| push.token).map(Handle::Token).collect();
        if handles.is_empty() {
            return;
        }
        let (queues, before) = (self.queues.clone(), backlog.acknowledging.take());
        // The next messages are leased and handed over meanwhile. One after the other, so that at most two wait.
        backlog.acknowledging = Some(tokio::spawn(async move {
            if let Some(before) = before {
                before.await.unwrap_or(Err(ServiceError::Stopped))?;
            }
            queues.settle(how, &handles).await.map(drop)
        }));
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        let Source::Backlog(_) = &self.source else { return };
        let (queues, topic, id) = (self.queues.clone(), self.topic.clone(), self.id().to_owned());
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !queues.is_stopping()
        {
            // From now on it is abandoned. If that cannot be noted, the last time that was counts.
            runtime.spawn(async move { queues.touch(&topic, &id).await });
        }
    }
}

async fn live(inbox: &mut Inbox) -> Pushes {
    let records = inbox.next(TOGETHER_MAX, ANSWER_BYTES_MAX).await;
    let push = |record: Record| Push {
        id: record.origin().map_or(MessageId([0; 16]), |origin| origin.id),
        record,
        token: None,
    };
    Pushes {
        messages: records.into_iter().map(push).collect(),
        dropped: inbox.take_dropped(),
    }
}

impl Backlog {
    async fn next<R, F: Future<Output = R>>(
        &mut self,
        queues: &Queues,
        room: impl Fn() -> F,
    ) -> Result<(Pushes, Option<R>), ServiceError> {
        if let Some(acknowledging) = self.acknowledging.as_mut().filter(|one| one.is_finished()) {
            let acknowledged = acknowledging.await;
            self.acknowledging = None;
            acknowledged.unwrap_or(Err(ServiceError::Stopped))?;
        }
        let next = queues.next_deliveries(&self.consumer, &self.attachment, TOGETHER_MAX, Some(LEASE), room);
        let (deliveries, room) = next.await?;
        let push = |delivery: super::queue::Delivery| Push {
            // One that was put into the backlog as into any queue has no other.
            id: delivery.record.origin().map_or(delivery.id, |origin| origin.id),
            token: Some(delivery.token),
            record: delivery.record,
        };
        let pushes = Pushes {
            messages: deliveries.into_iter().map(push).collect(),
            dropped: 0,
        };
        Ok((pushes, Some(room)))
    }
}

impl Queues {
    /// Subscribes. Everything that is published from now on comes, and before it what a durable subscription has kept.
    ///
    /// # Errors
    /// A name is not acceptable, or it is to be durable and this node does not lead.
    pub async fn subscribe(&self, new: NewSubscription<'_>) -> Result<Subscribed, ServiceError> {
        let NewSubscription {
            topic,
            id,
            durable,
            buffer,
        } = new;
        if self.inner.clustering.is_removed() {
            return Err(ServiceError::Removed);
        }
        check_named("topic", topic)?;
        if let Some(id) = id {
            check_named("subscription", id)?;
        }
        let hub = self.inner.plane.hub();
        let (listening, source) = match id.filter(|_| durable) {
            None if durable => {
                return Err(ServiceError::InvalidArgument {
                    what: "subscription is missing; a durable one has to have a name".to_owned(),
                });
            }
            None => {
                if !self.is_leading()
                    && let Err(error) = self.begin_look(true).await
                {
                    // It is no less live for that: it may get messages once more that were confirmed before it came.
                    tracing::debug!(%error, topic, "a live subscriber begins on a node that may be behind");
                }
                let (listening, inbox) = hub.listen(topic, id, buffer);
                (listening, Source::Live(inbox))
            }
            Some(id) => {
                check_name(&backlog_queue(topic, id)).map_err(|error| ServiceError::InvalidArgument {
                    what: format!("topic and subscription together: {error}"),
                })?;
                if !self.is_leading() {
                    return Err(self.not_leader());
                }
                let queue = self
                    .change_subscription(|out| command::attach(out, topic, id, true))
                    .await?;
                let Outcome::Attached(Some(queue)) = queue else {
                    return Err(ServiceError::Stopped);
                };
                let (listening, before) = hub.occupy(topic, id);
                if let Some(gone) = before {
                    // What it holds comes first. One that does not go is no reason to wait for ever.
                    let _ = tokio::time::timeout(GONE_MAX, gone.cancelled()).await;
                }
                let backlog = Backlog {
                    consumer: self.consumer(),
                    // A backlog cannot be deleted, but the subscription.
                    attachment: self
                        .inner
                        .plane
                        .attach_to(|_| Some(queue))
                        .ok_or(ServiceError::QueueDeleted)?,
                    acknowledging: None,
                };
                (listening, Source::Backlog(Box::new(backlog)))
            }
        };
        Ok(Subscribed {
            queues: self.clone(),
            topic: topic.to_owned(),
            id: id.map(str::to_owned),
            source,
            listening,
        })
    }

    /// Notes that somebody is attached to a durable subscription, or was until now.
    pub(super) async fn touch(&self, topic: &str, id: &str) -> Result<(), ServiceError> {
        let touched = self.change_subscription(|out| command::attach(out, topic, id, false));
        touched.await.map(drop)
    }

    pub(super) async fn change_subscription(
        &self,
        write: impl FnOnce(&mut bytes::BytesMut),
    ) -> Result<Outcome, ServiceError> {
        let mut proposal = Proposal::new();
        write(proposal.begin());
        let outcomes = self.confirmed(self.propose(proposal)).await?;
        match outcomes.into_iter().next() {
            Some(Outcome::Refused(RoutingRefusal::BacklogTaken { topic, subscription })) => {
                Err(ServiceError::BacklogTaken {
                    topic: topic.into(),
                    subscription: subscription.into(),
                })
            }
            Some(outcome) => Ok(outcome),
            None => Err(ServiceError::Stopped),
        }
    }
}
