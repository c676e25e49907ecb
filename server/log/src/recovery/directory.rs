//! What lies in a data directory.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use boltq_core::{DecodeError, GroupId, LogIndex};

use crate::checkpoint::format::{self, Contents};
use crate::checkpoint::read_whole;
use crate::error::OpenError;
use crate::files::{FileLayer, LogFile};
use crate::frame::{self, HEADER_BYTES, Kind, VERSION_1};
use crate::segment::{self, Length, SegmentError};
use crate::store::{Class, FrameError, Name, read_frame, read_frame_of};
use crate::types::{FileId, FrameKey};
use crate::wal::payload::{Start, decode_reserved};
use crate::wal::{ENTRY_PREFIX_BYTES, RESERVE_NAME};

/// The files of a directory, by kind, with their lengths.
pub(super) struct Directory {
    pub(super) files: Arc<dyn FileLayer>,
    pub(super) path: PathBuf,
    pub(super) wals: BTreeMap<FileId, u64>,
    pub(super) segments: BTreeMap<FileId, u64>,
    checkpoints: BTreeMap<GroupId, BTreeMap<LogIndex, u64>>,
    /// Files that a crash left half written.
    unfinished: Vec<String>,
    /// Length of the file that is kept for a checkpoint on a full device; 0: none.
    pub(super) reserve_bytes: u64,
}

/// The newest checkpoint of a group.
pub(super) struct Newest {
    pub(super) contents: Contents,
    pub(super) name: Name,
    pub(super) bytes: u64,
    /// Whether the log was on the device up to the place that it names.
    pub(super) synced: bool,
}

impl Newest {
    /// For each WAL file that rows point into, where the last record in it ends.
    pub(super) fn wal_ends(&self) -> BTreeMap<FileId, u64> {
        let classes = self.contents.head.files.iter();
        let wals: BTreeSet<FileId> = classes
            .filter(|(_, class)| *class == Class::Wal)
            .map(|(id, _)| *id)
            .collect();
        let mut ends = BTreeMap::new();
        for row in self.contents.index.rows() {
            if wals.contains(&row.file) {
                let body_at = (HEADER_BYTES + ENTRY_PREFIX_BYTES) as u64;
                let row_end = u64::from(row.frame) + body_at + u64::from(row.at) + u64::from(row.bytes);
                let end = ends.entry(row.file).or_default();
                *end = row_end.max(*end);
            }
        }
        ends
    }
}

impl Directory {
    pub(super) fn list(files: Arc<dyn FileLayer>, path: &Path) -> Result<Self, OpenError> {
        let entries = files.list(path).map_err(io_error("list", path))?;
        let mut directory = Self {
            files,
            path: path.to_owned(),
            wals: BTreeMap::new(),
            segments: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            unfinished: Vec::new(),
            reserve_bytes: 0,
        };
        for entry in entries {
            match Name::parse(&entry.name) {
                Some(Name::Wal(id)) => {
                    directory.wals.insert(id, entry.bytes);
                }
                Some(Name::Segment(id)) => {
                    directory.segments.insert(id, entry.bytes);
                }
                Some(Name::Checkpoint(group, index)) => {
                    directory
                        .checkpoints
                        .entry(group)
                        .or_default()
                        .insert(index, entry.bytes);
                }
                None if Name::parse_unfinished(&entry.name).is_some() => directory.unfinished.push(entry.name),
                None if entry.name == RESERVE_NAME => directory.reserve_bytes = entry.bytes,
                None => {}
            }
        }
        Ok(directory)
    }

    pub(super) fn join(&self, name: Name) -> PathBuf {
        self.path.join(name.to_string())
    }

    pub(super) fn open(&self, name: Name) -> Result<Arc<dyn LogFile>, OpenError> {
        let path = self.join(name);
        self.files.open(&path).map_err(io_error("open", &path))
    }

    pub(super) fn highest_id(&self) -> FileId {
        let wal = self.wals.keys().next_back();
        let segment = self.segments.keys().next_back();
        wal.max(segment).copied().unwrap_or_default()
    }

    /// The newest checkpoint of each group.
    pub(super) fn newest_checkpoints(&self) -> Result<BTreeMap<GroupId, Newest>, OpenError> {
        let mut newest = BTreeMap::new();
        for (group, indexes) in &self.checkpoints {
            if let Some((index, bytes)) = indexes.last_key_value() {
                newest.insert(*group, self.read_checkpoint(*group, *index, *bytes)?);
            }
        }
        Ok(newest)
    }

    fn read_checkpoint(&self, group: GroupId, index: LogIndex, bytes: u64) -> Result<Newest, OpenError> {
        let name = Name::Checkpoint(group, index);
        let damaged = |why: String| OpenError::Damaged {
            path: self.join(name),
            offset: 0,
            why,
        };
        let handle = self.open(name)?;
        let frame = read_whole(&handle, index.0).map_err(|error| match error {
            FrameError::Io(source) => io_error("read", &self.join(name))(source),
            FrameError::Fault(fault) => damaged(fault.text().to_owned()),
        })?;
        let contents = format::decode(&frame.payload, frame.kind == Kind::ErasingCheckpoint)
            .map_err(|error| damaged(error.to_string()))?;
        if contents.head.group != group || contents.head.applied.index != index {
            return Err(damaged("it is the checkpoint of another group or entry".to_owned()));
        }
        Ok(Newest {
            contents,
            name,
            bytes,
            synced: frame.version > VERSION_1,
        })
    }

    /// Whether all files are there that the rows of a checkpoint point into; the lengths of segments among them.
    pub(super) fn check_files(&self, newest: &Newest, lengths: &mut BTreeMap<FileId, Length>) -> Result<(), OpenError> {
        for (id, class) in &newest.contents.head.files {
            if lengths.contains_key(id) {
                continue;
            }
            let (name, there) = match class {
                Class::Wal => (Name::Wal(*id), self.wals.contains_key(id)),
                Class::Segment => (Name::Segment(*id), self.segments.contains_key(id)),
            };
            if !there {
                return Err(OpenError::Missing {
                    path: self.join(name),
                    needed_by: format!("records that {} refers to are in it", newest.name),
                });
            }
            if *class == Class::Segment {
                lengths.insert(*id, self.check_segment(*id)?);
            }
        }
        Ok(())
    }

    fn check_segment(&self, id: FileId) -> Result<Length, OpenError> {
        let name = Name::Segment(id);
        match segment::check_end(&self.open(name)?, id) {
            Ok(length) => Ok(length),
            Err(SegmentError::Io(source)) => Err(io_error("read", &self.join(name))(source)),
            Err(SegmentError::Damaged { offset, why }) => Err(OpenError::Damaged {
                path: self.join(name),
                offset,
                why,
            }),
        }
    }

    /// Removes what a crash left half written, and checkpoints that are not the newest. Returns the segments that cannot be
    /// removed.
    pub(super) fn remove_leftovers(&self) -> Vec<FileId> {
        let mut left = Vec::new();
        let old = self.checkpoints.iter().flat_map(|(group, indexes)| {
            let old = indexes.keys().rev().skip(1);
            old.map(|index| Name::Checkpoint(*group, *index).to_string())
        });
        for name in old.chain(self.unfinished.iter().cloned()) {
            if let Err(error) = self.files.remove(&self.path.join(&name)) {
                tracing::warn!(file = %name, %error, "a file that is not needed cannot be removed");
                if let Some(Name::Segment(id)) = Name::parse_unfinished(&name) {
                    left.push(id);
                }
            }
        }
        left
    }
}

/// What a WAL file starts with.
pub(super) enum First {
    /// It is, or was, part of the log.
    Start(Result<Start, DecodeError>),
    /// It was prepared while this file was in use, and is not used.
    Reserved(Result<FileId, DecodeError>),
    /// Nothing that is whole.
    Nothing,
}

pub(super) fn read_first(handle: &Arc<dyn LogFile>, id: FileId) -> io::Result<First> {
    match read_frame(handle, FrameKey { file: id, offset: 0 }) {
        Ok(frame) => Ok(match frame.kind {
            Kind::Start => First::Start(Start::decode(&frame.payload, frame.version)),
            Kind::Reserved => First::Reserved(decode_reserved(&frame.payload)),
            _ => First::Nothing,
        }),
        Err(FrameError::Fault(_)) => read_reserved(handle),
        Err(FrameError::Io(error)) => Err(error),
    }
}

/// What a file says that was prepared to be another one: it has that one's name, or was being recycled. What it says of the
/// file that was in use stays true.
fn read_reserved(handle: &Arc<dyn LogFile>) -> io::Result<First> {
    let mut header = [0; HEADER_BYTES];
    if handle.len()? < HEADER_BYTES as u64 {
        return Ok(First::Nothing);
    }
    handle.pread(&mut header, 0)?;
    match read_frame_of(handle, frame::said_file(&header), 0) {
        Ok(frame) if frame.kind == Kind::Reserved => Ok(First::Reserved(decode_reserved(&frame.payload))),
        Ok(_) | Err(FrameError::Fault(_)) => Ok(First::Nothing),
        Err(FrameError::Io(error)) => Err(error),
    }
}

pub(super) fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError + use<> {
    let path = path.to_owned();
    move |source| OpenError::Io {
        operation,
        path,
        source,
    }
}
