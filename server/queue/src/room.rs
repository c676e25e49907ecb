//! How much a queue may hold, and what happens to what is too much.
//!
//! Decided while a publish is applied, so every replica decides the same, and no two publishes both get the last place. It
//! concerns publishes alone: what is redelivered, dead-lettered or redriven is neither refused nor lost. Of messages that
//! are published together those in front are taken, so that what a queue has is in order and without gaps.

use boltq_core::{Applied, DecodeError, RecordHead};

use crate::machine::{Machine, Queue};
use crate::outcome::Effect;
use crate::place::{KEYED, QueueId, Run, STREAMS, stream_id};
use crate::publishing::Batch;

/// Room in a queue for what is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    messages: u64,
    bytes: u64,
}

impl Room {
    const AMPLE: Self = Self {
        messages: u64::MAX,
        bytes: u64::MAX,
    };

    /// Takes room for a record; false if there is not enough.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let (Some(messages), Some(bytes)) = (self.messages.checked_sub(1), self.bytes.checked_sub(bytes as u64)) else {
            return false;
        };
        *self = Self { messages, bytes };
        true
    }

    /// The first ones of a batch, as many as there is room for.
    pub(crate) fn front(mut self, records: &[u8], batch: Batch) -> Result<Batch, DecodeError> {
        if self == Self::AMPLE {
            return Ok(batch);
        }
        let mut front = Batch {
            count: 0,
            bytes: 0,
            ..batch
        };
        let mut at = 0;
        while front.count < batch.count {
            let head = RecordHead::read(&records[at..])?;
            if !self.take(head.bytes) {
                break;
            }
            at += head.bytes;
            front.count += 1;
        }
        // It is at most that of the batch.
        front.bytes = u32::try_from(at).unwrap_or(batch.bytes);
        Ok(front)
    }
}

impl Queue {
    /// Bytes of what is not done, as far as they are counted.
    fn open_bytes(&self) -> u64 {
        let Some(sizes) = self.sizes.as_deref() else { return 0 };
        let lanes = (0..STREAMS).filter_map(|lane| Some((lane, self.window(lane)?)));
        let bytes = lanes.map(|(lane, window)| sizes.open_bytes(lane, window));
        bytes.fold(0, u64::saturating_add)
    }

    pub(crate) fn room(&self) -> Room {
        let Some(options) = self.options.as_deref().filter(|options| !options.drop_oldest) else {
            return Room::AMPLE;
        };
        let messages = options.max_length.map(|max| max.saturating_sub(self.open_count()));
        let bytes = options
            .max_length_bytes
            .map(|max| max.saturating_sub(self.open_bytes()));
        Room {
            messages: messages.unwrap_or(u64::MAX),
            bytes: bytes.unwrap_or(u64::MAX),
        }
    }

    /// Messages that are too many.
    fn excess(&self) -> u64 {
        let Some(options) = self.options.as_deref().filter(|options| options.drop_oldest) else {
            return 0;
        };
        let open = || self.open_count();
        let messages = options.max_length.map_or(0, |max| open().saturating_sub(max));
        let bytes = options
            .max_length_bytes
            .map_or(0, |max| self.open_bytes().saturating_sub(max));
        if messages > 0 || bytes == 0 {
            return messages;
        }
        // Half of what it is on average, to come closer step by step: the oldest may be the largest.
        let share = u128::from(open()) * u128::from(bytes) / u128::from(self.open_bytes().max(1)) / 2;
        u64::try_from(share).unwrap_or(u64::MAX).max(1)
    }

    /// The oldest messages: those of the lowest priority first, and of these in the order of publishing, those without an
    /// ordering key before those with one; last those that were delayed.
    fn oldest(&self, id: QueueId, count: u64) -> Vec<Run> {
        let mut left = count;
        let mut runs = Vec::new();
        for lane in [0, KEYED].into_iter().chain(1..KEYED) {
            let Some(window) = self.window(lane).filter(|_| left > 0) else {
                continue;
            };
            for part in window.open_parts(window.base..window.head) {
                let part = part.start..part.end.min(part.start.saturating_add(left));
                left -= part.end - part.start;
                runs.push(Run::new(stream_id(id, lane), &part));
                if left == 0 {
                    break;
                }
            }
        }
        runs
    }
}

impl Machine {
    /// What a queue has room for; one that is to be created, for anything.
    pub(crate) fn room(&self, id: Option<QueueId>) -> Room {
        let queue = id.and_then(|id| self.queue_at(id));
        queue.map_or(Room::AMPLE, Queue::room)
    }

    /// Removes the oldest messages of a queue that has too many and drops those.
    pub(crate) fn make_room(&mut self, id: QueueId, applied: &mut Applied<Effect>) {
        while let Some(queue) = self.queue_at(id)
            && let excess = queue.excess()
            && excess > 0
        {
            let oldest = queue.oldest(id, excess);
            if oldest.is_empty() {
                return;
            }
            for run in oldest {
                self.totals.dropped += self.finish(run, applied, |_| {});
            }
        }
    }
}
