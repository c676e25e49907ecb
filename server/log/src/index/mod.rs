//! The stream index of a group: stream → rows, in memory.
//!
//! It knows where records are, not what they are. Its size follows the number of rows (32 bytes each), and a row covers
//! up to [`crate::LogConfig::row_bytes`] of consecutive records. An empty stream takes nothing.
//!
//! # Memory
//!
//! `tests/index_memory.rs` counts, in the size classes of jemalloc: a stream with one row takes 48 bytes, row included; one
//! with ten rows 416.

mod erasures;
mod row;
mod streams;
#[cfg(test)]
mod tests;

use boltq_core::{Seq, StreamId};

use crate::types::{FileId, FrameKey};

pub(crate) use erasures::{ERASED_RECORD, Erasure, Erasures, is_erased, without};
pub(crate) use row::{Moved, NotPlaced, Row, RowChanges, StreamRows, record_bytes, split};
use streams::Streams;

/// All rows of a group.
#[derive(Debug, Default)]
pub(crate) struct StreamIndex {
    streams: Streams,
    rows: usize,
    pub(crate) erasures: Erasures,
}

impl StreamIndex {
    /// Adds the rows of a stream after those of all others; returns whether it comes after them, and nothing is done if not.
    pub(crate) fn append(&mut self, stream: StreamId, rows: Vec<Row>) -> bool {
        if self.streams.last().is_some_and(|last| last >= stream) {
            return false;
        }
        self.rows += rows.len();
        if let Some(rows) = StreamRows::from_rows(rows) {
            self.streams.insert(stream, rows);
        }
        true
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    pub(crate) fn streams(&self) -> impl Iterator<Item = (StreamId, &StreamRows)> {
        self.streams.iter()
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.streams.iter().flat_map(|(_, rows)| rows.iter())
    }

    /// The least sequence that can be placed next in `stream`.
    pub(crate) fn next(&self, stream: StreamId) -> u64 {
        self.streams.get(stream).map_or(0, StreamRows::next)
    }

    /// Adds rows at the end of a stream.
    pub(crate) fn push(
        &mut self,
        stream: StreamId,
        rows: impl IntoIterator<Item = Row>,
        row_bytes: u32,
        changes: &mut impl RowChanges,
    ) {
        for row in rows {
            match self.streams.get_mut(stream) {
                Some(entry) => {
                    let before = entry.len();
                    entry.push(row, row_bytes, changes);
                    self.rows = self.rows - before + entry.len();
                }
                None => {
                    changes.added(&row, true, row.bytes);
                    self.streams.insert(stream, StreamRows::One(row));
                    self.rows += 1;
                }
            }
        }
    }

    pub(crate) fn free(
        &mut self,
        stream: StreamId,
        first: Seq,
        count: u64,
        changes: &mut impl RowChanges,
    ) -> Result<(), NotPlaced> {
        let Some(entry) = self.streams.get_mut(stream) else {
            return if count == 0 { Ok(()) } else { Err(NotPlaced) };
        };
        let end = first.0.saturating_add(count);
        // Those of the rows that may go; nothing is looked up if there are none at all.
        let marked = match self.erasures.marks().len() {
            0 => Vec::new(),
            _ => {
                let from = entry.find(first).map_or(first.0, |row| row.first);
                let end = entry.find(Seq(end.saturating_sub(1))).map_or(end, Row::end);
                self.erasures.marked(stream, from, end)
            }
        };
        let before = entry.len();
        let outcome = entry.free(first, count, changes);
        self.rows = self.rows - before + entry.len();
        if entry.len() == 0 {
            self.streams.remove(stream);
        }
        for seq in marked {
            if self.find(stream, Seq(seq)).is_none() {
                self.erasures.unmark(stream, seq);
            }
        }
        outcome
    }

    /// As [`StreamIndex::free`] of one record, which keeps its place and has no content any more. Returns where its bytes are.
    pub(crate) fn erase(
        &mut self,
        stream: StreamId,
        seq: Seq,
        changes: &mut impl RowChanges,
    ) -> Result<FrameKey, NotPlaced> {
        let key = self.find(stream, seq).map(Row::key).ok_or(NotPlaced)?;
        if !self.erasures.mark(stream, seq.0) {
            return Err(NotPlaced);
        }
        self.free(stream, seq, 1, changes)?;
        Ok(key)
    }

    /// The rows of a stream from the first on that ends after `seq`.
    pub(crate) fn rows_from(&self, stream: StreamId, seq: u64) -> impl Iterator<Item = &Row> {
        let rows = self.streams.get(stream);
        rows.into_iter().flat_map(move |rows| rows.iter_from(seq))
    }

    pub(crate) fn find(&self, stream: StreamId, seq: Seq) -> Option<&Row> {
        self.streams.get(stream)?.find(seq)
    }

    /// Up to `limit` rows after the place `after` in the order of (stream, sequence), and whether there are more.
    pub(crate) fn page(&self, after: Option<(StreamId, u64)>, limit: usize) -> (Vec<(StreamId, Row)>, bool) {
        let mut page = Vec::new();
        let (from, seq) = after.unwrap_or_default();
        for (stream, rows) in self.streams.iter_from(from) {
            let seq = if stream == from { seq } else { 0 };
            for row in rows.iter_from(seq) {
                if page.len() == limit {
                    return (page, true);
                }
                page.push((stream, *row));
            }
        }
        (page, false)
    }

    /// A record is erased in the copy in `file`; without a mark from now on, if its row is that one.
    pub(crate) fn unmark_in(&mut self, stream: StreamId, seq: u64, file: FileId) {
        if self.find(stream, Seq(seq)).is_some_and(|row| row.file == file) {
            self.erasures.unmark(stream, seq);
        }
    }

    /// Puts rows of a copy in the place of those that were copied, where these still are.
    pub(crate) fn replace(&mut self, stream: StreamId, moved: &[Moved], row_bytes: u32, changes: &mut impl RowChanges) {
        let Some(entry) = self.streams.get_mut(stream) else {
            return;
        };
        let before = entry.len();
        entry.replace(moved, row_bytes, changes);
        self.rows = self.rows - before + entry.len();
    }
}
