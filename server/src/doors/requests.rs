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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::doors::body::{InvalidBody, read};

    fn publish(body: &str) -> Result<Publish<'_>, InvalidBody> {
        read(body.as_bytes())
    }

    #[test]
    fn the_example_of_the_protocol_is_read() {
        let body = r#"{"topic":"thumbnails","payload":{"image":981,"sizes":[64,256]},"headers":{"tenant":"acme"},
            "delay":1500000000,"ttl":60000000000,"priority":4}"#;
        let read = publish(body).unwrap();
        assert_eq!(read.topic, "thumbnails");
        assert_eq!(read.payload(), br#"{"image":981,"sizes":[64,256]}"#);
        assert_eq!(read.headers, [("tenant".into(), "acme".into())]);
        assert_eq!(
            (read.delay_ns, read.ttl_ns, read.priority),
            (1_500_000_000, 60_000_000_000, 4)
        );
    }

    #[test]
    fn payload_bytes_are_kept_as_they_are() {
        for payload in [
            "1.0",
            "123456789012345678901234567890",
            r#"{"b":1, "a":  [ ]}"#,
            r#""< > & \u2028 \ud800 é""#,
            "[[[[]]]]",
            "false",
            r#""""#,
        ] {
            let body = format!(r#"{{"topic":"q","payload":  {payload} }}"#);
            assert_eq!(publish(&body).unwrap().payload(), payload.as_bytes(), "{payload}");
        }
    }

    #[test]
    fn null_is_the_same_as_leaving_out() {
        let nulls = r#"{"topic":null,"payload":null,"headers":null,"delay":null,"ttl":null,"priority":null}"#;
        assert_eq!(publish(nulls).unwrap(), Publish::default());
        assert_eq!(publish("{}").unwrap(), Publish::default());
        assert_eq!(publish("{}").unwrap().payload(), b"null");
    }

    #[test]
    fn names_match_in_any_case_and_unknown_ones_are_skipped() {
        let read = publish(r#"{"Topic":"q","PAYLOAD":1,"x":{"topic":[{}]},"\u0074tl":5}"#).unwrap();
        assert_eq!((&*read.topic, read.payload(), read.ttl_ns), ("q", &b"1"[..], 5));
    }

    #[test]
    fn of_a_name_given_twice_the_last_counts() {
        let read = publish(r#"{"topic":"a","topic":"b","headers":{"k":"1","j":"x","k":"2"}}"#).unwrap();
        assert_eq!(read.topic, "b");
        assert_eq!(read.headers, [("j".into(), "x".into()), ("k".into(), "2".into())]);
    }

    #[test]
    fn text_with_escapes_is_unescaped() {
        let read = publish(r#"{"topic":"a\"\n\u00e9","headers":{"a\tb":"c\\d"}}"#).unwrap();
        assert_eq!(read.topic, "a\"\né");
        assert_eq!(read.headers, [("a\tb".into(), "c\\d".into())]);
    }

    #[test]
    fn a_wrong_type_makes_the_body_invalid() {
        for body in [
            "",
            " ",
            "null",
            "[]",
            "1",
            r#""x""#,
            "{",
            r#"{"topic":"q"} x"#,
            r#"{"topic":"q"}{}"#,
            r#"{"topic":1}"#,
            r#"{"topic":["q"]}"#,
            r#"{"delay":"1"}"#,
            r#"{"delay":1.5}"#,
            r#"{"delay":1e3}"#,
            r#"{"delay":9223372036854775808}"#,
            r#"{"priority":true}"#,
            r#"{"headers":[]}"#,
            r#"{"headers":{"a":1}}"#,
            r#"{"headers":{"a":null}}"#,
            r#"{"payload":}"#,
            r#"{"payload":nul}"#,
            r#"{"payload":01}"#,
            r#"{"topic":"a\ud800"}"#,
        ] {
            assert!(publish(body).is_err(), "{body}");
        }
        assert!(read::<Publish<'_>>(b"{\"topic\":\"\xff\"}").is_err());
        assert!(read::<Publish<'_>>(b"{\"payload\":\"\xff\"}").is_err());
        assert!(publish("{\"topic\":\"q\"} \n\t\r").is_ok());
    }

    #[test]
    fn integers_go_to_their_bounds() {
        let read = publish(r#"{"delay":9223372036854775807,"ttl":-9223372036854775808,"priority":-1}"#).unwrap();
        assert_eq!((read.delay_ns, read.ttl_ns, read.priority), (i64::MAX, i64::MIN, -1));
        assert_eq!(publish(r#"{"priority":-0}"#).unwrap().priority, 0);
        assert!(publish(r#"{"priority":0.0}"#).is_err());
    }

    #[test]
    fn errors_do_not_repeat_what_was_sent() {
        let body = format!(r#"{{"delay":"{}"}}"#, "é".repeat(1_000_000));
        let error = publish(&body).unwrap_err().to_string();
        assert!(error.len() < 300, "{}", error.len());
        assert!(error.ends_with('…'), "{error}");
    }

    #[test]
    fn a_body_full_of_headers_is_refused_early() {
        let headers: Vec<_> = (0..=4_096).map(|n| format!(r#""{n}":"""#)).collect();
        let body = format!(r#"{{"headers":{{{}}}}}"#, headers.join(","));
        let error = publish(&body).unwrap_err().to_string();
        assert!(error.starts_with("more than 4096 headers"), "{error}");
    }

    #[test]
    fn deep_nesting_is_read_without_recursion() {
        let depth = 1_000_000;
        let body = format!(r#"{{"payload":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        assert_eq!(publish(&body).unwrap().payload().len(), 2 * depth);
        assert!(publish(&format!(r#"{{"x":{}}}"#, "[".repeat(depth))).is_err());
    }

    proptest! {
        #[test]
        fn any_text_comes_back(topic: String, headers: std::collections::BTreeMap<String, String>, delay: i64) {
            let body = serde_json::json!({"topic": topic, "headers": headers, "delay": delay}).to_string();
            let read = publish(&body).unwrap();
            prop_assert_eq!(&*read.topic, topic);
            prop_assert_eq!(read.delay_ns, delay);
            let pairs: Vec<_> = headers.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
            prop_assert_eq!(read.headers, pairs);
        }
    }
}
