//! Files that are taken away under an open log. The system lets it write and sync them as before, and nobody would ever find
//! what it acknowledges. On real files, since that is a property of the system.

use std::path::Path;
use std::sync::Arc;

use boltq_core::GroupId;
use boltq_log::{AppendError, GroupLog, Log, LogConfig, OsFiles, Storage, SyncPolicy};
use bytes::Bytes;

use crate::common::*;

const GROUP: GroupId = GroupId(1);

fn open(dir: &Path, sync: SyncPolicy) -> Log {
    let storage = Storage::Disk { dir: dir.to_owned() };
    let config = LogConfig {
        storage,
        sync,
        // So that the end of a file, and the next one that cannot be made, does not come first.
        wal_file_bytes: 4 << 20,
        ..config()
    };
    let log = Log::open(config, Arc::new(OsFiles)).unwrap();
    // A directory that is missing when this is made says so in its own way.
    eventually("the next file", || log.usage().files >= 2);
    log
}

fn assert_gone(error: &AppendError) {
    assert!(
        error.is_fatal() && error.to_string().contains("the data directory was removed or replaced"),
        "{error}"
    );
}

type TakeAway = fn(&Path);

/// Ways to take the files away, each of which leaves the open ones writable.
fn ways() -> [(&'static str, TakeAway); 4] {
    [
        ("removed", |dir| std::fs::remove_dir_all(dir).unwrap()),
        ("moved away", move_away),
        ("replaced by an empty directory", |dir| {
            move_away(dir);
            std::fs::create_dir(dir).unwrap();
        }),
        ("replaced by a copy", |dir| {
            move_away(dir);
            std::fs::create_dir(dir).unwrap();
            for entry in std::fs::read_dir(away(dir)).unwrap() {
                let entry = entry.unwrap();
                std::fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
            }
        }),
    ]
}

fn away(dir: &Path) -> std::path::PathBuf {
    dir.with_extension("away")
}

fn move_away(dir: &Path) {
    std::fs::rename(dir, away(dir)).unwrap();
}

fn appended(group: &GroupLog, index: u64) -> Result<(), AppendError> {
    append(group, 1, index, Bytes::from_static(b"safe"))
}

#[test]
fn what_is_synced_to_a_file_that_nobody_finds_is_not_acknowledged() {
    for (how, take_away) in ways() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("data");
        let log = open(&dir, SyncPolicy::Always);
        let group = log.group(GROUP);
        appended(&group, 1).unwrap();
        take_away(&dir);
        let error = appended(&group, 2).expect_err(how);
        assert_gone(&error);
        assert_gone(&appended(&group, 3).expect_err(how));
        assert!(log.failure().is_some(), "{how}");
    }
}

#[test]
fn a_log_that_is_not_written_to_or_not_synced_notices_it_too() {
    for (how, take_away) in ways() {
        for sync in [SyncPolicy::Always, SyncPolicy::Never] {
            let parent = tempfile::tempdir().unwrap();
            let dir = parent.path().join("data");
            let log = open(&dir, sync);
            appended(&log.group(GROUP), 1).unwrap();
            take_away(&dir);
            eventually(how, || log.failure().is_some());
        }
    }
}

/// Appends that wait for no sync are acknowledged for a few seconds at the most.
#[test]
fn a_busy_log_that_never_syncs_notices_it_too() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    let log = open(&dir, SyncPolicy::Never);
    let group = log.group(GROUP);
    appended(&group, 1).unwrap();
    move_away(&dir);
    let mut index = 1;
    let mut error = None;
    eventually("a refusal", || {
        index += 1;
        error = appended(&group, index).err();
        error.is_some()
    });
    assert_gone(&error.unwrap());
}

#[test]
fn a_log_whose_files_are_there_goes_on() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    let log = open(&dir, SyncPolicy::Always);
    let group = log.group(GROUP);
    // Other names of the same files, and other files, are nothing to it.
    std::fs::hard_link(dir.join("wal-0000000000000001.log"), dir.join("backup")).unwrap();
    let link = parent.path().join("link");
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    // Over the ends of several files.
    for index in 1..40 {
        append(&group, 1, index, Bytes::from(vec![7; 500_000])).unwrap();
    }
    log.close();
    let log = open(&link, SyncPolicy::Always);
    append(&log.group(GROUP), 1, 40, Bytes::new()).unwrap();
    assert!(log.failure().is_none());
}
