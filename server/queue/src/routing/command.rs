//! Commands of topics and exchanges; see [`crate::command`] for how they lie in an entry.
//!
//! ```text
//!  9 PublishTopic        u32 count, str topic, records one after the other
//! 10 Attach              u8 1: create it if it is not there, str topic, str subscription
//! 11 RemoveSubscription  u64 not if it was attached later (Unix milliseconds), str topic, str subscription
//! 12 DeclareExchange     u8 kind, u8 1: durable, str name, str alternate exchange or empty
//! 13 DeleteExchange      str name
//! 14 Bind                str exchange, str queue, str key, rule
//! 15 Unbind              str exchange, str queue, str key
//! 16 PublishExchange     str exchange, str routing key, record
//! 34 PublishTopic        as 9, and
//! 35 PublishExchange     as 16; a copy without a time to live gets the default one of its queue
//!
//! kind: 0 direct, 1 fanout, 2 topic, 3 headers     rule: u8 1: all pairs, 0: one of them; u32 count, each: str, str
//! ```

use std::fmt;
use std::str::FromStr;

use boltq_core::codec::{self, Reader};
use boltq_core::{DecodeError, Millis};
use bytes::{BufMut, BytesMut};

use super::ROUTING_KEY_BYTES_MAX;
use super::rule::HeaderRule;

const PUBLISH_TOPIC_AS_IT_IS: u8 = 9;
const ATTACH: u8 = 10;
const REMOVE_SUBSCRIPTION: u8 = 11;
const DECLARE_EXCHANGE: u8 = 12;
const DELETE_EXCHANGE: u8 = 13;
const BIND: u8 = 14;
const UNBIND: u8 = 15;
const PUBLISH_EXCHANGE_AS_IT_IS: u8 = 16;
pub(crate) const PUBLISH_TOPIC: u8 = 34;
const PUBLISH_EXCHANGE: u8 = 35;

/// How an exchange chooses queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeKind {
    /// Those whose binding key is the routing key.
    Direct,
    /// All.
    Fanout,
    /// Those whose binding key is a pattern that the routing key matches.
    Topic,
    /// Those whose rule the headers of the message match.
    Headers,
}

impl ExchangeKind {
    const ALL: [(Self, &str); 4] = [
        (Self::Direct, "direct"),
        (Self::Fanout, "fanout"),
        (Self::Topic, "topic"),
        (Self::Headers, "headers"),
    ];

    fn number(self) -> u8 {
        match self {
            Self::Direct => 0,
            Self::Fanout => 1,
            Self::Topic => 2,
            Self::Headers => 3,
        }
    }

    pub(crate) fn put(self, out: &mut BytesMut) {
        out.put_u8(self.number());
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let number = reader.u8("exchange kind")?;
        let known = Self::ALL.into_iter().find(|(kind, _)| kind.number() == number);
        known.map(|(kind, _)| kind).ok_or(DecodeError::Unknown {
            what: "exchange kind",
            value: u64::from(number),
        })
    }

    /// As clients call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        let known = Self::ALL.into_iter().find(|(kind, _)| *kind == self);
        known.map_or("", |(_, name)| name)
    }
}

impl fmt::Display for ExchangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No kind of exchange has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a kind of exchange: direct, fanout, topic and headers are")]
pub struct ParseKindError;

impl FromStr for ExchangeKind {
    type Err = ParseKindError;

    fn from_str(text: &str) -> Result<Self, ParseKindError> {
        let known = Self::ALL.into_iter().find(|(_, name)| *name == text);
        known.map(|(kind, _)| kind).ok_or(ParseKindError)
    }
}

/// Appends the command that says that somebody is attached to a durable subscription; `create`: which is created, unless
/// it exists.
pub fn attach(out: &mut BytesMut, topic: &str, subscription: &str, create: bool) {
    out.put_u8(ATTACH);
    out.put_u8(u8::from(create));
    put_str(out, topic);
    put_str(out, subscription);
}

/// Appends the command that removes a durable subscription with its backlog, unless somebody was attached to it after
/// `attached_until`.
pub fn remove_subscription(out: &mut BytesMut, topic: &str, subscription: &str, attached_until: Millis) {
    out.put_u8(REMOVE_SUBSCRIPTION);
    out.put_u64_le(attached_until.0);
    put_str(out, topic);
    put_str(out, subscription);
}

/// Appends the command that creates an exchange, unless it exists.
pub fn declare_exchange(out: &mut BytesMut, name: &str, kind: ExchangeKind, durable: bool, alternate: Option<&str>) {
    out.put_u8(DECLARE_EXCHANGE);
    kind.put(out);
    out.put_u8(u8::from(durable));
    put_str(out, name);
    put_str(out, alternate.unwrap_or_default());
}

/// Appends the command that removes an exchange with its bindings.
pub fn delete_exchange(out: &mut BytesMut, name: &str) {
    out.put_u8(DELETE_EXCHANGE);
    put_str(out, name);
}

/// Appends the command that binds a queue, which is created when it does not exist, to an exchange.
pub fn bind(out: &mut BytesMut, exchange: &str, queue: &str, key: &str, rule: &HeaderRule) {
    out.put_u8(BIND);
    put_str(out, exchange);
    put_str(out, queue);
    put_str(out, key);
    put_rule(out, rule);
}

/// Appends the command that removes all bindings of a queue with a key.
pub fn unbind(out: &mut BytesMut, exchange: &str, queue: &str, key: &str) {
    out.put_u8(UNBIND);
    put_str(out, exchange);
    put_str(out, queue);
    put_str(out, key);
}

/// Appends the head of a publish to an exchange. The caller appends exactly one record.
pub fn begin_publish_exchange(out: &mut BytesMut, exchange: &str, key: &str) {
    out.put_u8(PUBLISH_EXCHANGE);
    put_str(out, exchange);
    put_str(out, key);
}

fn put_str(out: &mut BytesMut, text: &str) {
    codec::put_bytes(out, text.as_bytes());
}

pub(crate) fn put_rule(out: &mut BytesMut, rule: &HeaderRule) {
    out.put_u8(u8::from(rule.all()));
    codec::put_len(out, rule.pairs().len());
    for (key, value) in rule.pairs() {
        put_str(out, key);
        put_str(out, value);
    }
}

pub(crate) fn read_rule(reader: &mut Reader<'_>) -> Result<HeaderRule, DecodeError> {
    let all = read_flag(reader, "header rule")?;
    let mut pairs = Vec::new();
    for _ in 0..reader.count(8, "header rule")? {
        pairs.push((reader.str("header of a rule")?, reader.str("header of a rule")?));
    }
    Ok(HeaderRule::new(all, pairs))
}

pub(crate) fn read_flag(reader: &mut Reader<'_>, what: &'static str) -> Result<bool, DecodeError> {
    match reader.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(DecodeError::Unknown {
            what,
            value: u64::from(value),
        }),
    }
}

/// A routing or binding key. Its length bounds the depth of the tree of patterns.
pub(crate) fn read_key<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let key = reader.str("routing key")?;
    if key.len() <= ROUTING_KEY_BYTES_MAX {
        return Ok(key);
    }
    Err(DecodeError::Invalid {
        what: "routing key",
        why: "it has more than 255 bytes",
    })
}

/// A routing command as it is read: its parts are slices of the entry.
#[derive(Debug, Clone)]
pub(crate) enum RoutingCommand<'a> {
    PublishTopic {
        topic: &'a str,
        count: u32,
        records: &'a [u8],
        /// Where the records start in the command.
        records_at: usize,
        times: Times,
    },
    Attach {
        topic: &'a str,
        subscription: &'a str,
        create: bool,
    },
    RemoveSubscription {
        topic: &'a str,
        subscription: &'a str,
        attached_until: Millis,
    },
    DeclareExchange {
        name: &'a str,
        kind: ExchangeKind,
        durable: bool,
        alternate: Option<&'a str>,
    },
    DeleteExchange {
        name: &'a str,
    },
    Bind {
        exchange: &'a str,
        queue: &'a str,
        key: &'a str,
        rule: HeaderRule,
    },
    Unbind {
        exchange: &'a str,
        queue: &'a str,
        key: &'a str,
    },
    PublishExchange {
        exchange: &'a str,
        key: &'a str,
        record: &'a [u8],
        record_at: usize,
        times: Times,
    },
}

/// Until when copies live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    /// As their record says.
    OfRecord,
    /// As their record says, and if it says nothing, their queue.
    OfRecordOrQueue,
}

impl<'a> RoutingCommand<'a> {
    /// Reads what follows the number of the command; `None` if it is no routing command.
    pub(crate) fn read(tag: u8, reader: &mut Reader<'a>) -> Result<Option<Self>, DecodeError> {
        Ok(Some(match tag {
            PUBLISH_TOPIC | PUBLISH_TOPIC_AS_IT_IS => Self::PublishTopic {
                count: reader.u32("record count")?,
                topic: reader.str("topic")?,
                records_at: reader.position(),
                records: reader.rest(),
                times: match tag {
                    PUBLISH_TOPIC => Times::OfRecordOrQueue,
                    _ => Times::OfRecord,
                },
            },
            ATTACH => Self::Attach {
                create: read_flag(reader, "attach")?,
                topic: reader.str("topic")?,
                subscription: reader.str("subscription")?,
            },
            REMOVE_SUBSCRIPTION => Self::RemoveSubscription {
                attached_until: Millis(reader.u64("attached until")?),
                topic: reader.str("topic")?,
                subscription: reader.str("subscription")?,
            },
            DECLARE_EXCHANGE => Self::DeclareExchange {
                kind: ExchangeKind::read(reader)?,
                durable: read_flag(reader, "durable")?,
                name: read_exchange(reader)?,
                alternate: Some(reader.str("alternate exchange")?).filter(|name| !name.is_empty()),
            },
            DELETE_EXCHANGE => Self::DeleteExchange {
                name: read_exchange(reader)?,
            },
            BIND => Self::Bind {
                exchange: read_exchange(reader)?,
                queue: reader.str("queue name")?,
                key: read_key(reader)?,
                rule: read_rule(reader)?,
            },
            UNBIND => Self::Unbind {
                exchange: read_exchange(reader)?,
                queue: reader.str("queue name")?,
                key: read_key(reader)?,
            },
            PUBLISH_EXCHANGE | PUBLISH_EXCHANGE_AS_IT_IS => Self::PublishExchange {
                exchange: reader.str("exchange")?,
                key: read_key(reader)?,
                record_at: reader.position(),
                record: reader.rest(),
                times: match tag {
                    PUBLISH_EXCHANGE => Times::OfRecordOrQueue,
                    _ => Times::OfRecord,
                },
            },
            _ => return Ok(None),
        }))
    }
}

/// The name of an exchange other than the default one.
pub(crate) fn read_exchange<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    match reader.str("exchange")? {
        "" => Err(DecodeError::Invalid {
            what: "exchange",
            why: "the default exchange cannot be changed",
        }),
        name => Ok(name),
    }
}
