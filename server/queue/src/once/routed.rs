//! Keys of publishes to topics and exchanges, and how they stand in a snapshot.
//!
//! ```text
//! u32 number of keys, at least 1; each, in the order of destination and key:
//!     u8 0: a topic, str its name; or 1: an exchange, str its name, which may be empty, str routing key
//!     str key, 16 bytes of id, u32 queues, u64 until (Unix milliseconds)
//! ```

use std::sync::Arc;

use boltq_core::codec::{self, Reader};
use boltq_core::{DecodeError, MessageId, Millis};
use bytes::{BufMut, BytesMut};

use super::{Once, is_key};
use crate::machine::Machine;
use crate::routing::command::read_key;
use crate::snapshot::check;

const WHAT: &str = "keys of routed publishes";
const TOPIC: u8 = 0;
const EXCHANGE: u8 = 1;
/// One of a topic with an empty name.
const KEY_BYTES_MIN: usize = 1 + 4 + 4 + 16 + 4 + 8;

/// What a message is addressed to that is no queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Destination {
    Topic(Box<str>),
    /// The default one has no name.
    Exchange {
        exchange: Box<str>,
        routing_key: Box<str>,
    },
}

impl Destination {
    pub(crate) fn exchange(exchange: &str, routing_key: &str) -> Self {
        Self::Exchange {
            exchange: exchange.into(),
            routing_key: routing_key.into(),
        }
    }

    fn is_of_exchange(&self, name: &str) -> bool {
        matches!(self, Self::Exchange { exchange, .. } if **exchange == *name)
    }

    fn write(&self, out: &mut BytesMut) {
        match self {
            Self::Topic(topic) => {
                out.put_u8(TOPIC);
                codec::put_bytes(out, topic.as_bytes());
            }
            Self::Exchange { exchange, routing_key } => {
                out.put_u8(EXCHANGE);
                codec::put_bytes(out, exchange.as_bytes());
                codec::put_bytes(out, routing_key.as_bytes());
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8(WHAT)? {
            TOPIC => Ok(Self::Topic(reader.str("topic")?.into())),
            EXCHANGE => Ok(Self::exchange(reader.str("exchange")?, read_key(reader)?)),
            value => Err(DecodeError::Unknown {
                what: WHAT,
                value: u64::from(value),
            }),
        }
    }
}

/// The first message with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FirstRouted {
    /// Of its publish.
    pub(crate) id: MessageId,
    /// That got it.
    pub(crate) queues: u32,
}

impl Once {
    /// Forgets all keys of an exchange.
    pub(crate) fn forget_exchange(&mut self, name: &str) {
        let from = Arc::new(Destination::exchange(name, ""));
        let scopes = self.routed.scopes_from(&from);
        let of_it: Vec<_> = scopes.take_while(|scope| scope.is_of_exchange(name)).cloned().collect();
        of_it.iter().for_each(|scope| self.routed.forget_scope(scope));
    }
}

pub(crate) fn is_empty(machine: &Machine) -> bool {
    machine.once.routed.len() == 0
}

pub(crate) fn write_section(machine: &Machine, out: &mut BytesMut) {
    let routed = &machine.once.routed;
    codec::put_len(out, routed.len());
    for (destination, key, kept) in routed.iter() {
        destination.write(out);
        codec::put_bytes(out, key.as_bytes());
        out.put_slice(&kept.result.id.0);
        out.put_u32_le(kept.result.queues);
        out.put_u64_le(kept.until.0);
    }
}

/// Into a machine that has its exchanges.
pub(crate) fn read_section(machine: &mut Machine, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let mut before: Option<(Arc<Destination>, &str)> = None;
    for _ in 0..reader.count(KEY_BYTES_MIN, WHAT)? {
        let destination = Arc::new(Destination::read(reader)?);
        if let Destination::Exchange { exchange, .. } = &*destination {
            let there = exchange.is_empty() || machine.exchange(exchange).is_some();
            check(there, WHAT, "one is of an exchange that is not there")?;
        }
        let key = reader.str(WHAT)?;
        check(is_key(key), WHAT, "one is empty or too long")?;
        let result = FirstRouted {
            id: MessageId(reader.u128(WHAT)?.to_le_bytes()),
            queues: reader.u32(WHAT)?,
        };
        let until = Millis(reader.u64(WHAT)?);
        let next = Some((Arc::clone(&destination), key));
        check(before < next, WHAT, "they are not in order")?;
        before = next;
        machine.once.routed.keep(destination, key, result, until);
    }
    Ok(())
}
