//! Which entries may go: by their bytes, by the files that they lie in, and by how far they lie behind.

use boltq_core::LogIndex;

use super::GroupLog;
use crate::frame;
use crate::log::Store;
use crate::types::FileId;
use crate::wal::ENTRY_PREFIX_BYTES;

/// Files that entries may lie in, if they are not as long as files are when they are full.
const ENTRY_FILES_MAX: u64 = 16;

impl GroupLog {
    /// The entry before the last `bytes` of entries; none if there is not more than that. Entries up to it can be given up, if a
    /// checkpoint makes up for them, and `bytes` of them stay: less if they lie in many files, of which each start begins one.
    pub fn before_last_bytes(&self, bytes: u64) -> Option<LogIndex> {
        let files_max = ENTRY_FILES_MAX + bytes / self.plane().config.wal_file_bytes;
        let raft = self.group.raft.lock();
        let (mut left, mut files, mut file) = (bytes, 0, FileId::NONE);
        for (index, slot) in raft.table.newest_first() {
            if slot.key.file != file {
                (files, file) = (files + 1, slot.key.file);
            }
            let size = frame::frame_bytes(ENTRY_PREFIX_BYTES + slot.bytes as usize) as u64;
            if size > left || files > files_max {
                return Some(LogIndex(index));
            }
            left -= size;
        }
        None
    }

    /// Whether the entries lie in so many files, of which each start begins one, that a checkpoint should make up for some of
    /// them. Looks at all entries.
    pub fn lies_in_many_files(&self) -> bool {
        let raft = self.group.raft.lock();
        let mut files: Vec<FileId> = raft.table.newest_first().map(|(_, slot)| slot.key.file).collect();
        files.dedup();
        files.len() as u64 > ENTRY_FILES_MAX
    }

    /// The last entry of those that lie more than `bytes` behind the end of the log, whichever groups wrote what is in between.
    /// As long as such entries are there, no file after them goes, be they ever so few.
    pub fn last_far_behind(&self, bytes: u64) -> Option<LogIndex> {
        let Store::Disk(disk) = &self.plane().store else {
            return None;
        };
        let files = (bytes / self.plane().config.wal_file_bytes).max(1);
        let end = disk.wal.head().file();
        let near = FileId(end.0.saturating_sub(u32::try_from(files).unwrap_or(u32::MAX)));
        let raft = self.group.raft.lock();
        let first = raft.table.get(LogIndex(raft.table.first()?))?;
        if first.key.file >= near {
            return None;
        }
        let far = raft.table.newest_first().find(|(_, slot)| slot.key.file < near);
        far.map(|(index, _)| LogIndex(index))
    }
}
