//! The state of a group goes from one log to another.

use std::sync::{Arc, mpsc};

use boltq_core::{GroupId, LogIndex, Seq, StreamId};
use boltq_log::testing::SimFiles;
use boltq_log::{
    AppendError, Entry, EntryId, Export, ExportedRun, GroupLog, Install, InstallError, Log, LogConfig, RaftState, Space,
};
use bytes::Bytes;

use crate::common::*;

const GROUP: GroupId = GroupId(1);
const OTHER: GroupId = GroupId(2);

fn compacting() -> LogConfig {
    LogConfig {
        compaction_threshold: 0,
        ..config()
    }
}

fn log(config: LogConfig) -> Log {
    Log::open(config, Arc::new(SimFiles::new())).unwrap()
}

/// A group with a checkpoint, and entries after it.
struct Source {
    log: Log,
    group: GroupLog,
    index: u64,
    model: Model,
    /// What the checkpoint has.
    saved: Model,
}

impl Source {
    fn new(config: LogConfig) -> Self {
        let log = log(config);
        let group = log.group(GROUP);
        Self {
            log,
            group,
            index: 0,
            model: Model::default(),
            saved: Model::default(),
        }
    }

    /// 60 records in each of 40 streams, with holes in rows and between them, and rows in segments if it compacts.
    fn full(config: LogConfig) -> Self {
        let compacts = config.compaction_threshold == 0 && config.storage != memory().storage;
        let mut source = Self::new(config);
        for round in 0..20 {
            for stream in 0..40 {
                source.place(stream, 3, 200);
            }
            if round == 10 {
                for stream in 0..40 {
                    source.free(stream, 1, 8 + stream % 20);
                    source.free(stream, 30, 1);
                }
                source.save();
            }
        }
        if compacts {
            eventually("a segment", || source.log.usage().segment_bytes > 0);
        }
        source.place(7, 1, 5_000);
        source.place(8, 40, 100);
        source.free(8, 62, 5);
        source.save();
        source
    }

    fn commit(&mut self, plan: &Plan) {
        self.index += 1;
        self.model.apply(&plan.encode());
        commit(&self.group, self.index, plan);
    }

    fn place(&mut self, stream: u64, count: u64, bytes: usize) {
        let first = self.model.next.get(&stream).copied().unwrap_or(1);
        let byte = |n: u64| (self.index + n) as u8;
        let records = (0..count).map(|n| record(&vec![byte(n); bytes])).collect();
        self.commit(&Plan::place(stream, first, records));
    }

    fn free(&mut self, stream: u64, first: u64, count: u64) {
        self.commit(&Plan::free(stream, first, count));
    }

    fn save(&mut self) {
        checkpoint(&self.group, self.index);
        self.saved = self.model.clone();
    }

    /// Frees and places after the checkpoint.
    fn go_on(&mut self) {
        for stream in 0..40 {
            let first: Vec<_> = self.model.live.range((stream, 0)..).take(2).collect();
            let first: Vec<u64> = first.into_iter().map(|((_, seq), _)| *seq).collect();
            self.free(stream, first[0], 1);
            self.free(stream, first[1], 1);
            self.place(stream, 2, 300);
        }
    }

    fn export(&self) -> Export {
        self.group.export().unwrap().unwrap()
    }
}

fn copy(export: &mut Export, install: &mut Install) -> Result<usize, InstallError> {
    let mut runs = 0;
    loop {
        let next = export.next(20_000).unwrap();
        if next.is_empty() {
            assert_eq!(export.left_bytes(), 0);
            return Ok(runs);
        }
        assert!(next.is_sorted_by_key(|run| (run.stream, run.first)));
        runs += next.len();
        for run in &next {
            install.add(run)?;
        }
    }
}

fn transfer(source: &Source, to: &GroupLog) -> Result<(), InstallError> {
    let mut export = source.export();
    let mut install = to.begin_install()?;
    copy(&mut export, &mut install)?;
    install.commit(export.applied(), export.meta(), export.state())
}

/// The group is as `saved` says, and the entries after it lead to what `source` has.
fn catch_up(source: &Source, group: &GroupLog) {
    let applied = group.checkpoint().unwrap().applied.index.0;
    let mut model = source.saved.clone();
    let entries = source
        .group
        .entries(LogIndex(applied + 1)..LogIndex(u64::MAX), u64::MAX)
        .unwrap();
    for entry in entries {
        model.apply(&entry.data);
        append(group, entry.id.term.0, entry.id.index.0, entry.data.clone()).unwrap();
        group.place(entry.id.index, &effects(&entry.data)).unwrap();
    }
    assert_eq!(model, source.model);
    model.check(group);
}

/// Entries of another history in `GROUP`, and a group that has nothing to do with it, from the first file on.
fn divergent(files: &SimFiles, entries: u64) -> Log {
    let log = open(files).unwrap();
    let (group, other) = (log.group(GROUP), log.group(OTHER));
    commit(&other, 1, &Plan::place(1, 1, vec![record(b"other")]));
    wait(|done| group.save_vote(Bytes::from_static(b"vote"), done)).unwrap();
    for index in 1..=entries {
        let data = Plan::place(3, index, vec![record(&vec![9; 2_000])]).encode();
        append(&group, 7, index, data.clone()).unwrap();
        if index <= entries / 2 {
            group.place(LogIndex(index), &effects(&data)).unwrap();
        }
        if index == entries / 4 {
            group
                .write_checkpoint(group.capture(), id(7, index), b"", b"old".as_slice().into())
                .unwrap();
        }
    }
    log
}

fn check_other(log: &Log) {
    let other = log.group(OTHER);
    assert_eq!(other.raft_state().last, Some(id(1, 1)));
    let entries = other.entries(LogIndex(1)..LogIndex(9), u64::MAX).unwrap();
    assert_eq!(entries.len(), 1);
    other.place(LogIndex(1), &effects(&entries[0].data)).unwrap();
    assert_eq!(read_one(&other, 1, 1).unwrap(), record(b"other"));
}

fn state(applied: EntryId, last: EntryId) -> RaftState {
    RaftState {
        vote: Some(Bytes::from_static(b"vote")),
        purged: Some(applied),
        last: Some(last),
    }
}

#[test]
fn a_state_with_its_records_goes_from_any_log_to_any_other() {
    for from in [config(), compacting(), memory()] {
        for to in [config(), memory()] {
            let (on_disk, in_memory) = (to.storage == config().storage, from.storage == memory().storage);
            let mut source = Source::full(from.clone());
            source.go_on();
            let files = SimFiles::new();
            let open = || Log::open(to.clone(), Arc::new(files.clone())).unwrap();
            let mut target = open();
            transfer(&source, &target.group(GROUP)).unwrap();
            let state = RaftState {
                vote: None,
                purged: Some(source.export().applied()),
                last: Some(source.export().applied()),
            };
            assert_eq!(target.group(GROUP).raft_state(), state);
            let check_saved = |group: &GroupLog| {
                if in_memory {
                    // What was freed since is not sent.
                    let mut left = source.saved.clone();
                    left.live.retain(|place, _| source.model.live.contains_key(place));
                    assert!(left.live.len() < source.saved.live.len());
                    left.check(group);
                } else {
                    source.saved.check(group);
                }
                let checkpoint = group.checkpoint().unwrap();
                assert_eq!(
                    (&checkpoint.meta[..], &checkpoint.state[..]),
                    (&b"meta"[..], &b"state"[..])
                );
            };
            check_saved(&target.group(GROUP));
            if on_disk {
                target.close();
                target = open();
                assert_eq!(target.group(GROUP).raft_state(), state);
                check_saved(&target.group(GROUP));
            }
            catch_up(&source, &target.group(GROUP));
            let rows = |log: &Log| log.usage().rows;
            assert!(
                rows(&target) <= rows(&source.log),
                "{} rows of {}",
                rows(&target),
                rows(&source.log)
            );

            // Freeing all that is wanted leaves nothing: what was freed before was counted.
            let group = target.group(GROUP);
            let mut index = source.index;
            for (stream, seq) in source.model.live.keys() {
                index += 1;
                commit(&group, index, &Plan::free(*stream, *seq, 1));
            }
            checkpoint(&group, index);
            assert_eq!((rows(&target), target.usage().live_bytes), (0, 0));
            if on_disk {
                eventually("segments to go", || target.usage().segment_bytes == 0);
            }
        }
    }
}

#[test]
fn what_was_installed_can_be_sent_on() {
    let mut source = Source::full(config());
    source.go_on();
    for between in [log(config()), log(memory())] {
        transfer(&source, &between.group(GROUP)).unwrap();
        let mut export = between.group(GROUP).export().unwrap().unwrap();
        let last = log(config());
        let mut install = last.group(GROUP).begin_install().unwrap();
        copy(&mut export, &mut install).unwrap();
        install.commit(export.applied(), export.meta(), export.state()).unwrap();
        source.saved.check(&last.group(GROUP));
        catch_up(&source, &last.group(GROUP));
    }
}

#[test]
fn rows_that_follow_each_other_are_joined_on_the_way() {
    let mut source = Source::new(config());
    for _ in 0..100 {
        source.place(1, 1, 10);
        source.place(2, 1, 10);
    }
    source.save();
    assert_eq!(source.log.usage().rows, 200);
    let target = log(config());
    transfer(&source, &target.group(GROUP)).unwrap();
    assert!(target.usage().rows < 10, "{}", target.usage().rows);
    source.saved.check(&target.group(GROUP));
}

#[test]
fn runs_that_are_joined_count_what_is_wanted_of_both() {
    for to in [config(), memory()] {
        let mut source = Source::new(config());
        for _ in 0..100 {
            source.place(1, 2, 10);
        }
        for n in 0..50 {
            source.free(1, n * 4 + 1, 1);
        }
        source.save();
        let target = log(to);
        let group = target.group(GROUP);
        let mut export = source.export();
        let mut install = group.begin_install().unwrap();
        // One row at a time, so that nothing is joined before.
        while let [run] = &export.next(1).unwrap()[..] {
            assert!(run.count <= 2);
            install.add(run).unwrap();
        }
        install.commit(export.applied(), b"", b"").unwrap();
        assert!(target.usage().rows < 10, "{}", target.usage().rows);
        source.saved.check(&group);
        let mut index = source.index;
        for (stream, seq) in source.saved.live.keys() {
            index += 1;
            commit(&group, index, &Plan::free(*stream, *seq, 1));
        }
        assert_eq!(target.usage().rows, 0);
    }
}

#[test]
fn a_state_takes_the_place_of_a_log_whatever_that_holds() {
    let mut source = Source::full(config());
    source.go_on();
    let applied = source.export().applied();
    let at = applied.index.0;
    // Of another history: shorter, as long, and longer than the state.
    for entries in [40, at - 1, at, at + 1, at + 60] {
        let files = SimFiles::new();
        let target = divergent(&files, entries);
        transfer(&source, &target.group(GROUP)).unwrap();
        let reopened = |files: &SimFiles| open(files).unwrap();
        let check = |log: &Log| {
            assert_eq!(
                log.group(GROUP).raft_state(),
                state(applied, applied),
                "{entries} entries"
            );
            let all = log.group(GROUP).entries(LogIndex(0)..LogIndex(u64::MAX), u64::MAX);
            assert_eq!(all.unwrap(), []);
            source.saved.check(&log.group(GROUP));
        };
        check(&target);
        check(&reopened(&files.after_kill()));
        check_other(&reopened(&files.after_kill()));
        catch_up(&source, &target.group(GROUP));
        let last = id(1, source.index);
        let check_after = |files: SimFiles, applied_to: u64| {
            let log = reopened(&files);
            let group = log.group(GROUP);
            assert_eq!(group.raft_state(), state(applied, last));
            let after = group.entries(LogIndex(0)..LogIndex(u64::MAX), u64::MAX).unwrap();
            assert_eq!(after.len() as u64, source.index - at);
            for entry in after.iter().filter(|entry| entry.id.index.0 > applied_to) {
                group.place(entry.id.index, &effects(&entry.data)).unwrap();
            }
            source.model.check(&group);
            check_other(&log);
        };
        check_after(files.after_kill(), at);
        check_after(files.after_kill().lose_unsynced(), at);
        // The next checkpoint has another place in the log, and knows nothing of what was installed. The other group
        // keeps all files from the first one on.
        target
            .group(GROUP)
            .write_checkpoint(target.group(GROUP).capture(), last, b"", b"".as_slice().into())
            .unwrap();
        check_after(files.after_kill(), source.index);
    }
}

#[test]
fn entries_after_the_state_stay_if_they_are_of_its_history() {
    let mut source = Source::full(config());
    source.go_on();
    let applied = source.export().applied();
    // A node that has all entries, and no state yet.
    let files = SimFiles::new();
    let target = open(&files).unwrap();
    let group = target.group(GROUP);
    wait(|done| group.save_vote(Bytes::from_static(b"vote"), done)).unwrap();
    for index in 1..=applied.index.0 {
        append(&group, 1, index, Bytes::from_static(b"purged at the source")).unwrap();
    }
    for entry in source
        .group
        .entries(LogIndex(applied.index.0 + 1)..LogIndex(u64::MAX), u64::MAX)
        .unwrap()
    {
        append(&group, 1, entry.id.index.0, entry.data).unwrap();
    }
    transfer(&source, &group).unwrap();
    for log in [
        target.clone(),
        open(&files.after_kill()).unwrap(),
        open(&files.after_kill().lose_unsynced()).unwrap(),
    ] {
        let group = log.group(GROUP);
        assert_eq!(group.raft_state(), state(applied, id(1, source.index)));
        source.saved.check(&group);
        for entry in group.entries(LogIndex(0)..LogIndex(u64::MAX), u64::MAX).unwrap() {
            group.place(entry.id.index, &effects(&entry.data)).unwrap();
        }
        source.model.check(&group);
    }
}

#[test]
fn states_can_be_installed_one_after_the_other_and_again() {
    let mut source = Source::full(config());
    let files = SimFiles::new();
    let target = divergent(&files, 30);
    let group = target.group(GROUP);
    for _ in 0..3 {
        transfer(&source, &group).unwrap();
        transfer(&source, &group).unwrap();
        source.saved.check(&group);
        source.go_on();
        source.save();
    }
    assert!(target.usage().segment_bytes < 2_000_000);
    let log = open(&files.after_kill()).unwrap();
    assert_eq!(log.group(GROUP).raft_state().last, group.raft_state().last);
    let checkpoints = |name: &String| name.starts_with("ckp-1-");
    assert_eq!(names(&files).into_iter().filter(checkpoints).count(), 1);
    check_other(&log);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let source = Source::full(config());
    let files = SimFiles::new();
    let target = divergent(&files, 900);
    let group = target.group(GROUP);
    let run = ExportedRun {
        stream: StreamId(1),
        first: Seq(5),
        count: 2,
        live: 1,
        data: [record(b"a"), record(b"b")].concat().into(),
    };
    let broken = [
        ExportedRun {
            count: 1,
            ..run.clone()
        },
        ExportedRun {
            count: 3,
            ..run.clone()
        },
        ExportedRun {
            count: u32::MAX,
            ..run.clone()
        },
        ExportedRun { live: 0, ..run.clone() },
        ExportedRun { live: 3, ..run.clone() },
        ExportedRun {
            first: Seq(u64::MAX),
            ..run.clone()
        },
        ExportedRun {
            data: Bytes::from_static(&[255; 6]),
            ..run.clone()
        },
    ];
    for broken in broken {
        let mut install = group.begin_install().unwrap();
        install.add(&run).unwrap();
        let outcome = install.add(&broken);
        assert!(matches!(outcome, Err(InstallError::Records { .. })), "{outcome:?}");
        assert!(matches!(install.add(&run), Err(InstallError::Incomplete)));
        let outcome = install.commit(id(1, 2_000), b"", b"");
        assert!(matches!(outcome, Err(InstallError::Incomplete)));
    }
    let mut install = group.begin_install().unwrap();
    install.add(&run).unwrap();
    install.add(&ExportedRun { first: Seq(6), ..run }).unwrap();
    let outcome = install.commit(id(1, 2_000), b"", b"");
    assert!(
        matches!(outcome, Err(InstallError::Twice { seq: Seq(6), .. })),
        "{outcome:?}"
    );

    let outcome = group.begin_install().unwrap().commit(id(1, 3), b"", b"");
    assert!(matches!(outcome, Err(InstallError::Checkpoint(_))), "{outcome:?}");
    group.purge(id(7, 300));
    let outcome = group.begin_install().unwrap().commit(id(1, 300), b"", b"");
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("begins after entry 300"), "{error}");
    for index in [(1 << 62) + 1, u64::MAX] {
        let outcome = group.begin_install().unwrap().commit(id(9, index), b"", b"");
        assert!(matches!(outcome, Err(InstallError::TooHigh { .. })), "{outcome:?}");
    }
    // What was asked for too much is still possible.
    assert_eq!(group.raft_state().last, Some(id(7, 900)));
    assert!(!names(&files).iter().any(|name| name.starts_with("seg-")));
    transfer(&source, &group).unwrap();
    source.saved.check(&group);
    check_other(&open(&files.after_kill()).unwrap());
}

/// What is found after a crash in the middle of an install.
fn old_or_new(log: &Log, source: &Source, entries: u64) -> bool {
    let group = log.group(GROUP);
    let applied = source.export().applied();
    let checkpoint = group.checkpoint().unwrap();
    let new = checkpoint.applied == applied;
    check_other(log);
    if new {
        let last = group.raft_state().last.unwrap();
        // One entry was appended and not acknowledged.
        assert!((applied.index.0..=applied.index.0 + 1).contains(&last.index.0) && last.term == applied.term);
        assert_eq!(group.raft_state(), state(applied, last));
        source.saved.check(&group);
        catch_up(source, &group);
        return true;
    }
    assert_eq!(
        (checkpoint.applied, &checkpoint.state[..]),
        (id(7, entries / 4), &b"old"[..])
    );
    assert_eq!(group.raft_state().last, Some(id(7, entries)));
    let after = group
        .entries(LogIndex(entries / 4 + 1)..LogIndex(u64::MAX), u64::MAX)
        .unwrap();
    assert_eq!(after.len() as u64, entries - entries / 4);
    for entry in after {
        group.place(entry.id.index, &effects(&entry.data)).unwrap();
    }
    for seq in 1..=entries {
        assert_eq!(read_one(&group, 3, seq).unwrap(), record(&vec![9; 2_000]));
    }
    append(&group, 7, entries + 1, Bytes::new()).unwrap();
    false
}

#[test]
fn the_power_may_go_at_every_step_of_an_install() {
    let mut source = Source::full(config());
    source.go_on();
    let at = source.export().applied().index.0;
    let before = SimFiles::new();
    let entries = at + 20;
    divergent(&before, entries).close();
    let (mut seen, mut steps) = ([0, 0], 0);
    loop {
        let files = before.after_kill();
        // So that a step is the same every time.
        let (log, turns) = Log::open_stepped(config(), Arc::new(files.clone()), Arc::new(|| ())).unwrap();
        while turns.step() {}
        files.stop_after(steps);
        let installed = transfer(&source, &log.group(GROUP)).is_ok();
        let (sender, appended) = mpsc::channel();
        if installed {
            let done = move |outcome: Result<(), AppendError>| sender.send(outcome.is_ok()).unwrap();
            let entry = Entry {
                id: id(1, at + 1),
                kind: 1,
                data: Bytes::new(),
            };
            log.group(GROUP).append(vec![entry], Box::new(done));
        }
        while turns.step() {}
        let more = appended.try_recv().unwrap_or(false);
        for crashed in [files.after_kill().lose_unsynced(), files.crash(steps)] {
            let log = open(&crashed).unwrap();
            if more {
                assert_eq!(log.group(GROUP).raft_state().last, Some(id(1, at + 1)));
                source.saved.check(&log.group(GROUP));
                continue;
            }
            let new = old_or_new(&log, &source, entries);
            assert!(new || !installed, "step {steps}: it was acknowledged");
            seen[usize::from(new)] += 1;
            let left = || {
                names(&crashed)
                    .iter()
                    .any(|name| name.ends_with(".tmp") || !new && name.starts_with("seg-"))
            };
            eventually("leftovers to go", || !left());
            // And once more: what was found stays.
            drop(log);
            let log = open(&crashed).unwrap();
            let last = if new { source.index } else { entries + 1 };
            assert_eq!(
                log.group(GROUP).raft_state().last.unwrap().index.0,
                last,
                "step {steps}"
            );
        }
        drop(log);
        steps += 1;
        if more {
            break;
        }
        assert!(steps < 500, "the install did not end");
    }
    assert!(steps > 15 && seen[0] > 10 && seen[1] > 1, "{steps} steps, {seen:?}");
}

#[test]
fn a_device_that_runs_full_leaves_the_group_as_it_was_and_gives_the_room_back() {
    let source = Source::full(config());
    let files = SimFiles::new();
    let entries = 100;
    let target = divergent(&files, entries);
    let group = target.group(GROUP);
    eventually("the next file", || {
        target.space() == Space::Ample && target.left_bytes() > 64 << 10
    });
    let (mut failed, mut room) = (0, 0);
    loop {
        let before = names(&files);
        files.set_room(Some(room));
        let outcome = transfer(&source, &group);
        files.set_room(None);
        room += 5_000;
        match outcome {
            Ok(()) => break,
            Err(InstallError::Io { .. } | InstallError::Checkpoint(_)) => failed += 1,
            Err(error) => panic!("{error}"),
        }
        assert_eq!(group.raft_state().last, Some(id(7, entries)));
        assert!(target.failure().is_none());
        eventually("room", || names(&files) == before);
    }
    assert!(failed > 20, "{failed} installs failed");
    source.saved.check(&group);
    check_other(&open(&files.after_kill()).unwrap());
}

#[test]
fn a_log_without_room_for_another_frame_can_take_over_a_state() {
    let mut source = Source::new(config());
    for _ in 0..40 {
        source.place(1, 1, 100);
    }
    source.save();
    source.place(1, 2, 100);
    let (applied, last) = (source.export().applied(), id(1, source.index));
    let files = SimFiles::new();
    let target = divergent(&files, 80);
    let group = target.group(GROUP);
    eventually("the next file", || target.left_bytes() > 64 << 10);
    // Enough for the records and a checkpoint, but not for a file of the log.
    files.set_room(Some(30 << 10));
    let (mut index, mut bytes) = (80, 3_000);
    loop {
        match append(&group, 7, index + 1, vec![0; bytes].into()) {
            Ok(()) => index += 1,
            Err(AppendError::OutOfSpace { .. }) if bytes > 0 => bytes /= 4,
            Err(AppendError::OutOfSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    transfer(&source, &group).unwrap();
    assert!(
        append(&group, 1, applied.index.0 + 1, Bytes::new()).is_err(),
        "there was room"
    );
    let killed = files.after_kill();
    killed.set_room(None);
    assert_eq!(
        open(&killed).unwrap().group(GROUP).raft_state(),
        state(applied, applied)
    );
    files.set_room(None);
    eventually("room", || target.space() == Space::Ample);
    catch_up(&source, &group);
    assert_eq!(
        open(&files.after_kill()).unwrap().group(GROUP).raft_state(),
        state(applied, last)
    );
    group
        .write_checkpoint(group.capture(), last, b"", b"".as_slice().into())
        .unwrap();
    let log = open(&files.after_kill()).unwrap();
    assert_eq!(log.group(GROUP).raft_state(), state(applied, last));
    source.model.check(&log.group(GROUP));
    check_other(&log);
}

#[test]
fn an_export_is_whole_while_files_are_rewritten_and_records_freed() {
    let mut source = Source::full(config());
    source.log.close();
    // Opened anew it compacts, while the export reads.
    let files = SimFiles::new();
    let target = Log::open(compacting(), Arc::new(files.clone())).unwrap();
    let group = target.group(GROUP);
    transfer(&source, &group).unwrap();
    (source.log, source.group) = (target, group);
    for _ in 0..3 {
        source.go_on();
    }
    source.save();
    let saved = source.saved.clone();
    let mut export = source.export();
    let last = log(config());
    let mut install = last.group(GROUP).begin_install().unwrap();
    let mut add = |export: &mut Export| {
        let runs = export.next(2_000).unwrap();
        runs.iter().for_each(|run| install.add(run).unwrap());
        !runs.is_empty()
    };
    let places: Vec<_> = source.model.live.keys().copied().collect();
    let mut places = places.chunks(50);
    while add(&mut export) {
        for (stream, seq) in places.next().unwrap_or_default() {
            source.free(*stream, *seq, 1);
        }
        checkpoint(&source.group, source.index);
    }
    // Long enough for files that nobody needs to go.
    std::thread::sleep(std::time::Duration::from_millis(50));
    install.commit(export.applied(), export.meta(), export.state()).unwrap();
    saved.check(&last.group(GROUP));
    let held = source.log.usage();
    drop(export);
    eventually("files to go", || {
        let usage = source.log.usage();
        usage.segment_bytes + usage.wal_bytes < held.segment_bytes + held.wal_bytes
    });
}

#[test]
fn without_a_checkpoint_there_is_nothing_to_export() {
    for config in [config(), memory()] {
        let log = log(config);
        let group = log.group(GROUP);
        commit(&group, 1, &Plan::place(1, 1, vec![record(b"a")]));
        assert!(group.export().unwrap().is_none());
        drop(group.begin_install().unwrap());
        assert_eq!(group.raft_state().last, Some(id(1, 1)));
    }
}
