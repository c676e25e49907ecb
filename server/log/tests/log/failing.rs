//! Devices that fail or run full.

use std::sync::Arc;
use std::time::Duration;

use boltq_core::{GroupId, LogIndex};
use boltq_log::testing::SimFiles;
use boltq_log::{AppendError, CheckpointError, Entry, GroupLog, Log, LogConfig, Space, SyncPolicy};
use bytes::Bytes;

use crate::common::*;

const GROUP: GroupId = GroupId(1);

#[test]
fn a_failed_sync_stops_the_log_for_good_and_loses_nothing_that_was_acknowledged() {
    let files = SimFiles::new();
    let log = open(&files).unwrap();
    let group = log.group(GROUP);
    append(&group, 1, 1, Bytes::from_static(b"safe")).unwrap();
    eventually("the next file", || log.usage().files == 2);
    files.fail_sync(1);
    let error = append(&group, 1, 2, Bytes::from_static(b"lost")).unwrap_err();
    assert!(
        error.is_fatal() && error.to_string().contains("takes no more writes"),
        "{error}"
    );
    assert!(
        log.failure()
            .unwrap()
            .to_string()
            .starts_with("sync /data/wal-0000000000000001.log")
    );
    // The device works again, and that is no reason to go on.
    for index in 3..6 {
        assert!(matches!(
            append(&group, 1, index, Bytes::new()),
            Err(AppendError::Failed(_))
        ));
    }
    assert!(matches!(
        wait(|done| group.save_vote(Bytes::new(), done)),
        Err(AppendError::Failed(_))
    ));
    let outcome = group.write_checkpoint(group.capture(), id(1, 1), b"", b"".as_slice().into());
    assert!(matches!(outcome, Err(CheckpointError::Log(AppendError::Failed(_)))));
    drop((group, log));

    let log = open(&files.crash(1)).unwrap();
    let entries = log.group(GROUP).entries(LogIndex(1)..LogIndex(9), u64::MAX).unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(&entries[0].data[..], b"safe");
}

/// After a sync that failed, the system shows what is not on the device, and takes it for clean.
#[test]
fn what_a_failed_sync_left_behind_is_written_again_by_the_next_start() {
    let files = SimFiles::new();
    // In steps, so that no other sync can be the one that fails.
    let (log, steps) = Log::open_stepped(config(), Arc::new(files.clone()), Arc::new(|| ())).unwrap();
    let run = || while steps.step() {};
    run();
    let group = log.group(GROUP);
    let safe = append_many(&group, 1, 1);
    run();
    assert!(safe.recv().unwrap().is_ok());
    files.fail_sync(1);
    let seen = append_many(&group, 2, 2);
    run();
    assert!(seen.recv().unwrap().is_err());
    let files = files.after_kill();
    drop((group, log, steps));
    let log = open(&files).unwrap();
    let group = log.group(GROUP);
    // It was found, so the group confirms it from now on.
    assert_eq!(group.raft_state().last, Some(id(1, 2)));
    append(&group, 1, 3, Bytes::from_static(b"more")).unwrap();
    let files = files.lose_unsynced();
    drop((group, log));
    let log = open(&files).unwrap();
    let entries = log.group(GROUP).entries(LogIndex(1)..LogIndex(9), u64::MAX).unwrap();
    let lengths: Vec<_> = entries.iter().map(|entry| entry.data.len()).collect();
    assert_eq!(lengths, [5_000, 5_000, 4]);
}

#[test]
fn everything_that_waits_hears_of_the_failure_once() {
    let files = SimFiles::new();
    let log = open(&files).unwrap();
    let group = log.group(GROUP);
    eventually("the next file", || log.usage().files == 2);
    files.stop_after(0);
    let (sender, receiver) = std::sync::mpsc::channel();
    for n in 0..50 {
        let sender = sender.clone();
        group.save_vote(
            Bytes::new(),
            Box::new(move |outcome| sender.send((n, outcome.is_err())).unwrap()),
        );
    }
    drop(sender);
    let mut heard: Vec<_> = receiver.iter().collect();
    heard.sort_unstable();
    assert_eq!(heard, (0..50).map(|n| (n, true)).collect::<Vec<_>>());
}

#[test]
fn a_full_device_says_so_in_time_leaves_a_reserve_and_writing_resumes_by_itself() {
    let files = SimFiles::new();
    let log = open(&files).unwrap();
    let group = log.group(GROUP);
    assert_eq!(log.space(), Space::Ample);
    eventually("the next file", || log.usage().files == 2);
    files.set_room(Some(10 << 10));
    let mut index = 0;
    let mut append_next = || {
        let outcome = append(&group, 1, index + 1, Bytes::from(vec![7; 1000]));
        index += u64::from(outcome.is_ok());
        outcome
    };
    // The first file, and the start of the one that was prepared.
    for _ in 0..70 {
        append_next().unwrap();
    }
    eventually("a full device", || log.space() == Space::Full);
    let mut reserve = 0;
    let error = loop {
        match append_next() {
            Ok(()) => reserve += 1000,
            Err(error) => break error,
        }
    };
    assert!(reserve > 45_000, "{reserve} bytes are left for entries that make room");
    assert!(
        matches!(error, AppendError::OutOfSpace { .. }) && !error.is_fatal(),
        "{error}"
    );
    assert!(log.failure().is_none());
    let outcome = group.write_checkpoint(group.capture(), id(1, 5), b"", vec![0; 100 << 10].into());
    assert!(matches!(outcome, Err(CheckpointError::Io { .. })), "{outcome:?}");
    assert!(!names(&files).iter().any(|name| name.ends_with(".tmp")));

    files.set_room(None);
    eventually("room", || log.space() == Space::Ample);
    for _ in 0..200 {
        append_next().unwrap();
    }
    group
        .write_checkpoint(group.capture(), id(1, 5), b"", vec![0; 20 << 10].into())
        .unwrap();
    log.close();
    let log = open(&files).unwrap();
    assert_eq!(log.group(GROUP).raft_state().last, Some(id(1, index)));
    let entries = log
        .group(GROUP)
        .entries(LogIndex(6)..LogIndex(u64::MAX), u64::MAX)
        .unwrap();
    assert_eq!(entries.len() as u64, index - 5);
}

#[test]
fn what_a_policy_does_not_sync_survives_the_process_and_an_interval_syncs_in_time() {
    for (sync, survives) in [
        (SyncPolicy::Never, false),
        (SyncPolicy::Interval(Duration::from_secs(600)), false),
        (SyncPolicy::Interval(Duration::from_millis(1)), true),
        (SyncPolicy::Always, true),
    ] {
        let files = SimFiles::new();
        let config = || LogConfig { sync, ..config() };
        let log = Log::open(config(), Arc::new(files.clone())).unwrap();
        let group = log.group(GROUP);
        wait(|done| group.save_vote(Bytes::from_static(b"vote"), done)).unwrap();
        append(&group, 1, 1, Bytes::from_static(b"entry")).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let killed = files.after_kill();
        let lost = files.lose_unsynced();
        let log = Log::open(config(), Arc::new(killed.clone())).unwrap();
        let state = log.group(GROUP).raft_state();
        assert_eq!(
            (state.last, state.vote),
            (Some(id(1, 1)), Some(Bytes::from_static(b"vote"))),
            "{sync:?}"
        );
        // What a start has found counts, and a power loss does not take it away any more.
        let log_after = Log::open(config(), Arc::new(killed.lose_unsynced())).unwrap();
        assert_eq!(log_after.group(GROUP).raft_state().last, Some(id(1, 1)), "{sync:?}");
        drop(log);
        let state = Log::open(config(), Arc::new(lost)).unwrap().group(GROUP).raft_state();
        assert_eq!(
            (state.last.is_some(), state.vote),
            (survives, Some(Bytes::from_static(b"vote"))),
            "{sync:?}"
        );
    }
}

/// Errors of Linux.
const EIO: i32 = 5;
const EMFILE: i32 = 24;
const EDQUOT: i32 = 122;

/// Appends entries of 5,000 bytes without waiting.
fn append_many(group: &GroupLog, first: u64, last: u64) -> std::sync::mpsc::Receiver<Result<(), AppendError>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    for index in first..=last {
        let sender = sender.clone();
        let entry = Entry {
            id: id(1, index),
            kind: 1,
            data: vec![7; 5_000].into(),
        };
        group.append(vec![entry], Box::new(move |outcome| drop(sender.send(outcome))));
    }
    receiver
}

#[test]
fn without_a_handle_for_the_next_file_appends_wait() {
    let files = SimFiles::new();
    let log = open(&files).unwrap();
    let group = log.group(GROUP);
    eventually("the next file", || log.usage().files == 2);
    files.fail_create(Some(EMFILE));
    let appended = std::thread::spawn({
        let group = group.clone();
        move || append_many(&group, 1, 60).iter().all(|outcome| outcome.is_ok())
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(!appended.is_finished() && log.space() == Space::Ample && log.failure().is_none());
    files.fail_create(None);
    assert!(appended.join().unwrap());
    assert_eq!(group.raft_state().last, Some(id(1, 60)));
}

#[test]
fn a_quota_that_is_used_up_is_a_full_device_and_other_errors_stop_the_log() {
    for (errno, full) in [(EDQUOT, true), (EIO, false)] {
        let files = SimFiles::new();
        let log = open(&files).unwrap();
        let group = log.group(GROUP);
        eventually("the next file", || log.usage().files == 2);
        files.fail_create(Some(errno));
        let outcomes = append_many(&group, 1, 60);
        assert!(outcomes.iter().any(|outcome| match outcome {
            Err(AppendError::OutOfSpace { .. }) => full,
            Err(AppendError::Failed(_)) => !full,
            _ => false,
        }));
        assert_eq!(log.space() == Space::Full, full);
        let failure = log.failure().map(|failure| failure.to_string());
        assert_eq!(failure.is_none(), full, "{failure:?}");
        assert!(failure.is_none_or(|text| text.starts_with("prepare the next file in /data")));
    }
}

#[test]
fn a_checkpoint_makes_room_on_a_device_that_has_none() {
    let files = SimFiles::new();
    let (log, steps) = Log::open_stepped(config(), Arc::new(files.clone()), Arc::new(|| ())).unwrap();
    let run = || while steps.step() {};
    run();
    assert!(names(&files).contains(&"reserve".to_owned()));
    let group = log.group(GROUP);
    files.set_room(Some(150 << 10));
    let mut index = 0;
    loop {
        let entry = Entry {
            id: id(1, index + 1),
            kind: 1,
            data: vec![7; 5_000].into(),
        };
        let (sender, receiver) = std::sync::mpsc::channel();
        group.append(vec![entry], Box::new(move |outcome| drop(sender.send(outcome))));
        run();
        match receiver.try_recv().unwrap() {
            Ok(()) => index += 1,
            Err(error) => break assert!(matches!(error, AppendError::OutOfSpace { .. })),
        }
    }
    // Somebody else takes what is left.
    files.set_room(Some(0));
    assert_eq!(log.space(), Space::Full);
    checkpoint(&group, index);
    assert!(!names(&files).contains(&"reserve".to_owned()), "it was used");
    run();
    while let Some(due) = steps.due().filter(|_| log.space() == Space::Full) {
        steps.set_time(due);
        run();
    }
    append_many(&group, index + 1, index + 5);
    run();
    assert_eq!(group.raft_state().last, Some(id(1, index + 5)));
    files.set_room(None);
    drop((group, log, steps));
    let (log, _steps) = Log::open_stepped(config(), Arc::new(files.lose_unsynced()), Arc::new(|| ())).unwrap();
    assert_eq!(log.group(GROUP).checkpoint().unwrap().applied, id(1, index));
    assert_eq!(log.group(GROUP).raft_state().last, Some(id(1, index + 5)));
}

#[test]
fn a_full_device_is_asked_less_and_less_often_and_not_filled_with_zeroes() {
    let files = SimFiles::new();
    let (log, steps) = Log::open_stepped(config(), Arc::new(files.clone()), Arc::new(|| ())).unwrap();
    while steps.step() {}
    files.set_room(Some(60 << 10));
    append_many(&log.group(GROUP), 1, 60);
    while steps.step() {}
    assert_eq!(log.space(), Space::Full);
    let mut tried = Vec::new();
    for _ in 0..8 {
        let due = steps.due().unwrap();
        steps.set_time(due);
        let operations = files.operations();
        while steps.step() {}
        tried.push(due);
        // Created, not reserved, removed; no zeroes written. (A mark was written and synced in one of them.)
        assert!(files.operations() <= operations + 5, "{tried:?}");
    }
    let last = tried[7] - tried[6];
    assert_eq!(last, Duration::from_secs(5), "{tried:?}");
}
