//! Reading records by stream and sequence.

use boltq_core::{Seq, StreamId};
use bytes::Bytes;

use crate::error::ReadError;
use crate::group::GroupLog;
use crate::index::{Row, record_bytes};
use crate::types::{FrameKey, ReadMode};

impl GroupLog {
    /// Appends the records at `places` to `out`, in that order. Records that stand together are read together.
    ///
    /// `false`: something would have to come from the device, and `mode` does not want that; nothing was appended.
    ///
    /// # Errors
    /// A record was freed or never placed, or cannot be read; nothing was appended.
    pub fn read(&self, places: &[(StreamId, Seq)], mode: ReadMode, out: &mut Vec<Bytes>) -> Result<bool, ReadError> {
        let start = out.len();
        let outcome = self.try_read(places, mode, out);
        if !matches!(outcome, Ok(true)) {
            out.truncate(start);
        }
        outcome
    }

    fn try_read(
        &self,
        mut places: &[(StreamId, Seq)],
        mode: ReadMode,
        out: &mut Vec<Bytes>,
    ) -> Result<bool, ReadError> {
        let mut rows = self.find(places)?;
        loop {
            let before = out.len();
            let error = match self.collect(places, &rows, mode, out) {
                Ok(whole) => return Ok(whole),
                Err(error) => error,
            };
            // Compaction may have moved the row, and its file may be gone or be another one by now. Where the row is the
            // same still, the error stands.
            let read = out.len() - before;
            places = &places[read..];
            let found = self.find(places)?;
            if found.first().map(Row::key) == rows.get(read).map(Row::key) {
                return Err(error);
            }
            rows = found;
        }
    }

    /// The row of each place.
    fn find(&self, places: &[(StreamId, Seq)]) -> Result<Vec<Row>, ReadError> {
        let index = self.group.index.read();
        let mut rows: Vec<Row> = Vec::with_capacity(places.len());
        let mut last: Option<(StreamId, Row)> = None;
        for (stream, seq) in places {
            let row = match last {
                Some((last_stream, row)) if last_stream == *stream && row.holds(*seq) => row,
                _ => *index.find(*stream, *seq).ok_or(ReadError::NoRecord {
                    group: self.group.id,
                    stream: *stream,
                    seq: *seq,
                })?,
            };
            last = Some((*stream, row));
            rows.push(row);
        }
        Ok(rows)
    }

    fn collect(
        &self,
        places: &[(StreamId, Seq)],
        rows: &[Row],
        mode: ReadMode,
        out: &mut Vec<Bytes>,
    ) -> Result<bool, ReadError> {
        let store = &self.plane().store;
        let mut frame: Option<(FrameKey, Bytes)> = None;
        let mut cursor: Option<Cursor> = None;
        for ((_, seq), row) in places.iter().zip(rows) {
            let body = match &frame {
                Some((key, body)) if *key == row.key() => body,
                _ => {
                    let body = match mode {
                        ReadMode::Cached => match store.cached(row.key()) {
                            Some(body) => body,
                            None => return Ok(false),
                        },
                        ReadMode::Disk => store.body(row.key())?,
                    };
                    &frame.insert((row.key(), body)).1
                }
            };
            let at = match cursor {
                Some(cursor) if cursor.row == *row && cursor.seq <= seq.0 => cursor,
                _ => Cursor::start(*row),
            };
            let misfit = || store.damaged(row.key(), "the records in it do not fit their index");
            let (record, next) = at.take(seq.0, body).ok_or_else(misfit)?;
            out.push(record);
            cursor = Some(next);
        }
        Ok(true)
    }
}

/// A place within a row: mostly, the next record is asked for next.
#[derive(Clone, Copy)]
struct Cursor {
    row: Row,
    seq: u64,
    at: usize,
}

impl Cursor {
    fn start(row: Row) -> Self {
        Self {
            row,
            seq: row.first,
            at: row.at as usize,
        }
    }

    /// The record `seq`, which is at or after this place, and the place after it.
    fn take(mut self, seq: u64, body: &Bytes) -> Option<(Bytes, Self)> {
        let end = self.row.at as usize + self.row.bytes as usize;
        loop {
            let bytes = record_bytes(body.get(self.at..end)?).ok()?;
            let start = self.at;
            self.at += bytes;
            self.seq += 1;
            if self.seq > seq {
                return Some((body.slice(start..self.at), self));
            }
        }
    }
}
