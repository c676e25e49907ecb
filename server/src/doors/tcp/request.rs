//! What is asked: commands with their bodies.
//!
//! Bodies are read by `body`. The payload of a message is never looked into beyond being one JSON value: its bytes are
//! passed on as they are.

use std::borrow::Cow;

use serde::de::MapAccess;

use super::command::Command;
use crate::doors::body::{Members, integer, read, text};
use crate::doors::requests::{
    BINDING_REQUIRED, Bind, Consume, Declare, Delete, NAME_REQUIRED, Publish, PublishExchange, TOPIC_REQUIRED,
};

const INVALID_JSON: &str = "invalid json";

/// A request whose body was read.
#[derive(Debug, PartialEq)]
pub(super) enum Request<'a> {
    Publish(Publish<'a>),
    /// From the queue of this name.
    Consume(Cow<'a, str>),
    Ack(Cow<'a, str>),
    Nack(Cow<'a, str>),
    PublishTopic(Publish<'a>),
    PublishExchange(PublishExchange<'a>),
    Single(Single<'a>),
}

/// A request that is answered by itself; the others are gathered.
#[derive(Debug, PartialEq)]
pub(super) enum Single<'a> {
    Ping,
    Stats,
    /// `None`: the body is no JSON object, which matters only where a key is wanted.
    Auth(Option<Cow<'a, str>>),
    /// `None`: no limit.
    Prefetch(Option<usize>),
    ConfirmSelect,
    /// Without clustering, what is wrong with the body does not matter.
    ClusterJoin(Result<ClusterJoin<'a>, &'static str>),
    /// With the name of the node.
    ClusterLeave(Result<Cow<'a, str>, &'static str>),
    ClusterStatus,
    Exchange(ExchangeChange<'a>),
    /// To a topic, with an id.
    Subscribe(Consume<'a>),
    /// What is wrong with it.
    Refused(Cow<'static, str>),
}

/// A change of exchanges or bindings.
#[derive(Debug, PartialEq)]
pub(super) enum ExchangeChange<'a> {
    Declare(Declare<'a>),
    Delete(Delete<'a>),
    Bind(Bind<'a>),
    Unbind(Bind<'a>),
}

impl<'a> Request<'a> {
    pub(super) fn read(command: Command, body: &'a [u8]) -> Self {
        Self::Single(match command {
            Command::Publish => return Self::publish(body, Self::Publish),
            Command::PublishTopic => return Self::publish(body, Self::PublishTopic),
            Command::Consume => return Self::consume(body),
            Command::Ack => return Self::settle(body, Self::Ack),
            Command::Nack => return Self::settle(body, Self::Nack),
            Command::Ping => Single::Ping,
            Command::Stats => Single::Stats,
            Command::Auth => Single::Auth(shown_key(body)),
            Command::Prefetch => Single::prefetch(body),
            Command::ConfirmSelect => Single::ConfirmSelect,
            Command::ClusterJoin => Single::ClusterJoin(ClusterJoin::of(body)),
            Command::ClusterLeave => Single::ClusterLeave(ClusterLeave::of(body)),
            Command::ClusterStatus => Single::ClusterStatus,
            Command::ExchangeDeclare => {
                return Self::exchange(
                    body,
                    NAME_REQUIRED,
                    |it: &Declare<'_>| !it.name.is_empty(),
                    ExchangeChange::Declare,
                );
            }
            Command::ExchangeDelete => {
                return Self::exchange(
                    body,
                    NAME_REQUIRED,
                    |it: &Delete<'_>| !it.name.is_empty(),
                    ExchangeChange::Delete,
                );
            }
            Command::BindQueue => {
                return Self::exchange(body, BINDING_REQUIRED, Bind::is_complete, ExchangeChange::Bind);
            }
            Command::UnbindQueue => {
                return Self::exchange(body, BINDING_REQUIRED, Bind::is_complete, ExchangeChange::Unbind);
            }
            Command::PublishExchange => {
                return match read(body) {
                    Ok(publish) => Self::PublishExchange(publish),
                    Err(error) => Self::refused(format!("invalid json: {error}")),
                };
            }
            Command::Unknown(code) => Single::Refused(format!("unknown command: 0x{code:02x}").into()),
        })
    }

    fn publish(body: &'a [u8], to: impl FnOnce(Publish<'a>) -> Self) -> Self {
        match read::<Publish<'_>>(body) {
            Ok(publish) if publish.topic.is_empty() => Self::refused(TOPIC_REQUIRED),
            Ok(publish) => to(publish),
            Err(error) => Self::refused(format!("invalid json: {error}")),
        }
    }

    fn consume(body: &'a [u8]) -> Self {
        match read::<Consume<'_>>(body) {
            Ok(consume) if consume.topic.is_empty() => Self::refused(TOPIC_REQUIRED),
            Ok(consume) if consume.subscriber.is_empty() => Self::Consume(consume.topic),
            Ok(subscribe) => Self::Single(Single::Subscribe(subscribe)),
            Err(error) => Self::refused(format!("invalid json: {error}")),
        }
    }

    fn exchange<M: Members<'a>>(
        body: &'a [u8],
        required: &'static str,
        is_complete: impl FnOnce(&M) -> bool,
        change: impl FnOnce(M) -> ExchangeChange<'a>,
    ) -> Self {
        match read::<M>(body) {
            Ok(members) if is_complete(&members) => Self::Single(Single::Exchange(change(members))),
            Ok(_) => Self::refused(required),
            Err(error) => Self::refused(format!("invalid json: {error}")),
        }
    }

    /// Unlike the others, these two have always answered without a detail.
    fn settle(body: &'a [u8], how: impl FnOnce(Cow<'a, str>) -> Self) -> Self {
        match read::<Settle<'_>>(body) {
            Ok(settle) if settle.id.is_empty() => Self::refused("id is required"),
            Ok(settle) => how(settle.id),
            Err(_) => Self::refused(INVALID_JSON),
        }
    }

    pub(super) fn refused(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Single(Single::Refused(text.into()))
    }
}

impl Single<'_> {
    fn prefetch(body: &[u8]) -> Self {
        match read::<Prefetch>(body) {
            Ok(Prefetch { count }) => Self::Prefetch(usize::try_from(count).ok().filter(|count| *count > 0)),
            Err(_) => Self::Refused("invalid prefetch payload".into()),
        }
    }
}

/// ACK and NACK.
#[derive(Default)]
struct Settle<'a> {
    id: Cow<'a, str>,
}

impl<'de> Members<'de> for Settle<'de> {
    const NAMES: &'static [&'static str] = &["id"];

    fn set<A: MapAccess<'de>>(&mut self, _: &str, map: &mut A) -> Result<(), A::Error> {
        self.id = text(map)?;
        Ok(())
    }
}

/// AUTH.
#[derive(Default)]
struct Auth<'a> {
    api_key: Cow<'a, str>,
}

impl<'de> Members<'de> for Auth<'de> {
    const NAMES: &'static [&'static str] = &["api_key"];

    fn set<A: MapAccess<'de>>(&mut self, _: &str, map: &mut A) -> Result<(), A::Error> {
        self.api_key = text(map)?;
        Ok(())
    }
}

/// What the body of an AUTH shows. `None`: it is no JSON object.
pub(super) fn shown_key(body: &[u8]) -> Option<Cow<'_, str>> {
    read::<Auth<'_>>(body).ok().map(|auth| auth.api_key)
}

/// CLUSTER_JOIN: a node that is to vote.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterJoin<'a> {
    pub(super) node_id: Cow<'a, str>,
    pub(super) addr: Cow<'a, str>,
}

impl<'a> ClusterJoin<'a> {
    fn of(body: &'a [u8]) -> Result<Self, &'static str> {
        match read::<Self>(body) {
            Ok(join) if join.node_id.is_empty() || join.addr.is_empty() => Err("node_id and addr are required"),
            Ok(join) => Ok(join),
            Err(_) => Err(INVALID_JSON),
        }
    }
}

impl<'de> Members<'de> for ClusterJoin<'de> {
    const NAMES: &'static [&'static str] = &["node_id", "addr"];

    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "node_id" => self.node_id = text(map)?,
            _ => self.addr = text(map)?,
        }
        Ok(())
    }
}

/// CLUSTER_LEAVE.
#[derive(Default)]
struct ClusterLeave<'a> {
    node_id: Cow<'a, str>,
}

impl<'a> ClusterLeave<'a> {
    fn of(body: &'a [u8]) -> Result<Cow<'a, str>, &'static str> {
        match read::<Self>(body) {
            Ok(leave) if leave.node_id.is_empty() => Err("node_id is required"),
            Ok(leave) => Ok(leave.node_id),
            Err(_) => Err(INVALID_JSON),
        }
    }
}

impl<'de> Members<'de> for ClusterLeave<'de> {
    const NAMES: &'static [&'static str] = &["node_id"];

    fn set<A: MapAccess<'de>>(&mut self, _: &str, map: &mut A) -> Result<(), A::Error> {
        self.node_id = text(map)?;
        Ok(())
    }
}

/// PREFETCH.
#[derive(Default)]
struct Prefetch {
    count: i64,
}

impl<'de> Members<'de> for Prefetch {
    const NAMES: &'static [&'static str] = &["count"];

    fn set<A: MapAccess<'de>>(&mut self, _: &str, map: &mut A) -> Result<(), A::Error> {
        self.count = integer(map)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::body::InvalidBody;
    use proptest::prelude::*;

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

    fn read_request(code: u8, body: &str) -> Request<'_> {
        Request::read(Command::of(code), body.as_bytes())
    }

    #[test]
    fn every_command_has_its_request() {
        for (code, body, wanted) in [
            (0x06, "not JSON", Single::Ping),
            (0x07, "", Single::Stats),
            (0x08, r#"{"api_key":"k"}"#, Single::Auth(Some("k".into()))),
            (0x08, "{}", Single::Auth(Some("".into()))),
            (0x08, "not JSON", Single::Auth(None)),
            (0x09, r#"{"count":3}"#, Single::Prefetch(Some(3))),
            (0x09, r#"{"count":0}"#, Single::Prefetch(None)),
            (0x09, r#"{"count":-5}"#, Single::Prefetch(None)),
            (0x09, "{}", Single::Prefetch(None)),
            (0x12, "", Single::ClusterStatus),
            (0x13, "", Single::ConfirmSelect),
            (
                0x03,
                r#"{"topic":"t","id":"s","durable":true}"#,
                Single::Subscribe(Consume {
                    topic: "t".into(),
                    subscriber: "s".into(),
                    durable: true,
                }),
            ),
        ] {
            assert_eq!(read_request(code, body), Request::Single(wanted), "{code:#x} {body}");
        }
        for (code, body, wanted) in [
            (0x03, r#"{"topic":"q","durable":true}"#, Request::Consume("q".into())),
            (0x03, r#"{"topic":"q","id":""}"#, Request::Consume("q".into())),
            (0x04, r#"{"id":"5f"}"#, Request::Ack("5f".into())),
            (0x05, r#"{"ID":"5f"}"#, Request::Nack("5f".into())),
        ] {
            assert_eq!(read_request(code, body), wanted, "{code:#x} {body}");
        }
    }

    #[test]
    fn every_refusal_has_its_text() {
        for (code, body, text) in [
            (0x01, "", "invalid json: EOF while parsing a value at line 1 column 0"),
            (0x01, r#"{"payload":1}"#, "topic is required"),
            (0x01, r#"{"topic":""}"#, "topic is required"),
            (0x03, "{}", "topic is required"),
            (0x03, "x", "invalid json: expected value at line 1 column 1"),
            (0x04, "x", "invalid json"),
            (0x04, "{}", "id is required"),
            (0x05, r#"{"id":5}"#, "invalid json"),
            (0x05, r#"{"id":null}"#, "id is required"),
            (0x09, "", "invalid prefetch payload"),
            (0x09, r#"{"count":"3"}"#, "invalid prefetch payload"),
            (0x02, "{}", "topic is required"),
            (0x14, "{}", "name is required"),
            (0x14, "x", "invalid json: expected value at line 1 column 1"),
            (0x15, r#"{"name":""}"#, "name is required"),
            (0x16, r#"{"exchange":"e"}"#, "exchange and queue are required"),
            (0x17, r#"{"queue":"q"}"#, "exchange and queue are required"),
            (0x18, "", "invalid json: EOF while parsing a value at line 1 column 0"),
            (0x00, "", "unknown command: 0x00"),
            (0x0a, "", "unknown command: 0x0a"),
            (0x19, "", "unknown command: 0x19"),
            (0xff, "{}", "unknown command: 0xff"),
        ] {
            assert_eq!(read_request(code, body), Request::refused(text), "{code:#x} {body}");
        }
    }

    #[test]
    fn changes_of_the_cluster_name_a_node() {
        let join = |body| match read_request(0x10, body) {
            Request::Single(Single::ClusterJoin(join)) => join.map(|join| (join.node_id, join.addr)),
            other => panic!("{other:?}"),
        };
        let both = r#"{"node_id":"n4","addr":"10.0.0.4:9100","x":1}"#;
        assert_eq!(join(both), Ok(("n4".into(), "10.0.0.4:9100".into())));
        for body in [
            "{}",
            r#"{"node_id":"n4"}"#,
            r#"{"addr":"a:1"}"#,
            r#"{"node_id":"n4","addr":""}"#,
        ] {
            assert_eq!(join(body), Err("node_id and addr are required"), "{body}");
        }
        for body in ["", "x", "[]", r#"{"node_id":4,"addr":"a:1"}"#] {
            assert_eq!(join(body), Err("invalid json"), "{body}");
        }
        for (body, wanted) in [
            (r#"{"Node_Id":"n4"}"#, Ok("n4".into())),
            ("{}", Err("node_id is required")),
            ("", Err("invalid json")),
        ] {
            let wanted = Request::Single(Single::ClusterLeave(wanted));
            assert_eq!(read_request(0x11, body), wanted, "{body}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(code: u8, body: Vec<u8>) {
            let _ = Request::read(Command::of(code), &body);
        }

        #[test]
        fn any_damage_to_a_body_is_read_or_refused(at in 0usize..100, byte: u8, end in 0usize..100) {
            let body = concat!(
                r#"{"topic":"q","payload":{"a":[1,2.5e3,"\u00e9"]},"#,
                r#""headers":{"k":"v"},"delay":1,"ttl":2,"priority":3}"#,
            );
            let mut body = body.as_bytes()[..end.min(body.len())].to_vec();
            if let Some(place) = body.get_mut(at) {
                *place = byte;
            }
            let _ = Request::read(Command::Publish, &body);
        }

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
