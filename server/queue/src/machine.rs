//! The replicated state: which messages exist, and which of them are done.
//!
//! The same commands give the same machine, whatever node applies them. A command is read as a whole before it changes
//! anything, so that one which cannot be read leaves the state as it was.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;

use boltq_core::{
    Applied, DecodeError, IdSalt, KeyHash, Millis, RecordHead, Seq, StateMachine, StorageEffect, StreamId,
};
use bytes::BytesMut;

use crate::command::Command;
use crate::due::Due;
use crate::once::Once;
use crate::options::QueueOptions;
use crate::ordering::Keys;
use crate::outcome::{Effect, Outcome, QueueStats, Totals};
use crate::place::{DELAYED, QueueId, STREAMS, stream_id, stream_of};
use crate::publishing::{Batch, Expiry, offset_of, single_record};
use crate::routing::Routing;
use crate::sizes::Sizes;
use crate::slots::Slots;
use crate::snapshot::{self, Captured};
use crate::timetable::Timetable;
use crate::window::Window;

/// A queue: its windows, of which there is one only for a stream that was ever published to.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) name: Arc<str>,
    pub(crate) windows: [Option<Box<Window>>; STREAMS],
    /// Of the messages of the delayed stream that are not done.
    pub(crate) due: Timetable<Due>,
    /// Of the messages with an ordering key that are not done.
    pub(crate) keys: Keys,
    /// `None`: it has no settings of its own.
    pub(crate) options: Option<Box<QueueOptions>>,
    /// If it may hold so many bytes only.
    pub(crate) sizes: Option<Box<Sizes>>,
}

impl Queue {
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            windows: Default::default(),
            due: Timetable::default(),
            keys: Keys::default(),
            options: None,
            sizes: None,
        }
    }

    pub(crate) fn window(&self, lane: usize) -> Option<&Window> {
        self.windows.get(lane)?.as_deref()
    }

    /// `expiries` are those of the records of this batch.
    pub(crate) fn append(
        &mut self,
        id: QueueId,
        batch: Batch,
        expiries: &[Expiry],
        applied: &mut Applied<Effect>,
    ) -> Range<u64> {
        let window = self.windows[batch.lane].get_or_insert_default();
        let range = window.append(u64::from(batch.count));
        // Of a batch that there is no room for as a whole, only the first ones are here.
        for expiry in expiries.iter().filter(|expiry| expiry.record < batch.count) {
            window.expires.insert(range.start + u64::from(expiry.record), expiry.at);
        }
        if let Some(sizes) = &mut self.sizes {
            sizes.append(batch.lane, window, &range, u64::from(batch.bytes));
        }
        applied.storage.push(StorageEffect::Placed {
            stream: stream_id(id, batch.lane),
            first: Seq(range.start),
            count: batch.count,
            offset: batch.offset,
            bytes: batch.bytes,
        });
        range
    }

    /// What can be said of the queue without a dispatch.
    pub(crate) fn stats(&self) -> QueueStats {
        let delayed = self.window(DELAYED).map_or(0, Window::open_count);
        QueueStats {
            ready: self.open_count() - delayed,
            leased: 0,
            delayed,
        }
    }

    /// Number of messages that were ever put into it.
    pub(crate) fn published(&self) -> u64 {
        let streams = self.windows.iter().flatten();
        streams.map(|window| window.head - Seq::FIRST.0).sum()
    }

    /// Takes settings of its own instead of those that it had.
    pub(crate) fn set_options(&mut self, options: QueueOptions) {
        match options.max_length_bytes {
            Some(_) => drop(self.sizes.get_or_insert_default()),
            None => self.sizes = None,
        }
        self.options = (options != QueueOptions::default()).then(|| Box::new(options));
    }

    /// Number of messages that are not done.
    pub(crate) fn open_count(&self) -> u64 {
        self.windows.iter().flatten().map(|window| window.open_count()).sum()
    }
}

/// The replicated state of the queue plane.
#[derive(Debug, Default)]
pub struct Machine {
    pub(crate) now: Millis,
    pub(crate) salt: Option<IdSalt>,
    pub(crate) totals: Totals,
    pub(crate) queues: Slots<Queue>,
    pub(crate) names: BTreeMap<Arc<str>, QueueId>,
    pub(crate) routing: Routing,
    pub(crate) once: Once,
    /// What the publish at hand consists of; kept to be filled again without an allocation.
    pub(crate) batches: Vec<Batch>,
    pub(crate) dues: Vec<Due>,
    pub(crate) keys: Vec<KeyHash>,
    pub(crate) expiries: Vec<Expiry>,
    /// Records at its end that there is no room for.
    pub(crate) refused: u64,
}

impl Machine {
    /// The highest time that an entry carried.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// Key of the message ids; `None` before the first `Init`.
    #[must_use]
    pub fn salt(&self) -> Option<IdSalt> {
        self.salt
    }

    /// Figures over all queues.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Messages of all queues that are not done.
    #[must_use]
    pub fn open_count(&self) -> u64 {
        self.queues.iter().map(Queue::open_count).sum()
    }

    /// The queue of that name, if it exists.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<QueueId> {
        self.names.get(name).copied()
    }

    /// The name of a queue.
    #[must_use]
    pub fn queue_name(&self, queue: QueueId) -> Option<&str> {
        self.queue_at(queue).map(|queue| &*queue.name)
    }

    /// All queues in the byte order of their names.
    pub fn queues(&self) -> impl Iterator<Item = (&str, QueueId)> {
        self.names.iter().map(|(name, id)| (&**name, *id))
    }

    /// The state of this moment, quickly: it writes what [`StateMachine::snapshot`] returns, whatever becomes of the machine.
    #[must_use]
    pub fn capture(&self) -> Captured {
        snapshot::capture(self)
    }

    /// Those whose names are behind this one.
    pub(crate) fn queues_after(&self, name: Option<&str>) -> impl Iterator<Item = (&Arc<str>, QueueId)> {
        let after = name.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.names.range::<str, _>((after, Bound::Unbounded));
        behind.map(|(name, id)| (name, *id))
    }

    pub(crate) fn queue_at(&self, queue: QueueId) -> Option<&Queue> {
        self.queues.get(queue.0 as usize)
    }

    /// Queue, lane and window of a stream that was ever published to.
    pub(crate) fn stream(&self, stream: StreamId) -> Option<(&Queue, usize, &Window)> {
        let (queue, lane) = stream_of(stream)?;
        let queue = self.queue_at(queue)?;
        Some((queue, lane, queue.window(lane)?))
    }

    pub(crate) fn declare(&mut self, name: &str) -> QueueId {
        if let Some(id) = self.queue(name) {
            return id;
        }
        // Nobody lives to give so many.
        let id = QueueId(u32::try_from(self.queues.len()).unwrap_or(u32::MAX));
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name), id);
        self.queues.push(Queue::new(name));
        id
    }
}

impl StateMachine for Machine {
    type Outcome = Outcome;
    type Effect = Effect;

    fn apply(
        &mut self,
        time: Millis,
        command: &[u8],
        offset: u32,
        applied: &mut Applied<Effect>,
    ) -> Result<Outcome, DecodeError> {
        let now = self.now.max(time);
        let command = Command::read(command)?;
        // The arms that can fail do so before they change anything.
        let outcome = match command {
            Command::Init(salt) => {
                self.salt.get_or_insert(salt);
                Outcome::Done
            }
            Command::Declare { queue } => Outcome::Declared(self.declare(queue)),
            Command::Publish {
                queue,
                count,
                records,
                records_at,
            } => {
                let known = self.queue(queue);
                let room = self.room(known);
                self.sort_records(now, count, records, offset_of(offset, records_at)?, room)?;
                let queue = known.unwrap_or_else(|| self.declare(queue));
                self.publish(queue, applied)
            }
            Command::PublishOnce {
                until,
                queue,
                key,
                record,
                record_at,
            } => {
                let known = self.queue(queue);
                let room = self.room(known);
                self.sort_records(now, 1, record, offset_of(offset, record_at)?, room)?;
                let queue = known.unwrap_or_else(|| self.declare(queue));
                self.publish_once(now, until, queue, key, applied)
            }
            Command::Settle(how, items) => self.settle(how, &items, applied),
            Command::Fail(items) => self.fail(&items, applied),
            Command::DeadLetter(dead) => {
                let offset = offset_of(offset, dead.record_at)?;
                let batch = single_record(dead.record, "dead letter", offset, &mut self.expiries)?;
                // It keeps its key and does not wait for it: whoever looks at dead letters wants to see all of them.
                let to = self.move_to(dead.place, dead.queue, (batch, None), applied);
                self.totals.dead_lettered += u64::from(to.is_some());
                Outcome::DeadLettered(to)
            }
            Command::Redrive(back) => {
                let offset = offset_of(offset, back.record_at)?;
                let batch = single_record(back.record, "redriven message", offset, &mut self.expiries)?;
                let key = RecordHead::read(back.record)?.key;
                Outcome::Redriven(self.move_to(back.place, back.queue, (batch, key), applied))
            }
            Command::Purge(items) => self.purge(&items, applied),
            Command::Cancel(items) => self.cancel(&items, applied),
            Command::Reschedule(items) => self.reschedule(&items, applied),
            Command::Routing(command) => self.route(now, command, offset, applied)?,
            Command::RouteOnce(once) => self.route_once(now, once, offset, applied)?,
            Command::Managing(command) => self.manage(command, applied),
        };
        self.now = now;
        Ok(outcome)
    }

    fn snapshot(&self) -> Vec<u8> {
        let mut out = BytesMut::new();
        self.capture().write(&mut out);
        out.into()
    }

    fn restore(bytes: &[u8]) -> Result<Self, DecodeError> {
        snapshot::read(bytes)
    }
}
