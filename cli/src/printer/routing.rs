//! Topics and exchanges, with the names of `boltq.topic.v1` and `boltq.exchange.v1`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use boltq_proto::{exchange::v1 as exchange, topic::v1 as topic};
use serde::Serialize;

use super::amounts::count;
use super::layout::columns;
use super::plain::printable;
use super::{Delivered, Id, Payload, Show, json};
use crate::error::CliError;

/// A message went to a topic.
#[derive(Debug, Serialize)]
pub(crate) struct PublishedTopic<'a> {
    pub(crate) topic: &'a str,
    pub(crate) message_id: Id,
    pub(crate) durable_subscriptions: u64,
}

/// A message went to an exchange.
#[derive(Debug, Serialize)]
pub(crate) struct Routed<'a> {
    pub(crate) exchange: &'a str,
    pub(crate) message_id: Id,
    pub(crate) routed: u64,
}

/// Something was changed, as the fields say.
#[derive(Debug, Serialize)]
pub(crate) struct Changed {
    /// For people: the whole sentence.
    #[serde(skip)]
    pub(crate) text: String,
    #[serde(flatten)]
    pub(crate) fields: BTreeMap<&'static str, serde_json::Value>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Topic {
    name: String,
    durable_subscriptions: u32,
    subscribers: u32,
}

#[derive(Debug, Serialize)]
pub(crate) struct Subscription {
    subscription: String,
    queue: String,
    backlog: u64,
    last_attached_at: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Exchange {
    name: String,
    r#type: String,
    durable: bool,
    alternate_exchange: String,
    bindings: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Binding {
    queue: String,
    binding_key: String,
    headers: BTreeMap<String, String>,
    match_all: bool,
}

impl Delivered {
    /// A message of a topic, which nobody has to settle.
    pub(crate) fn pushed(message: topic::TopicMessage) -> Result<Self, CliError> {
        Ok(Self {
            delivery_token: None,
            message_id: Id::read(&message.message_id)?,
            attempts: 0,
            priority: message.priority,
            published_at: message.published_at.unwrap_or_default().to_string(),
            expires_at: None,
            deliver_at: None,
            payload: Payload {
                bytes: message.payload,
                is_json: message.content_type == "application/json",
            },
            content_type: message.content_type,
            ordering_key: String::new(),
            headers: message.headers,
        })
    }
}

impl From<topic::Topic> for Topic {
    fn from(topic: topic::Topic) -> Self {
        Self {
            name: topic.name,
            durable_subscriptions: topic.durable_subscriptions,
            subscribers: topic.subscribers,
        }
    }
}

impl From<topic::Subscription> for Subscription {
    fn from(subscription: topic::Subscription) -> Self {
        Self {
            subscription: subscription.subscription,
            queue: subscription.queue,
            backlog: subscription.backlog,
            last_attached_at: subscription.last_attached_at.unwrap_or_default().to_string(),
        }
    }
}

impl From<exchange::Exchange> for Exchange {
    fn from(exchange: exchange::Exchange) -> Self {
        let kind = exchange.r#type().as_str_name();
        let kind = kind.strip_prefix("EXCHANGE_TYPE_").unwrap_or(kind).to_ascii_lowercase();
        Self {
            name: exchange.name,
            r#type: kind,
            durable: exchange.durable,
            alternate_exchange: exchange.alternate_exchange,
            bindings: exchange.bindings,
        }
    }
}

impl From<exchange::Binding> for Binding {
    fn from(binding: exchange::Binding) -> Self {
        Self {
            queue: binding.queue,
            binding_key: binding.binding_key,
            headers: binding.headers,
            match_all: binding.match_all,
        }
    }
}

/// Many of a kind: a table with one row each, or one object each.
#[derive(Debug)]
pub(crate) struct Rows<T>(pub(crate) Vec<T>);

/// A row of a table.
pub(crate) trait Row<const N: usize>: Serialize {
    const HEADER: [&'static str; N];

    fn cells(&self) -> [String; N];
}

impl Row<3> for Topic {
    const HEADER: [&'static str; 3] = ["TOPIC", "DURABLE", "SUBSCRIBERS"];

    fn cells(&self) -> [String; 3] {
        [
            self.name.clone(),
            self.durable_subscriptions.to_string(),
            self.subscribers.to_string(),
        ]
    }
}

impl Row<4> for Subscription {
    const HEADER: [&'static str; 4] = ["SUBSCRIPTION", "QUEUE", "BACKLOG", "LAST ATTACHED"];

    fn cells(&self) -> [String; 4] {
        let Self {
            subscription,
            queue,
            backlog,
            last_attached_at,
        } = self;
        [
            subscription.clone(),
            queue.clone(),
            backlog.to_string(),
            last_attached_at.clone(),
        ]
    }
}

impl Row<4> for Exchange {
    const HEADER: [&'static str; 4] = ["EXCHANGE", "TYPE", "ALTERNATE", "BINDINGS"];

    fn cells(&self) -> [String; 4] {
        let Self {
            name,
            r#type,
            alternate_exchange,
            bindings,
            ..
        } = self;
        [
            name.clone(),
            r#type.clone(),
            alternate_exchange.clone(),
            bindings.to_string(),
        ]
    }
}

impl Row<3> for Binding {
    const HEADER: [&'static str; 3] = ["QUEUE", "KEY", "HEADERS"];

    fn cells(&self) -> [String; 3] {
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let between = if self.match_all { " and " } else { " or " };
        [self.queue.clone(), self.binding_key.clone(), headers.join(between)]
    }
}

impl<T> Rows<T> {
    pub(crate) fn show<const N: usize>(&self) -> Table<'_, T, N> {
        Table(&self.0)
    }
}

/// Rows with a number of columns.
#[derive(Debug)]
pub(crate) struct Table<'a, T, const N: usize>(&'a [T]);

impl<T: Row<N>, const N: usize> Show for Table<'_, T, N> {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let rows: Vec<_> = self.0.iter().map(Row::cells).collect();
        columns(T::HEADER, &rows, out)
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        self.0.iter().try_for_each(|row| json::line(row, out))
    }
}

impl Show for PublishedTopic<'_> {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.message_id.0)
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        json::line(self, out)
    }
}

impl Show for Routed<'_> {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{} to {}", self.message_id.0, count(self.routed, "queue"))
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        json::line(self, out)
    }
}

impl Show for Changed {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", printable(&self.text))
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        json::line(self, out)
    }
}
