//! Requests about exchanges, as the binary protocol and the admin port spell them.

use std::borrow::Cow;

use serde::de::MapAccess;
use serde_json::value::RawValue;

use super::body::{Headers, Members, headers, integer, switch, text};
use crate::service::{
    ExchangeKind, HeaderRule, NewBinding, NewExchange, NewMessage, Queues, RoutedBatch, ServiceError,
};

pub(super) const NAME_REQUIRED: &str = "name is required";
pub(super) const BINDING_REQUIRED: &str = "exchange and queue are required";

/// EXCHANGE_DECLARE.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Declare<'a> {
    pub(super) name: Cow<'a, str>,
    kind: Cow<'a, str>,
    durable: bool,
}

impl<'de> Members<'de> for Declare<'de> {
    const NAMES: &'static [&'static str] = &["name", "type", "durable"];

    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "name" => self.name = text(map)?,
            "type" => self.kind = text(map)?,
            _ => self.durable = switch(map)?,
        }
        Ok(())
    }
}

impl Declare<'_> {
    pub(super) async fn carry_out(&self, queues: &Queues) -> Result<(), ServiceError> {
        let kind = match &*self.kind {
            "" => ExchangeKind::Direct,
            kind => kind.parse().map_err(|_| ServiceError::UnknownExchangeType {
                kind: super::body::shortened(kind, 100).into_owned(),
            })?,
        };
        let new = NewExchange {
            name: &self.name,
            kind,
            durable: self.durable,
            alternate: "",
        };
        queues.declare_exchange(new).await.map(drop)
    }
}

/// EXCHANGE_DELETE.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Delete<'a> {
    pub(super) name: Cow<'a, str>,
}

impl<'de> Members<'de> for Delete<'de> {
    const NAMES: &'static [&'static str] = &["name"];

    fn set<A: MapAccess<'de>>(&mut self, _: &str, map: &mut A) -> Result<(), A::Error> {
        self.name = text(map)?;
        Ok(())
    }
}

/// BIND_QUEUE and UNBIND_QUEUE.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Bind<'a> {
    pub(super) exchange: Cow<'a, str>,
    pub(super) queue: Cow<'a, str>,
    binding_key: Cow<'a, str>,
    headers: Headers<'a>,
    match_all: bool,
}

impl<'de> Members<'de> for Bind<'de> {
    const NAMES: &'static [&'static str] = &["exchange", "queue", "binding_key", "headers", "match_all"];

    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "exchange" => self.exchange = text(map)?,
            "queue" => self.queue = text(map)?,
            "binding_key" => self.binding_key = text(map)?,
            "headers" => self.headers = headers(map)?,
            _ => self.match_all = switch(map)?,
        }
        Ok(())
    }
}

impl Bind<'_> {
    pub(super) fn is_complete(&self) -> bool {
        !self.exchange.is_empty() && !self.queue.is_empty()
    }

    pub(super) async fn carry_out(&self, queues: &Queues) -> Result<(), ServiceError> {
        let pairs = self.headers.iter().map(|(key, value)| (&**key, &**value));
        let new = NewBinding {
            exchange: &self.exchange,
            queue: &self.queue,
            key: &self.binding_key,
            rule: &HeaderRule::new(self.match_all, pairs),
        };
        queues.bind(new).await.map(drop)
    }

    /// Unbinds, for which headers do not matter.
    pub(super) async fn undo(&self, queues: &Queues) -> Result<(), ServiceError> {
        let removed = queues.unbind(&self.exchange, &self.queue, &self.binding_key);
        removed.await.map(drop)
    }
}

/// PUBLISH_EXCHANGE.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PublishExchange<'a> {
    exchange: Cow<'a, str>,
    routing_key: Cow<'a, str>,
    /// `None`: absent or `null`.
    payload: Option<&'a str>,
    headers: Headers<'a>,
    priority: i64,
}

impl<'de> Members<'de> for PublishExchange<'de> {
    const NAMES: &'static [&'static str] = &["exchange", "routing_key", "payload", "headers", "priority"];

    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "exchange" => self.exchange = text(map)?,
            "routing_key" => self.routing_key = text(map)?,
            "payload" => self.payload = map.next_value::<Option<&'de RawValue>>()?.map(RawValue::get),
            "headers" => self.headers = headers(map)?,
            _ => self.priority = integer(map)?,
        }
        Ok(())
    }
}

impl<'a> PublishExchange<'a> {
    /// What the reply calls the topic: the queue, if the default exchange is asked.
    pub(super) fn reply_topic(&self) -> Cow<'a, str> {
        if self.exchange.is_empty() {
            self.routing_key.clone()
        } else {
            "".into()
        }
    }

    pub(super) fn push(&self, batch: &mut RoutedBatch) -> Result<(), ServiceError> {
        let message = NewMessage {
            payload: self.payload.unwrap_or("null").as_bytes(),
            json: true,
            priority: self.priority,
            delay_ns: 0,
            ttl_ns: 0,
        };
        let headers = self.headers.iter().map(|(key, value)| (&**key, &**value));
        batch.push_exchange(&self.exchange, &self.routing_key, &message, headers)
    }
}
