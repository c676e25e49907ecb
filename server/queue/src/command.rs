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

use boltq_core::codec::{self, Reader};
use boltq_core::{DecodeError, IdSalt, Millis, Seq, StreamId};
use bytes::{BufMut, BytesMut};

use crate::managing::ManagingCommand;
pub use crate::managing::{change_queue, create_queue, delete_queue, delete_subscription};
use crate::once;
use crate::place::{Place, Run};
use crate::routing::command::{PUBLISH_TOPIC, RoutingCommand};
pub use crate::routing::command::{
    attach, begin_publish_exchange, bind, declare_exchange, delete_exchange, remove_subscription, unbind,
};
use crate::routing::once::{ROUTE_ONCE, RouteOnce};
pub use crate::routing::once::{begin_publish_exchange_once, begin_publish_topic_once};

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

/// Appends the command that fixes the key of the message ids. The first one counts, later ones change nothing.
pub fn init(out: &mut BytesMut, salt: IdSalt) {
    out.put_u8(INIT);
    out.put_u64_le(salt.0);
}

/// Appends the command that creates a queue, unless it exists.
pub fn declare(out: &mut BytesMut, queue: &str) {
    out.put_u8(DECLARE);
    codec::put_bytes(out, queue.as_bytes());
}

/// Appends the command that removes messages which [`crate::Plane::begin_purge`] has claimed.
pub fn purge(out: &mut BytesMut, runs: &[Run]) {
    out.put_u8(PURGE);
    codec::put_len(out, runs.len());
    for run in runs {
        put_run(out, *run);
    }
}

/// Appends the command that removes messages which are not due yet, and which [`crate::Plane::claim_scheduled`] has claimed.
pub fn cancel(out: &mut BytesMut, places: &[Place]) {
    out.put_u8(CANCEL);
    codec::put_len(out, places.len());
    for place in places {
        put_run(out, Run::from(*place));
    }
}

/// Appends the command that gives a message another due time, after [`crate::Plane::claim_scheduled`] has claimed it.
pub fn reschedule(out: &mut BytesMut, place: Place, due: Millis) {
    out.put_u8(RESCHEDULE);
    codec::put_len(out, 1);
    put_item(out, [place.stream.0, place.seq.0, due.0]);
}

/// Appends the head of the command that moves a message to a dead-letter queue. The caller appends exactly one record:
/// what the message is there.
pub fn begin_dead_letter(out: &mut BytesMut, place: Place, queue: &str) {
    begin_move(out, DEAD_LETTER, place, queue);
}

/// As [`begin_dead_letter`], for a dead letter that goes back to a queue.
pub fn begin_redrive(out: &mut BytesMut, place: Place, queue: &str) {
    begin_move(out, REDRIVE, place, queue);
}

fn begin_move(out: &mut BytesMut, command: u8, place: Place, queue: &str) {
    out.put_u8(command);
    out.put_u64_le(place.stream.0);
    out.put_u64_le(place.seq.0);
    codec::put_bytes(out, queue.as_bytes());
}

/// Appends the head of the command that publishes a message to `queue` unless one with this key was published there and is
/// remembered. If not, this one is, until that time. The caller appends exactly one record.
pub fn begin_publish_once(out: &mut BytesMut, until: Millis, queue: &str, key: &str) {
    out.put_u8(PUBLISH_ONCE);
    out.put_u64_le(until.0);
    codec::put_bytes(out, queue.as_bytes());
    codec::put_bytes(out, key.as_bytes());
}

/// Writes a publish: `begin`, then the records with [`boltq_core::RecordBuilder`] into the same buffer, then `finish`.
#[derive(Debug)]
#[must_use = "a publish without `finish` has no records"]
pub struct PublishWriter {
    count_at: usize,
}

/// Where in a publish, to a queue or a topic, the number of its records stands.
pub const PUBLISH_COUNT_AT: usize = 1;

/// Where in a publish to `queue`, or to the topic of that name, its records begin. Publishes to one queue can be joined: their records, side by side,
/// behind one head with the sum of their numbers, are a publish that gives the same places in the same order.
#[must_use]
pub fn publish_records_at(queue: &str) -> usize {
    PUBLISH_COUNT_AT + 4 + 4 + queue.len()
}

impl PublishWriter {
    /// Starts a publish to `queue`, which is created when it does not exist.
    pub fn begin(out: &mut BytesMut, queue: &str) -> Self {
        Self::begin_as(PUBLISH, out, queue)
    }

    /// Starts a publish to a topic.
    pub fn begin_topic(out: &mut BytesMut, topic: &str) -> Self {
        Self::begin_as(PUBLISH_TOPIC, out, topic)
    }

    fn begin_as(command: u8, out: &mut BytesMut, name: &str) -> Self {
        out.put_u8(command);
        let count_at = out.len();
        out.put_u32_le(0);
        codec::put_bytes(out, name.as_bytes());
        Self { count_at }
    }

    /// Says how many records were appended.
    pub fn finish(self, out: &mut BytesMut, count: u32) {
        patch_u32(out, self.count_at, count);
    }
}

/// Writes a settlement. Messages that follow one another are kept as one run.
#[derive(Debug)]
#[must_use = "a settlement without `finish` has no messages"]
pub struct SettleWriter {
    count_at: usize,
    count: u32,
    last: Option<Run>,
}

impl SettleWriter {
    /// Starts a settlement.
    pub fn begin(out: &mut BytesMut, how: Settle) -> Self {
        out.put_u8(match how {
            Settle::Ack => ACK,
            Settle::Expire => EXPIRE,
        });
        let count_at = out.len();
        out.put_u32_le(0);
        Self {
            count_at,
            count: 0,
            last: None,
        }
    }

    /// Adds a message.
    pub fn push(&mut self, out: &mut BytesMut, place: Place) {
        match &mut self.last {
            Some(run) if run.stream == place.stream && run.range().end == place.seq.0 => run.count += 1,
            last => {
                let before = last.replace(Run::from(place));
                self.put(out, before);
            }
        }
    }

    fn put(&mut self, out: &mut BytesMut, run: Option<Run>) {
        if let Some(run) = run {
            put_run(out, run);
            self.count += 1;
        }
    }

    /// Ends the settlement.
    pub fn finish(mut self, out: &mut BytesMut) {
        let last = self.last.take();
        self.put(out, last);
        patch_u32(out, self.count_at, self.count);
    }
}

/// Writes failed attempts.
#[derive(Debug)]
#[must_use = "failures without `finish` are none"]
pub struct FailWriter {
    count_at: usize,
    count: u32,
}

impl FailWriter {
    /// Starts a list of failed attempts.
    pub fn begin(out: &mut BytesMut) -> Self {
        out.put_u8(FAIL);
        let count_at = out.len();
        out.put_u32_le(0);
        Self { count_at, count: 0 }
    }

    /// Adds a message, which will not be delivered before `not_before`.
    pub fn push(&mut self, out: &mut BytesMut, place: Place, not_before: Millis) {
        put_item(out, [place.stream.0, place.seq.0, not_before.0]);
        self.count += 1;
    }

    /// Ends the list.
    pub fn finish(self, out: &mut BytesMut) {
        patch_u32(out, self.count_at, self.count);
    }
}

fn put_run(out: &mut BytesMut, run: Run) {
    put_item(out, [run.stream.0, run.first.0, run.count]);
}

fn put_item(out: &mut BytesMut, item: [u64; 3]) {
    item.into_iter().for_each(|part| out.put_u64_le(part));
}

pub(crate) fn patch_u32(out: &mut BytesMut, at: usize, value: u32) {
    if let Some(field) = out.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_le_bytes());
    }
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
