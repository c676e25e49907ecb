//! Files that are lost, emptied, cut or exchanged are noticed, and a start that is refused leaves everything as it was.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::{GroupId, LogIndex};
use boltq_log::testing::SimFiles;
use boltq_log::{Entry, FileLayer, Log, LogConfig, OpenError, OsFiles, Steps, Storage};
use bytes::Bytes;

use crate::common::*;

const GROUP: GroupId = GroupId(1);

fn open_stepped(files: &SimFiles) -> (Log, Steps) {
    Log::open_stepped(config(), Arc::new(files.clone()), Arc::new(|| ())).unwrap()
}

fn run(steps: &Steps) {
    while steps.step() {}
}

/// Appends entries of 5,000 bytes, the first and the last index of which are given, and takes all steps after each.
fn fill(log: &Log, steps: &Steps, first: u64, last: u64) {
    for index in first..=last {
        let entry = Entry {
            id: id(1, index),
            kind: 1,
            data: vec![7; 5_000].into(),
        };
        log.group(GROUP)
            .append(vec![entry], Box::new(|outcome| outcome.unwrap()));
        run(steps);
    }
}

/// It is refused, the error speaks of `named`, and no file is another one afterwards.
fn expect_refusal(files: &SimFiles, named: &str, what: &str) {
    let before = files.image();
    let Err(error) = open(files) else {
        panic!("{what}: it opened");
    };
    assert!(error.to_string().contains(named), "{what}: {error}");
    assert_eq!(files.image(), before, "{what}: files were changed");
}

/// All that can happen to the file `name`, of which `other` is not one that is used.
fn losses(files: &SimFiles, name: &str, other: &str) -> Vec<(&'static str, SimFiles)> {
    let whole = contents(files, name);
    let removed = copy_with(files, name, &whole);
    removed.remove(&Path::new(DIR).join(name)).unwrap();
    let exchanged = copy_with(files, name, &contents(files, other));
    write(&exchanged, other, &whole);
    vec![
        ("removed", removed),
        ("emptied", copy_with(files, name, b"")),
        ("cut", copy_with(files, name, &whole[..whole.len() / 2])),
        ("cut before the end", copy_with(files, name, &whole[..whole.len() - 8])),
        ("zeroed", copy_with(files, name, &vec![0; whole.len()])),
        ("overwritten", copy_with(files, name, &contents(files, other))),
        ("exchanged", exchanged),
    ]
}

fn wals(files: &SimFiles) -> Vec<String> {
    let all = names(files).into_iter();
    all.filter(|name| name.starts_with("wal-")).collect()
}

#[test]
fn the_newest_file_cannot_be_lost_without_a_trace() {
    // After a kill, after a kill and a start, after an end, and after an end with a checkpoint whose rows point into it.
    for (restart, close, with_checkpoint) in [
        (false, false, false),
        (true, false, false),
        (false, true, false),
        (false, true, true),
    ] {
        let files = SimFiles::new();
        let (log, steps) = open_stepped(&files);
        run(&steps);
        fill(&log, &steps, 1, 40);
        if with_checkpoint {
            let plan = Plan::place(1, 1, vec![record(&[1; 100])]);
            let entry = Entry {
                id: id(1, 41),
                kind: 1,
                data: plan.encode(),
            };
            let group = log.group(GROUP);
            group.append(vec![entry], Box::new(|outcome| outcome.unwrap()));
            run(&steps);
            group.place(LogIndex(41), &effects(&plan.encode())).unwrap();
            checkpoint(&group, 41);
            run(&steps);
        }
        if close {
            log.close();
        }
        drop((log, steps));
        if restart {
            let (log, steps) = open_stepped(&files);
            run(&steps);
            fill(&log, &steps, 41, 43);
        }
        let wals = wals(&files);
        let [.., oldest_left, used, prepared] = &wals[..] else {
            panic!("{wals:?}");
        };
        for (what, files) in losses(&files, used, prepared) {
            expect_refusal(&files, used, what);
        }
        if !with_checkpoint {
            let losses = losses(&files, oldest_left, used).into_iter();
            // Nothing stands at the very end of it, as the next one says.
            for (what, files) in losses.filter(|(what, _)| *what != "cut before the end") {
                let what = format!("{what}, one before");
                let named = if what.starts_with("exchanged") {
                    "wal-"
                } else {
                    oldest_left
                };
                expect_refusal(&files, named, &what);
            }
        }
        // What is not used may go, and nothing else is wrong.
        let without = copy_with(&files, prepared, b"");
        without.remove(&Path::new(DIR).join(prepared)).unwrap();
        let log = open(&without).unwrap();
        assert!(log.group(GROUP).raft_state().last >= Some(id(1, 40)));
    }
}

#[test]
fn a_checkpoint_that_is_gone_stops_the_start_before_anything_is_removed() {
    let files = SimFiles::new();
    let config = LogConfig {
        compaction_threshold: 0,
        row_bytes: 300,
        ..config()
    };
    let log = Log::open(config, Arc::new(files.clone())).unwrap();
    let group = log.group(GROUP);
    for n in 0..30 {
        let records = (0..10).map(|_| record(&[7; 300])).collect();
        commit(&group, n + 1, &Plan::place(1, n * 10 + 1, records));
    }
    for n in 0..29 {
        commit(&group, n + 31, &Plan::free(1, n * 10 + 1, 9));
    }
    checkpoint(&group, 59);
    eventually("a segment", || log.usage().segment_bytes > 0);
    checkpoint(&group, 59);
    append(&group, 1, 60, Bytes::new()).unwrap();
    drop((group, log));
    let path = Path::new(DIR).join("ckp-1-000000000000003b");
    let gone = files.after_kill();
    gone.remove(&path).unwrap();
    let before = gone.image();
    let error = open(&gone).err().unwrap();
    assert!(
        matches!(
            error,
            OpenError::NoCheckpoint {
                group: GROUP,
                purged: LogIndex(59),
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error.to_string().contains("ckp-1-") && error.to_string().contains(DIR),
        "{error}"
    );
    assert_eq!(gone.image(), before);
    // Put back, everything is there.
    let log = open(&files).unwrap();
    assert_eq!(read_one(&log.group(GROUP), 1, 10).unwrap(), record(&[7; 300]));
}

#[test]
fn where_a_log_has_to_be_nothing_is_begun() {
    let existing = || LogConfig {
        existing: true,
        ..config()
    };
    let files = SimFiles::new();
    let open_existing = |files: &SimFiles| Log::open(existing(), Arc::new(files.clone()));
    assert!(matches!(open_existing(&files), Err(OpenError::NoLog { .. })));
    write(&files, "reserve", &[0; 64]);
    let error = open_existing(&files).err().unwrap();
    assert!(
        error.to_string().starts_with("/data holds no log, but this node"),
        "{error}"
    );
    assert_eq!(names(&files), ["reserve"]);
    drop(open(&files).unwrap());
    assert!(open_existing(&files).is_ok());

    let dir = tempfile::tempdir().unwrap().path().join("not mounted");
    let config = LogConfig {
        storage: Storage::Disk { dir: dir.clone() },
        ..existing()
    };
    assert!(matches!(
        Log::open(config, Arc::new(OsFiles)),
        Err(OpenError::NoLog { .. })
    ));
    assert!(!dir.exists(), "the directory was made");
}

#[test]
fn an_idle_log_says_once_how_far_it_is_on_the_device() {
    let files = SimFiles::new();
    let (log, steps) = open_stepped(&files);
    run(&steps);
    fill(&log, &steps, 1, 3);
    let due = steps.due().unwrap();
    assert_eq!(due, Duration::from_millis(100));
    steps.set_time(due - Duration::from_nanos(1));
    assert!(!steps.ready());
    let last = |files: &SimFiles| {
        contents(files, "wal-0000000000000001.log")
            .iter()
            .rposition(|byte| *byte == 7)
    };
    let flip = |files: &SimFiles| {
        let (files, at) = (files.after_kill(), last(files).unwrap());
        let path = Path::new(DIR).join("wal-0000000000000001.log");
        files.flip_bit(&path, at, 0).unwrap();
        open(&files)
    };
    assert!(flip(&files).is_ok(), "it may have been a torn write");
    steps.set_time(due);
    let operations = files.operations();
    run(&steps);
    assert_eq!(files.operations(), operations + 2, "one write and one sync");
    assert!(matches!(flip(&files), Err(OpenError::Damaged { .. })));
    assert!(matches!(flip(&files.lose_unsynced()), Err(OpenError::Damaged { .. })));
    // And then it rests.
    assert!(steps.due().is_none() && !steps.ready());
}

#[test]
fn a_directory_is_held_without_its_lock_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = || LogConfig {
        storage: Storage::Disk {
            dir: dir.path().to_owned(),
        },
        ..config()
    };
    let log = Log::open(config(), Arc::new(OsFiles)).unwrap();
    std::fs::remove_file(dir.path().join("lock")).unwrap();
    let second = Log::open(config(), Arc::new(OsFiles));
    assert!(matches!(second, Err(OpenError::Locked { .. })));
    drop(log);
    assert!(Log::open(config(), Arc::new(OsFiles)).is_ok());
}
