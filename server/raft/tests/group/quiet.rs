//! Groups that share a log: what one of them wrote long ago does not keep the files of the others.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::support::{Adder, add};
use boltq_core::{GroupId, Millis, NodeId};
use boltq_log::{Log, LogConfig, OsFiles, Storage, SyncPolicy};
use boltq_raft::{Group, GroupConfig, NoPeers};

const FILE_BYTES: u64 = 64 << 10;

fn open_log(dir: &Path) -> Log {
    let config = LogConfig {
        storage: Storage::Disk { dir: dir.to_owned() },
        wal_file_bytes: FILE_BYTES,
        sync: SyncPolicy::Never,
        ..LogConfig::default()
    };
    Log::open(config, Arc::new(OsFiles)).unwrap()
}

async fn open(log: &Log, id: u32) -> (Arc<Adder>, Group<Adder>) {
    let mut config = GroupConfig::new(GroupId(id), NodeId(7), || Millis(1));
    config.checkpoint_interval_bytes = FILE_BYTES;
    config.kept_entries_bytes = FILE_BYTES;
    let adder = Arc::new(Adder::default());
    let group = Group::open(config, log.group(GroupId(id)), adder.clone(), Arc::new(NoPeers));
    let group = group.await.unwrap();
    adder.led().await;
    (adder, group)
}

fn files(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir).unwrap().flatten();
    names
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("wal-"))
        .count()
}

#[tokio::test]
async fn a_group_that_is_quiet_keeps_no_files_of_one_that_is_busy() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path());
    let (_, quiet) = open(&log, 1).await;
    let (_, busy) = open(&log, 2).await;
    quiet.propose(add(&[7])).await.unwrap();
    // More than 40 files, and nothing of the quiet one at which it could see that there is a checkpoint to be taken.
    for _ in 0..400 {
        busy.propose(add(&[1; 1_000])).await.unwrap();
    }
    let few = async {
        while files(dir.path()) > 12 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(30), few).await;
    assert!(gone.is_ok(), "{} files stay", files(dir.path()));
    quiet.propose(add(&[7])).await.unwrap();
    for group in [&quiet, &busy] {
        group.shutdown().await;
    }
    log.close();
    drop((quiet, busy, log));
    let log = open_log(dir.path());
    for (id, sum) in [(1, 14), (2, 400_000)] {
        let (adder, group) = open(&log, id).await;
        assert_eq!(*adder.sum.lock(), sum);
        group.shutdown().await;
    }
}
