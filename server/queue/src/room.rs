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
use crate::window::Window;

/// Room in a queue for what is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    messages: u64,
    bytes: u64,
    /// For one record.
    record_bytes: u64,
}

impl Room {
    const AMPLE: Self = Self {
        messages: u64::MAX,
        bytes: u64::MAX,
        record_bytes: u64::MAX,
    };

    /// Whether it matters how large a record is.
    pub(crate) fn counts_bytes(self) -> bool {
        self.record_bytes != u64::MAX
    }

    /// Takes room for a record; false if there is not enough.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let (Some(messages), Some(left)) = (self.messages.checked_sub(1), self.bytes.checked_sub(bytes)) else {
            return false;
        };
        if bytes > self.record_bytes {
            return false;
        }
        self.messages = messages;
        self.bytes = left;
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
        let Some(options) = self.options.as_deref() else {
            return Room::AMPLE;
        };
        // What fits into no empty queue throws nothing out of a full one.
        let record_bytes = options.max_length_bytes.unwrap_or(u64::MAX);
        if options.drop_oldest {
            return Room {
                record_bytes,
                ..Room::AMPLE
            };
        }
        let messages = options.max_length.map(|max| max.saturating_sub(self.open_count()));
        let bytes = options
            .max_length_bytes
            .map(|max| max.saturating_sub(self.open_bytes()));
        Room {
            messages: messages.unwrap_or(u64::MAX),
            bytes: bytes.unwrap_or(u64::MAX),
            record_bytes,
        }
    }

    /// Messages that are too many.
    fn excess(&self) -> u64 {
        let Some(options) = self.options.as_deref().filter(|options| options.drop_oldest) else {
            return 0;
        };
        let messages = options
            .max_length
            .map_or(0, |max| self.open_count().saturating_sub(max));
        let bytes = options
            .max_length_bytes
            .map_or(0, |max| self.open_bytes().saturating_sub(max));
        if messages > 0 || bytes == 0 {
            return messages;
        }
        self.first_lane()
            .map_or(0, |(lane, window)| self.share_of(lane, window, bytes))
    }

    /// How many of the messages of a stream go next for so many bytes: half of what it takes on average, to come closer step by
    /// step, as the oldest may be the largest; and none of another stream, where they may be of another size.
    fn share_of(&self, lane: usize, window: &Window, bytes: u64) -> u64 {
        let open = window.open_count();
        let all = self.sizes.as_deref().map_or(0, |sizes| sizes.open_bytes(lane, window));
        // Those that are not counted are in the way of those that are.
        let share = (u128::from(open) * u128::from(bytes))
            .checked_div(u128::from(all))
            .unwrap_or(u128::from(open));
        u64::try_from(share / 2).unwrap_or(u64::MAX).clamp(1, open)
    }

    /// Streams in the order in which their messages go, see [`Queue::oldest`].
    fn by_age(&self) -> impl Iterator<Item = (usize, &Window)> {
        let lanes = [0, KEYED].into_iter().chain(1..KEYED);
        lanes.filter_map(|lane| Some((lane, self.window(lane)?)))
    }

    fn first_lane(&self) -> Option<(usize, &Window)> {
        self.by_age().find(|(_, window)| window.open_count() > 0)
    }

    /// The oldest messages: those of the lowest priority first, and of these in the order of publishing, those without an
    /// ordering key before those with one; last those that were delayed.
    fn oldest(&self, id: QueueId, count: u64) -> Vec<Run> {
        let mut left = count;
        let mut runs = Vec::new();
        for (lane, window) in self.by_age() {
            if left == 0 {
                break;
            }
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
