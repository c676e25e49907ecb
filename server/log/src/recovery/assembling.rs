//! From what the files say to a log that goes on in a new file.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use boltq_core::GroupId;
use parking_lot::Mutex;

use super::directory::{Directory, Newest, io_error};
use super::reading::Read;
use super::replay::{self, Replay};
use crate::cache::Cache;
use crate::checkpoint::Saved;
use crate::config::LogConfig;
use crate::error::OpenError;
use crate::files::DirLock;
use crate::frame::Mark;
use crate::group::{Group, RaftLog};
use crate::index::{RowChanges, StreamIndex};
use crate::log::{Disk, Owner, Plane, Running, Store};
use crate::segment::Length;
use crate::steps::OnWork;
use crate::store::{Accounts, Changes, DiskFrames, Handles, Name};
use crate::types::{Checkpoint, FileId};
use crate::wal::payload::GroupStart;
use crate::wal::{Head, Keeper, Prepared, Wal, start_bytes};

/// Length of the first file after a start, so that this does not take long; the ordinary ones are prepared meanwhile.
const FIRST_FILE_BYTES: u64 = 1 << 20;

/// What the files of a directory say: read, checked, and on the device.
pub(super) struct Recovered {
    pub(super) directory: Directory,
    pub(super) checkpoints: BTreeMap<GroupId, Newest>,
    /// Lengths of the segments that checkpoints refer to.
    pub(super) segments: BTreeMap<FileId, Length>,
    pub(super) replay: Replay,
    pub(super) read: Read,
    /// Half-written segments that cannot be removed.
    pub(super) leaving: Vec<FileId>,
}

impl Recovered {
    /// With `on_work`, the log takes steps and has no threads.
    pub(super) fn into_owner(
        self,
        config: LogConfig,
        lock: Box<dyn DirLock>,
        on_work: Option<OnWork>,
    ) -> Result<Owner, OpenError> {
        let Self {
            directory,
            checkpoints,
            segments,
            replay,
            read,
            leaving,
        } = self;
        let (files, dir) = (Arc::clone(&directory.files), directory.path.clone());
        let frames = Arc::new(DiskFrames {
            cache: Cache::new(config.cache_bytes),
            handles: Handles::new(Arc::clone(&files), &dir, config.open_files),
            accounts: Accounts::default(),
        });
        let accounts = frames.accounts.clone();
        leaving.into_iter().for_each(|id| accounts.leave(id));
        let mut keeper = Keeper::new(Arc::clone(&files), &dir, config.wal_file_bytes, accounts);
        keeper.reserve().found(directory.reserve_bytes);
        open_accounts(&directory, &read, &segments, &frames.accounts);
        let last_id = last_file_id(&directory, &checkpoints);
        let starts = group_starts(&replay);
        let bytes = config.wal_file_bytes.min(FIRST_FILE_BYTES).max(start_bytes(&starts));
        let erase_upto = erase_upto(&checkpoints);
        let first = start_first_file(&mut keeper, (last_id, erase_upto), bytes, &directory, &read)?;
        frames.accounts.open_wal(first.id, first.bytes);

        let replays = checkpoints
            .iter()
            .map(|(group, newest)| (*group, newest.contents.head.replay.file_id()))
            .collect();
        let first_id = first.id;
        let mut head = Head::new(first, (read.last, read.end), starts, replays, replay.total_bytes);
        head.erase(erase_upto);
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
                erasing: Arc::default(),
                users: Arc::default(),
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
    (last_id, erase_upto): (FileId, FileId),
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
        keeper.discard(Name::Wal(spare), bytes, erase_upto);
    }
    let first = keeper
        .prepare((id, erase_upto), bytes, read.last, false)
        .map_err(create)?;
    // Not before: at any time there is a file that is as new as a checkpoint says.
    for (id, bytes) in unused {
        keeper.discard(Name::Wal(id), bytes, erase_upto);
    }
    Ok(first)
}

/// The last file that has to go for an erasure that is not complete.
fn erase_upto(checkpoints: &BTreeMap<GroupId, Newest>) -> FileId {
    let newest = checkpoints.values();
    let pending = newest.flat_map(|newest| newest.contents.index.erasures.pending());
    pending.map(|(_, erasure)| erasure.wal_upto).max().unwrap_or_default()
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
            let (saved, index) = saved(newest, total_bytes);
            accounts.checkpointed(&[], &saved.files);
            book(&index, accounts);
            *group.saved.get_mut() = saved;
            *group.index.get_mut() = index;
        }
        groups.insert(id, Arc::new(group));
    }
    groups
}

fn book(index: &StreamIndex, accounts: &Accounts) {
    let mut changes = Changes::by_file();
    for row in index.rows() {
        changes.added(row, true, row.bytes);
    }
    accounts.book(&changes);
}

fn saved(newest: Newest, total_bytes: u64) -> (Saved, StreamIndex) {
    let contents = newest.contents;
    let checkpoint = Checkpoint {
        applied: contents.head.applied,
        meta: contents.meta,
        state: contents.state,
    };
    let files = contents.head.files.iter().map(|(id, _)| *id).collect();
    let saved = Saved::new(checkpoint, (newest.name, newest.bytes), files, total_bytes);
    (saved, contents.index)
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
