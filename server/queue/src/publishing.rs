//! What a publish does to the machine: its records are read and sorted by stream before anything changes, and then each gets its
//! place.

use boltq_core::{Applied, DecodeError, Millis, RecordHead};

use crate::due::Due;
use crate::machine::Machine;
use crate::outcome::{Effect, Outcome};
use crate::place::{DELAYED, KEYED, QueueId, Run, Runs, stream_id};
use crate::room::Room;

/// Records of a publish that stand one after the other and go to the same stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch {
    pub(crate) lane: usize,
    pub(crate) count: u32,
    /// Those of them that have a time to live.
    pub(crate) expiring: usize,
    /// In the data of the entry.
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

impl Batch {
    /// Whether a record is about as large as these are on average: at most twice, and at least half.
    fn is_of_size(&self, bytes: u32) -> bool {
        let (mean, bytes) = (u64::from(self.bytes) / u64::from(self.count), u64::from(bytes));
        bytes <= 2 * mean && mean <= 2 * bytes
    }
}

/// The end of the life of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expiry {
    /// Its position in its batch.
    pub(crate) record: u32,
    pub(crate) at: Millis,
}

impl Machine {
    /// Reads the heads of the records of a publish into `batches`, `dues`, `keys` and `expiries`, those first ones that there is
    /// room for, and changes nothing else.
    pub(crate) fn sort_records(
        &mut self,
        now: Millis,
        count: u32,
        records: &[u8],
        offset: u32,
        mut room: Room,
    ) -> Result<(), DecodeError> {
        self.batches.clear();
        self.dues.clear();
        self.keys.clear();
        self.expiries.clear();
        self.refused = 0;
        let mut at = 0;
        for _ in 0..count {
            let head = RecordHead::read(&records[at..])?;
            if self.refused > 0 || !room.take(head.bytes) {
                self.refused += 1;
                at += head.bytes;
                continue;
            }
            let mut lane = usize::from(head.priority);
            if let Some(key) = head.key {
                lane = KEYED;
                self.keys.push(key);
            } else if let Some(due) = head.due.filter(|due| *due > now) {
                lane = DELAYED;
                self.dues.push(Due::new(due, head.priority));
            }
            let bytes = u32::try_from(head.bytes).map_err(|_| too_far())?;
            match self.batches.last_mut() {
                Some(batch) if batch.lane == lane && (!room.counts_bytes() || batch.is_of_size(bytes)) => {
                    batch.count += 1;
                    batch.bytes = batch.bytes.checked_add(bytes).ok_or_else(too_far)?;
                }
                _ => self.batches.push(Batch {
                    lane,
                    count: 1,
                    expiring: 0,
                    offset: offset_of(offset, at)?,
                    bytes,
                }),
            }
            if let (Some(at), Some(batch)) = (head.expires, self.batches.last_mut()) {
                let record = batch.count - 1;
                self.expiries.push(Expiry { record, at });
                batch.expiring += 1;
            }
            at += head.bytes;
        }
        if at == records.len() {
            return Ok(());
        }
        Err(DecodeError::Invalid {
            what: "records",
            why: "there are more bytes than their count accounts for",
        })
    }

    /// Gives places to what `sort_records` has read.
    pub(crate) fn publish(&mut self, id: QueueId, applied: &mut Applied<Effect>) -> Outcome {
        let queue = &mut self.queues[id.0 as usize];
        let mut runs = Runs::new();
        let mut dues = self.dues.iter();
        let mut keys = self.keys.iter();
        let mut expiries = &self.expiries[..];
        for batch in &self.batches {
            let (of_batch, rest) = expiries.split_at(batch.expiring);
            expiries = rest;
            let range = queue.append(id, *batch, of_batch, applied);
            if batch.lane == DELAYED {
                for (seq, due) in range.clone().zip(dues.by_ref()) {
                    queue.due.insert(seq, *due);
                }
            } else if batch.lane == KEYED {
                for (seq, key) in range.clone().zip(keys.by_ref()) {
                    queue.keys.push(seq, *key);
                }
            }
            self.totals.published += u64::from(batch.count);
            runs.push(Run::new(stream_id(id, batch.lane), &range));
        }
        self.make_room(id, applied);
        if self.refused == 0 {
            return Outcome::Published(runs);
        }
        self.totals.rejected += self.refused;
        Outcome::Full {
            queue: id,
            published: runs,
            refused: self.refused,
        }
    }

    /// As `publish`, for one message, unless it was published before.
    pub(crate) fn publish_once(
        &mut self,
        now: Millis,
        until: Millis,
        id: QueueId,
        key: &str,
        applied: &mut Applied<Effect>,
    ) -> Outcome {
        let remembered = self.options(id).and_then(|options| options.dedup_ttl_ms);
        let until = remembered.map_or(until, |ms| now.plus(ms));
        if let Some(place) = self.once.queues.find(&id, key, now) {
            return Outcome::PublishedBefore(place);
        }
        self.once.forget_some(now);
        let outcome = self.publish(id, applied);
        if let Outcome::Published(runs) = &outcome
            && let Some(place) = runs.places().next()
            && until > now
        {
            self.once.queues.keep(id, key, place, until);
        }
        outcome
    }
}

/// The place of a record in its entry.
pub(crate) fn offset_of(command: u32, at: usize) -> Result<u32, DecodeError> {
    let at = u32::try_from(at).ok().and_then(|at| command.checked_add(at));
    at.ok_or_else(too_far)
}

pub(crate) fn too_far() -> DecodeError {
    DecodeError::Invalid {
        what: "records",
        why: "the entry is longer than 4 GiB",
    }
}

/// The only record of a command, which is all that `record` holds; it waits for nothing.
pub(crate) fn single_record(
    record: &[u8],
    what: &'static str,
    offset: u32,
    expiries: &mut Vec<Expiry>,
) -> Result<Batch, DecodeError> {
    let head = RecordHead::read(record)?;
    if head.bytes != record.len() {
        return Err(DecodeError::Invalid {
            what,
            why: "there are bytes behind its record",
        });
    }
    let bytes = u32::try_from(head.bytes).map_err(|_| too_far())?;
    expiries.clear();
    expiries.extend(head.expires.map(|at| Expiry { record: 0, at }));
    Ok(Batch {
        lane: usize::from(head.priority),
        count: 1,
        expiring: expiries.len(),
        offset,
        bytes,
    })
}
