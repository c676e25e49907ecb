//! Topics: every message goes to all who subscribe, and into the backlogs of durable subscriptions.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::SystemTime;

use boltq_proto::topic::v1 as proto;
use boltq_proto::topic::v1::topic_service_client::TopicServiceClient;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use tonic::transport::Channel;

use crate::net::{Attempts, Caller, Repeat};
use crate::publisher::ToTopic;
use crate::stream::{Items, Opening, Source};
use crate::wire::from_timestamp;
use crate::{ANSWER_BYTES_MAX, Client, Message, MessageId, Publisher, PublisherOptions, Result};

const PAGE_SIZE: u32 = 1_000;

/// A topic of this name.
#[derive(Debug, Clone)]
pub struct Topic {
    client: Client,
    name: String,
}

/// What became of a publish to a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicPublished {
    /// All subscribers get the message with this id.
    pub id: MessageId,
    /// Durable subscriptions that have it in their backlog.
    pub durable_subscriptions: u64,
}

/// What a subscription to a topic asks for.
#[derive(Debug, Clone, Default)]
pub struct TopicSubscribeOptions {
    /// Its name. Has to be there if it is durable. The same name again replaces the subscription before, which ends.
    pub subscription: String,
    /// Keeps messages while nobody is attached.
    pub durable: bool,
    /// Messages that may wait for this client, 1 to 100,000; 0 counts as 256. What does not fit is dropped, or for a durable
    /// subscription waits in the backlog.
    pub max_in_flight: u32,
}

/// A message of a topic. There is nothing to settle.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicMessage {
    /// The id of the publish.
    pub id: MessageId,
    /// What was published.
    pub payload: Bytes,
    /// All headers.
    pub headers: BTreeMap<String, String>,
    /// Media type of the payload; empty if the publisher gave none.
    pub content_type: String,
    /// 0 to 9.
    pub priority: i32,
    /// When the server received it.
    pub published_at: Option<SystemTime>,
    /// Messages that were dropped just before this one, because this client did not keep up.
    pub dropped_before: u64,
}

impl Topic {
    pub(crate) fn new(client: Client, name: String) -> Self {
        Self { client, name }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Publishes one message, without delay. Without an idempotency key it is not repeated if it may have
    /// been published.
    ///
    /// # Errors
    /// See [`Error`](crate::Error), and [`Error::is_outcome_unknown`](crate::Error::is_outcome_unknown).
    pub async fn publish(&self, message: impl Into<Message>) -> Result<TopicPublished> {
        let message = message.into();
        let repeat = Repeat::of_publish(&message.wire);
        let request = proto::PublishRequest {
            topic: self.name.clone(),
            message: Some(message.wire),
        };
        let make = |channel, request| async move { service(channel).publish(request).await };
        let answer = self.client.caller().call(repeat, request, make).await?;
        Ok(TopicPublished {
            id: MessageId(answer.message_id),
            durable_subscriptions: answer.durable_subscriptions,
        })
    }

    /// The confirmed stream of publishes, as that of a queue: messages without an idempotency key get one, so that what a broken connection left
    /// open is sent again and comes once.
    ///
    /// Has to be called within a runtime of tokio.
    #[must_use]
    pub fn publisher(&self, options: PublisherOptions) -> Publisher {
        Publisher::new(self.client.caller().clone(), ToTopic(self.name.clone()), options)
    }

    /// Messages as they come. What is published after this has returned is delivered.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub async fn subscribe(&self, options: TopicSubscribeOptions) -> Result<TopicSubscription> {
        let request = proto::SubscribeRequest {
            topic: self.name.clone(),
            subscription: options.subscription,
            durable: options.durable,
            max_in_flight: options.max_in_flight,
        };
        let deadline = tokio::time::Instant::now() + self.client.caller().timeout();
        let items = Items::new(self.client.caller().clone(), Messages { request }, Attempts::new());
        let messages = items.opened(deadline).await?.boxed();
        Ok(TopicSubscription { messages })
    }

    /// The durable subscriptions of the topic, by name.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub async fn subscriptions(&self) -> Result<Vec<proto::Subscription>> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = proto::ListSubscriptionsRequest {
                topic: self.name.clone(),
                page_size: PAGE_SIZE,
                page_token,
            };
            let make = |channel, request| async move { service(channel).list_subscriptions(request).await };
            let answer = self.client.caller().call(Repeat::Always, request, make).await?;
            all.extend(answer.subscriptions);
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// Removes a durable subscription, and answers how many messages were in its backlog.
    ///
    /// # Errors
    /// `SUBSCRIPTION_NOT_FOUND`; others see [`Error`](crate::Error).
    pub async fn delete_subscription(&self, subscription: &str) -> Result<u64> {
        let request = proto::DeleteSubscriptionRequest {
            topic: self.name.clone(),
            subscription: subscription.to_owned(),
        };
        let make = |channel, request| async move { service(channel).delete_subscription(request).await };
        Ok(self.client.caller().call(Repeat::Always, request, make).await?.purged)
    }
}

impl Client {
    /// Topics that have a durable subscription, or a subscriber on the node that answers; by name.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub async fn topics(&self) -> Result<Vec<proto::Topic>> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = proto::ListTopicsRequest {
                page_size: PAGE_SIZE,
                page_token,
            };
            let make = |channel, request| async move { service(channel).list_topics(request).await };
            let answer = self.caller().call(Repeat::Always, request, make).await?;
            all.extend(answer.topics);
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }
}

/// Messages of a topic: a [`Stream`].
///
/// When the connection breaks, it subscribes again. A durable subscription goes on where it was, and the last messages before may come again;
/// a live one has a gap then. It ends after a failure that is final, such as `SUBSCRIPTION_REPLACED`.
pub struct TopicSubscription {
    messages: BoxStream<'static, Result<TopicMessage>>,
}

impl TopicSubscription {
    /// The next message; `None` after a failure.
    ///
    /// # Errors
    /// The subscription cannot go on.
    pub async fn next(&mut self) -> Option<Result<TopicMessage>> {
        self.messages.next().await
    }
}

impl Stream for TopicSubscription {
    type Item = Result<TopicMessage>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.messages.poll_next_unpin(context)
    }
}

impl std::fmt::Debug for TopicSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicSubscription").finish_non_exhaustive()
    }
}

/// Messages of a topic.
struct Messages {
    request: proto::SubscribeRequest,
}

impl Source for Messages {
    type Response = proto::SubscribeResponse;
    type Item = TopicMessage;
    type Kept = ();

    fn open(&self, _again: bool, channel: Channel, caller: &Caller) -> Opening<Self::Response, ()> {
        let request = caller.request(self.request.clone());
        Box::pin(async move {
            let response = service(channel).subscribe(request).await?;
            Ok(response.map(|responses| (responses, ())))
        })
    }

    fn read(&mut self, response: proto::SubscribeResponse, items: &mut VecDeque<TopicMessage>) {
        let mut dropped = response.dropped;
        items.extend(response.messages.into_iter().map(|wire| TopicMessage {
            id: MessageId(wire.message_id),
            payload: wire.payload,
            headers: wire.headers,
            content_type: wire.content_type,
            priority: wire.priority,
            published_at: from_timestamp(wire.published_at),
            dropped_before: std::mem::take(&mut dropped),
        }));
    }
}

pub(crate) fn service(channel: Channel) -> TopicServiceClient<Channel> {
    TopicServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}
