//! A log that takes steps does nothing between them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use boltq_core::{GroupId, LogIndex};
use boltq_log::testing::SimFiles;
use boltq_log::{
    AppendError, CheckpointError, Entry, GroupLog, InstallError, Log, LogConfig, OpenError, Space, Steps, SyncPolicy,
};
use bytes::Bytes;

use crate::common::*;

const GROUP: GroupId = GroupId(1);

fn open_with(files: &SimFiles, config: LogConfig) -> (Log, Steps) {
    Log::open_stepped(config, Arc::new(files.clone()), Arc::new(|| ())).unwrap()
}

fn open_stepped(files: &SimFiles) -> (Log, Steps) {
    open_with(files, config())
}

fn run(steps: &Steps) {
    while steps.ready() {
        assert!(steps.step(), "it was ready");
    }
    assert!(!steps.step(), "it was not ready");
}

/// Appends without waiting; the receiver hears of the outcome.
fn submit(group: &GroupLog, index: u64, data: Bytes) -> mpsc::Receiver<Result<(), AppendError>> {
    let (sender, receiver) = mpsc::channel();
    let entry = Entry {
        id: id(1, index),
        kind: 1,
        data,
    };
    group.append(vec![entry], Box::new(move |outcome| drop(sender.send(outcome))));
    receiver
}

fn last_index(files: &SimFiles) -> Option<u64> {
    let (log, _steps) = open_stepped(files);
    log.group(GROUP).raft_state().last.map(|last| last.index.0)
}

#[test]
fn nothing_is_written_before_a_step_and_everything_by_it() {
    let files = SimFiles::new();
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let on_work = Arc::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let (log, steps) = Log::open_stepped(config(), Arc::new(files.clone()), on_work).unwrap();
    run(&steps);
    let (before, operations) = (told.load(Ordering::Relaxed), files.operations());
    let group = log.group(GROUP);
    let (first, second) = (submit(&group, 1, Bytes::new()), submit(&group, 2, Bytes::new()));
    assert!(told.load(Ordering::Relaxed) > before && steps.ready());
    assert_eq!(files.operations(), operations);
    assert!(first.try_recv().is_err(), "nothing was written");
    assert_eq!(last_index(&files.after_kill()), None);
    assert_eq!(group.raft_state().last, Some(id(1, 2)), "but it is readable");
    assert!(steps.step());
    first.try_recv().unwrap().unwrap();
    second.try_recv().unwrap().unwrap();
    // One write and one sync for both.
    assert_eq!(files.operations(), operations + 2);
    assert_eq!(last_index(&files.lose_unsynced()), Some(2));
}

#[test]
fn the_end_of_the_last_handle_is_that_of_a_killed_process_and_a_close_is_not() {
    for close in [false, true] {
        let files = SimFiles::new();
        let (log, steps) = open_stepped(&files);
        run(&steps);
        let first = submit(&log.group(GROUP), 1, Bytes::new());
        run(&steps);
        let second = submit(&log.group(GROUP), 2, Bytes::new());
        if close {
            log.close();
            second.try_recv().unwrap().unwrap();
        }
        drop(log);
        assert!(first.try_recv().unwrap().is_ok() && second.try_recv().is_err());
        assert!(!steps.ready() && !steps.step() && steps.due().is_none());
        assert_eq!(last_index(&files.lose_unsynced()), Some(if close { 2 } else { 1 }));
    }
}

#[test]
fn an_append_that_needs_the_next_file_prepares_it() {
    let files = SimFiles::new();
    let (log, steps) = open_stepped(&files);
    let group = log.group(GROUP);
    let outcomes: Vec<_> = (1..=100).map(|n| submit(&group, n, vec![7; 5_000].into())).collect();
    let large = submit(&group, 101, vec![7; 200_000].into());
    assert!(names(&files).len() > 7, "{:?}", names(&files));
    assert!(steps.step());
    for outcome in outcomes.into_iter().chain([large]) {
        outcome.try_recv().unwrap().unwrap();
    }
    assert_eq!(last_index(&files.lose_unsynced()), Some(101));
}

#[test]
fn a_full_device_is_tried_again_when_its_time_has_come() {
    let files = SimFiles::new();
    let (log, steps) = open_stepped(&files);
    run(&steps);
    let group = log.group(GROUP);
    files.set_room(Some(0));
    let mut index = 0;
    let error = loop {
        let outcome = submit(&group, index + 1, vec![7; 5_000].into());
        steps.step();
        match outcome.try_recv().unwrap() {
            Ok(()) => index += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, AppendError::OutOfSpace { .. }), "{error}");
    assert!(index > 20 && log.space() == Space::Full);
    files.set_room(None);
    run(&steps);
    let due = steps.due().unwrap();
    assert!(log.space() == Space::Full && due > Duration::ZERO);
    while let Some(due) = steps.due() {
        steps.set_time(due);
        run(&steps);
    }
    assert_eq!(log.space(), Space::Ample);
    let outcome = submit(&group, index + 1, vec![7; 5_000].into());
    run(&steps);
    outcome.try_recv().unwrap().unwrap();
}

#[test]
fn an_interval_is_counted_by_the_clock_that_was_set() {
    let files = SimFiles::new();
    let interval = Duration::from_millis(30);
    let config = LogConfig {
        sync: SyncPolicy::Interval(interval),
        ..config()
    };
    let (log, steps) = open_with(&files, config);
    let outcome = submit(&log.group(GROUP), 1, Bytes::new());
    run(&steps);
    outcome.try_recv().unwrap().unwrap();
    assert_eq!(last_index(&files.after_kill().lose_unsynced()), None);
    assert_eq!(steps.due(), Some(interval));
    steps.set_time(interval - Duration::from_nanos(1));
    assert!(!steps.ready());
    steps.set_time(interval);
    // It does not go back.
    steps.set_time(Duration::ZERO);
    run(&steps);
    // The log says how far it is on the device, and then rests.
    let idle = interval + Duration::from_millis(100);
    assert_eq!(steps.due(), Some(idle));
    steps.set_time(idle);
    run(&steps);
    assert_eq!(steps.due(), None);
    assert_eq!(last_index(&files.lose_unsynced()), Some(1));
}

#[test]
fn a_checkpoint_and_an_install_write_what_waits_for_them() {
    let files = SimFiles::new();
    let (log, steps) = open_stepped(&files);
    let group = log.group(GROUP);
    let plan = Plan::place(1, 1, vec![record(b"a")]);
    let outcome = submit(&group, 1, plan.encode());
    group.place(LogIndex(1), &effects(&plan.encode())).unwrap();
    checkpoint(&group, 1);
    outcome.try_recv().unwrap().unwrap();
    let other = log.group(GroupId(2));
    let mut export = group.export().unwrap().unwrap();
    let mut install = other.begin_install().unwrap();
    for run in export.next(1000).unwrap() {
        install.add(&run).unwrap();
    }
    let outcome = submit(&group, 2, Bytes::new());
    install.commit(export.applied(), b"", b"").unwrap();
    outcome.try_recv().unwrap().unwrap();
    drop(export);
    run(&steps);
    let (log, _steps) = open_stepped(&files.lose_unsynced());
    assert_eq!(read_one(&log.group(GroupId(2)), 1, 1).unwrap(), record(b"a"));
    assert_eq!(log.group(GroupId(1)).raft_state().last, Some(id(1, 2)));
}

#[test]
fn files_are_recycled_and_rewritten_in_steps() {
    let files = SimFiles::new();
    let config = LogConfig {
        compaction_threshold: 0,
        ..config()
    };
    let (log, steps) = open_with(&files, config);
    let group = log.group(GROUP);
    let mut model = Model::default();
    let mut index = 0;
    let mut commit = |plan: Plan| {
        index += 1;
        let data = plan.encode();
        let outcome = submit(&group, index, data.clone());
        model.apply(&data);
        group.place(LogIndex(index), &effects(&data)).unwrap();
        run(&steps);
        outcome.try_recv().unwrap().unwrap();
        index
    };
    for n in 0..300 {
        commit(Plan::place(1, n * 3 + 1, vec![record(&[7; 300]); 3]));
        if n % 10 != 0 {
            commit(Plan::free(1, n * 3 + 1, 3));
        }
    }
    let last = commit(Plan::default());
    checkpoint(&group, last);
    run(&steps);
    let usage = log.usage();
    assert!(usage.segment_bytes > 0, "{usage:?}");
    checkpoint(&group, last);
    run(&steps);
    assert!(log.usage().wal_bytes < 4 * (64 << 10), "{:?}", log.usage());
    model.check(&group);
    drop((group, log));
    let (log, _steps) = open_stepped(&files);
    model.check(&log.group(GROUP));
}

#[test]
fn memory_mode_has_no_steps_to_take() {
    let (log, steps) = open_with(&SimFiles::new(), memory());
    assert!(submit(&log.group(GROUP), 1, Bytes::new()).try_recv().unwrap().is_ok());
    assert!(!steps.ready() && !steps.step() && steps.due().is_none());
}

#[test]
fn a_sync_that_fails_stops_the_log_in_the_step() {
    let files = SimFiles::new();
    let (log, steps) = open_stepped(&files);
    run(&steps);
    let group = log.group(GROUP);
    let safe = submit(&group, 1, Bytes::new());
    run(&steps);
    safe.try_recv().unwrap().unwrap();
    files.fail_sync(1);
    let lost = submit(&group, 2, Bytes::new());
    assert!(steps.step());
    assert!(matches!(lost.try_recv().unwrap(), Err(AppendError::Failed(_))));
    assert!(!steps.ready() && !steps.step() && steps.due().is_none());
    log.close();
    drop((group, log));
    assert_eq!(last_index(&files.crash(1)), Some(1));
}

#[test]
fn a_checkpoint_whose_name_cannot_be_synced_stops_the_log() {
    for kept in [false, true] {
        for install in [false, true] {
            let files = SimFiles::new();
            let (log, steps) = open_stepped(&files);
            let group = log.group(GROUP);
            let plan = Plan::place(1, 1, vec![record(b"a")]);
            let written = submit(&group, 1, plan.encode());
            group.place(LogIndex(1), &effects(&plan.encode())).unwrap();
            run(&steps);
            written.try_recv().unwrap().unwrap();
            checkpoint(&group, 1);
            run(&steps);
            let error = if install {
                let mut export = group.export().unwrap().unwrap();
                let mut install = group.begin_install().unwrap();
                for run in export.next(1000).unwrap() {
                    install.add(&run).unwrap();
                }
                // The names of the segments first.
                files.fail_dir_sync(2);
                match install.commit(id(2, 9), b"", b"") {
                    Err(InstallError::Checkpoint(error)) => error,
                    outcome => panic!("{outcome:?}"),
                }
            } else {
                files.fail_dir_sync(1);
                group
                    .write_checkpoint(group.capture(), id(1, 1), b"", b"new".as_slice().into())
                    .unwrap_err()
            };
            assert!(matches!(error, CheckpointError::Log(AppendError::Failed(_))), "{error}");
            assert!(log.failure().is_some());
            let outcome = submit(&group, 2, Bytes::new());
            assert!(matches!(outcome.try_recv().unwrap(), Err(AppendError::Failed(_))));
            run(&steps);
            drop((group, log));
            // The name may have reached the device or not; what it refers to is there.
            let files = if kept {
                files.after_kill()
            } else {
                files.lose_unsynced()
            };
            let (log, _steps) = open_stepped(&files);
            let group = log.group(GROUP);
            let last = group.raft_state().last.unwrap();
            assert_eq!(last, if kept && install { id(2, 9) } else { id(1, 1) });
            assert_eq!(group.checkpoint().unwrap().applied, last);
            assert_eq!(read_one(&group, 1, 1).unwrap(), record(b"a"));
        }
    }
}

#[test]
fn a_bit_that_decayed_is_found_at_the_next_start() {
    let files = SimFiles::new();
    let (log, steps) = open_stepped(&files);
    for index in 1..=3 {
        let outcome = submit(&log.group(GROUP), index, Bytes::from_static(b"some data"));
        run(&steps);
        outcome.try_recv().unwrap().unwrap();
    }
    drop(log);
    let name = "wal-0000000000000001.log";
    let path: PathBuf = Path::new(DIR).join(name);
    assert_eq!(files.image()[&path], contents(&files, name));
    let entry = contents(&files, name)
        .windows(9)
        .position(|bytes| bytes == b"some data")
        .unwrap();
    files.flip_bit(&path, entry, 3).unwrap();
    assert!(files.flip_bit(&path, 1 << 30, 0).is_err());
    for files in [files.after_kill(), files.lose_unsynced()] {
        let outcome = Log::open_stepped(config(), Arc::new(files), Arc::new(|| ()));
        assert!(matches!(outcome, Err(OpenError::Damaged { .. })));
    }
}

#[test]
fn what_blocks_can_be_moved_to_a_thread_that_may() {
    fn movable<T: Send + 'static>() {}
    movable::<boltq_log::Export>();
    movable::<boltq_log::Install>();
    movable::<Steps>();
}

#[test]
fn entries_are_read_from_where_each_of_them_is() {
    let files = SimFiles::new();
    let (log, steps) = open_stepped(&files);
    let group = log.group(GROUP);
    // More than the cache keeps.
    let data = |n: u8| Bytes::from(vec![n; 6 << 10]);
    for index in [1, 2] {
        drop(submit(&group, index, data(index as u8)));
        run(&steps);
    }
    drop(submit(&group, 3, data(3)));
    let read = group.entries(LogIndex(1)..LogIndex(4), u64::MAX).unwrap();
    let read: Vec<_> = read.into_iter().map(|entry| entry.data).collect();
    assert_eq!(read, [data(1), data(2), data(3)], "the third one is not written yet");
}

#[test]
fn a_log_counts_how_long_a_step_is_under_way() {
    let files = SimFiles::new();
    let (log, steps) = open_stepped(&files);
    run(&steps);
    let group = log.group(GROUP);
    let outcome = submit(&group, 1, Bytes::new());
    steps.set_time(Duration::from_secs(5));
    assert_eq!(group.stalled(), Duration::ZERO, "nobody has begun");
    steps.begin();
    steps.set_time(Duration::from_secs(8));
    assert_eq!(group.stalled(), Duration::from_secs(3));
    assert!(steps.step());
    outcome.try_recv().unwrap().unwrap();
    assert_eq!(group.stalled(), Duration::ZERO);
}
