//! Publishes to topics and exchanges that may be repeated, see [`crate::once`].
//!
//! ```text
//! 33 RouteOnce  u64 until (Unix milliseconds), str key, then a command: a publish to a topic or an exchange, 34 or 35, of one
//!               record, which has an origin
//! ```
//!
//! A publish is remembered if somebody may have the message: a queue, or whoever listens to the topic. One that matched nothing, or
//! for which no queue had room, is as if it had not been; so it can be repeated when there is a binding, or room.

use std::sync::Arc;

use boltq_core::codec::{self, Reader};
use boltq_core::{Applied, DecodeError, MessageId, Millis, record_origin};
use bytes::{BufMut, BytesMut};

use super::command::{RoutingCommand, Times, begin_publish_exchange};
use crate::command::{PublishWriter, read_key};
use crate::machine::Machine;
use crate::once::{Destination, FirstRouted};
use crate::outcome::{Effect, Outcome};
use crate::publishing::offset_of;

pub(crate) const ROUTE_ONCE: u8 = 33;
const WHAT: &str = "publish with a key";

/// Appends the head of a publish to a topic that stores nothing if one with this key is remembered. If not, this one is, until
/// that time. The caller appends exactly one record, which has an origin.
pub fn begin_publish_topic_once(out: &mut BytesMut, until: Millis, topic: &str, key: &str) {
    begin(out, until, key);
    PublishWriter::begin_topic(out, topic).finish(out, 1);
}

/// As [`begin_publish_topic_once`], for an exchange.
pub fn begin_publish_exchange_once(out: &mut BytesMut, until: Millis, exchange: &str, routing_key: &str, key: &str) {
    begin(out, until, key);
    begin_publish_exchange(out, exchange, routing_key);
}

fn begin(out: &mut BytesMut, until: Millis, key: &str) {
    out.put_u8(ROUTE_ONCE);
    out.put_u64_le(until.0);
    codec::put_bytes(out, key.as_bytes());
}

/// Such a publish as it is read.
#[derive(Debug, Clone)]
pub(crate) struct RouteOnce<'a> {
    until: Millis,
    key: &'a str,
    destination: Destination,
    /// Of the publish, if it is the first.
    id: MessageId,
    publish: RoutingCommand<'a>,
    /// Where in the command it starts.
    publish_at: usize,
}

impl<'a> RouteOnce<'a> {
    /// Reads what follows the number of the command.
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let until = Millis(reader.u64("end of a key")?);
        let key = read_key(reader)?;
        let publish_at = reader.position();
        let mut inner = Reader::new(reader.rest());
        let tag = inner.u8("command")?;
        let other = || invalid("it is no publish of one message to a topic or an exchange");
        let publish = RoutingCommand::read(tag, &mut inner)?.ok_or_else(other)?;
        let (destination, record) = match &publish {
            RoutingCommand::PublishTopic {
                topic,
                count: 1,
                records,
                times: Times::OfRecordOrQueue,
                ..
            } => (Destination::Topic((*topic).into()), *records),
            RoutingCommand::PublishExchange {
                exchange,
                key,
                record,
                times: Times::OfRecordOrQueue,
                ..
            } => (Destination::exchange(exchange, key), *record),
            _ => return Err(other()),
        };
        let origin = record_origin(record)?.ok_or_else(|| invalid("its message has no origin"))?;
        Ok(Self {
            until,
            key,
            destination,
            id: origin.id,
            publish,
            publish_at,
        })
    }
}

fn invalid(why: &'static str) -> DecodeError {
    DecodeError::Invalid { what: WHAT, why }
}

impl Machine {
    /// Fails before anything has changed, or not at all.
    pub(crate) fn route_once(
        &mut self,
        now: Millis,
        once: RouteOnce<'_>,
        offset: u32,
        applied: &mut Applied<Effect>,
    ) -> Result<Outcome, DecodeError> {
        let destination = Arc::new(once.destination);
        if let Some(first) = self.once.routed.find(&destination, once.key, now) {
            let FirstRouted { id, queues } = first;
            return Ok(Outcome::RoutedBefore { id, queues });
        }
        let outcome = self.route(now, once.publish, offset_of(offset, once.publish_at)?, applied)?;
        self.once.forget_some(now);
        if let Some(queues) = reached(&outcome)
            && once.until > now
        {
            let first = FirstRouted { id: once.id, queues };
            self.once.routed.keep(destination, once.key, first, once.until);
        }
        Ok(outcome)
    }
}

/// How many queues have the message, if anybody may have it.
fn reached(outcome: &Outcome) -> Option<u32> {
    match outcome {
        Outcome::PublishedTopic { queues } => Some(*queues),
        Outcome::Routed { queues, .. } if *queues > 0 => u32::try_from(*queues).ok(),
        _ => None,
    }
}
