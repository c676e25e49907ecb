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

mod assembling;
mod chain;
mod directory;
mod ending;
mod reading;
mod replay;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use self::assembling::Recovered;
use self::directory::{Directory, io_error};
use self::replay::Replay;
use crate::config::{LogConfig, SyncPolicy};
use crate::error::OpenError;
use crate::files::{DirLock, FileLayer, LockOutcome};
use crate::log::Owner;
use crate::steps::OnWork;
use crate::store::{LOCK_NAME, Name};

/// With `on_work`, the log takes steps and has no threads.
pub(crate) fn open(
    config: LogConfig,
    files: Arc<dyn FileLayer>,
    dir: &Path,
    on_work: Option<OnWork>,
) -> Result<Owner, OpenError> {
    if config.existing {
        check_existing(&*files, dir)?;
    }
    files.create_dir_all(dir).map_err(io_error("create", dir))?;
    let lock = lock(&*files, dir)?;
    let directory = Directory::list(files, dir)?;
    let checkpoints = directory.newest_checkpoints()?;
    let mut segments = BTreeMap::new();
    for newest in checkpoints.values() {
        directory.check_files(newest, &mut segments)?;
    }
    let chain = chain::find(&directory, &checkpoints)?;
    let mut replay = Replay::new(&checkpoints);
    let mut read = reading::replay_chain(&directory, &chain, &mut replay)?;
    replay.settle(&checkpoints, dir)?;
    for newest in checkpoints.values() {
        reading::check_end(&directory, newest, &read)?;
    }
    if config.sync == SyncPolicy::Always {
        ending::write_again(&directory, &read)?;
    }
    ending::sync(&directory, &mut read)?;
    let leaving = directory.remove_leftovers();

    let recovered = Recovered {
        directory,
        checkpoints,
        segments,
        replay,
        read,
        leaving,
    };
    recovered.into_owner(config, lock, on_work)
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
