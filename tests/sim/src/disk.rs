//! The disk of a node: the steps of its log, taken as slowly as the fault of the day wants it.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use boltq_log::files::{FileEntry, FileLayer, LockOutcome, LogFile};
use boltq_log::testing::SimFiles;
use boltq_log::{OnWork, Steps};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::random::Random;

/// Longest pause between two looks for work, for what becomes due by itself.
const LOOK: Duration = Duration::from_millis(100);

/// Tells the disk of a node that there may be work.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bell(Arc<Notify>);

impl Bell {
    pub(crate) fn on_work(&self) -> OnWork {
        let bell = self.0.clone();
        Arc::new(move || bell.notify_one())
    }
}

/// Takes the steps of a log, each `slow_ms` and a little later than it could. The log knows what it waits for. Runs in the process of the node.
pub(crate) async fn run(steps: Steps, bell: Bell, slow_ms: Arc<AtomicU64>, mut random: Random) {
    let opened = Instant::now();
    loop {
        tokio::select! {
            biased;
            () = bell.0.notified() => {}
            () = sleep(LOOK) => {}
        }
        steps.set_time(opened.elapsed());
        while steps.ready() {
            steps.begin();
            let (begun, lag_ms) = (Instant::now(), random.below(2));
            loop {
                let wanted = Duration::from_millis(slow_ms.load(Ordering::Relaxed) + lag_ms);
                let left = wanted.saturating_sub(begun.elapsed());
                if left.is_zero() {
                    break;
                }
                sleep(left.min(LOOK)).await;
                steps.set_time(opened.elapsed());
            }
            if !steps.step() {
                break;
            }
        }
    }
}

/// A disk that lies: a sync of the write-ahead log is done at once, and does nothing. Only the first one of a file, when it is
/// prepared, is what it should be.
#[derive(Debug)]
pub(crate) struct Unsynced(pub(crate) SimFiles);

#[derive(Debug)]
struct UnsyncedFile {
    file: Arc<dyn LogFile>,
    prepared: AtomicBool,
}

impl Unsynced {
    fn wrap(path: &Path, file: Arc<dyn LogFile>) -> Arc<dyn LogFile> {
        let name = path.file_name().and_then(|name| name.to_str());
        match name {
            Some(name) if name.starts_with("wal-") => Arc::new(UnsyncedFile {
                file,
                prepared: AtomicBool::new(false),
            }),
            _ => file,
        }
    }
}

impl FileLayer for Unsynced {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.0.create_dir_all(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<LockOutcome> {
        self.0.lock(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FileEntry>> {
        self.0.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        self.0.create(path).map(|file| Self::wrap(path, file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        self.0.open(path).map(|file| Self::wrap(path, file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }
}

impl LogFile for UnsyncedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn pwritev(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.file.pwritev(parts, offset)
    }

    fn pread(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.pread(into, offset)
    }

    fn fdatasync(&self) -> io::Result<()> {
        if self.prepared.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.file.fdatasync()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.file.allocate(bytes)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.file.is_at(path)
    }
}
