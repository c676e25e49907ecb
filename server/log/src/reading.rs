//! Reading records by stream and sequence.
//!
//! One call reads a frame once, however its records are spread over the places that are asked for: a frame that does not
//! fit into the cache is kept until the call ends. That costs no memory, as the records that were found point into it.

use std::collections::HashMap;

use boltq_core::{Seq, StreamId};
use bytes::Bytes;

use crate::error::ReadError;
use crate::group::GroupLog;
use crate::index::{Row, is_erased, record_bytes};
use crate::log::Store;
use crate::types::{FrameKey, ReadMode};

/// Frames that [`GroupLog::read_first`] holds at most, beyond the first one: a small record of a large frame holds all of it.
const FRAMES_BYTES_MAX: usize = 16 << 20;

/// Where reading ends before the last place.
#[derive(Clone, Copy)]
struct Bounds {
    record_bytes: usize,
    frame_bytes: usize,
}

impl Bounds {
    const NONE: Self = Self {
        record_bytes: usize::MAX,
        frame_bytes: usize::MAX,
    };
}

impl GroupLog {
    /// Appends the records at `places` to `out`, in that order.
    ///
    /// `false`: something would have to come from the device, and `mode` does not want that; nothing was appended.
    ///
    /// # Errors
    /// A record was freed or erased or never placed, or cannot be read; nothing was appended.
    pub fn read(&self, places: &[(StreamId, Seq)], mode: ReadMode, out: &mut Vec<Bytes>) -> Result<bool, ReadError> {
        let start = out.len();
        let outcome = self.try_read(places, mode, out);
        if !matches!(outcome, Ok(true)) {
            out.truncate(start);
        }
        outcome
    }

    /// Appends the records at the first of `places` to `out`, in that order: as many as have `bytes_max` together, and at
    /// least one. It may be fewer, if they lie far apart, or if one of them cannot be read: that is an error only for who
    /// asks for it first.
    ///
    /// `false`: something would have to come from the device, and `mode` does not want that; nothing was appended.
    ///
    /// # Errors
    /// The first record was freed or erased or never placed, or cannot be read; nothing was appended.
    pub fn read_first(
        &self,
        places: &[(StreamId, Seq)],
        bytes_max: usize,
        mode: ReadMode,
        out: &mut Vec<Bytes>,
    ) -> Result<bool, ReadError> {
        let bounds = Bounds {
            record_bytes: bytes_max,
            frame_bytes: FRAMES_BYTES_MAX,
        };
        let start = out.len();
        let mut rows = self.find_first(places)?;
        loop {
            let error = match self.collect(places, &rows, mode, bounds, out) {
                Ok(true) => return Ok(true),
                Ok(false) => {
                    out.truncate(start);
                    return Ok(false);
                }
                Err(_) if out.len() > start => return Ok(true),
                Err(error) => error,
            };
            let found = self.find_first(places)?;
            if stands(&found, rows.first()) {
                return Err(error);
            }
            rows = found;
        }
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
            let error = match self.collect(places, &rows, mode, Bounds::NONE, out) {
                Ok(whole) => return Ok(whole),
                Err(error) => error,
            };
            let read = out.len() - before;
            places = &places[read..];
            let found = self.find(places)?;
            if stands(&found, rows.get(read)) {
                return Err(error);
            }
            rows = found;
        }
    }

    /// The row of each place.
    fn find(&self, places: &[(StreamId, Seq)]) -> Result<Vec<Row>, ReadError> {
        let rows = self.find_first(places)?;
        match places.get(rows.len()) {
            None => Ok(rows),
            Some(missing) => Err(self.missing(*missing)),
        }
    }

    /// The row of each place, up to one where there is no record.
    fn find_first(&self, places: &[(StreamId, Seq)]) -> Result<Vec<Row>, ReadError> {
        let index = self.group.index.read();
        let mut rows: Vec<Row> = Vec::with_capacity(places.len());
        let mut last: Option<(StreamId, Row)> = None;
        for (stream, seq) in places {
            let row = match last {
                Some((last_stream, row)) if last_stream == *stream && row.holds(*seq) => row,
                _ => match index.find(*stream, *seq) {
                    Some(row) => *row,
                    None if rows.is_empty() => return Err(self.no_record((*stream, *seq))),
                    None => break,
                },
            };
            if index.erasures.is_marked(*stream, seq.0) {
                if rows.is_empty() {
                    return Err(self.erased((*stream, *seq)));
                }
                break;
            }
            last = Some((*stream, row));
            rows.push(row);
        }
        Ok(rows)
    }

    /// Why there is nothing to be read.
    fn missing(&self, (stream, seq): (StreamId, Seq)) -> ReadError {
        if self.group.index.read().erasures.is_marked(stream, seq.0) {
            self.erased((stream, seq))
        } else {
            self.no_record((stream, seq))
        }
    }

    fn erased(&self, (stream, seq): (StreamId, Seq)) -> ReadError {
        ReadError::Erased {
            group: self.group.id,
            stream,
            seq,
        }
    }

    fn no_record(&self, (stream, seq): (StreamId, Seq)) -> ReadError {
        ReadError::NoRecord {
            group: self.group.id,
            stream,
            seq,
        }
    }

    fn collect(
        &self,
        places: &[(StreamId, Seq)],
        rows: &[Row],
        mode: ReadMode,
        bounds: Bounds,
        out: &mut Vec<Bytes>,
    ) -> Result<bool, ReadError> {
        let store = &self.plane().store;
        let mut frames = Frames::new(store, mode);
        let mut cursor: Option<Cursor> = None;
        let mut bytes = 0usize;
        for ((stream, seq), row) in places.iter().zip(rows) {
            let Some(body) = frames.body(row.key())? else {
                return Ok(false);
            };
            let at = match cursor {
                Some(cursor) if cursor.row == *row && cursor.seq <= seq.0 => cursor,
                _ => Cursor::start(*row),
            };
            let misfit = || store.damaged(row.key(), "the records in it do not fit their index");
            let (record, next) = at.take(seq.0, &body).ok_or_else(misfit)?;
            if is_erased(&record) {
                return Err(self.erased((*stream, *seq)));
            }
            bytes = bytes.saturating_add(record.len());
            let over = bytes > bounds.record_bytes || frames.held_bytes > bounds.frame_bytes;
            if over && cursor.is_some() {
                return Ok(true);
            }
            out.push(record);
            cursor = Some(next);
        }
        Ok(true)
    }
}

/// Whether an error at a place stands: compaction may have moved the row meanwhile, and its file may be gone or be another
/// one by now.
fn stands(found: &[Row], row: Option<&Row>) -> bool {
    found.first().map(Row::key) == row.map(Row::key)
}

/// The frames of one call.
struct Frames<'a> {
    store: &'a Store,
    mode: ReadMode,
    /// Mostly, the next record is in the same frame.
    last: Option<(FrameKey, Bytes)>,
    others: HashMap<FrameKey, Bytes>,
    held_bytes: usize,
}

impl<'a> Frames<'a> {
    fn new(store: &'a Store, mode: ReadMode) -> Self {
        Self {
            store,
            mode,
            last: None,
            others: HashMap::new(),
            held_bytes: 0,
        }
    }

    /// `None`: it is on the device only, and the mode does not want that.
    fn body(&mut self, key: FrameKey) -> Result<Option<Bytes>, ReadError> {
        if let Some((_, body)) = self.last.as_ref().filter(|(last, _)| *last == key) {
            return Ok(Some(body.clone()));
        }
        let known = self.others.remove(&key);
        let body = match (known, self.mode) {
            (Some(body), _) => body,
            (None, ReadMode::Cached) => match self.store.cached(key) {
                Some(body) => self.hold(body),
                None => return Ok(None),
            },
            (None, ReadMode::Disk) => {
                let body = self.store.body(key)?;
                self.hold(body)
            }
        };
        self.others.extend(self.last.replace((key, body.clone())));
        Ok(Some(body))
    }

    fn hold(&mut self, body: Bytes) -> Bytes {
        self.held_bytes = self.held_bytes.saturating_add(body.len());
        body
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
