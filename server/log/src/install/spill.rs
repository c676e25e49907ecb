//! Records on their way into segments.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use boltq_core::{GroupId, StreamId};

use crate::error::InstallError;
use crate::files::FileLayer;
use crate::log::Disk;
use crate::segment::{Length, SegmentWriter};
use crate::store::{Accounts, Name, Pins, TMP_SUFFIX};
use crate::types::{FileId, FrameKey};
use crate::users::Users;

/// Segments that are being written. They are removed with it, unless they were published.
pub(super) struct Spill {
    files: Arc<dyn FileLayer>,
    dir: PathBuf,
    users: Arc<Users>,
    accounts: Accounts,
    /// Length from which on a segment is finished, so that compaction can rewrite one after the other.
    segment_bytes: u64,
    current: Option<SegmentWriter>,
    finished: Vec<(FileId, Length)>,
    /// What each file is called, the current one last.
    paths: Vec<PathBuf>,
}

impl Spill {
    pub(super) fn new(disk: &Disk, segment_bytes: u64) -> Self {
        Self {
            files: Arc::clone(&disk.files),
            dir: disk.dir.clone(),
            users: Arc::clone(&disk.users),
            accounts: disk.frames.accounts.clone(),
            segment_bytes,
            current: None,
            finished: Vec::new(),
            paths: Vec::new(),
        }
    }

    /// Writes records into a frame of their own; returns where that is. `next_id` gives ids of files.
    pub(super) fn add(
        &mut self,
        next_id: impl FnOnce() -> io::Result<FileId>,
        group: GroupId,
        stream: StreamId,
        first: u64,
        count: u32,
        records: &[u8],
    ) -> Result<FrameKey, InstallError> {
        if self
            .current
            .as_ref()
            .is_some_and(|writer| writer.bytes() >= self.segment_bytes)
        {
            self.finish()?;
        }
        let writer = match &mut self.current {
            Some(writer) => writer,
            None => {
                let id = next_id().map_err(at("create a segment in", &self.dir))?;
                let path = self.dir.join(format!("{}{TMP_SUFFIX}", Name::Segment(id)));
                let handle = self.files.create(&path).map_err(at("create", &path))?;
                self.paths.push(path);
                self.current.insert(SegmentWriter::new(id, handle))
            }
        };
        let written = writer.add(group, stream, first, count, records);
        let (file, path) = (writer.id(), self.paths.last().unwrap_or(&self.dir));
        let offset = written.map_err(at("write", path))?;
        Ok(FrameKey { file, offset })
    }

    fn finish(&mut self) -> Result<(), InstallError> {
        if let Some(writer) = self.current.take() {
            let id = writer.id();
            let path = self.paths.last().unwrap_or(&self.dir);
            let length = writer.finish().map_err(at("write", path))?;
            self.finished.push((id, length));
        }
        Ok(())
    }

    /// Gives the segments their names, on the device, and opens their accounts; the pins keep them.
    pub(super) fn publish(mut self, disk: &Disk) -> Result<Vec<Pins>, InstallError> {
        self.finish()?;
        for ((id, _), path) in self.finished.iter().zip(&mut self.paths) {
            let name = self.dir.join(Name::Segment(*id).to_string());
            self.files.rename(path, &name).map_err(at("rename", path))?;
            *path = name;
        }
        if !self.paths.is_empty() {
            self.files.sync_dir(&self.dir).map_err(at("sync", &self.dir))?;
        }
        self.paths.clear();
        let open = |(id, length): (FileId, Length)| {
            disk.frames
                .accounts
                .open_segment(id, length.file_bytes, length.record_bytes)
        };
        Ok(std::mem::take(&mut self.finished).into_iter().map(open).collect())
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        // Without the directory: they are nobody's, and the next start removes them.
        let Ok(_user) = self.users.enter() else { return };
        for path in &self.paths {
            if let Err(error) = self.files.remove(path) {
                tracing::warn!(file = %path.display(), %error, "a segment that was not completed cannot be removed; the next start tries again");
                let name = path.file_name().and_then(|name| name.to_str());
                if let Some(Name::Segment(id)) =
                    name.and_then(|name| Name::parse_unfinished(name).or(Name::parse(name)))
                {
                    self.accounts.leave(id);
                }
            }
        }
    }
}

fn at(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> InstallError + use<> {
    let path = path.to_owned();
    move |source| InstallError::Io {
        operation,
        path,
        source,
    }
}
