//! Reading entries back: from memory, or several at once from their file.

use std::ops::Range;

use boltq_core::LogIndex;
use bytes::Bytes;

use super::GroupLog;
use crate::entries::Slot;
use crate::error::ReadError;
use crate::frame::{self, Kind};
use crate::log::{Disk, Store};
use crate::types::{Entry, EntryId, FrameKey};
use crate::wal::ENTRY_PREFIX_BYTES;
use crate::wal::payload::EntryPrefix;

/// Entries that are read at once from a file, in bytes.
const READ_TOGETHER_BYTES: u64 = 256 << 10;

impl GroupLog {
    /// Entries of `range` that there are, in order and without a hole, up to `bytes_max` bytes of data but at least one.
    /// Recent ones come from memory, older ones from the device.
    pub fn entries(&self, range: Range<LogIndex>, bytes_max: u64) -> Result<Vec<Entry>, ReadError> {
        let slots = self.slots(range, bytes_max);
        match &self.plane().store {
            Store::Memory(memory) => {
                let entries = slots.into_iter().map(|(id, slot)| {
                    let data = memory.body(slot.key).ok_or_else(|| self.no_entry(id.index))?;
                    Ok(entry(id, &slot, data))
                });
                entries.collect()
            }
            Store::Disk(disk) => self.read_entries(disk, &slots),
        }
    }

    fn slots(&self, range: Range<LogIndex>, bytes_max: u64) -> Vec<(EntryId, Slot)> {
        let raft = self.group.raft.lock();
        let Some(first) = raft.table.first() else {
            return Vec::new();
        };
        let mut slots = Vec::new();
        let mut bytes = 0u64;
        for index in range.start.0.max(first)..range.end.0 {
            let Some((slot, id)) = raft.table.get(LogIndex(index)).zip(raft.table.id(LogIndex(index))) else {
                break;
            };
            bytes += u64::from(slot.bytes);
            if bytes > bytes_max && !slots.is_empty() {
                break;
            }
            slots.push((id, *slot));
        }
        slots
    }

    fn no_entry(&self, index: LogIndex) -> ReadError {
        ReadError::NoEntry {
            group: self.group.id,
            index,
        }
    }

    fn read_entries(&self, disk: &Disk, slots: &[(EntryId, Slot)]) -> Result<Vec<Entry>, ReadError> {
        let mut entries = Vec::with_capacity(slots.len());
        while let Some((id, slot)) = slots.get(entries.len()) {
            if let Some(data) = disk.frames.cached(slot.key) {
                entries.push(entry(*id, slot, data));
                continue;
            }
            let rest = &slots[entries.len()..];
            // What stands behind it may not be written yet, and what is not written is in the cache.
            let together = &rest[..together(rest, |key| disk.frames.cached(key).is_none())];
            match self.read_together(disk, together) {
                Ok(read) => entries.extend(read),
                // Purged or replaced meanwhile, and then the file may be gone.
                Err(_) if self.group.raft.lock().table.get(id.index) != Some(slot) => {
                    return Err(self.no_entry(id.index));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    /// Reads entries that stand near each other in a file.
    fn read_together(&self, disk: &Disk, slots: &[(EntryId, Slot)]) -> Result<Vec<Entry>, ReadError> {
        let keys: Vec<FrameKey> = slots.iter().map(|(_, slot)| slot.key).collect();
        let end = slots.last().map_or(0, |(_, slot)| frame_end(slot));
        let frames = disk.frames.read_near(&keys, end)?;
        let mut entries = Vec::with_capacity(slots.len());
        for ((id, slot), frame) in slots.iter().zip(frames) {
            let wanted = EntryPrefix {
                group: self.group.id,
                kind: slot.kind,
                id: *id,
            };
            match (EntryPrefix::decode(&frame.payload), frame.body()) {
                (Ok(prefix), Some(data)) if frame.kind == Kind::Entry && prefix == wanted => {
                    entries.push(entry(*id, slot, data));
                }
                _ => {
                    return Err(disk
                        .frames
                        .damaged(slot.key, "it is not the entry that was written there"));
                }
            }
        }
        Ok(entries)
    }
}

fn entry(id: EntryId, slot: &Slot, data: Bytes) -> Entry {
    Entry {
        id,
        kind: slot.kind,
        data,
    }
}

/// Where the frame of an entry ends in its file.
fn frame_end(slot: &Slot) -> u64 {
    u64::from(slot.key.offset) + frame::frame_bytes(ENTRY_PREFIX_BYTES + slot.bytes as usize) as u64
}

/// How many entries from the first on are read at once: those after it in its file that are to be read at all, up to a bound.
fn together(slots: &[(EntryId, Slot)], is_read: impl Fn(FrameKey) -> bool) -> usize {
    let Some((_, first)) = slots.first() else { return 0 };
    let near = slots[1..].iter().take_while(|(_, slot)| {
        let start = u64::from(first.key.offset);
        slot.key.file == first.key.file
            && slot.key > first.key
            && frame_end(slot) - start <= READ_TOGETHER_BYTES
            && is_read(slot.key)
    });
    1 + near.count()
}
