//! Devices that fail or run full.

use std::sync::Arc;
use std::time::Duration;

use boltq_core::{GroupId, LogIndex};
use boltq_log::testing::SimFiles;
use boltq_log::{AppendError, CheckpointError, Log, LogConfig, Space, SyncPolicy};
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
    let outcome = group.write_checkpoint(group.capture(), id(1, 1), b"", b"");
    assert!(matches!(outcome, Err(CheckpointError::Log(AppendError::Failed(_)))));
    drop((group, log));

    let log = open(&files.crash(1)).unwrap();
    let entries = log.group(GROUP).entries(LogIndex(1)..LogIndex(9), u64::MAX).unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(&entries[0].data[..], b"safe");
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
    let outcome = group.write_checkpoint(group.capture(), id(1, 5), b"", &[0; 20 << 10]);
    assert!(matches!(outcome, Err(CheckpointError::Io { .. })), "{outcome:?}");
    assert!(!names(&files).iter().any(|name| name.ends_with(".tmp")));

    files.set_room(None);
    eventually("room", || log.space() == Space::Ample);
    for _ in 0..200 {
        append_next().unwrap();
    }
    group
        .write_checkpoint(group.capture(), id(1, 5), b"", &[0; 20 << 10])
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
