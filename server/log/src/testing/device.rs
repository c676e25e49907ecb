//! The device under the simulated file system: what is on it, and what of the rest a loss of power leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// What a device writes as a whole, or not.
const SECTOR_BYTES: usize = 512;

#[derive(Debug, Default, Clone)]
pub(super) struct Device {
    pub(super) files: Vec<Contents>,
    pub(super) names: BTreeMap<PathBuf, usize>,
    pub(super) durable_names: BTreeMap<PathBuf, usize>,
    /// Changes of names that are not synced.
    pub(super) renames: Vec<NameChange>,
    pub(super) locks: BTreeSet<PathBuf>,
    pub(super) cycle: u64,
    pub(super) operations: u64,
    pub(super) bytes_read: u64,
    pub(super) stop_at: Option<u64>,
    pub(super) syncs: u64,
    pub(super) fail_sync: Option<u64>,
    pub(super) dir_syncs: u64,
    pub(super) fail_dir_sync: Option<u64>,
    pub(super) room: Option<u64>,
    pub(super) fail_create: Option<i32>,
    pub(super) fail_rename: Option<i32>,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Contents {
    pub(super) bytes: Vec<u8>,
    pub(super) durable: Vec<u8>,
    /// Writes that are not synced.
    pub(super) writes: Vec<Write>,
}

#[derive(Debug, Clone)]
pub(super) enum Write {
    Bytes(usize, Vec<u8>),
    Length(usize),
}

#[derive(Debug, Clone)]
pub(super) enum NameChange {
    Set(PathBuf, usize),
    Move(PathBuf, PathBuf),
    Remove(PathBuf),
}

/// A small generator, so that a seed says everything.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap_or(0)
    }
}

impl Device {
    pub(super) fn used(&self) -> u64 {
        let named: BTreeSet<usize> = self.names.values().copied().collect();
        named
            .into_iter()
            .map(|index| self.files[index].bytes.len() as u64)
            .sum()
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<usize> {
        self.names
            .get(path)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn change_name(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.renames.push(change);
    }

    /// Some of what was not synced reaches the device.
    pub(super) fn keep_some(&mut self, random: &mut Random) {
        let kept = random.below(self.renames.len() + 1);
        for change in &self.renames[..kept] {
            apply(&mut self.durable_names, change);
        }
        for file in &mut self.files {
            file.keep_some(random);
        }
    }

    pub(super) fn restart(&mut self) {
        self.renames.clear();
        self.names = self.durable_names.clone();
        for file in &mut self.files {
            file.writes.clear();
            file.bytes = file.durable.clone();
        }
        self.locks.clear();
        self.cycle += 1;
        self.stop_at = None;
        self.fail_sync = None;
        self.fail_dir_sync = None;
        self.room = None;
        self.fail_create = None;
        self.fail_rename = None;
    }
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: &NameChange) {
    match change {
        NameChange::Set(path, index) => {
            names.insert(path.clone(), *index);
        }
        NameChange::Move(from, to) => {
            if let Some(index) = names.remove(from) {
                names.insert(to.clone(), index);
            }
        }
        NameChange::Remove(path) => {
            names.remove(path);
        }
    }
}

impl Contents {
    pub(super) fn sync(&mut self) {
        for write in self.writes.drain(..) {
            write.apply(&mut self.durable);
        }
    }

    pub(super) fn keep_some(&mut self, random: &mut Random) {
        let all_or_nothing = random.below(4);
        for write in std::mem::take(&mut self.writes) {
            match (all_or_nothing, write) {
                (0, _) => {}
                (1, write) => write.apply(&mut self.durable),
                (_, Write::Length(length)) if random.below(2) == 0 => Write::Length(length).apply(&mut self.durable),
                (_, Write::Length(_)) => {}
                (_, Write::Bytes(offset, bytes)) => tear(&mut self.durable, offset, &bytes, random),
            }
        }
    }
}

/// Writes some sectors of `bytes`, and of the last one perhaps a part.
fn tear(into: &mut Vec<u8>, offset: usize, bytes: &[u8], random: &mut Random) {
    let mut at = 0;
    while at < bytes.len() {
        let end = ((offset + at) / SECTOR_BYTES + 1) * SECTOR_BYTES - offset;
        let end = end.min(bytes.len());
        match random.below(4) {
            0 => {}
            1 => {
                let part = at + random.below(end - at);
                Write::Bytes(offset + at, bytes[at..part].to_vec()).apply(into);
            }
            _ => Write::Bytes(offset + at, bytes[at..end].to_vec()).apply(into),
        }
        at = end;
    }
}

impl Write {
    pub(super) fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Length(length) => to.resize(*length, 0),
            Self::Bytes(_, bytes) if bytes.is_empty() => {}
            Self::Bytes(offset, bytes) => {
                let end = offset + bytes.len();
                if to.len() < end {
                    to.resize(end, 0);
                }
                to[*offset..end].copy_from_slice(bytes);
            }
        }
    }
}
