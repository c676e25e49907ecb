//! Work queues: each message goes to one consumer, which settles it.

mod manage;
mod settings;

use std::time::Duration;

use boltq_proto::queue::v1 as proto;
use boltq_proto::queue::v1::queue_service_client::QueueServiceClient;
use bytes::Bytes;
use tokio::time::Instant;
use tonic::transport::Channel;

pub use manage::Scheduled;
pub use settings::{Overflow, QueueSettings};

use crate::intake::Intake;
use crate::net::{Attempts, Caller, Repeat};
use crate::publisher::ToQueue;
use crate::settler::Settlement;
use crate::wire::duration;
use crate::{
    ANSWER_BYTES_MAX, Client, Delivery, Message, MessageId, NotSettled, Publisher, PublisherOptions, Result,
    SubscribeOptions, Subscription, WorkerBuilder,
};

/// A queue of this name. It is created by the first publish, or when somebody consumes from it.
#[derive(Debug, Clone)]
pub struct Queue {
    client: Client,
    name: String,
}

/// What [`Queue::consume`] asks for.
#[derive(Debug, Clone, Default)]
pub struct ConsumeOptions {
    /// Messages at most, 1 to 1,000. 0 counts as 1.
    pub max_messages: u32,
    /// Longest wait for the first message, up to 60 s. Zero: answer at once.
    pub wait: Duration,
    /// Length of the leases, 1 s to 12 h. `None`: as the queue says.
    pub lease: Option<Duration>,
}

impl Queue {
    pub(crate) fn new(client: Client, name: String) -> Self {
        Self { client, name }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Publishes one message. When this returns, it is stored as durably as the server promises.
    ///
    /// Who publishes many at a time is better off with a [`Publisher`].
    ///
    /// # Errors
    /// `QUEUE_FULL`, `STORAGE_FULL` and, for an idempotency key that the message has from the application, `IDEMPOTENCY_KEYS_FULL` can be
    /// tried again later; others see [`Error`](crate::Error).
    pub async fn publish(&self, message: impl Into<Message>) -> Result<MessageId> {
        let message: Message = message.into();
        let mut caller = self.caller().clone();
        let deadline = Instant::now() + caller.timeout();
        let mut keyed = caller.keys().give(message.wire, None);
        loop {
            let repeat = Repeat::of_publish(&keyed.message);
            let request = proto::PublishRequest {
                queue: self.name.clone(),
                message: Some(keyed.message.clone()),
            };
            let make = |channel, request| async move { service(channel).publish(request).await };
            let error = match caller.call(repeat, request, make).await {
                Ok(answer) => return Ok(MessageId(answer.message_id)),
                Err(error) => error,
            };
            let unknown = error.is_outcome_unknown();
            if !caller.keys().does_without(&mut keyed, error.reason(), unknown) {
                return Err(error);
            }
            caller = caller.with_timeout(deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// Opens a stream of publishes, each of which is confirmed.
    #[must_use]
    pub fn publisher(&self, options: PublisherOptions) -> Publisher {
        Publisher::new(self.caller().clone(), ToQueue(self.name.clone()), options)
    }

    /// Takes messages that are ready. What is not settled before its lease ends is delivered again, to anybody.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub async fn consume(&self, options: ConsumeOptions) -> Result<Vec<Delivery>> {
        let request = proto::ConsumeRequest {
            queue: self.name.clone(),
            max_messages: options.max_messages,
            wait: (!options.wait.is_zero()).then(|| duration(options.wait)),
            lease: options.lease.map(duration),
        };
        let make = |channel, request| async move { service(channel).consume(request).await };
        let call = self.caller().call_waiting(Repeat::Always, options.wait, request, make);
        Ok(self.deliveries(call.await?.deliveries))
    }

    /// Messages as they come, until the subscription is dropped.
    #[must_use]
    pub fn subscribe(&self, options: SubscribeOptions) -> Subscription {
        Subscription::new(self.client.clone(), self.name.clone(), options)
    }

    /// What a worker takes; it waits for its server for ever.
    pub(crate) fn intake(&self, options: SubscribeOptions) -> Intake {
        Intake::new(self.client.clone(), self.name.clone(), options, Attempts::patient())
    }

    /// A worker in the making.
    #[must_use]
    pub fn worker(&self) -> WorkerBuilder {
        WorkerBuilder::new(self.clone())
    }

    /// Messages that are ready, in the order of delivery, without taking them. 0 counts as 10, at most 1,000.
    ///
    /// # Errors
    /// `QUEUE_NOT_FOUND`; others see [`Error`](crate::Error).
    pub async fn peek(&self, max_messages: u32) -> Result<Vec<Delivery>> {
        let request = proto::PeekRequest {
            queue: self.name.clone(),
            max_messages,
            linearizable: true,
        };
        let make = |channel, request| async move { service(channel).peek(request).await };
        let answer = self.caller().call(Repeat::Always, request, make).await?;
        Ok(self.deliveries(answer.deliveries))
    }

    /// Settles by tokens, up to 1,000 at a time: how many were settled, and why others were not. See [`Delivery::ack`].
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub async fn ack(&self, tokens: Vec<Bytes>) -> Result<(u32, Vec<(Bytes, NotSettled)>)> {
        self.client.settler().call(Settlement::Ack, tokens).await
    }

    /// As [`Queue::ack`], for messages that have failed; without a delay they rest as long as the queue says.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub async fn nack(&self, tokens: Vec<Bytes>, delay: Option<Duration>) -> Result<(u32, Vec<(Bytes, NotSettled)>)> {
        self.client.settler().call(Settlement::Nack { delay }, tokens).await
    }

    /// As [`Queue::nack`], straight to the dead letters.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub async fn dead_letter(&self, tokens: Vec<Bytes>) -> Result<(u32, Vec<(Bytes, NotSettled)>)> {
        self.client.settler().call(Settlement::DeadLetter, tokens).await
    }

    /// As [`Queue::ack`], for messages that were not worked on: they are ready for others at once, without a failed attempt.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub async fn release(&self, tokens: Vec<Bytes>) -> Result<(u32, Vec<(Bytes, NotSettled)>)> {
        self.client.settler().call(Settlement::Release, tokens).await
    }

    /// As [`Queue::ack`], and moves the ends of leases instead: so long from now, 1 s to 12 h.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub async fn extend(&self, tokens: Vec<Bytes>, lease: Duration) -> Result<(u32, Vec<(Bytes, NotSettled)>)> {
        self.client.settler().call(Settlement::Extend { lease }, tokens).await
    }

    fn deliveries(&self, wire: Vec<proto::Delivery>) -> Vec<Delivery> {
        let settler = self.client.settler();
        wire.into_iter()
            .map(|wire| Delivery::new(wire, settler.clone()))
            .collect()
    }

    fn caller(&self) -> &Caller {
        self.client.caller()
    }
}

pub(crate) fn service(channel: Channel) -> QueueServiceClient<Channel> {
    QueueServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}
