//! What is proposed: commands as they lie in an entry, and the writers that put them there.
//!
//! ```text
//! 1 Init        u64 salt
//! 2 Declare     str queue
//! 3 Publish     u32 count, str queue, records one after the other
//! 4 Ack         u32 count, runs
//! 5 Expire      u32 count, runs
//! 6 Fail        u32 count, each: u64 stream, u64 seq, u64 not before (Unix milliseconds)
//! 7 DeadLetter  u64 stream, u64 seq, str dead-letter queue, record
//! 8 Purge       u32 count, runs
//!
//! 9-16          topics and exchanges, see `routing/command.rs`
//!
//! 17 Redrive    u64 stream, u64 seq, str queue, record
//! 18-20         settings and deletion of queues, see `managing.rs`
//! 24 Cancel     u32 count, runs
//! 25 Reschedule u32 count, each: u64 stream, u64 seq, u64 due (Unix milliseconds)
//! 32 PublishOnce u64 until (Unix milliseconds), str queue, str key, record
//! 33 RouteOnce  see `routing/once.rs`
//! 34, 35        publishes to topics and exchanges, see `routing/command.rs`
//!
//! run: u64 stream, u64 first, u64 count      str: u32 length, UTF-8
//! ```
//!
//! The first byte names the command *and* its format: a format that changes gets a new number, and the old one stays
//! readable. Integers are little-endian; a command ends where its bytes end. Writers append to the buffer that is
//! proposed, so that a record is encoded once, in place.

mod write;

use boltq_core::codec::Reader;
use boltq_core::{DecodeError, IdSalt, Millis, Seq, StreamId};

use crate::managing::ManagingCommand;
pub use crate::managing::{change_queue, create_queue, delete_queue, delete_subscription};
use crate::once;
use crate::place::{Place, Run};
use crate::routing::command::RoutingCommand;
pub use crate::routing::command::{
    attach, begin_publish_exchange, bind, declare_exchange, delete_exchange, remove_subscription, unbind,
};
use crate::routing::once::{ROUTE_ONCE, RouteOnce};
pub use crate::routing::once::{begin_publish_exchange_once, begin_publish_topic_once};

pub(crate) use write::patch_u32;
pub use write::{
    FailWriter, PUBLISH_COUNT_AT, PublishWriter, SettleWriter, begin_dead_letter, begin_publish_once, begin_redrive,
    cancel, declare, init, publish_records_at, purge, reschedule,
};

const INIT: u8 = 1;
const DECLARE: u8 = 2;
const PUBLISH: u8 = 3;
const ACK: u8 = 4;
const EXPIRE: u8 = 5;
const FAIL: u8 = 6;
const DEAD_LETTER: u8 = 7;
const PURGE: u8 = 8;
const REDRIVE: u8 = 17;
const CANCEL: u8 = 24;
const RESCHEDULE: u8 = 25;
const PUBLISH_ONCE: u8 = 32;

/// Bytes of a run, and of a failure.
const ITEM_BYTES: usize = 24;

/// Why messages are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// A consumer acknowledged them.
    Ack,
    /// Their time to live ended.
    Expire,
}

/// A command as it is read: its parts are slices of the entry.
#[derive(Debug, Clone)]
pub(crate) enum Command<'a> {
    Init(IdSalt),
    Declare {
        queue: &'a str,
    },
    /// `records_at` is where the records start in the command.
    Publish {
        queue: &'a str,
        count: u32,
        records: &'a [u8],
        records_at: usize,
    },
    PublishOnce {
        until: Millis,
        queue: &'a str,
        key: &'a str,
        record: &'a [u8],
        record_at: usize,
    },
    Settle(Settle, Items<'a>),
    Fail(Items<'a>),
    DeadLetter(Move<'a>),
    Redrive(Move<'a>),
    Purge(Items<'a>),
    Cancel(Items<'a>),
    Reschedule(Items<'a>),
    Routing(RoutingCommand<'a>),
    RouteOnce(RouteOnce<'a>),
    Managing(ManagingCommand<'a>),
}

impl<'a> Command<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let command = match reader.u8("command")? {
            INIT => Self::Init(IdSalt(reader.u64("id salt")?)),
            DECLARE => Self::Declare {
                queue: reader.str("queue name")?,
            },
            PUBLISH => Self::Publish {
                count: reader.u32("record count")?,
                queue: reader.str("queue name")?,
                records_at: reader.position(),
                records: reader.rest(),
            },
            ACK => Self::Settle(Settle::Ack, Items::read(&mut reader, "acknowledged runs")?),
            EXPIRE => Self::Settle(Settle::Expire, Items::read(&mut reader, "expired runs")?),
            FAIL => Self::Fail(Items::read(&mut reader, "failures")?),
            DEAD_LETTER => Self::DeadLetter(Move::read(&mut reader, "dead-letter queue")?),
            REDRIVE => Self::Redrive(Move::read(&mut reader, "queue of a dead letter")?),
            PURGE => Self::Purge(Items::read(&mut reader, "purged runs")?),
            CANCEL => Self::Cancel(Items::read(&mut reader, "cancelled runs")?),
            RESCHEDULE => Self::Reschedule(Items::read(&mut reader, "due times")?),
            PUBLISH_ONCE => Self::PublishOnce {
                until: Millis(reader.u64("end of a key")?),
                queue: reader.str("queue name")?,
                key: read_key(&mut reader)?,
                record_at: reader.position(),
                record: reader.rest(),
            },
            ROUTE_ONCE => Self::RouteOnce(RouteOnce::read(&mut reader)?),
            tag => Self::read_other(tag, &mut reader)?,
        };
        if !reader.is_empty() {
            return Err(DecodeError::Invalid {
                what: "command",
                why: "there are bytes behind its end",
            });
        }
        Ok(command)
    }

    fn read_other(tag: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if let Some(command) = RoutingCommand::read(tag, reader)? {
            return Ok(Self::Routing(command));
        }
        if let Some(command) = ManagingCommand::read(tag, reader)? {
            return Ok(Self::Managing(command));
        }
        Err(DecodeError::Unknown {
            what: "command",
            value: u64::from(tag),
        })
    }
}

/// A message that goes to another queue, and what it is there.
#[derive(Debug, Clone)]
pub(crate) struct Move<'a> {
    pub(crate) place: Place,
    pub(crate) queue: &'a str,
    pub(crate) record: &'a [u8],
    pub(crate) record_at: usize,
}

impl<'a> Move<'a> {
    fn read(reader: &mut Reader<'a>, queue: &'static str) -> Result<Self, DecodeError> {
        Ok(Self {
            place: Place {
                stream: StreamId(reader.u64("stream")?),
                seq: Seq(reader.u64("sequence")?),
            },
            queue: reader.str(queue)?,
            record_at: reader.position(),
            record: reader.rest(),
        })
    }
}

pub(crate) fn read_key<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let key = reader.str("key of a publish")?;
    if once::is_key(key) {
        return Ok(key);
    }
    Err(DecodeError::Invalid {
        what: "key of a publish",
        why: "it is empty or too long",
    })
}

/// Items of three integers, checked to be there.
#[derive(Debug, Clone)]
pub(crate) struct Items<'a>(&'a [u8]);

impl<'a> Items<'a> {
    fn read(reader: &mut Reader<'a>, what: &'static str) -> Result<Self, DecodeError> {
        let count = reader.count(ITEM_BYTES, what)?;
        Ok(Self(reader.take(count * ITEM_BYTES, what)?))
    }

    fn parts(&self) -> impl Iterator<Item = [u64; 3]> + 'a {
        let (integers, _) = self.0.as_chunks::<8>();
        let (items, _) = integers.as_chunks::<3>();
        items.iter().map(|item| item.map(u64::from_le_bytes))
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> + 'a {
        self.parts().map(|[stream, first, count]| Run {
            stream: StreamId(stream),
            first: Seq(first),
            count,
        })
    }

    /// Messages, each with a time.
    pub(crate) fn times(&self) -> impl Iterator<Item = (Place, Millis)> + 'a {
        self.parts()
            .map(|[stream, seq, time]| (Place::new(StreamId(stream), seq), Millis(time)))
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};

    use super::*;

    #[test]
    fn places_in_a_row_are_written_as_one_run() {
        let place = |stream, seq| Place::new(StreamId(stream), seq);
        let mut out = BytesMut::new();
        let mut writer = SettleWriter::begin(&mut out, Settle::Ack);
        for seq in [5, 6, 7, 9, 8] {
            writer.push(&mut out, place(16, seq));
        }
        writer.push(&mut out, place(17, 9));
        writer.finish(&mut out);
        let Ok(Command::Settle(Settle::Ack, items)) = Command::read(&out) else {
            panic!("not an acknowledgement");
        };
        let runs: Vec<_> = items.runs().map(|run| (run.stream.0, run.first.0, run.count)).collect();
        assert_eq!(runs, [(16, 5, 3), (16, 9, 1), (16, 8, 1), (17, 9, 1)]);
    }

    #[test]
    fn a_command_that_is_cut_off_or_too_long_is_refused() {
        let mut out = BytesMut::new();
        let mut writer = FailWriter::begin(&mut out);
        writer.push(&mut out, Place::new(StreamId(16), 1), Millis(7));
        writer.finish(&mut out);
        for end in 0..out.len() {
            assert!(Command::read(&out[..end]).is_err(), "{end}");
        }
        out.put_u8(0);
        assert_eq!(
            Command::read(&out).map(|_| ()).unwrap_err().to_string(),
            "command: there are bytes behind its end"
        );
    }

    #[test]
    fn a_command_from_the_future_is_refused_by_number() {
        let error = Command::read(&[31]).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "command: 31 is unknown to this version");
    }
}
