//! A frame on its way to the writer.

use std::sync::Arc;

use boltq_core::GroupId;
use bytes::Bytes;

use super::payload::{ENTRY_PREFIX_BYTES, EntryPrefix};
use crate::files::LogFile;
use crate::frame::{self, HEADER_BYTES, Header, Kind, Mark};
use crate::types::{Entry, FileId, FrameKey};

/// Longest that stands before the data: header and prefix of an entry.
const FRONT_BYTES_MAX: usize = HEADER_BYTES + ENTRY_PREFIX_BYTES;

/// A frame whose checksum is taken, and that then gets a place.
pub(crate) struct Outgoing {
    pub(crate) key: FrameKey,
    kind: Kind,
    prefix: Option<EntryPrefix>,
    pub(crate) data: Bytes,
    payload_crc: u32,
    /// The file to go on with, if it is the first frame in it.
    pub(crate) opens: Option<Arc<dyn LogFile>>,
}

/// Header and prefix, in a buffer of fixed size so that those of a batch stand in one allocation.
pub(crate) struct Front {
    bytes: [u8; FRONT_BYTES_MAX],
    length: usize,
}

impl Front {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Outgoing {
    pub(crate) fn entry(group: GroupId, entry: Entry) -> Self {
        let prefix = EntryPrefix {
            group,
            kind: entry.kind,
            id: entry.id,
        };
        Self {
            key: FrameKey::default(),
            kind: Kind::Entry,
            payload_crc: frame::payload_crc(&[&prefix.encode(), &entry.data]),
            prefix: Some(prefix),
            data: entry.data,
            opens: None,
        }
    }

    pub(crate) fn other(kind: Kind, payload: Bytes) -> Self {
        Self {
            key: FrameKey::default(),
            kind,
            payload_crc: frame::payload_crc(&[&payload]),
            prefix: None,
            data: payload,
            opens: None,
        }
    }

    /// What is written where a file is cut off.
    pub(crate) fn end(file: FileId, offset: u32) -> Self {
        let mut frame = Self::other(Kind::End, Bytes::new());
        frame.set_place(file, offset);
        frame
    }

    pub(crate) fn prefix(&self) -> Option<&EntryPrefix> {
        self.prefix.as_ref()
    }

    fn payload_bytes(&self) -> usize {
        self.data.len() + if self.prefix.is_some() { ENTRY_PREFIX_BYTES } else { 0 }
    }

    /// Bytes in the file.
    pub(crate) fn bytes(&self) -> u64 {
        frame::frame_bytes(self.payload_bytes()) as u64
    }

    /// Zeroes at the end of the frame.
    pub(crate) fn padding_bytes(&self) -> usize {
        frame::frame_bytes(self.payload_bytes()) - HEADER_BYTES - self.payload_bytes()
    }

    pub(crate) fn front(&self, mark: Mark) -> Front {
        let header = Header {
            kind: self.kind,
            file: u64::from(self.key.file.0),
            offset: self.key.offset,
            mark,
        };
        // The length of data is checked where it comes in.
        let payload_bytes = u32::try_from(self.payload_bytes()).unwrap_or(u32::MAX);
        let mut bytes = [0; FRONT_BYTES_MAX];
        bytes[..HEADER_BYTES].copy_from_slice(&frame::encode(&header, payload_bytes, self.payload_crc));
        let length = match &self.prefix {
            Some(prefix) => {
                bytes[HEADER_BYTES..].copy_from_slice(&prefix.encode());
                FRONT_BYTES_MAX
            }
            None => HEADER_BYTES,
        };
        Front { bytes, length }
    }

    /// Puts the frame at its place.
    pub(crate) fn set_place(&mut self, file: FileId, offset: u32) {
        self.key = FrameKey { file, offset };
    }
}
