//! Files come and go with what is wanted.

use std::sync::Arc;

use boltq_core::{GroupId, LogIndex};
use boltq_log::testing::SimFiles;
use boltq_log::{GroupLog, Log, LogConfig};

use crate::common::*;

const GROUP: GroupId = GroupId(1);

fn open_with(files: &SimFiles, config: LogConfig) -> Log {
    Log::open(config, Arc::new(files.clone())).unwrap()
}

fn compacting() -> LogConfig {
    LogConfig {
        compaction_threshold: 0,
        ..config()
    }
}

/// Appends plans and keeps a model.
struct Writer {
    group: GroupLog,
    index: u64,
    model: Model,
}

impl Writer {
    fn new(log: &Log) -> Self {
        Self {
            group: log.group(GROUP),
            index: 0,
            model: Model::default(),
        }
    }

    fn commit(&mut self, plan: &Plan) {
        self.index += 1;
        self.model.apply(&plan.encode());
        commit(&self.group, self.index, plan);
    }

    fn checkpoint(&self) {
        checkpoint(&self.group, self.index);
    }
}

/// 40 streams in turn, of which a few records are still wanted after a while.
fn sparse(writer: &mut Writer) {
    for round in 0..20 {
        for stream in 0..40 {
            writer.commit(&Plan::place(
                stream,
                round * 3 + 1,
                (0..3).map(|n| record(&[n; 200])).collect(),
            ));
        }
    }
    for stream in 0..40 {
        let kept = stream % 10 + 20;
        writer.commit(&Plan::free(stream, 1, kept - 1));
        writer.commit(&Plan::free(stream, kept + 3, 60 - kept - 2));
    }
    writer.checkpoint();
}

#[test]
fn files_of_which_little_is_wanted_are_rewritten_and_their_rows_joined() {
    let files = SimFiles::new();
    let log = open_with(&files, compacting());
    let mut writer = Writer::new(&log);
    sparse(&mut writer);
    eventually("a segment", || log.usage().segment_bytes > 0);
    // The rows are in the segment now; the next checkpoint says so, and lets the files go.
    eventually("fewer bytes", || {
        writer.checkpoint();
        let usage = log.usage();
        usage.wal_bytes <= 4 * (64 << 10) && usage.segment_bytes < 100 << 10
    });
    writer.model.check(&writer.group);
    assert!(log.usage().rows <= 80, "{:?}", log.usage());
    log.close();
    let log = open_with(&files, compacting());
    writer.model.check(&log.group(GROUP));
    assert_eq!(names(&files).iter().filter(|name| name.starts_with("ckp-")).count(), 1);
}

#[test]
fn many_small_rows_are_worth_a_copy_for_their_memory() {
    let files = SimFiles::new();
    let config = LogConfig {
        wal_file_bytes: 1 << 20,
        row_bytes: 4 << 10,
        ..compacting()
    };
    let log = open_with(&files, config);
    let mut writer = Writer::new(&log);
    for round in 0..100 {
        let placed = (0..100)
            .map(|stream| (stream, round + 1, vec![record(b"small")]))
            .collect();
        let freed = Vec::new();
        writer.commit(&Plan {
            placed,
            freed,
            ..Plan::default()
        });
    }
    assert_eq!(log.usage().rows, 10_000);
    // Until then the file is the one that is written to.
    for index in 0..2 {
        writer.commit(&Plan::place(1000 + index, 1, vec![record(&vec![0; 700 << 10])]));
    }
    writer.checkpoint();
    eventually("fewer rows", || log.usage().rows < 500);
    writer.model.check(&writer.group);
    drop(log);
}

#[test]
fn a_backlog_that_is_wanted_is_not_rewritten_and_a_start_does_not_read_it() {
    let files = SimFiles::new();
    let log = open_with(&files, compacting());
    let mut writer = Writer::new(&log);
    for n in 0..200 {
        writer.commit(&Plan::place(
            1,
            n * 20 + 1,
            (0..20).map(|n| record(&[n; 1000])).collect(),
        ));
        if n % 10 == 9 {
            writer.checkpoint();
        }
    }
    let usage = log.usage();
    assert_eq!(usage.segment_bytes, 0);
    assert!(usage.wal_bytes > 4_000_000, "{usage:?}");
    let written = log.usage().wal_bytes;
    log.close();
    let before = files.bytes_read();
    let log = open_with(&files, compacting());
    let read = files.bytes_read() - before;
    assert!(read < written / 4, "{read} bytes of {written} were read");
    writer.model.check(&log.group(GROUP));
}

#[test]
fn what_goes_through_an_empty_queue_leaves_little_on_disk() {
    let files = SimFiles::new();
    let log = open(&files).unwrap();
    let mut writer = Writer::new(&log);
    let (file_bytes, mut through, mut most) = (64 << 10, 0, 0);
    for n in 0..2400 {
        writer.commit(&Plan::place(1, n * 4 + 1, (0..4).map(|n| record(&[n; 500])).collect()));
        writer.commit(&Plan::free(1, n * 4 + 1, 4));
        through += 2000;
        if writer.group.bytes_since_checkpoint() > 2 * file_bytes {
            writer.checkpoint();
        }
        let usage = log.usage();
        most = most.max(usage.wal_bytes + usage.segment_bytes + usage.checkpoint_bytes);
    }
    assert!(through > 70 * file_bytes);
    // With files of 16 MiB, that is 96 MiB.
    assert!(most <= 6 * file_bytes, "{most} bytes on disk");
    assert_eq!(log.usage().segment_bytes, 0, "nothing was written twice");
    writer.checkpoint();
    assert_eq!(log.usage().rows, 0);
}

#[test]
fn a_recycled_file_never_brings_back_what_was_in_it() {
    let files = SimFiles::new();
    let log = open(&files).unwrap();
    let mut writer = Writer::new(&log);
    let mut recycled = 0;
    for round in 0..30 {
        for n in 0..10 {
            let seq = round * 10 + n + 1;
            writer.commit(&Plan::place(1, seq, vec![record(&[7; 1500])]));
            writer.commit(&Plan::free(1, seq, 1));
        }
        writer.checkpoint();
        // What a kill leaves, with the end of the log somewhere within old frames.
        let killed = files.after_kill();
        let newest = names(&killed)
            .into_iter()
            .rfind(|name| name.starts_with("wal-"))
            .unwrap();
        recycled += usize::from(contents(&killed, &newest).starts_with(b"BqF"));
        let log = open(&killed).unwrap();
        assert_eq!(log.group(GROUP).raft_state().last, Some(id(1, writer.index)));
        assert_eq!(log.usage().rows, 0);
    }
    assert!(recycled > 5, "{recycled} files held old frames");
}

#[test]
fn a_recycled_file_has_its_new_name_on_the_device_before_it_counts() {
    let files = SimFiles::new();
    let log = open(&files).unwrap();
    let group = log.group(GROUP);
    let mut index = 0;
    let mut append_some = |count| {
        for _ in 0..count {
            index += 1;
            append(&group, 1, index, vec![7; 1500].into()).unwrap();
        }
        index
    };
    for _ in 0..8 {
        let applied = append_some(30);
        checkpoint(&group, applied);
    }
    // With room for no other file, nothing else syncs names from here on.
    files.set_room(Some(0));
    let mut last = index;
    while append(&group, 1, last + 1, vec![7; 1500].into()).is_ok() {
        last += 1;
    }
    assert!(last > index + 45, "there was no file to be recycled");
    let log = open(&files.lose_unsynced()).unwrap();
    assert_eq!(log.group(GROUP).raft_state().last, Some(id(1, last)));
}

#[test]
fn files_that_a_capture_points_into_stay_until_its_checkpoint_is_written() {
    let files = SimFiles::new();
    let log = open_with(&files, compacting());
    let mut writer = Writer::new(&log);
    sparse(&mut writer);
    eventually("a segment", || log.usage().segment_bytes > 0);
    let (capture, applied, then) = (writer.group.capture(), writer.index, writer.model.clone());
    for stream in 0..40 {
        let kept = stream % 10 + 20;
        writer.commit(&Plan::free(stream, kept, 3));
    }
    assert_eq!(log.usage().rows, 0);
    // Long enough for files that nobody needs to go.
    std::thread::sleep(std::time::Duration::from_millis(50));
    writer
        .group
        .write_checkpoint(capture, id(1, applied), b"meta", b"state".as_slice().into())
        .unwrap();
    let log = open(&files.after_kill()).unwrap();
    then.check(&log.group(GROUP));
    drop(writer);
}

#[test]
fn a_file_that_begins_between_a_checkpoint_and_its_purge_does_not_keep_the_log_from_opening() {
    let files = SimFiles::new();
    let log = open(&files).unwrap();
    let (group, other) = (log.group(GROUP), log.group(GroupId(2)));
    let (mut index, mut others) = (0, 0);
    for _ in 0..5 {
        for _ in 0..3 {
            index += 1;
            append(&group, 1, index, vec![7; 100].into()).unwrap();
        }
        group
            .write_checkpoint(group.capture(), id(1, index), b"", b"".as_slice().into())
            .unwrap();
        // Two files begin, and say that the group needs what the checkpoint has.
        for _ in 0..80 {
            others += 1;
            append(&other, 1, others, vec![7; 1500].into()).unwrap();
        }
        // Only then does it not, and the next entry comes.
        group.purge(id(1, index));
        index += 1;
        append(&group, 1, index, vec![7; 100].into()).unwrap();
        checkpoint(&other, others);
        let wals = || names(&files).iter().filter(|name| name.starts_with("wal-")).count();
        eventually("files to go", || wals() < 6);
        std::thread::sleep(std::time::Duration::from_millis(10));
        for after in [files.after_kill(), files.after_kill().lose_unsynced()] {
            let log = open(&after).unwrap();
            assert_eq!(log.group(GROUP).raft_state().last, Some(id(1, index)));
        }
    }
}

#[test]
fn compaction_may_be_killed_at_every_step() {
    let before = SimFiles::new();
    let log = open(&before).unwrap();
    let mut writer = Writer::new(&log);
    sparse(&mut writer);
    log.close();
    let mut steps = 0;
    loop {
        let files = before.after_kill();
        let log = open_with(&files, compacting());
        files.stop_after(steps);
        // Waits for compaction to end one way or the other; checkpoints move its result to disk.
        let before = files.operations();
        let group = log.group(GROUP);
        for _ in 0..20 {
            let _ = group.write_checkpoint(
                group.capture(),
                id(1, writer.index),
                b"meta",
                b"state".as_slice().into(),
            );
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let done = files.operations() - before < steps && log.usage().segment_bytes > 0;
        let crashed = files.crash(steps);
        drop((group, log));
        let log = open(&crashed).unwrap();
        let group = log.group(GROUP);
        assert_eq!(group.checkpoint().unwrap().applied, id(1, writer.index));
        assert_eq!(group.raft_state().last, Some(id(1, writer.index)));
        writer.model.check(&group);
        assert!(
            !names(&crashed).iter().any(|name| name.ends_with(".tmp")),
            "step {steps}"
        );
        steps += 1;
        if done {
            break;
        }
        assert!(steps < 300, "compaction did not end");
    }
    assert!(steps > 5, "there were only {steps} steps");
}

/// Each start begins a new file, and what is wanted of it is never much.
#[test]
fn a_backlog_in_many_small_files_is_put_together() {
    const STARTS: u64 = 60;
    let files = SimFiles::new();
    let patient = || LogConfig {
        compaction_threshold: u64::MAX,
        ..config()
    };
    let count = |kind: &str| names(&files).iter().filter(|name| name.starts_with(kind)).count();
    let mut writer = Writer::new(&open_with(&files, patient()));
    let put = |writer: &mut Writer| {
        let plan = Plan::place(1, writer.index + 1, vec![record(&[7; 200])]);
        writer.commit(&plan);
    };
    let restart = |writer: &mut Writer| {
        // The log ends with its last handle.
        writer.group = Log::open(LogConfig::default(), Arc::new(SimFiles::new()))
            .unwrap()
            .group(GROUP);
        let log = open_with(&files, patient());
        writer.group = log.group(GROUP);
        log
    };
    for _ in 0..STARTS {
        put(&mut writer);
        writer.checkpoint();
        restart(&mut writer);
    }
    eventually("few files", || {
        put(&mut writer);
        writer.checkpoint();
        writer.group.purge(id(1, writer.index));
        count("wal-") + count("seg-") <= 24
    });
    writer.model.check(&writer.group);
    let log = restart(&mut writer);
    writer.model.check(&log.group(GROUP));
}

#[test]
fn entries_in_many_small_files_are_fewer_than_their_bytes_allow() {
    const STARTS: u64 = 40;
    let files = SimFiles::new();
    for index in 1..=STARTS {
        let log = open(&files).unwrap();
        append(&log.group(GROUP), 1, index, record(&[7; 200])).unwrap();
        log.close();
    }
    let group = open(&files).unwrap().group(GROUP);
    assert!(group.lies_in_many_files());
    // 16 files, and as many as there would be if they were full.
    let upto = group.before_last_bytes(2 * config().wal_file_bytes);
    assert_eq!(upto, Some(LogIndex(STARTS - 18)));
    group.purge(id(1, STARTS - 18));
    assert!(group.lies_in_many_files());
    group.purge(id(1, STARTS - 16));
    assert!(!group.lies_in_many_files());
}
