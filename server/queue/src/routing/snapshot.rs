//! Topics and exchanges as bytes: the end of a snapshot of format 2.
//!
//! ```text
//! u32 number of topics; each, in the byte order of their names:
//!     str name
//!     u32 number of subscriptions, at least 1; each, in the byte order of their ids:
//!         str id, u32 queue, u64 last attached (Unix milliseconds)
//! u32 number of exchanges; each, in the byte order of their names:
//!     str name, u8 kind, u8 durable, str alternate exchange or empty
//!     u32 number of bindings; each, in the order of key, queue and rule:
//!         str key, u32 queue, rule (see the commands)
//! ```

use boltq_core::codec::{self, Reader};
use boltq_core::{DecodeError, Millis};
use bytes::{BufMut, BytesMut};

use super::command::{ExchangeKind, put_rule, read_exchange, read_flag, read_key, read_rule};
use super::rule::HeaderRule;
use super::topics::backlog_queue;
use crate::machine::Machine;
use crate::place::QueueId;
use crate::snapshot::check;

pub(crate) fn write(machine: &Machine, out: &mut BytesMut) {
    let topics = machine.routing.topics.iter();
    codec::put_len(out, topics.len());
    for (name, subscriptions) in topics {
        codec::put_bytes(out, name.as_bytes());
        codec::put_len(out, subscriptions.len());
        for (id, subscription) in subscriptions {
            codec::put_bytes(out, id.as_bytes());
            out.put_u32_le(subscription.queue.0);
            out.put_u64_le(subscription.attached.0);
        }
    }
    let exchanges = machine.routing.exchanges.iter();
    codec::put_len(out, exchanges.len());
    for (name, exchange) in exchanges {
        codec::put_bytes(out, name.as_bytes());
        exchange.kind().put(out);
        out.put_u8(u8::from(exchange.is_durable()));
        codec::put_bytes(out, exchange.alternate().unwrap_or_default().as_bytes());
        codec::put_len(out, exchange.binding_count());
        for (key, queue, rule) in exchange.bindings() {
            codec::put_bytes(out, key.as_bytes());
            out.put_u32_le(queue.0);
            put_rule(out, rule);
        }
    }
}

/// Reads into a machine that has its queues.
pub(crate) fn read(machine: &mut Machine, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let mut before = None;
    for _ in 0..reader.count(24, "topics")? {
        let topic = reader.str("topic")?;
        check(before < Some(topic), "topics", "they are not in order")?;
        before = Some(topic);
        read_subscriptions(machine, topic, reader)?;
    }
    for _ in 0..reader.count(14, "exchanges")? {
        read_one_exchange(machine, reader)?;
    }
    Ok(())
}

fn read_subscriptions(machine: &mut Machine, topic: &str, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let count = reader.count(16, "subscriptions")?;
    check(count > 0, "subscriptions", "a topic has none")?;
    let mut before = None;
    for _ in 0..count {
        let id = reader.str("subscription")?;
        check(before < Some(id), "subscriptions", "they are not in order")?;
        before = Some(id);
        let queue = QueueId(reader.u32("backlog")?);
        let name = machine.queue_name(queue);
        check(
            name == Some(&backlog_queue(topic, id)),
            "backlog",
            "it is not the queue of its subscription",
        )?;
        let other = machine.routing.topics.check_backlog(topic, id, queue);
        check(other.is_ok(), "backlog", "two subscriptions have it")?;
        let attached = Millis(reader.u64("last attached")?);
        machine.routing.topics.attach(topic, id, queue, attached);
    }
    Ok(())
}

fn read_one_exchange(machine: &mut Machine, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let name = read_exchange(reader)?;
    let before = machine.routing.exchanges.last_name();
    check(before < Some(name), "exchanges", "they are not in order")?;
    let kind = ExchangeKind::read(reader)?;
    let durable = read_flag(reader, "durable")?;
    let alternate = Some(reader.str("alternate exchange")?).filter(|name| !name.is_empty());
    let declared = machine.routing.exchanges.declare(name, kind, durable, alternate);
    check(declared == Ok(true), "exchanges", "two have the same name")?;
    let mut before = None;
    for _ in 0..reader.count(13, "bindings")? {
        let key = read_key(reader)?;
        let queue = QueueId(reader.u32("bound queue")?);
        let rule = read_rule_as_written(reader)?;
        let known = machine.queue_name(queue).is_some();
        let may_have_it = kind == ExchangeKind::Headers || rule == HeaderRule::default();
        check(
            may_have_it,
            "bindings",
            "one has a rule that its exchange does not know",
        )?;
        check(known, "bindings", "one is to a queue that does not exist")?;
        let this = (key, queue, rule.clone());
        let in_order = before.as_ref().is_none_or(|before| *before < this);
        check(in_order, "bindings", "they are not in order")?;
        before = Some(this);
        let exchange = machine.routing.exchanges.get_mut(name);
        let new = exchange.is_some_and(|exchange| exchange.bind(key, queue, rule));
        check(new, "bindings", "one is there twice")?;
    }
    Ok(())
}

/// A rule in its one form.
fn read_rule_as_written(reader: &mut Reader<'_>) -> Result<HeaderRule, DecodeError> {
    let mut again = reader.clone();
    let rule = read_rule(reader)?;
    let read = again.take(reader.position() - again.position(), "header rule")?;
    let mut written = BytesMut::new();
    put_rule(&mut written, &rule);
    check(
        read == &written[..],
        "header rule",
        "its headers are not in order, or there twice",
    )?;
    Ok(rule)
}
