//! What holds frames: files on disk with their accounts, or memory.

mod accounts;
mod frames;
mod handles;
mod memory;
mod names;

pub(crate) use accounts::{Account, Accounts, Class, Pins};
pub(crate) use frames::{DiskFrames, FrameError, OwnedFrame, read_frame, read_frame_of};
pub(crate) use handles::Handles;
pub(crate) use memory::MemoryFrames;
pub(crate) use names::{LOCK_NAME, Name, TMP_SUFFIX};

use crate::index::{Row, RowChanges};
use crate::types::{FileId, FrameKey};

/// Changes of accounts, gathered under the lock of an index and booked once.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Whether accounts are kept for each frame and not for each file.
    by_frame: bool,
    list: Vec<(FrameKey, Change)>,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Change {
    pub(crate) rows: i64,
    pub(crate) bytes: i64,
}

impl Changes {
    pub(crate) fn by_file() -> Self {
        Self::default()
    }

    pub(crate) fn by_frame() -> Self {
        Self {
            by_frame: true,
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn frames(&self) -> impl Iterator<Item = (FrameKey, Change)> {
        self.list.iter().copied()
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (FileId, Change)> {
        self.list.iter().map(|(key, change)| (key.file, *change))
    }

    fn add(&mut self, row: &Row, rows: i64, bytes: i64) {
        let key = if self.by_frame {
            row.key()
        } else {
            FrameKey {
                file: row.file,
                offset: 0,
            }
        };
        match self.list.last_mut() {
            Some((last, change)) if *last == key => {
                change.rows += rows;
                change.bytes += bytes;
            }
            _ => self.list.push((key, Change { rows, bytes })),
        }
    }
}

impl RowChanges for Changes {
    fn added(&mut self, row: &Row, new: bool, bytes: u32) {
        self.add(row, i64::from(new), i64::from(bytes));
    }

    fn removed(&mut self, row: &Row) {
        self.add(row, -1, -i64::from(row.bytes));
    }
}
