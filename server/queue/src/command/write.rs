//! Writing commands into the buffer that is proposed.

use boltq_core::codec;
use boltq_core::{IdSalt, Millis};
use bytes::{BufMut, BytesMut};

use super::{
    ACK, CANCEL, DEAD_LETTER, DECLARE, EXPIRE, FAIL, INIT, PUBLISH, PUBLISH_ONCE, PURGE, REDRIVE, RESCHEDULE, Settle,
};
use crate::place::{Place, Run};
use crate::routing::command::PUBLISH_TOPIC;

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
