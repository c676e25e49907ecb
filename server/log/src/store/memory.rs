//! Frames in memory mode: each is its own little file.
//!
//! A frame goes when its entry is purged and no row points to it. A frame of which less than a quarter is wanted is
//! copied, so that a straggler does not hold a megabyte.

use std::collections::HashMap;

use boltq_core::StreamId;
use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;

use super::Changes;
use crate::index::{Moved, Row, StreamIndex, without};
use crate::types::{FileId, FrameKey};

/// A frame that is shorter is not worth a copy.
const COPY_BYTES_MIN: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct MemoryFrames {
    frames: Mutex<Frames>,
}

#[derive(Debug, Default)]
struct Frames {
    frames: HashMap<FrameKey, MemoryFrame>,
    last: u64,
    bytes: u64,
    live_bytes: u64,
    /// Bytes of all entries that ever were.
    total_bytes: u64,
}

#[derive(Debug)]
struct MemoryFrame {
    body: Bytes,
    /// Whether an entry that is not purged is in here.
    entry: bool,
    rows: u64,
    live_bytes: u64,
    /// Where rows were placed: stream and first sequence. Some may be gone.
    places: Vec<(StreamId, u64)>,
}

impl Frames {
    fn add(&mut self, body: Bytes, entry: bool) -> FrameKey {
        self.last += 1;
        let [a, b, c, d, e, f, g, h] = self.last.to_be_bytes();
        let key = FrameKey {
            file: FileId(u32::from_be_bytes([a, b, c, d])),
            offset: u32::from_be_bytes([e, f, g, h]),
        };
        self.bytes += body.len() as u64;
        let frame = MemoryFrame {
            body,
            entry,
            rows: 0,
            live_bytes: 0,
            places: Vec::new(),
        };
        self.frames.insert(key, frame);
        key
    }

    fn drop_if_free(&mut self, key: FrameKey) {
        if let Some(frame) = self.frames.get(&key)
            && !frame.entry
            && frame.rows == 0
        {
            self.bytes -= frame.body.len() as u64;
            self.frames.remove(&key);
        }
    }
}

impl MemoryFrames {
    /// Keeps the data of entries.
    pub(crate) fn add<'a>(&self, bodies: impl Iterator<Item = &'a Bytes>) -> Vec<FrameKey> {
        let mut frames = self.frames.lock();
        let add = |body: &Bytes| {
            frames.total_bytes += body.len() as u64;
            frames.add(body.clone(), true)
        };
        bodies.map(add).collect()
    }

    /// Keeps records that are in no entry; goes unless rows that point to it are booked.
    pub(crate) fn add_records(&self, body: Bytes) -> FrameKey {
        self.frames.lock().add(body, false)
    }

    pub(crate) fn body(&self, key: FrameKey) -> Option<Bytes> {
        self.frames.lock().frames.get(&key).map(|frame| frame.body.clone())
    }

    /// The entries in these frames are gone.
    pub(crate) fn purged(&self, keys: &[FrameKey]) {
        let mut frames = self.frames.lock();
        for key in keys {
            if let Some(frame) = frames.frames.get_mut(key) {
                frame.entry = false;
            }
            frames.drop_if_free(*key);
        }
    }

    /// Remembers where a row is, to find it again when its frame is copied.
    pub(crate) fn placed(&self, stream: StreamId, rows: &[Row]) {
        let mut frames = self.frames.lock();
        for row in rows {
            if let Some(frame) = frames.frames.get_mut(&row.key()) {
                frame.places.push((stream, row.first));
            }
        }
    }

    pub(crate) fn book(&self, changes: &Changes) {
        let mut frames = self.frames.lock();
        for (key, change) in changes.frames() {
            if let Some(frame) = frames.frames.get_mut(&key) {
                frame.rows = frame.rows.saturating_add_signed(change.rows);
                frame.live_bytes = frame.live_bytes.saturating_add_signed(change.bytes);
            }
            frames.live_bytes = frames.live_bytes.saturating_add_signed(change.bytes);
            frames.drop_if_free(key);
        }
    }

    /// Copies what is left of those of `keys` of which little is left. `index` is that of the group of the frames.
    pub(crate) fn copy_sparse(&self, keys: impl Iterator<Item = FrameKey>, index: &mut StreamIndex, row_bytes: u32) {
        for key in keys {
            let sparse = self.frames.lock().frames.get_mut(&key).and_then(|frame| {
                let wanted = usize::try_from(frame.live_bytes).unwrap_or(usize::MAX);
                let sparse = !frame.entry && frame.body.len() >= COPY_BYTES_MIN && wanted < frame.body.len() / 4;
                sparse.then(|| (frame.body.clone(), std::mem::take(&mut frame.places)))
            });
            if let Some((body, places)) = sparse {
                self.copy(key, &body, places, index, row_bytes);
            }
        }
    }

    fn copy(&self, key: FrameKey, body: &Bytes, places: Vec<(StreamId, u64)>, index: &mut StreamIndex, row_bytes: u32) {
        let mut out = BytesMut::new();
        let mut moved: Vec<(StreamId, Moved)> = Vec::new();
        for (stream, first) in places {
            let Some(row) = index
                .find(stream, first.into())
                .filter(|row| row.first == first && row.key() == key)
            else {
                continue;
            };
            let Some(records) = body.get(row.at as usize..row.at as usize + row.bytes as usize) else {
                continue;
            };
            let at = u32::try_from(out.len()).unwrap_or(u32::MAX);
            let erased = index.erasures.marked(stream, row.first, row.end());
            match without(records, row.first, &erased) {
                Ok(rest) => out.put_slice(&rest),
                Err(_) => continue,
            }
            let bytes = u32::try_from(out.len()).unwrap_or(u32::MAX) - at;
            moved.push((stream, (key, row.at, Row { at, bytes, ..*row })));
        }
        let copy = self.add_records(out.freeze());
        let mut changes = Changes::by_frame();
        for (stream, (from, from_at, row)) in &mut moved {
            row.file = copy.file;
            row.frame = copy.offset;
            index.replace(*stream, &[(*from, *from_at, *row)], row_bytes, &mut changes);
        }
        if let Some(frame) = self.frames.lock().frames.get_mut(&copy) {
            frame.places = moved.iter().map(|(stream, (_, _, row))| (*stream, row.first)).collect();
        }
        self.book(&changes);
        // Nothing was left to be copied.
        self.frames.lock().drop_if_free(copy);
    }

    /// Bytes of all entries that were appended so far.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.frames.lock().total_bytes
    }

    /// Bytes of all frames, and of records that rows point to.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let frames = self.frames.lock();
        (frames.bytes, frames.live_bytes)
    }
}
