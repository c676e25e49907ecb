//! One partition: which sequences it has, how old they are, and what they take.
//!
//! Records are counted in *blocks* of neighbours. Of a block is known when its last record is from and how many bytes it has, and
//! retention removes whole blocks. A block ends when it has 64 KiB or an eighth of the most bytes of the partition, or when its
//! records span a day or an eighth of the age that they may reach. So a record goes late by an eighth at most and never early, and
//! there is a block where the log has four rows.
//!
//! Most partitions are small: what one of them has while it has one block, and nothing redacted, takes 48 bytes. The rest has a
//! place of its own.
//!
//! Always true: blocks follow each other without a gap, closed ones are not empty, and their times do not fall; the open one is
//! the last. What is redacted or raised is between the first and the next sequence.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::ops::Range;

use boltq_core::{Applied, Millis, Seq, StorageEffect, StreamId};

use crate::redacted::Redacted;
use crate::settings::Retention;

const BLOCK_BYTES_MAX: u64 = 64 * 1024;
const BLOCK_SPAN_MS_MAX: u64 = 24 * 3_600 * 1_000;
/// Parts of what retention allows that a block may be.
const PARTS: u64 = 8;
const NS_PER_MS: u64 = 1_000_000;

/// Neighbours whose number does not change any more. They end where the next block begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) first: u64,
    /// Timestamp of the last record.
    pub(crate) last_ns: u64,
    pub(crate) bytes: u32,
}

/// Neighbours whose own timestamps are lower than those of the record before them, and that have this one for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Raised {
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) ns: u64,
}

/// What few partitions have.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    pub(crate) closed: VecDeque<Block>,
    pub(crate) closed_bytes: u64,
    pub(crate) redacted: Redacted,
    pub(crate) raised: VecDeque<Raised>,
}

impl Rest {
    pub(crate) fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.redacted.is_empty() && self.raised.is_empty()
    }
}

/// Neighbours of a batch that say of themselves that they are from this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamped {
    pub(crate) ns: u64,
    pub(crate) count: u32,
}

/// The partition of a topic.
#[derive(Debug)]
pub(crate) struct Partition {
    stream: NonZeroU64,
    /// Of the open block.
    pub(crate) first: u64,
    /// Timestamp of the last record that there ever was; 0: there was none.
    pub(crate) last_ns: u64,
    pub(crate) rest: Option<Box<Rest>>,
    pub(crate) number: u32,
    /// Of the open block: records, bytes, and milliseconds from the first record to the last one.
    pub(crate) count: u32,
    pub(crate) bytes: u32,
    pub(crate) span_ms: u32,
}

// A million of them is the normal case.
const _: () = assert!(size_of::<Partition>() == 48);

impl Partition {
    /// An empty one. Stream 0 belongs to no partition.
    pub(crate) fn new(number: u32, stream: NonZeroU64) -> Self {
        Self {
            stream,
            first: Seq::FIRST.0,
            last_ns: 0,
            rest: None,
            number,
            count: 0,
            bytes: 0,
            span_ms: 0,
        }
    }

    pub(crate) fn stream(&self) -> StreamId {
        StreamId(self.stream.get())
    }

    pub(crate) fn closed(&self) -> impl ExactSizeIterator<Item = &Block> {
        static NONE: VecDeque<Block> = VecDeque::new();
        self.rest.as_ref().map_or(&NONE, |rest| &rest.closed).iter()
    }

    /// The first sequence that there is, or the next one.
    pub(crate) fn first_seq(&self) -> u64 {
        self.closed().next().map_or(self.first, |block| block.first)
    }

    /// The sequence that the next record gets.
    pub(crate) fn next_seq(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    pub(crate) fn record_count(&self) -> u64 {
        self.next_seq() - self.first_seq()
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.rest.as_ref().map_or(0, |rest| rest.closed_bytes) + u64::from(self.bytes)
    }

    pub(crate) fn redacted(&self) -> Option<&Redacted> {
        self.rest.as_ref().map(|rest| &rest.redacted)
    }

    /// The timestamp of a record that says of itself that it is from `stamp_ns`.
    pub(crate) fn timestamp_ns(&self, seq: u64, stamp_ns: u64) -> u64 {
        let Some(rest) = &self.rest else { return stamp_ns };
        let at = rest.raised.partition_point(|raised| raised.end <= seq);
        let raised = rest.raised.get(at).filter(|raised| raised.first <= seq);
        raised.map_or(stamp_ns, |raised| raised.ns)
    }

    /// The sequences of the block in which the first record is that is not before `time_ns`, and that behind it: it is one of these
    /// or, if there is none, the next sequence.
    pub(crate) fn around(&self, time_ns: u64) -> Range<u64> {
        let next = self.next_seq();
        let Some(rest) = &self.rest else {
            return if self.last_ns < time_ns {
                next..next
            } else {
                self.first..next
            };
        };
        let at = rest.closed.partition_point(|block| block.last_ns < time_ns);
        let end = rest.closed.get(at + 1).map_or(self.first, |block| block.first);
        match rest.closed.get(at) {
            Some(block) => block.first..end,
            None if self.last_ns < time_ns => next..next,
            None => self.first..next,
        }
    }

    /// Takes a batch, of which there is at least one record, and returns its sequences.
    pub(crate) fn append(&mut self, retention: Retention, bytes: u32, stamped: &[Stamped]) -> Range<u64> {
        let first = self.next_seq();
        let count = stamped.iter().fold(0_u32, |count, run| count.saturating_add(run.count));
        let first_ns = stamped.first().map_or(0, |run| run.ns).max(self.last_ns);
        let last_ns = stamped.iter().fold(self.last_ns, |last_ns, run| last_ns.max(run.ns));
        let mut opened_ms = self.opened_ms();
        if !self.fits(retention, bytes, count, last_ns) {
            self.close();
            opened_ms = first_ns / NS_PER_MS;
        }
        self.count += count;
        self.bytes += bytes;
        self.span_ms = u32::try_from(last_ns / NS_PER_MS - opened_ms).unwrap_or(u32::MAX);
        let mut next = first;
        for run in stamped {
            let end = next + u64::from(run.count);
            if run.ns < self.last_ns {
                self.raise(next..end);
            }
            self.last_ns = self.last_ns.max(run.ns);
            next = end;
        }
        first..next
    }

    /// Of the first record of the open block.
    fn opened_ms(&self) -> u64 {
        (self.last_ns / NS_PER_MS).saturating_sub(u64::from(self.span_ms))
    }

    /// Whether a batch belongs to the open block.
    fn fits(&self, retention: Retention, bytes: u32, count: u32, last_ns: u64) -> bool {
        self.count > 0
            && u64::from(self.bytes) < block_bytes_max(retention)
            && last_ns / NS_PER_MS - self.opened_ms() <= block_span_ms_max(retention)
            && self.bytes.checked_add(bytes).is_some()
            && self.count.checked_add(count).is_some()
    }

    /// Ends the open block, if there is anything in it, and begins the next one.
    fn close(&mut self) {
        if self.count > 0 {
            let rest = self.rest.get_or_insert_default();
            rest.closed.push_back(Block {
                first: self.first,
                last_ns: self.last_ns,
                bytes: self.bytes,
            });
            rest.closed_bytes += u64::from(self.bytes);
        }
        self.begin_block();
    }

    fn begin_block(&mut self) {
        self.first = self.next_seq();
        self.count = 0;
        self.bytes = 0;
        self.span_ms = 0;
    }

    fn raise(&mut self, range: Range<u64>) {
        let ns = self.last_ns;
        let raised = &mut self.rest.get_or_insert_default().raised;
        match raised.back_mut() {
            // None that was not raised is between them, so the timestamp is the same.
            Some(last) if last.end == range.start => last.end = range.end,
            _ => raised.push_back(Raised {
                first: range.start,
                end: range.end,
                ns,
            }),
        }
    }

    /// Whether retention does not keep the oldest closed block.
    fn is_closed_over(&self, retention: Retention, now: Millis) -> bool {
        let Some(oldest) = self.closed().next() else {
            return false;
        };
        let too_many = retention.max_bytes > 0 && self.total_bytes() > retention.max_bytes;
        too_many || is_too_old(retention, oldest.last_ns, now)
    }

    /// Whether all there is is the open block, and too old.
    fn is_open_over(&self, retention: Retention, now: Millis) -> bool {
        self.count > 0 && self.closed().len() == 0 && is_too_old(retention, self.last_ns, now)
    }

    /// Whether there is anything that [`Partition::trim`] would remove.
    pub(crate) fn is_over(&self, retention: Retention, now: Millis) -> bool {
        self.is_closed_over(retention, now) || self.is_open_over(retention, now)
    }

    /// Removes what retention does not keep, the oldest blocks first and so many closed ones at most, and returns the
    /// sequences that are no more. They are to be released.
    ///
    /// The open block goes by its age only, so that what was just appended is never what has to go, however large it is.
    pub(crate) fn trim(&mut self, retention: Retention, now: Millis, blocks_max: usize) -> Range<u64> {
        let mut gone = self.trim_closed(retention, now, blocks_max);
        if self.is_open_over(retention, now) {
            self.begin_block();
            gone.end = self.first;
        }
        gone
    }

    /// As [`Partition::trim`], of closed blocks only.
    pub(crate) fn trim_closed(&mut self, retention: Retention, now: Millis, blocks_max: usize) -> Range<u64> {
        let before = self.first_seq();
        let mut blocks = 0;
        while blocks < blocks_max && self.is_closed_over(retention, now) {
            self.drop_oldest_closed();
            blocks += 1;
        }
        before..self.first_seq()
    }

    fn drop_oldest_closed(&mut self) {
        if let Some(rest) = &mut self.rest
            && let Some(block) = rest.closed.pop_front()
        {
            rest.closed_bytes -= u64::from(block.bytes);
        }
    }

    /// Says that `range`, all of which was placed, is not wanted any more, but for what was said of before.
    pub(crate) fn release<E>(&self, range: Range<u64>, applied: &mut Applied<E>) {
        let nothing = Redacted::default();
        let stream = self.stream();
        for gap in self.redacted().unwrap_or(&nothing).gaps(range) {
            applied.storage.push(StorageEffect::Freed {
                stream,
                first: Seq(gap.start),
                count: gap.end - gap.start,
            });
        }
    }

    /// Forgets what was known of records that are no more.
    pub(crate) fn forget_gone(&mut self) {
        let first = self.first_seq();
        let Some(rest) = &mut self.rest else { return };
        rest.redacted.forget_before(first);
        while let Some(oldest) = rest.raised.front_mut()
            && oldest.first < first
        {
            if oldest.end > first {
                oldest.first = first;
            } else {
                rest.raised.pop_front();
            }
        }
        if rest.is_empty() {
            self.rest = None;
        }
    }

    /// Takes the content of a record away. `None`: there is no such record; `false`: it had none any more.
    pub(crate) fn redact(&mut self, seq: u64) -> Option<bool> {
        let there = (self.first_seq()..self.next_seq()).contains(&seq);
        there.then(|| self.rest.get_or_insert_default().redacted.insert(seq))
    }
}

fn is_too_old(retention: Retention, last_ns: u64, now: Millis) -> bool {
    retention.max_age_ms > 0 && Millis(last_ns / NS_PER_MS).plus(retention.max_age_ms) <= now
}

/// Bytes that a block ends with.
fn block_bytes_max(retention: Retention) -> u64 {
    match retention.max_bytes {
        0 => BLOCK_BYTES_MAX,
        max => BLOCK_BYTES_MAX.min(max / PARTS),
    }
}

/// From the first record of a block to the last one.
fn block_span_ms_max(retention: Retention) -> u64 {
    match retention.max_age_ms {
        0 => BLOCK_SPAN_MS_MAX,
        max => BLOCK_SPAN_MS_MAX.min(max / PARTS),
    }
}
