//! Replaying the files of a chain, and finding where the log ends. Reads only.

use super::chain::{self, Chain, Link};
use super::directory::{Directory, Newest};
use super::replay::{Misfit, Replay};
use crate::error::OpenError;
use crate::frame::{self, Fault, Kind, Mark};
use crate::store::Name;
use crate::types::{FileId, FrameKey};
use crate::wal::payload::Start;

/// What was read of the log.
pub(super) struct Read {
    pub(super) files: Vec<FileId>,
    pub(super) last: FileId,
    /// Where the frames of the last file end.
    pub(super) end: u32,
    /// It was cut off there before.
    pub(super) is_cut: bool,
    /// Up to here it says itself that it is on the device.
    pub(super) mark: Mark,
    /// WAL files that are not part of the log: prepared, or torn.
    pub(super) unused: Vec<FileId>,
}

pub(super) fn replay_chain(directory: &Directory, chain: &Chain, replay: &mut Replay) -> Result<Read, OpenError> {
    let mut read = Read {
        files: Vec::new(),
        last: FileId::NONE,
        end: 0,
        is_cut: false,
        mark: Mark::default(),
        unused: chain.after.clone(),
    };
    for (position, link) in chain.links.iter().enumerate() {
        let bytes = chain::read_file(directory, link.id)?;
        read.files.push(link.id);
        read.last = link.id;
        let (end, stop) = replay_file(directory, *link, &bytes, replay, &mut read.mark)?;
        read.end = end;
        read.is_cut = stop == Stop::End;
        if stop == Stop::Next {
            continue;
        }
        let place = Mark {
            file: u64::from(link.id.0),
            offset: end,
        };
        let fault = frame::check(&bytes[end as usize..], place.file, end)
            .err()
            .unwrap_or(Fault::NoFrame);
        let later: Vec<FileId> = chain.links[position + 1..].iter().map(|link| link.id).collect();
        let all_later: Vec<FileId> = later.iter().chain(&chain.after).copied().collect();
        chain::check_unsynced(directory, place, &bytes, &all_later, fault)?;
        if stop == Stop::NoFrame {
            check_length(directory, link.id, &bytes)?;
        }
        if stop == Stop::NoFrame && fault != Fault::Blank {
            tracing::info!(file = %Name::Wal(link.id), offset = end, "the log ends in a torn write, which is cut off");
        }
        read.unused.extend(later);
        break;
    }
    Ok(read)
}

/// Where the frames of a file end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Where the next file says.
    Next,
    /// Where a start found the end of the log, and cut the file off.
    End,
    /// Where there is no frame.
    NoFrame,
}

/// Refuses a file that is shorter than it was made, where nothing says that we have cut it off.
fn check_length(directory: &Directory, id: FileId, bytes: &[u8]) -> Result<(), OpenError> {
    let start = frame::check(bytes, u64::from(id.0), 0)
        .ok()
        .filter(|frame| frame.kind == Kind::Start);
    let made = start.and_then(|frame| Start::decode(frame.payload, frame.version).ok());
    let made = made.map_or(0, |start| start.file_bytes as usize);
    if bytes.len() >= made {
        return Ok(());
    }
    Err(OpenError::Damaged {
        path: directory.join(Name::Wal(id)),
        offset: bytes.len() as u64,
        why: format!("the file ends there, and was made {made} bytes long"),
    })
}

/// Refuses if the log ends before what a checkpoint says that was on the device.
pub(super) fn check_end(directory: &Directory, newest: &Newest, read: &Read) -> Result<(), OpenError> {
    let end = Mark {
        file: u64::from(read.last.0),
        offset: read.end,
    };
    let ends_before = |place: Mark| {
        let because = format!("is referred to by {}", newest.name);
        if place.file > end.file {
            return chain::lost(directory, place.file_id(), &because);
        }
        OpenError::Damaged {
            path: directory.join(Name::Wal(read.last)),
            offset: u64::from(end.offset),
            why: format!("its frames end there, but it {because} up to offset {}", place.offset),
        }
    };
    let replay = newest.contents.head.replay;
    if newest.synced && replay > end {
        return Err(ends_before(replay));
    }
    for (id, row_end) in newest.wal_ends() {
        let place = Mark {
            file: u64::from(id.0),
            offset: u32::try_from(row_end).unwrap_or(u32::MAX),
        };
        if place > end {
            return Err(ends_before(place));
        }
        let length = directory.wals.get(&id).copied().unwrap_or_default();
        if length < row_end {
            return Err(OpenError::Damaged {
                path: directory.join(Name::Wal(id)),
                offset: length,
                why: format!(
                    "the file ends there, but records that {} refers to are behind",
                    newest.name
                ),
            });
        }
    }
    Ok(())
}

/// Replays the frames of a file; returns where they end, and how. `mark` gets the highest mark of them, if it is higher.
fn replay_file(
    directory: &Directory,
    link: Link,
    bytes: &[u8],
    replay: &mut Replay,
    mark: &mut Mark,
) -> Result<(u32, Stop), OpenError> {
    let damaged = |offset: u32, why: String| OpenError::Damaged {
        path: directory.join(Name::Wal(link.id)),
        offset: u64::from(offset),
        why,
    };
    let mut at = 0;
    while link.end != Some(at) {
        let rest = bytes.get(at as usize..).unwrap_or_default();
        let frame = match frame::check(rest, u64::from(link.id.0), at) {
            Ok(frame) => frame,
            // Whole or torn, it was written by a program that knows more than this one: cutting it off is not ours to do.
            Err(Fault::Version) => return Err(damaged(at, Fault::Version.text().to_owned())),
            Err(_) => return Ok((at, Stop::NoFrame)),
        };
        *mark = (*mark).max(frame.mark);
        let key = FrameKey {
            file: link.id,
            offset: at,
        };
        replay.frame(key, &frame).map_err(|misfit| match misfit {
            Misfit::Decode(error) => damaged(at, error.to_string()),
            Misfit::Gap(group, wanted) => OpenError::Gap {
                group,
                wanted,
                dir: directory.path.clone(),
            },
        })?;
        // Within the bytes that were read, which are fewer than 2^32.
        at = at.saturating_add(u32::try_from(frame.bytes).unwrap_or(u32::MAX));
        // What stands behind it was given up, whatever later files say that were given up with it.
        if frame.kind == Kind::End && link.end != Some(at) {
            return Ok((at, Stop::End));
        }
    }
    Ok((at, Stop::Next))
}
