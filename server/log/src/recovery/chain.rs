//! Which WAL files a start has to read.
//!
//! Every WAL file names the one before it in its first frame, and what each group needs from before it. From the newest file
//! back, these names give the files of the log in order; files that are not among them are left over, or were prepared and
//! not used.
//!
//! The newest file is named by none that is used. But the one that is prepared names a file that was in use then, so the
//! log has to go on at least up to that one.

use std::collections::{BTreeMap, BTreeSet};

use boltq_core::GroupId;

use super::directory::{Directory, First, Newest, io_error, read_first};
use crate::error::OpenError;
use crate::frame::{self, Fault, Mark};
use crate::store::Name;
use crate::types::FileId;
use crate::wal::payload::Start;

/// A file that is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) id: FileId,
    /// Where its frames end; the file after it says so, and for the newest nobody does.
    pub(super) end: Option<u32>,
}

/// The files to read in order, and those that come after them by number: prepared, or never finished.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) links: Vec<Link>,
    pub(super) after: Vec<FileId>,
}

pub(super) fn find(directory: &Directory, checkpoints: &BTreeMap<GroupId, Newest>) -> Result<Chain, OpenError> {
    check_end(directory, checkpoints)?;
    let mut starts = Starts::new(directory);
    loop {
        let newest = starts.newest()?;
        let after: Vec<FileId> = directory.wals.keys().copied().filter(|id| Some(*id) > newest).collect();
        if let Some(first) = after.first() {
            check_unsynced(directory, start_of(*first), &[], &after, Fault::NoFrame)?;
        }
        starts.check_reserved(newest.unwrap_or_default(), &after)?;
        let Some(newest) = newest else {
            // An empty directory, or a crash before the first sync.
            return Ok(Chain {
                links: Vec::new(),
                after,
            });
        };
        match walk(&starts, newest, checkpoints)? {
            Ok(links) => return Ok(Chain { links, after }),
            Err(Broken { missing, by }) => {
                // The file that continues it may have reached the device before it did, if neither was synced.
                let later: Vec<FileId> = directory.wals.range(missing..).map(|(id, _)| *id).collect();
                if check_unsynced(directory, start_of(missing), &[], &later, Fault::NoFrame).is_err() {
                    return Err(broken(directory, missing, by));
                }
                starts.end = Some(missing);
            }
        }
    }
}

/// The file that the next entry was to go to when a checkpoint was written was there, and went only after another came.
fn check_end(directory: &Directory, checkpoints: &BTreeMap<GroupId, Newest>) -> Result<(), OpenError> {
    for newest in checkpoints.values() {
        let end = newest.contents.head.replay.file_id();
        if directory.wals.range(end..).next().is_none() {
            return Err(OpenError::Missing {
                path: directory.join(Name::Wal(end)),
                needed_by: format!("entries after {} may be in it", newest.name),
            });
        }
    }
    Ok(())
}

/// A file that is needed has no first frame.
struct Broken {
    missing: FileId,
    by: FileId,
}

/// From the newest file back to the first one that is needed.
fn walk(
    starts: &Starts<'_>,
    newest: FileId,
    checkpoints: &BTreeMap<GroupId, Newest>,
) -> Result<Result<Vec<Link>, Broken>, OpenError> {
    let mut links = vec![Link { id: newest, end: None }];
    let Some(mut current) = starts.read(newest)? else {
        return Ok(Ok(links));
    };
    let (wanted, required) = needed(newest, &current, checkpoints);
    let mut id = newest;
    while id > wanted && current.previous != FileId::NONE {
        let previous = current.previous;
        let Some(start) = starts.read(previous)? else {
            // Before what is required, files may be gone, or be recycled.
            if id > required {
                return Ok(Err(Broken {
                    missing: previous,
                    by: id,
                }));
            }
            break;
        };
        links.push(Link {
            id: previous,
            end: Some(current.previous_end),
        });
        (id, current) = (previous, start);
    }
    links.reverse();
    Ok(Ok(links))
}

fn start_of(file: FileId) -> Mark {
    Mark {
        file: u64::from(file.0),
        offset: 0,
    }
}

/// First frames of files, read when they are asked for: of a backlog, most are not.
struct Starts<'a> {
    directory: &'a Directory,
    /// Files from here on are not part of the log.
    end: Option<FileId>,
}

impl<'a> Starts<'a> {
    fn new(directory: &'a Directory) -> Self {
        Self { directory, end: None }
    }

    /// The last file that has a first frame.
    fn newest(&self) -> Result<Option<FileId>, OpenError> {
        for id in self.directory.wals.keys().rev() {
            if self.read(*id)?.is_some() {
                return Ok(Some(*id));
            }
        }
        Ok(None)
    }

    fn read(&self, id: FileId) -> Result<Option<Start>, OpenError> {
        if self.end.is_some_and(|end| id >= end) || !self.directory.wals.contains_key(&id) {
            return Ok(None);
        }
        let First::Start(start) = self.first(id)? else {
            return Ok(None);
        };
        // The frame is whole, so this is no torn write, and not ours to cut off.
        let damaged = |why: String| damaged(self.directory, id, why);
        let start = start.map_err(|error| damaged(error.to_string()))?;
        if start.previous >= id {
            return Err(damaged(format!(
                "it says that it continues {}",
                Name::Wal(start.previous)
            )));
        }
        Ok(Some(start))
    }

    fn first(&self, id: FileId) -> Result<First, OpenError> {
        let name = Name::Wal(id);
        let handle = self.directory.open(name)?;
        read_first(&handle, id).map_err(io_error("read", &self.directory.join(name)))
    }

    /// The log, which ends with the file `newest`, goes on as far as files that were prepared say.
    fn check_reserved(&self, newest: FileId, prepared: &[FileId]) -> Result<(), OpenError> {
        for id in prepared {
            let First::Reserved(in_use) = self.first(*id)? else {
                continue;
            };
            let in_use = in_use.map_err(|error| damaged(self.directory, *id, error.to_string()))?;
            if in_use > newest {
                let because = format!("was in use when {} was prepared", Name::Wal(*id));
                return Err(lost(self.directory, in_use, &because));
            }
        }
        Ok(())
    }
}

fn damaged(directory: &Directory, id: FileId, why: String) -> OpenError {
    OpenError::Damaged {
        path: directory.join(Name::Wal(id)),
        offset: 0,
        why,
    }
}

/// A file that was part of the log is not there, or is something else.
pub(super) fn lost(directory: &Directory, id: FileId, because: &str) -> OpenError {
    if directory.wals.contains_key(&id) {
        damaged(
            directory,
            id,
            format!("it does not start like a WAL file that is in use, but it {because}"),
        )
    } else {
        OpenError::Missing {
            path: directory.join(Name::Wal(id)),
            needed_by: format!("it {because}"),
        }
    }
}

/// The file from which on entries are wanted that were not purged, and the one from which on the log has to be whole.
fn needed(newest: FileId, start: &Start, checkpoints: &BTreeMap<GroupId, Newest>) -> (FileId, FileId) {
    let said: BTreeMap<GroupId, Option<FileId>> = start
        .groups
        .iter()
        .map(|(group, state)| (*group, state.needed_from))
        .collect();
    let groups: BTreeSet<GroupId> = said.keys().chain(checkpoints.keys()).copied().collect();
    let (mut wanted, mut required) = (newest, newest);
    for group in groups {
        let needed_from = said.get(&group).copied().flatten().unwrap_or(newest);
        let (keep, replay) = match checkpoints.get(&group) {
            // What a checkpoint made needless may be gone, though the newest file was started before and says otherwise.
            Some(checkpoint) => {
                let head = &checkpoint.contents.head;
                (head.keep.file_id(), needed_from.max(head.replay.file_id()))
            }
            None => (needed_from, needed_from),
        };
        wanted = wanted.min(keep).min(replay);
        required = required.min(replay);
    }
    (wanted, required)
}

/// A file that is needed has no first frame.
fn broken(directory: &Directory, id: FileId, after: FileId) -> OpenError {
    let path = directory.join(Name::Wal(id));
    if directory.wals.contains_key(&id) {
        OpenError::Damaged {
            path,
            offset: 0,
            why: format!(
                "it does not start like a WAL file, but {} continues it",
                Name::Wal(after)
            ),
        }
    } else {
        OpenError::Missing {
            path,
            needed_by: format!(
                "{} continues it, and entries in it are not in a checkpoint",
                Name::Wal(after)
            ),
        }
    }
}

/// Refuses if anything at or after `place`, where there is `fault` instead of a frame, shows that the place had been synced.
/// `rest` is what the file of the place holds; `later` are the files after it.
pub(super) fn check_unsynced(
    directory: &Directory,
    place: Mark,
    rest: &[u8],
    later: &[FileId],
    fault: Fault,
) -> Result<(), OpenError> {
    let from = place.offset as usize + frame::ALIGNMENT;
    let mut highest = frame::highest_mark(rest, place.file, from);
    for id in later {
        if highest > Some(place) {
            break;
        }
        let bytes = read_file(directory, *id)?;
        highest = highest.max(frame::highest_mark(&bytes, u64::from(id.0), 0));
    }
    if highest <= Some(place) {
        return Ok(());
    }
    Err(OpenError::Damaged {
        path: directory.join(Name::Wal(place.file_id())),
        offset: u64::from(place.offset),
        why: fault.text().to_owned(),
    })
}

/// All of a WAL file. Its length is what the file system says, and at most what offsets can name.
pub(super) fn read_file(directory: &Directory, id: FileId) -> Result<Vec<u8>, OpenError> {
    let name = Name::Wal(id);
    let path = directory.join(name);
    let handle = directory.open(name)?;
    let bytes = handle.len().map_err(io_error("read", &path))?;
    let length = u32::try_from(bytes).map_err(|_| OpenError::Damaged {
        path: path.clone(),
        offset: 0,
        why: format!("it has {bytes} bytes, more than a WAL file can have"),
    })?;
    let mut contents = vec![0; length as usize];
    handle.pread(&mut contents, 0).map_err(io_error("read", &path))?;
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::config::{LogConfig, Storage};
    use crate::files::FileLayer;
    use crate::frame::{ALIGNMENT, Header, Kind, encode, payload_crc};
    use crate::log::Log;
    use crate::testing::SimFiles;

    /// Opens a directory with file 2 alone, which says that it continues `previous`.
    fn open(previous: u32) -> Result<Log, OpenError> {
        let start = Start {
            previous: FileId(previous),
            ..Start::default()
        };
        let payload = start.encode();
        let header = Header {
            kind: Kind::Start,
            file: 2,
            offset: 0,
            mark: Mark::default(),
        };
        let length = u32::try_from(payload.len()).unwrap();
        let mut bytes = encode(&header, length, payload_crc(&[&payload])).to_vec();
        bytes.extend_from_slice(&payload);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        let files = SimFiles::new();
        let file = files
            .create(&Path::new("/data").join(Name::Wal(FileId(2)).to_string()))
            .unwrap();
        file.pwritev(&mut [IoSlice::new(&bytes)], 0).unwrap();
        let config = LogConfig {
            storage: Storage::Disk { dir: "/data".into() },
            ..LogConfig::default()
        };
        Log::open(config, Arc::new(files))
    }

    #[test]
    fn a_file_that_continues_itself_or_a_later_one_is_refused() {
        for previous in [2, 3, u32::MAX] {
            let Err(error) = open(previous) else {
                panic!("{previous} was accepted");
            };
            assert!(error.to_string().contains("it says that it continues wal-"), "{error}");
        }
        assert!(open(0).is_ok());
    }
}
