//! Bodies that the binary protocol and the admin port have in common.

use std::borrow::Cow;

use serde::de::MapAccess;
use serde_json::value::RawValue;

use super::body::{Headers, Members, headers, integer, switch, text};

pub(super) const TOPIC_REQUIRED: &str = "topic is required";
pub(super) const NAME_REQUIRED: &str = "name is required";
pub(super) const BINDING_REQUIRED: &str = "exchange and queue are required";

/// PUBLISH and PUBLISH_TOPIC.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Publish<'a> {
    pub(super) topic: Cow<'a, str>,
    /// `None`: absent or `null`.
    payload: Option<&'a str>,
    pub(super) headers: Headers<'a>,
    pub(super) delay_ns: i64,
    pub(super) ttl_ns: i64,
    pub(super) priority: i64,
    /// Empty: none.
    pub(super) idempotency_key: Cow<'a, str>,
    /// Empty: none. Only for queues.
    pub(super) ordering_key: Cow<'a, str>,
}

impl<'a> Publish<'a> {
    /// The JSON text of the payload.
    pub(super) fn payload(&self) -> &'a [u8] {
        self.payload.unwrap_or("null").as_bytes()
    }
}

impl<'de> Members<'de> for Publish<'de> {
    const NAMES: &'static [&'static str] = &[
        "topic",
        "payload",
        "headers",
        "delay",
        "ttl",
        "priority",
        "idempotency_key",
        "ordering_key",
    ];

    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "topic" => self.topic = text(map)?,
            "payload" => self.payload = map.next_value::<Option<&'de RawValue>>()?.map(RawValue::get),
            "headers" => self.headers = headers(map)?,
            "delay" => self.delay_ns = integer(map)?,
            "ttl" => self.ttl_ns = integer(map)?,
            "priority" => self.priority = integer(map)?,
            "idempotency_key" => self.idempotency_key = text(map)?,
            _ => self.ordering_key = text(map)?,
        }
        Ok(())
    }
}

/// CONSUME, and the subscription to a topic that it can be.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Consume<'a> {
    pub(super) topic: Cow<'a, str>,
    /// Not empty: a subscription to a topic is meant, not a queue.
    pub(super) subscriber: Cow<'a, str>,
    pub(super) durable: bool,
}

impl<'de> Members<'de> for Consume<'de> {
    const NAMES: &'static [&'static str] = &["topic", "id", "durable"];

    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "topic" => self.topic = text(map)?,
            "id" => self.subscriber = text(map)?,
            _ => self.durable = switch(map)?,
        }
        Ok(())
    }
}

/// EXCHANGE_DECLARE.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Declare<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) kind: Cow<'a, str>,
    pub(super) durable: bool,
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
    pub(super) binding_key: Cow<'a, str>,
    pub(super) headers: Headers<'a>,
    pub(super) match_all: bool,
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
}

/// PUBLISH_EXCHANGE.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PublishExchange<'a> {
    pub(super) exchange: Cow<'a, str>,
    pub(super) routing_key: Cow<'a, str>,
    /// `None`: absent or `null`.
    payload: Option<&'a str>,
    pub(super) headers: Headers<'a>,
    pub(super) priority: i64,
    /// Empty: none.
    pub(super) idempotency_key: Cow<'a, str>,
    /// To be refused.
    pub(super) ordering_key: Cow<'a, str>,
}

impl<'de> Members<'de> for PublishExchange<'de> {
    const NAMES: &'static [&'static str] = &[
        "exchange",
        "routing_key",
        "payload",
        "headers",
        "priority",
        "idempotency_key",
        "ordering_key",
    ];

    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "exchange" => self.exchange = text(map)?,
            "routing_key" => self.routing_key = text(map)?,
            "payload" => self.payload = map.next_value::<Option<&'de RawValue>>()?.map(RawValue::get),
            "headers" => self.headers = headers(map)?,
            "priority" => self.priority = integer(map)?,
            "idempotency_key" => self.idempotency_key = text(map)?,
            _ => self.ordering_key = text(map)?,
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

    /// The JSON text of the payload.
    pub(super) fn payload(&self) -> &'a [u8] {
        self.payload.unwrap_or("null").as_bytes()
    }
}
