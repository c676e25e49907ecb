//! The subscriptions of a connection: pushes that stand between its replies.
//!
//! A message counts as delivered when the socket has taken its frame. One that does not fit into a frame, as base64 needs a
//! third more, is left out; a durable subscription has it among the dead letters of its backlog then.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::connection::{Closing, Connection, OUT_BYTES_MAX};
use super::reply::{self, Refusal};
use crate::doors::pump::{Batch, Item, pump};
use crate::doors::requests::Consume;
use crate::service::{NewSubscription, ServiceError, SubscriptionEnd};

/// Messages that may wait for a subscription that is not durable.
const BUFFER_MESSAGES: usize = 100;
/// Batches of all subscriptions of a connection that wait for it.
const BATCHES_MAX: usize = 4;
/// Of one connection.
const SUBSCRIPTIONS_MAX: usize = 1_000;

/// They end with the connection.
pub(super) struct Subscriptions {
    sender: mpsc::Sender<Pushed>,
    pushed: mpsc::Receiver<Pushed>,
    pumps: JoinSet<()>,
}

/// What a subscription has.
pub(super) struct Pushed {
    topic: String,
    id: String,
    item: Item<()>,
}

impl Default for Subscriptions {
    fn default() -> Self {
        let (sender, pushed) = mpsc::channel(BATCHES_MAX);
        Self {
            sender,
            pushed,
            pumps: JoinSet::new(),
        }
    }
}

/// What one of the subscriptions has next; never, where there are none.
pub(super) async fn next(subscriptions: Option<&mut Subscriptions>) -> Pushed {
    if let Some(subscriptions) = subscriptions
        && let Some(pushed) = subscriptions.pushed.recv().await
    {
        return pushed;
    }
    std::future::pending().await
}

/// Messages that are written and not yet with the socket.
type Taken = (oneshot::Sender<Vec<usize>>, Vec<usize>);

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    pub(super) async fn subscribe(&mut self, subscribe: &Consume<'_>) {
        let subscriptions = self.subscriptions.get_or_insert_default();
        while subscriptions.pumps.try_join_next().is_some() {}
        if subscriptions.pumps.len() >= SUBSCRIPTIONS_MAX {
            let text = format!("failed to subscribe: a connection can have {SUBSCRIPTIONS_MAX} subscriptions");
            return reply::error(&mut self.out, &text);
        }
        let new = NewSubscription {
            topic: &subscribe.topic,
            id: Some(&subscribe.subscriber),
            durable: subscribe.durable,
            buffer: BUFFER_MESSAGES,
        };
        match self.door.queues().subscribe(new).await {
            Ok(subscribed) => {
                let wrap = |subscribed: &crate::service::Subscribed, item| Pushed {
                    topic: subscribed.topic().to_owned(),
                    id: subscribed.id().to_owned(),
                    item,
                };
                let out = subscriptions.sender.clone();
                let room = || std::future::ready(());
                subscriptions.pumps.spawn(pump(subscribed, room, out, wrap));
                reply::status(&mut self.out, "subscribed");
            }
            Err(error @ ServiceError::NotLeader { .. }) => reply::refusal(&mut self.out, &Refusal::from(&error)),
            Err(error) => reply::error(&mut self.out, &format!("failed to subscribe: {error}")),
        }
    }

    /// Writes what subscriptions have, and then lets them know. A subscription that cannot go on ends the connection: the
    /// protocol has no other way to tell, and clients subscribe again when they have connected again.
    pub(super) async fn push(&mut self, first: Pushed) -> io::Result<Option<Closing>> {
        let mut taken = Vec::new();
        let mut next = Some(first);
        let mut closing = None;
        while let Some(Pushed { topic, id, item }) = next.take() {
            match item {
                Item::Pushes(batch) => self.write_batch(&topic, &id, batch, &mut taken).await?,
                Item::End(SubscriptionEnd::Replaced) => {}
                Item::End(SubscriptionEnd::Failed(error)) => {
                    debug!(topic, id, %error, "closing a connection: one of its subscriptions cannot go on");
                    closing = Some(Closing);
                }
            }
            if self.out.len() < OUT_BYTES_MAX
                && let Some(subscriptions) = &mut self.subscriptions
            {
                next = subscriptions.pushed.try_recv().ok();
            }
        }
        self.flush().await?;
        for (taken, failed) in taken {
            // A subscription that has ended meanwhile does not need to know.
            let _ = taken.send(failed);
        }
        Ok(closing)
    }

    async fn write_batch(&mut self, topic: &str, id: &str, batch: Batch<()>, taken: &mut Vec<Taken>) -> io::Result<()> {
        let mut failed = Vec::new();
        for (position, message) in batch.pushes.messages.iter().enumerate() {
            if !reply::push(&mut self.out, topic, id, message) {
                warn!(topic, id, message = %message.id, "a message does not fit into a frame of this protocol");
                failed.push(position);
            }
            self.flush_if_long().await?;
        }
        taken.push((batch.taken, failed));
        Ok(())
    }
}
