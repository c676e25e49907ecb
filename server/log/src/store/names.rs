//! Names of files in a data directory.
//!
//! ```text
//! lock                        held by the process that uses the directory; its process id
//! wal-<id>.log                a file of the write-ahead log
//! seg-<id>.log                a segment
//! ckp-<group>-<index>         a checkpoint of a group, up to the entry
//! reserve                     room for a checkpoint on a full device
//! *.tmp                       being written; worthless after a crash
//! ```
//!
//! Ids and indexes are 16 digits in hexadecimal, so that names sort as numbers do; a group is decimal.

use boltq_core::{GroupId, LogIndex};

use crate::types::FileId;

pub(crate) const LOCK_NAME: &str = "lock";
pub(crate) const TMP_SUFFIX: &str = ".tmp";

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    Wal(FileId),
    Segment(FileId),
    Checkpoint(GroupId, LogIndex),
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Wal(id) => write!(f, "wal-{:016x}.log", id.0),
            Self::Segment(id) => write!(f, "seg-{:016x}.log", id.0),
            Self::Checkpoint(group, index) => write!(f, "ckp-{}-{:016x}", group.0, index.0),
        }
    }
}

impl Name {
    /// What a file was to become that is called `name`, if it is being written.
    pub(crate) fn parse_unfinished(name: &str) -> Option<Self> {
        Self::parse(name.strip_suffix(TMP_SUFFIX)?)
    }

    /// Nothing for names that are not ours; they are left alone.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let parsed = if let Some(rest) = name.strip_prefix("wal-") {
            Self::Wal(file_id(rest.strip_suffix(".log")?)?)
        } else if let Some(rest) = name.strip_prefix("seg-") {
            Self::Segment(file_id(rest.strip_suffix(".log")?)?)
        } else {
            let (group, index) = name.strip_prefix("ckp-")?.split_once('-')?;
            Self::Checkpoint(GroupId(group.parse().ok()?), LogIndex(hex(index)?))
        };
        // Only the one spelling that we write: no signs, no capitals, no missing zeroes.
        (parsed.to_string() == name).then_some(parsed)
    }
}

fn file_id(text: &str) -> Option<FileId> {
    let id = u32::try_from(hex(text)?).ok()?;
    Some(FileId(id)).filter(|id| *id != FileId::NONE)
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_foreign_ones_are_none() {
        for name in [
            Name::Wal(FileId(255)),
            Name::Segment(FileId(u32::MAX)),
            Name::Checkpoint(GroupId(7), LogIndex(u64::MAX)),
        ] {
            assert_eq!(Name::parse(&name.to_string()), Some(name));
        }
        for name in [
            "lock",
            "wal-1.log",
            "wal-+000000000000001.log",
            "wal-0000000000000000.log",
            "wal-00000000000000FF.log",
            "wal-00000001000000ff.log",
            "seg-00000000000000ff.log.tmp",
            "ckp-1-2",
            "ckp--1-0000000000000001",
            "größe",
        ] {
            assert_eq!(Name::parse(name), None, "{name}");
        }
    }
}
