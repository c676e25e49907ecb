//! Files that are open for reading; a bounded number.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Class, Name};
use crate::files::{FileLayer, LogFile};
use crate::types::FileId;

#[derive(Debug)]
pub(crate) struct Handles {
    files: Arc<dyn FileLayer>,
    dir: PathBuf,
    open: Mutex<Open>,
    open_max: usize,
}

#[derive(Debug, Default)]
struct Open {
    handles: HashMap<FileId, (Arc<dyn LogFile>, u64)>,
    /// Counts uses, so that the least recent one is known.
    uses: u64,
}

impl Handles {
    pub(crate) fn new(files: Arc<dyn FileLayer>, dir: &Path, open_max: usize) -> Self {
        Self {
            files,
            dir: dir.to_owned(),
            open: Mutex::default(),
            open_max,
        }
    }

    pub(crate) fn path(&self, name: Name) -> PathBuf {
        self.dir.join(name.to_string())
    }

    pub(crate) fn get(&self, id: FileId, class: Class) -> io::Result<Arc<dyn LogFile>> {
        let mut open = self.open.lock();
        open.uses += 1;
        let now = open.uses;
        if let Some((handle, used)) = open.handles.get_mut(&id) {
            *used = now;
            return Ok(Arc::clone(handle));
        }
        let name = match class {
            Class::Wal => Name::Wal(id),
            Class::Segment => Name::Segment(id),
        };
        let handle = self.files.open(&self.path(name))?;
        if open.handles.len() >= self.open_max {
            let oldest = open
                .handles
                .iter()
                .min_by_key(|(_, (_, used))| *used)
                .map(|(id, _)| *id);
            if let Some(oldest) = oldest {
                open.handles.remove(&oldest);
            }
        }
        open.handles.insert(id, (Arc::clone(&handle), now));
        Ok(handle)
    }

    /// The file is about to go or to be recycled.
    pub(crate) fn close(&self, id: FileId) {
        self.open.lock().handles.remove(&id);
    }
}
