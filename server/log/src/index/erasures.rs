//! Which records of a group are erased, as far as their bytes may still be somewhere.
//!
//! An erased record keeps its place as long as its row does. Its bytes stand in the frame of the row, until compaction has made a
//! copy of the row that has a record without bytes in its place: that says by itself what it is, and needs no mark any more.
//! See [`crate::erasing`] for the files.

use std::collections::BTreeSet;

use boltq_core::{DecodeError, StreamId};

use super::row::record_bytes;
use crate::types::FileId;

/// What stands for a record that is erased: its length, which is none.
pub(crate) const ERASED_RECORD: [u8; 4] = [0; 4];

/// Whether a record, with its length, is one that was erased.
pub(crate) fn is_erased(record: &[u8]) -> bool {
    record == ERASED_RECORD
}

/// Something that has to go from the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Erasure {
    /// The record; none is all that the group had before a state was installed, which may have been erased where that came from.
    pub(crate) record: Option<(StreamId, u64)>,
    /// The WAL files up to this one have to go: the record is in one, and others may hold an entry with it that was
    /// replaced or refused, or are behind their end what they were before they were recycled.
    pub(crate) wal_upto: FileId,
    /// Of the segments up to this one, those have to go that hold it.
    pub(crate) segments_upto: FileId,
}

/// The erasures of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Erasures {
    /// Records whose bytes stand between those of others of their row.
    marks: BTreeSet<(StreamId, u64)>,
    /// Those that are not on the device yet, each with a number that rises.
    pending: Vec<(u64, Erasure)>,
    /// The last number that was given.
    last: u64,
}

impl Erasures {
    pub(crate) fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.pending.is_empty()
    }

    pub(crate) fn is_marked(&self, stream: StreamId, seq: u64) -> bool {
        !self.marks.is_empty() && self.marks.contains(&(stream, seq))
    }

    /// Whether it was not marked before.
    pub(crate) fn mark(&mut self, stream: StreamId, seq: u64) -> bool {
        self.marks.insert((stream, seq))
    }

    pub(crate) fn marks(&self) -> impl ExactSizeIterator<Item = (StreamId, u64)> {
        self.marks.iter().copied()
    }

    /// Those of the sequences from `first` to `end` that are marked.
    pub(crate) fn marked(&self, stream: StreamId, first: u64, end: u64) -> Vec<u64> {
        if self.marks.is_empty() || first > end {
            return Vec::new();
        }
        let marks = self.marks.range((stream, first)..(stream, end));
        marks.map(|(_, seq)| *seq).collect()
    }

    pub(crate) fn unmark(&mut self, stream: StreamId, seq: u64) {
        self.marks.remove(&(stream, seq));
    }

    pub(crate) fn begin(&mut self, erasure: Erasure) {
        self.last += 1;
        self.pending.push((self.last, erasure));
    }

    pub(crate) fn pending(&self) -> &[(u64, Erasure)] {
        &self.pending
    }

    /// The number of the newest one.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Those with these numbers are on the device.
    pub(crate) fn complete(&mut self, numbers: &BTreeSet<u64>) {
        self.pending.retain(|(number, _)| !numbers.contains(number));
    }

    /// What is under way goes on, with another state.
    pub(crate) fn without_marks(&self) -> Self {
        Self {
            marks: BTreeSet::new(),
            ..self.clone()
        }
    }
}

/// `records` from sequence `first` on, without the bytes of those that are `erased`, which are in order.
pub(crate) fn without(records: &[u8], first: u64, erased: &[u64]) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(records.len());
    let mut rest = records;
    let mut seq = first;
    while !rest.is_empty() {
        let (record, after) = rest.split_at(record_bytes(rest)?);
        let is_erased = erased.binary_search(&seq).is_ok();
        out.extend_from_slice(if is_erased { &ERASED_RECORD } else { record });
        (rest, seq) = (after, seq + 1);
    }
    Ok(out)
}
