//! Opening a directory: from its files back to the state before the process ended.
//!
//! 1. Lock the directory.
//! 2. Read the newest checkpoint of each group; check that the files are there that its rows point into.
//! 3. Find the WAL files that are not covered by checkpoints ([`chain`]), and read only those.
//! 4. Replay their frames ([`replay`]). At the first place that holds no frame, look further: if a later frame knew the place
//!    as synced, refuse; otherwise the log ends there, and what comes after was never acknowledged as durable.
//! 5. Check that the log goes on as far as checkpoints say, and that they make up for what was purged.
//! 6. Sync what was read: after a kill it may be in the kernel only, and from here on it counts. Cut it off where it ends.
//! 7. Go on in a new file. What a torn tail left behind the end of the old one is never read again.
//!
//! Up to 5, no file is changed, created or removed, but for the lock: a start that is refused leaves everything as it was.

mod chain;
mod directory;
mod replay;

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use boltq_core::GroupId;
use parking_lot::Mutex;

use self::chain::{Chain, Link};
use self::directory::{Directory, Newest, io_error};
use self::replay::{Misfit, Replay};
use crate::cache::Cache;
use crate::checkpoint::Saved;
use crate::config::{LogConfig, SyncPolicy};
use crate::error::OpenError;
use crate::files::{DirLock, FileLayer, LockOutcome};
use crate::frame::{self, Fault, Kind, Mark};
use crate::group::{Group, RaftLog};
use crate::index::{RowChanges, StreamIndex, StreamRows};
use crate::log::{Disk, Owner, Plane, Running, Store};
use crate::segment::Length;
use crate::steps::OnWork;
use crate::store::{Accounts, Changes, DiskFrames, Handles, LOCK_NAME, Name};
use crate::types::{Checkpoint, FileId, FrameKey};
use crate::wal::payload::{GroupStart, Start};
use crate::wal::{Head, Keeper, Outgoing, Prepared, Wal, start_bytes};

/// Length of the first file after a start, so that this does not take long; the ordinary ones are prepared meanwhile.
const FIRST_FILE_BYTES: u64 = 1 << 20;
/// What is written again at a time.
const WRITE_AGAIN_BYTES: u64 = 1 << 20;

/// With `on_work`, the log takes steps and has no threads.
pub(crate) fn open(
    config: LogConfig,
    files: Arc<dyn FileLayer>,
    dir: PathBuf,
    on_work: Option<OnWork>,
) -> Result<Owner, OpenError> {
    if config.existing {
        check_existing(&*files, &dir)?;
    }
    files.create_dir_all(&dir).map_err(io_error("create", &dir))?;
    let lock = lock(&*files, &dir)?;
    let directory = Directory::list(Arc::clone(&files), &dir)?;
    let checkpoints = directory.newest_checkpoints()?;
    let mut segments = BTreeMap::new();
    for newest in checkpoints.values() {
        directory.check_files(newest, &mut segments)?;
    }
    let chain = chain::find(&directory, &checkpoints)?;
    let mut replay = Replay::new(&checkpoints);
    let mut read = replay_chain(&directory, &chain, &mut replay)?;
    replay.settle(&checkpoints, &dir)?;
    for newest in checkpoints.values() {
        check_end(&directory, newest, &read)?;
    }
    if config.sync == SyncPolicy::Always {
        write_again(&directory, &read)?;
    }
    sync(&directory, &mut read)?;
    directory.remove_leftovers();

    let frames = Arc::new(DiskFrames {
        cache: Cache::new(config.cache_bytes),
        handles: Handles::new(Arc::clone(&files), &dir, config.open_files),
        accounts: Accounts::default(),
    });
    let mut keeper = Keeper::new(Arc::clone(&files), &dir, config.wal_file_bytes);
    keeper.reserve().found(directory.reserve_bytes);
    open_accounts(&directory, &read, &segments, &frames.accounts);
    let last_id = last_file_id(&directory, &checkpoints);
    let starts = group_starts(&replay);
    let replays = checkpoints
        .iter()
        .map(|(group, newest)| (*group, newest.contents.head.replay.file_id()))
        .collect();
    let bytes = config.wal_file_bytes.min(FIRST_FILE_BYTES).max(start_bytes(&starts));
    let first = start_first_file(&mut keeper, last_id, bytes, &directory, &read)?;
    frames.accounts.open_wal(first.id, first.bytes);

    let first_id = first.id;
    let head = Head::new(first, (read.last, read.end), starts, replays, replay.total_bytes);
    let durable = Mark {
        file: u64::from(read.last.0),
        offset: read.end,
    };
    let groups = groups(replay, checkpoints, &frames.accounts);
    let (spare_bytes, stepped) = (keeper.spare_bytes(), on_work.is_some());
    let wal = Wal::new(
        head,
        durable,
        first_id,
        config.sync,
        Arc::clone(&frames),
        keeper,
        on_work,
    );
    let wal = Arc::new(wal);
    let plane = Arc::new(Plane {
        config,
        store: Store::Disk(Disk {
            files,
            dir,
            wal: Arc::clone(&wal),
            frames,
            spare_bytes,
            compaction: Arc::default(),
        }),
        groups: Mutex::new(groups),
    });
    let owner = Owner {
        plane,
        running: Mutex::new(Running {
            threads: Vec::new(),
            lock: Some(lock),
        }),
    };
    if !stepped {
        start_threads(&owner)?;
    }
    wal.tidy();
    Ok(owner)
}

/// Refuses a directory without a log, and one that is not there, before either is made.
fn check_existing(files: &dyn FileLayer, dir: &Path) -> Result<(), OpenError> {
    let entries = match files.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        outcome => outcome.map_err(io_error("list", dir))?,
    };
    let is_wal = |name: &str| matches!(Name::parse(name), Some(Name::Wal(_)));
    if entries.iter().any(|entry| is_wal(&entry.name)) {
        Ok(())
    } else {
        Err(OpenError::NoLog { dir: dir.to_owned() })
    }
}

fn lock(files: &dyn FileLayer, dir: &Path) -> Result<Box<dyn DirLock>, OpenError> {
    let path = dir.join(LOCK_NAME);
    match files.lock(&path).map_err(io_error("lock", &path))? {
        LockOutcome::Taken(lock) => Ok(lock),
        LockOutcome::HeldBy(pid) => Err(OpenError::Locked {
            dir: dir.to_owned(),
            pid: if pid.is_empty() { "(unknown)".to_owned() } else { pid },
        }),
    }
}

/// What was read of the log.
struct Read {
    files: Vec<FileId>,
    last: FileId,
    /// Where the frames of the last file end.
    end: u32,
    /// It was cut off there before.
    is_cut: bool,
    /// Up to here it says itself that it is on the device.
    mark: Mark,
    /// WAL files that are not part of the log: prepared, or torn.
    unused: Vec<FileId>,
}

fn replay_chain(directory: &Directory, chain: &Chain, replay: &mut Replay) -> Result<Read, OpenError> {
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
fn check_end(directory: &Directory, newest: &Newest, read: &Read) -> Result<(), OpenError> {
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

/// Writes what is perhaps not on the device once more. Where a sync had failed before the process ended, the system still shows
/// what was written, takes it for clean, and would not write it with the next sync.
fn write_again(directory: &Directory, read: &Read) -> Result<(), OpenError> {
    for id in read.files.iter().filter(|id| u64::from(id.0) >= read.mark.file) {
        let path = directory.join(Name::Wal(*id));
        let handle = directory.open(Name::Wal(*id))?;
        let length = handle.len().map_err(io_error("read", &path))?;
        let end = if *id == read.last { u64::from(read.end) } else { length };
        let marked = u64::from(id.0) == read.mark.file;
        let mut at = if marked { u64::from(read.mark.offset) } else { 0 };
        while at < end {
            let piece = (end - at).min(WRITE_AGAIN_BYTES);
            let mut bytes = vec![0; usize::try_from(piece).unwrap_or_default()];
            handle.pread(&mut bytes, at).map_err(io_error("read", &path))?;
            let written = handle.pwritev(&mut [IoSlice::new(&bytes)], at);
            written.map_err(io_error("write", &path))?;
            at += piece;
        }
    }
    Ok(())
}

/// Syncs the files of the log, and gives back what lies behind its end.
fn sync(directory: &Directory, read: &mut Read) -> Result<(), OpenError> {
    for id in &read.files {
        let path = directory.join(Name::Wal(*id));
        let handle = directory.open(Name::Wal(*id))?;
        if *id == read.last && !read.is_cut {
            let end = Outgoing::end(*id, read.end);
            let cut_at = u64::from(read.end) + end.bytes();
            // With less than that behind its end, there is nothing to give back.
            if cut_at <= handle.len().map_err(io_error("read", &path))? {
                let front = end.front(Mark::default());
                let mut parts = [IoSlice::new(front.as_slice())];
                handle
                    .pwritev(&mut parts, u64::from(read.end))
                    .map_err(io_error("write", &path))?;
                read.end = u32::try_from(cut_at).unwrap_or(u32::MAX);
                read.is_cut = true;
            }
        }
        handle.fdatasync().map_err(io_error("sync", &path))?;
        // Not before: a file that is shorter than it was made has to say why.
        if *id == read.last && read.is_cut {
            handle.set_len(u64::from(read.end)).map_err(io_error("cut", &path))?;
            handle.fdatasync().map_err(io_error("sync", &path))?;
        }
    }
    Ok(())
}

fn open_accounts(directory: &Directory, read: &Read, segments: &BTreeMap<FileId, Length>, accounts: &Accounts) {
    for (id, bytes) in directory.wals.iter().filter(|(id, _)| !read.unused.contains(id)) {
        let bytes = if *id == read.last { u64::from(read.end) } else { *bytes };
        accounts.open_wal(*id, bytes);
    }
    for (id, bytes) in &directory.segments {
        // One that no checkpoint refers to was not finished before the end, and goes.
        let record_bytes = segments.get(id).map_or(0, |length| length.record_bytes);
        drop(accounts.open_segment(*id, *bytes, record_bytes));
    }
}

fn last_file_id(directory: &Directory, checkpoints: &BTreeMap<GroupId, Newest>) -> FileId {
    let said = checkpoints
        .values()
        .map(|newest| newest.contents.head.next_file.saturating_sub(1))
        .max();
    let said = FileId(u32::try_from(said.unwrap_or(0)).unwrap_or(u32::MAX));
    directory.highest_id().max(said)
}

fn start_first_file(
    keeper: &mut Keeper,
    last_id: FileId,
    bytes: u64,
    directory: &Directory,
    read: &Read,
) -> Result<Prepared, OpenError> {
    let create = io_error("create the next WAL file in", &directory.path);
    let Some(id) = last_id.0.checked_add(1).map(FileId) else {
        return Err(create(io::Error::other("all file ids were used")));
    };
    let length = |id: &FileId| directory.wals.get(id).map(|bytes| (*id, *bytes));
    let mut unused: Vec<(FileId, u64)> = read.unused.iter().filter_map(length).collect();
    if let Some(position) = unused.iter().position(|(_, bytes)| keeper.can_recycle(*bytes)) {
        let (spare, bytes) = unused.swap_remove(position);
        keeper.discard(Name::Wal(spare), bytes);
    }
    let first = keeper.prepare(id, bytes, read.last, false).map_err(create)?;
    // Not before: at any time there is a file that is as new as a checkpoint says.
    for (id, bytes) in unused {
        keeper.discard(Name::Wal(id), bytes);
    }
    Ok(first)
}

fn group_starts(replay: &Replay) -> BTreeMap<GroupId, GroupStart> {
    let start = |raft: &RaftLog| GroupStart {
        vote: replay::vote_bytes(raft.vote.as_ref()),
        purged: raft.table.purged(),
        needed_from: raft.table.needed_from(),
    };
    replay.groups.iter().map(|(id, raft)| (*id, start(raft))).collect()
}

fn groups(
    replay: Replay,
    mut checkpoints: BTreeMap<GroupId, Newest>,
    accounts: &Accounts,
) -> BTreeMap<GroupId, Arc<Group>> {
    let mut groups = BTreeMap::new();
    for (id, raft) in replay.groups {
        let mut group = Group::new(id);
        *group.raft.get_mut() = raft;
        if let Some(newest) = checkpoints.remove(&id) {
            let replay_file = newest.contents.head.replay.file;
            let total_bytes = replay.bytes_before.get(&replay_file).copied().unwrap_or(0);
            let (saved, streams) = saved(newest, total_bytes);
            accounts.checkpointed(&[], &saved.files);
            book(&streams, accounts);
            *group.saved.get_mut() = saved;
            *group.index.get_mut() = StreamIndex::from_rows(streams);
        }
        groups.insert(id, Arc::new(group));
    }
    groups
}

fn book(streams: &BTreeMap<boltq_core::StreamId, StreamRows>, accounts: &Accounts) {
    let mut changes = Changes::by_file();
    for row in streams.values().flat_map(StreamRows::iter) {
        changes.added(row, true, row.bytes);
    }
    accounts.book(&changes);
}

fn saved(newest: Newest, total_bytes: u64) -> (Saved, BTreeMap<boltq_core::StreamId, StreamRows>) {
    let contents = newest.contents;
    let checkpoint = Checkpoint {
        applied: contents.head.applied,
        meta: contents.meta,
        state: contents.state,
    };
    let files = contents.head.files.iter().map(|(id, _)| *id).collect();
    let saved = Saved::new(checkpoint, (newest.name, newest.bytes), files, total_bytes);
    (saved, contents.streams)
}

fn start_threads(owner: &Owner) -> Result<(), OpenError> {
    let mut running = owner.running.lock();
    let mut spawn = |name: &str, run: fn(&Plane, &Disk)| {
        let plane = Arc::clone(&owner.plane);
        let run = move || {
            if let Store::Disk(disk) = &plane.store {
                run(&plane, disk);
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(io_error("start a thread for", Path::new(name)))?;
        running.threads.push(thread);
        Ok(())
    };
    spawn("log-writer", |_, disk| disk.wal.run_writer())?;
    spawn("log-keeper", |_, disk| disk.wal.run_keeper(|| disk.compaction.ask()))?;
    spawn("log-compaction", |plane, disk| disk.compaction.run(plane, disk))
}
