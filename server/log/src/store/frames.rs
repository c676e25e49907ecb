//! Frames on disk.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::{Accounts, Class, Handles, Name};
use crate::cache::Cache;
use crate::error::ReadError;
use crate::files::LogFile;
use crate::frame::{self, Fault, HEADER_BYTES, Kind};
use crate::segment::RUN_PREFIX_BYTES;
use crate::types::{FileId, FrameKey};
use crate::wal::ENTRY_PREFIX_BYTES;

/// Read at once where the length of a frame is not known: most frames fit.
const READ_AHEAD_BYTES: usize = 20 << 10;

/// A frame that was read and checked.
#[derive(Debug, Clone)]
pub(crate) struct OwnedFrame {
    pub(crate) version: u8,
    pub(crate) kind: Kind,
    pub(crate) payload: Bytes,
}

impl OwnedFrame {
    /// What rows point into: the payload without what the log put before it.
    pub(crate) fn body(&self) -> Option<Bytes> {
        let prefix = match self.kind {
            Kind::Entry => ENTRY_PREFIX_BYTES,
            Kind::Run => RUN_PREFIX_BYTES,
            _ => return None,
        };
        (prefix <= self.payload.len()).then(|| self.payload.slice(prefix..))
    }
}

/// Reads frames of files, through a cache.
#[derive(Debug)]
pub(crate) struct DiskFrames {
    pub(crate) cache: Cache,
    pub(crate) handles: Handles,
    pub(crate) accounts: Accounts,
}

impl DiskFrames {
    /// The body of a frame, from memory.
    pub(crate) fn cached(&self, key: FrameKey) -> Option<Bytes> {
        self.cache.get(key)
    }

    /// The body of a frame, from memory or from its file.
    pub(crate) fn body(&self, key: FrameKey) -> Result<Bytes, ReadError> {
        if let Some(body) = self.cache.get(key) {
            return Ok(body);
        }
        let body = self.read_body(key)?;
        self.cache.insert(key, body.clone());
        Ok(body)
    }

    /// The body of a frame from its file, past the cache.
    pub(crate) fn read_body(&self, key: FrameKey) -> Result<Bytes, ReadError> {
        let frame = self.read(key)?;
        frame
            .body()
            .ok_or_else(|| self.damaged(key, "it is no frame with records"))
    }

    /// A frame from its file.
    pub(crate) fn read(&self, key: FrameKey) -> Result<OwnedFrame, ReadError> {
        let io_error = |source| ReadError::Io {
            file: self.handles.path(self.name(key.file)),
            source,
        };
        let class = self
            .accounts
            .class(key.file)
            .ok_or_else(|| io_error(io::ErrorKind::NotFound.into()))?;
        let handle = self.handles.get(key.file, class).map_err(io_error)?;
        match read_frame(&handle, key) {
            Ok(frame) => Ok(frame),
            Err(FrameError::Io(source)) => Err(io_error(source)),
            Err(FrameError::Fault(fault)) => Err(self.damaged(key, fault.text())),
        }
    }

    /// Frames of a file in the order of their offsets, with one read up to `end`.
    pub(crate) fn read_near(&self, keys: &[FrameKey], end: u64) -> Result<Vec<OwnedFrame>, ReadError> {
        let Some(first) = keys.first() else {
            return Ok(Vec::new());
        };
        let io_error = |source| ReadError::Io {
            file: self.handles.path(self.name(first.file)),
            source,
        };
        let class = self
            .accounts
            .class(first.file)
            .ok_or_else(|| io_error(io::ErrorKind::NotFound.into()))?;
        let handle = self.handles.get(first.file, class).map_err(io_error)?;
        let start = u64::from(first.offset);
        let there = handle.len().map_err(io_error)?.min(end).saturating_sub(start);
        let mut bytes = BytesMut::zeroed(usize::try_from(there).unwrap_or(0));
        handle.pread(&mut bytes, start).map_err(io_error)?;
        let bytes = bytes.freeze();
        let mut frames = Vec::with_capacity(keys.len());
        for key in keys {
            let at = (key.offset - first.offset) as usize;
            let rest = bytes.get(at..).unwrap_or_default();
            let frame = frame::check(rest, u64::from(key.file.0), key.offset);
            let frame = frame.map_err(|fault| self.damaged(*key, fault.text()))?;
            let payload = at + HEADER_BYTES..at + HEADER_BYTES + frame.payload.len();
            frames.push(OwnedFrame {
                version: frame.version,
                kind: frame.kind,
                payload: bytes.slice(payload),
            });
        }
        Ok(frames)
    }

    fn name(&self, file: FileId) -> Name {
        match self.accounts.class(file) {
            Some(Class::Segment) => Name::Segment(file),
            Some(Class::Wal) | None => Name::Wal(file),
        }
    }

    pub(crate) fn damaged(&self, key: FrameKey, why: &'static str) -> ReadError {
        ReadError::Damaged {
            file: self.handles.path(self.name(key.file)),
            offset: u64::from(key.offset),
            why,
        }
    }
}

/// Why a frame could not be read.
#[derive(Debug)]
pub(crate) enum FrameError {
    Io(io::Error),
    Fault(Fault),
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Fault> for FrameError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Reads and checks one frame.
pub(crate) fn read_frame(handle: &Arc<dyn LogFile>, key: FrameKey) -> Result<OwnedFrame, FrameError> {
    read_frame_of(handle, u64::from(key.file.0), key.offset)
}

/// Reads and checks the frame at an offset of the file with that id. Nothing is allocated that the file could not fill.
pub(crate) fn read_frame_of(handle: &Arc<dyn LogFile>, file: u64, at: u32) -> Result<OwnedFrame, FrameError> {
    let offset = u64::from(at);
    let left = usize::try_from(handle.len()?.saturating_sub(offset)).unwrap_or(usize::MAX);
    if left < HEADER_BYTES {
        return Err(Fault::Short.into());
    }
    let mut bytes = BytesMut::zeroed(left.min(READ_AHEAD_BYTES));
    handle.pread(&mut bytes, offset)?;
    let total = frame::frame_bytes(frame::peek(&bytes, file, at)?);
    if total > left {
        return Err(Fault::Short.into());
    }
    let there = bytes.len();
    if total > there {
        bytes.resize(total, 0);
        handle.pread(&mut bytes[there..], offset + there as u64)?;
    }
    let frame = frame::check(&bytes, file, at)?;
    let (version, kind, payload_bytes) = (frame.version, frame.kind, frame.payload.len());
    if total * 2 < bytes.len() {
        // A small frame should not hold all that was read ahead.
        return Ok(OwnedFrame {
            version,
            kind,
            payload: Bytes::copy_from_slice(frame.payload),
        });
    }
    let payload = bytes.freeze().slice(HEADER_BYTES..HEADER_BYTES + payload_bytes);
    Ok(OwnedFrame { version, kind, payload })
}
