//! Segments: records that outlived their WAL files, sorted by group, stream and sequence, or that came from another node,
//! as they came.
//!
//! ```text
//! run frames   u32 group, u32 count, u64 stream, u64 first sequence; records: the rest
//! footer       u32 number of runs; each: u32 group, u64 stream, u64 first sequence, u32 count, u64 offset of its frame
//! trailer      u64 offset of the footer, u64 number of runs, u64 bytes of all records; the last frame of the file
//! ```
//!
//! A record without bytes in a run is one that was erased before the segment was written.
//!
//! A segment is written under another name, synced and renamed, and never changed. Rows in memory and in checkpoints point
//! into it like into a WAL file; the footer says what is in it without them.

use std::io::{self, IoSlice};
use std::sync::Arc;

use boltq_core::codec::{Reader, put_len};
use boltq_core::{DecodeError, GroupId, StreamId};
use bytes::{BufMut, BytesMut};

use crate::files::LogFile;
use crate::frame::{self, HEADER_BYTES, Header, Kind, Mark, PADDING};
use crate::store::{FrameError, read_frame};
use crate::types::{FileId, FrameKey};

/// Length of what stands before the records of a run.
pub(crate) const RUN_PREFIX_BYTES: usize = 24;
/// Written at once.
const WRITE_BYTES: usize = 1 << 20;
const TRAILER_BYTES: usize = 24;

/// Consecutive records of a stream in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) group: GroupId,
    pub(crate) stream: StreamId,
    pub(crate) first: u64,
    pub(crate) count: u32,
    /// Offset of its frame.
    pub(crate) offset: u32,
}

/// How long a segment is, with and without what is around its records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Length {
    pub(crate) file_bytes: u64,
    pub(crate) record_bytes: u64,
}

/// Writes a segment from its start to its end.
pub(crate) struct SegmentWriter {
    id: FileId,
    handle: Arc<dyn LogFile>,
    buffer: BytesMut,
    written: u64,
    record_bytes: u64,
    runs: Vec<Run>,
}

impl SegmentWriter {
    pub(crate) fn new(id: FileId, handle: Arc<dyn LogFile>) -> Self {
        Self {
            id,
            handle,
            buffer: BytesMut::with_capacity(WRITE_BYTES),
            written: 0,
            record_bytes: 0,
            runs: Vec::new(),
        }
    }

    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn offset(&self) -> io::Result<u32> {
        u32::try_from(self.bytes()).map_err(|_| io::Error::other("a segment cannot have more than 4 GiB"))
    }

    /// Adds a run; returns the offset of its frame.
    pub(crate) fn add(
        &mut self,
        group: GroupId,
        stream: StreamId,
        first: u64,
        count: u32,
        records: &[u8],
    ) -> io::Result<u32> {
        let offset = self.offset()?;
        let mut prefix = BytesMut::with_capacity(RUN_PREFIX_BYTES);
        prefix.put_u32_le(group.0);
        prefix.put_u32_le(count);
        prefix.put_u64_le(stream.0);
        prefix.put_u64_le(first);
        self.put_frame(Kind::Run, &[&prefix, records])?;
        self.record_bytes += records.len() as u64;
        self.runs.push(Run {
            group,
            stream,
            first,
            count,
            offset,
        });
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(offset)
    }

    fn put_frame(&mut self, kind: Kind, payload: &[&[u8]]) -> io::Result<()> {
        let header = Header {
            kind,
            file: u64::from(self.id.0),
            offset: self.offset()?,
            mark: Mark::default(),
        };
        let length: usize = payload.iter().map(|part| part.len()).sum();
        let length_u32 = u32::try_from(length).map_err(|_| io::Error::other("a frame cannot have more than 4 GiB"))?;
        self.buffer
            .put_slice(&frame::encode(&header, length_u32, frame::payload_crc(payload)));
        for part in payload {
            self.buffer.put_slice(part);
        }
        self.buffer
            .put_slice(&PADDING[..frame::frame_bytes(length) - HEADER_BYTES - length]);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.handle.pwritev(&mut [IoSlice::new(&self.buffer)], self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes footer and trailer, and syncs.
    pub(crate) fn finish(mut self) -> io::Result<Length> {
        let footer_at = self.bytes();
        let mut footer = BytesMut::new();
        put_len(&mut footer, self.runs.len());
        for run in &self.runs {
            footer.put_u32_le(run.group.0);
            footer.put_u64_le(run.stream.0);
            footer.put_u64_le(run.first);
            footer.put_u32_le(run.count);
            footer.put_u64_le(u64::from(run.offset));
        }
        self.put_frame(Kind::Footer, &[&footer])?;
        let mut trailer = BytesMut::new();
        trailer.put_u64_le(footer_at);
        trailer.put_u64_le(self.runs.len() as u64);
        trailer.put_u64_le(self.record_bytes);
        self.put_frame(Kind::Trailer, &[&trailer])?;
        self.flush()?;
        self.handle.fdatasync()?;
        Ok(Length {
            file_bytes: self.written,
            record_bytes: self.record_bytes,
        })
    }
}

/// Why a segment cannot be used.
#[derive(Debug)]
pub(crate) enum SegmentError {
    Io(io::Error),
    Damaged { offset: u64, why: String },
}

/// Checks that the file ends like a segment, and returns how long it is. The records are checked when they are read.
pub(crate) fn check_end(handle: &Arc<dyn LogFile>, id: FileId) -> Result<Length, SegmentError> {
    read_end(handle, id).map(|(length, _)| length)
}

/// As [`check_end`], with what is in it.
pub(crate) fn read_end(handle: &Arc<dyn LogFile>, id: FileId) -> Result<(Length, Vec<Run>), SegmentError> {
    let bytes = handle.len().map_err(SegmentError::Io)?;
    let trailer_at = bytes.saturating_sub(frame::frame_bytes(TRAILER_BYTES) as u64);
    let payload = read(handle, id, trailer_at, Kind::Trailer)?;
    let (footer_at, count, record_bytes) = decode_trailer(&payload).map_err(|error| damaged(trailer_at, &error))?;
    let payload = read(handle, id, footer_at, Kind::Footer)?;
    let runs = decode_footer(&payload).map_err(|error| damaged(footer_at, &error))?;
    if runs.len() as u64 != count {
        return Err(SegmentError::Damaged {
            offset: footer_at,
            why: "footer and trailer contradict each other".to_owned(),
        });
    }
    let length = Length {
        file_bytes: bytes,
        record_bytes,
    };
    Ok((length, runs))
}

fn read(handle: &Arc<dyn LogFile>, id: FileId, at: u64, kind: Kind) -> Result<bytes::Bytes, SegmentError> {
    let fault = |why: &str| SegmentError::Damaged {
        offset: at,
        why: why.to_owned(),
    };
    let offset = u32::try_from(at).map_err(|_| fault("it is longer than a segment can be"))?;
    match read_frame(handle, FrameKey { file: id, offset }) {
        Ok(frame) if frame.kind == kind => Ok(frame.payload),
        Ok(_) => Err(fault("it does not end like a segment")),
        Err(FrameError::Io(error)) => Err(SegmentError::Io(error)),
        Err(FrameError::Fault(error)) => Err(fault(error.text())),
    }
}

fn damaged(offset: u64, error: &DecodeError) -> SegmentError {
    SegmentError::Damaged {
        offset,
        why: error.to_string(),
    }
}

fn decode_trailer(payload: &[u8]) -> Result<(u64, u64, u64), DecodeError> {
    let mut reader = Reader::new(payload);
    let footer_at = reader.u64("offset of the footer")?;
    Ok((
        footer_at,
        reader.u64("number of runs")?,
        reader.u64("bytes of records")?,
    ))
}

fn decode_footer(payload: &[u8]) -> Result<Vec<Run>, DecodeError> {
    let mut reader = Reader::new(payload);
    let count = reader.count(32, "runs")?;
    let mut runs = Vec::with_capacity(count);
    for _ in 0..count {
        let group = GroupId(reader.u32("group of a run")?);
        let stream = StreamId(reader.u64("stream of a run")?);
        let (first, count) = (reader.u64("first sequence of a run")?, reader.u32("count of a run")?);
        let value = reader.u64("offset of a run")?;
        let offset = u32::try_from(value).map_err(|_| DecodeError::Unknown {
            what: "offset of a run",
            value,
        })?;
        runs.push(Run {
            group,
            stream,
            first,
            count,
            offset,
        });
    }
    Ok(runs)
}
