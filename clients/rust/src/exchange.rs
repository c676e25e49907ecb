//! Exchanges: a message is published with a routing key, and bindings say which queues get a copy.

use std::collections::BTreeMap;

use boltq_proto::exchange::v1 as proto;
use boltq_proto::exchange::v1::exchange_service_client::ExchangeServiceClient;
use tonic::transport::Channel;

pub use boltq_proto::exchange::v1::ExchangeType;

use crate::net::Repeat;
use crate::{ANSWER_BYTES_MAX, Client, Message, MessageId, Result};

const PAGE_SIZE: u32 = 1_000;

/// All exchanges. The one without a name is always there, and routes to the queue that the routing key names.
#[derive(Debug, Clone)]
pub struct Exchanges {
    client: Client,
}

/// How an exchange is declared.
#[derive(Debug, Clone, Default)]
pub struct ExchangeOptions {
    /// How it chooses.
    pub exchange_type: ExchangeType,
    /// As it is shown later; all exchanges survive what the state of the server does.
    pub durable: bool,
    /// Gets what matches no binding. Empty: none.
    pub alternate_exchange: String,
}

/// Which messages of an exchange a queue gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Binding {
    /// The queue, which is created if it does not exist.
    pub queue: String,
    /// Up to 255 bytes; what it means depends on the type of the exchange.
    pub binding_key: String,
    /// Of a headers exchange: what a message has to have.
    pub headers: BTreeMap<String, String>,
    /// All of `headers` are wanted; else one of them.
    pub match_all: bool,
}

/// What became of a publish to an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Routed {
    /// The id of the publish, which each copy has in its header `boltq-publish-id`.
    pub id: MessageId,
    /// Queues that have a copy. 0: the message is gone.
    pub queues: u64,
}

impl Exchanges {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Creates an exchange. One that is there with the same type stays as it is. Answers with what there is now.
    ///
    /// # Errors
    /// `EXCHANGE_EXISTS` if it has another type; otherwise see [`Error`](crate::Error).
    pub async fn declare(&self, name: &str, options: ExchangeOptions) -> Result<proto::Exchange> {
        let request = proto::DeclareRequest {
            name: name.to_owned(),
            r#type: options.exchange_type.into(),
            durable: options.durable,
            alternate_exchange: options.alternate_exchange,
        };
        let make = |channel, request| async move { service(channel).declare(request).await };
        let answer = self.client.caller().call(Repeat::Always, request, make).await?;
        Ok(answer.exchange.unwrap_or_default())
    }

    /// Removes an exchange with its bindings.
    ///
    /// # Errors
    /// `EXCHANGE_NOT_FOUND`; others see [`Error`](crate::Error).
    pub async fn delete(&self, name: &str) -> Result<()> {
        let request = proto::DeleteRequest { name: name.to_owned() };
        let make = |channel, request| async move { service(channel).delete(request).await };
        self.client
            .caller()
            .call(Repeat::Always, request, make)
            .await
            .map(|_| ())
    }

    /// Binds a queue; `false` if the same binding was there.
    ///
    /// # Errors
    /// `EXCHANGE_NOT_FOUND`; others see [`Error`](crate::Error).
    pub async fn bind(&self, exchange: &str, binding: Binding) -> Result<bool> {
        let request = proto::BindRequest {
            exchange: exchange.to_owned(),
            binding: Some(binding.into()),
        };
        let make = |channel, request| async move { service(channel).bind(request).await };
        Ok(self.client.caller().call(Repeat::Always, request, make).await?.created)
    }

    /// Removes all bindings of a queue with a key, and answers how many those were.
    ///
    /// # Errors
    /// `EXCHANGE_NOT_FOUND`; others see [`Error`](crate::Error).
    pub async fn unbind(&self, exchange: &str, queue: &str, binding_key: &str) -> Result<u64> {
        let request = proto::UnbindRequest {
            exchange: exchange.to_owned(),
            queue: queue.to_owned(),
            binding_key: binding_key.to_owned(),
        };
        let make = |channel, request| async move { service(channel).unbind(request).await };
        Ok(self.client.caller().call(Repeat::Always, request, make).await?.removed)
    }

    /// Publishes a message, without delay and time to live. Without an idempotency key it is not repeated if
    /// it may have been published.
    ///
    /// # Errors
    /// `EXCHANGE_NOT_FOUND`, `QUEUE_FULL`; others see [`Error`](crate::Error), and
    /// [`Error::is_outcome_unknown`](crate::Error::is_outcome_unknown).
    pub async fn publish(&self, exchange: &str, routing_key: &str, message: impl Into<Message>) -> Result<Routed> {
        let message = message.into();
        let repeat = Repeat::of_publish(&message.wire);
        let request = proto::PublishRequest {
            exchange: exchange.to_owned(),
            routing_key: routing_key.to_owned(),
            message: Some(message.wire),
        };
        let make = |channel, request| async move { service(channel).publish(request).await };
        let answer = self.client.caller().call(repeat, request, make).await?;
        Ok(Routed {
            id: MessageId(answer.message_id),
            queues: answer.routed,
        })
    }

    /// All exchanges by name.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub async fn list(&self) -> Result<Vec<proto::Exchange>> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = proto::ListRequest {
                page_size: PAGE_SIZE,
                page_token,
                linearizable: true,
            };
            let make = |channel, request| async move { service(channel).list(request).await };
            let answer = self.client.caller().call(Repeat::Always, request, make).await?;
            all.extend(answer.exchanges);
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// The bindings of an exchange, by key.
    ///
    /// # Errors
    /// `EXCHANGE_NOT_FOUND`; others see [`Error`](crate::Error).
    pub async fn bindings(&self, exchange: &str) -> Result<Vec<Binding>> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = proto::ListBindingsRequest {
                exchange: exchange.to_owned(),
                page_size: PAGE_SIZE,
                page_token,
                linearizable: true,
            };
            let make = |channel, request| async move { service(channel).list_bindings(request).await };
            let answer = self.client.caller().call(Repeat::Always, request, make).await?;
            all.extend(answer.bindings.into_iter().map(Binding::from));
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }
}

impl From<Binding> for proto::Binding {
    fn from(binding: Binding) -> Self {
        Self {
            queue: binding.queue,
            binding_key: binding.binding_key,
            headers: binding.headers,
            match_all: binding.match_all,
        }
    }
}

impl From<proto::Binding> for Binding {
    fn from(wire: proto::Binding) -> Self {
        Self {
            queue: wire.queue,
            binding_key: wire.binding_key,
            headers: wire.headers,
            match_all: wire.match_all,
        }
    }
}

fn service(channel: Channel) -> ExchangeServiceClient<Channel> {
    ExchangeServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}
