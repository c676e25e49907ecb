//! The newest checkpoint of a group with its records, to be sent to another node.
//!
//! Rows say where records lie in the files of this node, which mean nothing elsewhere; so the records themselves go, in runs
//! that [`crate::Install`] puts into files of the other node. How many of a row are still wanted goes with them, as which
//! ones is not known (see [`crate::index`]).
//!
//! On disk, all records go that the checkpoint refers to: its files stay until the export is dropped, also if everything
//! was freed meanwhile. In memory mode what was freed since the checkpoint is gone. Empty records take its place, as the
//! entries after the checkpoint, which the other node has yet to apply, free them there too; it never reads them. They take
//! the place of records that are erased as well, in both modes: whose bytes do not leave this node.
//!
//! Runs come in the order in which the records lie on the device, so that each frame is read once, however many streams
//! have records in it. Within one call they are sorted by stream, and what follows each other is joined.

use std::vec;

use boltq_core::{DecodeError, Seq, StreamId};
use bytes::{Bytes, BytesMut};

use crate::checkpoint::{format, read_whole};
use crate::error::ReadError;
use crate::frame::Kind;
use crate::group::GroupLog;
use crate::index::{ERASED_RECORD, Erasures, Row, StreamIndex, record_bytes, without};
use crate::log::{Disk, Store};
use crate::store::{FrameError, MemoryFrames, Name, Pins};
use crate::types::{Checkpoint, EntryId, FrameKey};

/// Consecutive records of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedRun {
    /// The stream.
    pub stream: StreamId,
    /// Sequence of the first record.
    pub first: Seq,
    /// Number of records, at least 1.
    pub count: u32,
    /// How many of them are still wanted, at least 1. Which ones, the state of the checkpoint knows.
    pub live: u32,
    /// The records, one after the other.
    pub data: Bytes,
}

impl ExportedRun {
    fn end(&self) -> u64 {
        self.first.0.saturating_add(u64::from(self.count))
    }
}

/// The newest checkpoint of a group, with its records.
pub struct Export {
    log: GroupLog,
    checkpoint: Checkpoint,
    rows: vec::IntoIter<(StreamId, Row)>,
    /// Of the checkpoint.
    erasures: Erasures,
    left_bytes: u64,
    /// The last frame that was read: the next row may be in it.
    frame: Option<(FrameKey, Bytes)>,
    pins: Option<Pins>,
}

impl GroupLog {
    /// The newest durable checkpoint with its records, to be read while the log goes on; none without a checkpoint. The
    /// files that it needs stay until it is dropped. Blocks: it reads the checkpoint, and waits for one that is being written.
    pub fn export(&self) -> Result<Option<Export>, ReadError> {
        let _writing = self.group.writing.lock();
        let saved = self.group.saved.lock();
        let Some(checkpoint) = saved.newest() else {
            return Ok(None);
        };
        let (rows, erasures, pins) = match (&self.plane().store, saved.file) {
            (Store::Disk(disk), Some((name, _))) => {
                // Before the lock is released: until then the checkpoint keeps its files.
                let pins = disk.frames.accounts.pin(saved.files.clone());
                drop(saved);
                let index = read_index(disk, name, &checkpoint)?;
                let streams = index.streams();
                let flat = streams.flat_map(|(stream, rows)| rows.iter().map(move |row| (stream, *row)));
                let mut rows: Vec<(StreamId, Row)> = flat.collect();
                rows.sort_unstable_by_key(|(_, row)| (row.key(), row.at));
                (rows, index.erasures, Some(pins))
            }
            (Store::Memory(_) | Store::Disk(_), _) => (saved.rows.iter().collect(), saved.rows.erasures.clone(), None),
        };
        Ok(Some(Export {
            log: self.clone(),
            checkpoint,
            left_bytes: rows.iter().map(|(_, row)| u64::from(row.bytes)).sum(),
            rows: rows.into_iter(),
            erasures,
            frame: None,
            pins,
        }))
    }
}

fn read_index(disk: &Disk, name: Name, checkpoint: &Checkpoint) -> Result<StreamIndex, ReadError> {
    let file = disk.dir.join(name.to_string());
    let io_error = |source| ReadError::Io {
        file: file.clone(),
        source,
    };
    let damaged = |why| ReadError::Damaged {
        file: file.clone(),
        offset: 0,
        why,
    };
    let handle = disk.files.open(&file).map_err(io_error)?;
    let frame = read_whole(&handle, checkpoint.applied.index.0).map_err(|error| match error {
        FrameError::Io(source) => io_error(source),
        FrameError::Fault(fault) => damaged(fault.text()),
    })?;
    let contents = format::decode(&frame.payload, frame.kind == Kind::ErasingCheckpoint)
        .map_err(|_| damaged("the parts of the checkpoint contradict each other"))?;
    Ok(contents.index)
}

impl Export {
    /// The last entry that the checkpoint contains.
    pub fn applied(&self) -> EntryId {
        self.checkpoint.applied
    }

    /// What the layer above gave with the checkpoint.
    pub fn meta(&self) -> &Bytes {
        &self.checkpoint.meta
    }

    /// The state of the checkpoint.
    pub fn state(&self) -> &Bytes {
        &self.checkpoint.state
    }

    /// Bytes of records that are still to come.
    pub fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// The next records, about `bytes_max` bytes of them and in memory mode perhaps more, at least one run; nothing at the
    /// end. Several hundred KiB at a time join what lies apart. Blocks on the device.
    ///
    /// # Errors
    /// The records that were to come are missing from what comes after: the export is of no use any more.
    pub fn next(&mut self, bytes_max: usize) -> Result<Vec<ExportedRun>, ReadError> {
        let mut runs = Vec::new();
        let mut bytes = 0;
        while let Some((stream, row)) = self.rows.as_slice().first().copied() {
            bytes += row.bytes as usize;
            if bytes > bytes_max && !runs.is_empty() {
                break;
            }
            self.rows.next();
            self.left_bytes -= u64::from(row.bytes);
            let data = self.records(stream, &row)?;
            runs.push(ExportedRun {
                stream,
                first: Seq(row.first),
                count: row.count,
                live: row.live,
                data,
            });
        }
        runs.sort_unstable_by_key(|run| (run.stream, run.first));
        Ok(join(&runs, self.log.plane().config.row_bytes as usize))
    }

    fn records(&mut self, stream: StreamId, row: &Row) -> Result<Bytes, ReadError> {
        let disk = match &self.log.plane().store {
            Store::Memory(memory) => return self.held(memory, stream, row),
            Store::Disk(disk) => disk,
        };
        let body = match &self.frame {
            Some((key, body)) if *key == row.key() => body,
            _ => {
                // Past the cache, which others need more.
                let body = match disk.frames.cached(row.key()) {
                    Some(body) => body,
                    None => disk.frames.read_body(row.key())?,
                };
                &self.frame.insert((row.key(), body)).1
            }
        };
        let start = row.at as usize;
        if body.len() < start + row.bytes as usize {
            return Err(disk.frames.damaged(row.key(), "it is shorter than its records"));
        }
        let records = body.slice(start..start + row.bytes as usize);
        let erased = self.erasures.marked(stream, row.first, row.end());
        if erased.is_empty() {
            return Ok(records);
        }
        let rest = without(&records, row.first, &erased);
        let rest = rest.map_err(|_| disk.frames.damaged(row.key(), "its records do not fit their index"))?;
        Ok(rest.into())
    }

    /// In memory mode, what is still there of the records that a row of the checkpoint had, and empty ones for the rest.
    fn held(&self, memory: &MemoryFrames, stream: StreamId, row: &Row) -> Result<Bytes, ReadError> {
        let index = self.log.group.index.read();
        let mut out = BytesMut::with_capacity(row.bytes as usize);
        let fill = |out: &mut BytesMut, count: u64| (0..count).for_each(|_| out.extend_from_slice(&ERASED_RECORD));
        let mut seq = row.first;
        for now in index
            .rows_from(stream, row.first)
            .take_while(|now| now.first < row.end())
        {
            fill(&mut out, now.first.saturating_sub(seq));
            let damaged = || {
                self.log
                    .plane()
                    .store
                    .damaged(now.key(), "its records do not fit their index")
            };
            let body = memory.body(now.key()).ok_or_else(damaged)?;
            let part = part(now, &body, row).map_err(|_| damaged())?;
            let from = now.first.max(row.first);
            let erased = index.erasures.marked(stream, from, row.end());
            out.extend_from_slice(&without(part, from, &erased).map_err(|_| damaged())?);
            seq = now.end().min(row.end());
        }
        fill(&mut out, row.end() - seq);
        Ok(out.freeze())
    }
}

/// The records of `now` that `row` has too.
fn part<'a>(now: &Row, body: &'a [u8], row: &Row) -> Result<&'a [u8], DecodeError> {
    let mut at = now.at as usize;
    let mut start = at;
    for seq in now.first..now.end().min(row.end()) {
        if seq == row.first {
            start = at;
        }
        at += record_bytes(body.get(at..).unwrap_or_default())?;
    }
    body.get(start..at).ok_or(DecodeError::Invalid {
        what: "row",
        why: "it begins behind the end of its body",
    })
}

impl Drop for Export {
    fn drop(&mut self) {
        drop(self.pins.take());
        if let Store::Disk(disk) = &self.log.plane().store {
            disk.wal.tidy();
        }
    }
}

/// Joins sorted runs that follow each other, up to `bytes_max`.
fn join(runs: &[ExportedRun], bytes_max: usize) -> Vec<ExportedRun> {
    let mut joined: Vec<ExportedRun> = Vec::with_capacity(runs.len());
    let mut rest = runs;
    while let Some(first) = rest.first() {
        let mut bytes = first.data.len();
        let follow = rest.windows(2).take_while(|pair| {
            bytes += pair[1].data.len();
            pair[0].stream == pair[1].stream && pair[0].end() == pair[1].first.0 && bytes <= bytes_max
        });
        let (part, after) = rest.split_at(follow.count() + 1);
        joined.push(match part {
            [one] => one.clone(),
            _ => ExportedRun {
                count: part.iter().map(|run| run.count).sum(),
                live: part.iter().map(|run| run.live).sum(),
                data: part.iter().map(|run| &run.data[..]).collect::<Vec<_>>().concat().into(),
                ..*first
            },
        });
        rest = after;
    }
    joined
}
