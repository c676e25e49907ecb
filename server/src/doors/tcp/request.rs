//! What is asked: commands with their bodies.
//!
//! Bodies are read by `body`. The payload of a message is never looked into beyond being one JSON value: its bytes are
//! passed on as they are.

use std::borrow::Cow;

use super::bodies::{ClusterJoin, ClusterLeave, Prefetch, Settle, shown_key};
use super::command::Command;
use crate::doors::body::{Members, read};
use crate::doors::requests::{
    BINDING_REQUIRED, Bind, Consume, Declare, Delete, NAME_REQUIRED, Publish, PublishExchange, TOPIC_REQUIRED,
};

pub(super) const INVALID_JSON: &str = "invalid json";

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    }
}
