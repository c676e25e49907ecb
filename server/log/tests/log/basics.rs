//! What the log does when nothing goes wrong, in both modes.

use std::sync::Arc;

use boltq_core::{GroupId, LogIndex, Seq, StreamId};
use boltq_log::testing::SimFiles;
use boltq_log::{AppendError, Entry, Log, OsFiles, ReadError, ReadMode, Storage};
use bytes::Bytes;

use crate::common::*;

const GROUP: GroupId = GroupId(1);

fn logs() -> Vec<Log> {
    let disk = Log::open(config(), Arc::new(SimFiles::new())).unwrap();
    let memory = Log::open(memory(), Arc::new(SimFiles::new())).unwrap();
    vec![disk, memory]
}

#[test]
fn entries_come_back_and_a_tail_is_replaced() {
    for log in logs() {
        let group = log.group(GROUP);
        assert_eq!(group.raft_state().last, None);
        for index in 0..10 {
            append(&group, 1, index, Bytes::from(vec![7; 100])).unwrap();
        }
        append(&group, 2, 5, Bytes::from_static(b"other")).unwrap();
        assert_eq!(group.raft_state().last, Some(id(2, 5)));
        let entries = group.entries(LogIndex(4)..LogIndex(100), u64::MAX).unwrap();
        let ids: Vec<_> = entries.iter().map(|entry| entry.id).collect();
        assert_eq!(ids, [id(1, 4), id(2, 5)]);
        assert_eq!(&entries[1].data[..], b"other");
        wait(|done| group.truncate_after(Some(LogIndex(3)), done)).unwrap();
        assert_eq!(group.raft_state().last, Some(id(1, 3)));
        assert_eq!(group.entry_id(LogIndex(4)), None);
        group.purge(id(1, 2));
        assert_eq!(group.raft_state().purged, Some(id(1, 2)));
        assert_eq!(
            (group.entry_id(LogIndex(2)), group.entry_id(LogIndex(1))),
            (Some(id(1, 2)), None)
        );
        assert_eq!(group.entries(LogIndex(0)..LogIndex(9), u64::MAX).unwrap().len(), 1);
    }
}

/// By what all groups have written, not by the bytes of the entries themselves.
#[test]
fn entries_that_lie_far_behind_the_end_of_the_log_are_known() {
    const FILE_BYTES: u64 = 64 << 10;
    let log = Log::open(config(), Arc::new(SimFiles::new())).unwrap();
    let (quiet, busy) = (log.group(GROUP), log.group(GroupId(2)));
    let mut written = 0;
    let mut write = |files: u64| {
        for _ in 0..files * 4 {
            written += 1;
            append(&busy, 1, written, Bytes::from(vec![7; 16 << 10])).unwrap();
        }
    };
    append(&quiet, 1, 1, Bytes::from_static(b"1")).unwrap();
    append(&quiet, 1, 2, Bytes::from_static(b"2")).unwrap();
    assert_eq!(quiet.last_far_behind(0), None, "they are at the end");
    write(10);
    append(&quiet, 1, 3, Bytes::from_static(b"3")).unwrap();
    write(3);
    assert_eq!(quiet.last_far_behind(8 * FILE_BYTES), Some(LogIndex(2)));
    assert_eq!(quiet.last_far_behind(FILE_BYTES), Some(LogIndex(3)));
    assert_eq!(quiet.last_far_behind(50 * FILE_BYTES), None);
    quiet.purge(id(1, 2));
    assert_eq!(quiet.last_far_behind(8 * FILE_BYTES), None);
    quiet.purge(id(1, 3));
    assert_eq!(quiet.last_far_behind(0), None);
    let memory = Log::open(memory(), Arc::new(SimFiles::new())).unwrap();
    append(&memory.group(GROUP), 1, 1, Bytes::new()).unwrap();
    assert_eq!(memory.group(GROUP).last_far_behind(0), None, "it has no files");
}

#[test]
fn the_bound_on_bytes_gives_at_least_one_entry() {
    for log in logs() {
        let group = log.group(GROUP);
        for index in 1..=5 {
            append(&group, 1, index, Bytes::from(vec![7; 100])).unwrap();
        }
        for (bytes_max, count) in [(0, 1), (100, 1), (250, 2), (u64::MAX, 5)] {
            let entries = group.entries(LogIndex(1)..LogIndex(6), bytes_max).unwrap();
            assert_eq!(entries.len(), count, "{bytes_max}");
        }
    }
}

#[test]
fn a_hole_is_refused_and_changes_nothing() {
    for log in logs() {
        let group = log.group(GROUP);
        append(&group, 1, 1, Bytes::new()).unwrap();
        let error = append(&group, 1, 3, Bytes::new()).unwrap_err();
        assert_eq!(error.to_string(), "group 1: entry 3 does not follow; 2 is next");
        assert!(!error.is_fatal());
        let entry = |index| Entry {
            id: id(1, index),
            kind: 0,
            data: Bytes::new(),
        };
        let error = wait(|done| group.append(vec![entry(2), entry(4)], done)).unwrap_err();
        assert!(matches!(error, AppendError::Order { .. }), "{error}");
        assert_eq!(group.raft_state().last, Some(id(1, 1)));
    }
}

#[test]
fn an_index_that_a_start_would_take_for_damage_is_refused() {
    let highest = 1 << 62;
    let files = SimFiles::new();
    let log = open(&files).unwrap();
    let group = log.group(GROUP);
    append(&group, 1, highest, Bytes::new()).unwrap();
    let error = append(&group, 1, highest + 1, Bytes::new()).unwrap_err();
    assert!(
        matches!(error, AppendError::TooHigh { .. }) && !error.is_fatal(),
        "{error}"
    );
    drop((group, log));
    let log = open(&files).unwrap();
    assert_eq!(log.group(GROUP).raft_state().last, Some(id(1, highest)));
}

#[test]
fn records_are_read_in_any_order_until_they_are_freed() {
    for log in logs() {
        let group = log.group(GROUP);
        let mut model = Model::default();
        let (mut first, mut index) = (1, 1);
        for count in [1, 3, 40, 200, 2] {
            let records = (0..count)
                .map(|n| record(format!("{first} {n} {}", "x".repeat(n % 90)).as_bytes()))
                .collect();
            let plan = Plan::place(5, first, records);
            model.apply(&plan.encode());
            commit(&group, index, &plan);
            (first, index) = (first + count as u64, index + 1);
        }
        model.check(&group);
        let places: Vec<_> = (1..first).rev().step_by(7).map(|seq| (StreamId(5), Seq(seq))).collect();
        let mut out = vec![Bytes::from_static(b"before")];
        assert!(group.read(&places, ReadMode::Disk, &mut out).unwrap());
        assert!(
            out[1..]
                .iter()
                .eq(places.iter().map(|(_, seq)| &model.live[&(5, seq.0)]))
        );

        let plan = Plan::free(5, 1, first - 1);
        commit(&group, index, &plan);
        let error = read_one(&group, 5, 1).unwrap_err();
        assert!(matches!(error, ReadError::NoRecord { .. }), "{error}");
        assert_eq!(log.usage().rows, 0);
    }
}

#[test]
fn effects_that_contradict_what_is_there_are_refused() {
    for log in logs() {
        let group = log.group(GROUP);
        commit(&group, 1, &Plan::place(5, 1, vec![record(b"a"), record(b"b")]));
        let refused = |plan: &Plan| {
            let error = group.place(LogIndex(1), &effects(&plan.encode())).unwrap_err();
            error.to_string()
        };
        assert!(refused(&Plan::place(5, 2, vec![record(b"a")])).contains("was placed before; 3 is next"));
        assert!(refused(&Plan::free(5, 2, 2)).contains("not all are placed"));
        assert!(refused(&Plan::free(6, 1, 1)).contains("not all are placed"));
        assert!(refused(&Plan::place(5, 9, vec![record(&[0; 500])])).contains("do not fit"));
    }
}

#[test]
fn a_cached_read_does_not_touch_the_device() {
    let files = SimFiles::new();
    let log = open(&files).unwrap();
    let group = log.group(GROUP);
    commit(&group, 1, &Plan::place(5, 1, vec![record(b"early")]));
    for index in 2..10 {
        commit(&group, index, &Plan::place(6, index, vec![record(&[7; 2000])]));
    }
    let mut out = Vec::new();
    let places = [(StreamId(6), Seq(9)), (StreamId(5), Seq(1))];
    assert!(group.read(&places[..1], ReadMode::Cached, &mut out).unwrap());
    assert!(!group.read(&places, ReadMode::Cached, &mut out).unwrap());
    assert_eq!(out.len(), 1, "nothing is appended unless everything is there");
    assert!(group.read(&places, ReadMode::Disk, &mut out).unwrap());
    assert!(log.usage().cached_bytes <= config().cache_bytes);
}

#[test]
fn what_was_acknowledged_is_there_after_a_close_and_a_checkpoint_shortens_the_start() {
    let files = SimFiles::new();
    let mut model = Model::default();
    for round in 0..4u64 {
        let log = open(&files).unwrap();
        let group = log.group(GROUP);
        if round > 0 {
            assert_eq!(
                group.raft_state().vote.unwrap(),
                Bytes::from(format!("vote {}", round - 1))
            );
            assert_eq!(group.raft_state().last, Some(id(1, round * 20)));
            let applied = group.checkpoint().unwrap().applied.index.0;
            assert_eq!(applied, round * 20 - 5);
            let entries = group
                .entries(LogIndex(applied + 1)..LogIndex(u64::MAX), u64::MAX)
                .unwrap();
            assert_eq!(entries.len(), 5);
            for entry in entries {
                group.place(entry.id.index, &effects(&entry.data)).unwrap();
            }
        }
        model.check(&group);
        wait(|done| group.save_vote(Bytes::from(format!("vote {round}")), done)).unwrap();
        for index in round * 20 + 1..=round * 20 + 20 {
            let plan = Plan::place(index % 3, index, vec![record(&vec![7; 1000 + index as usize])]);
            model.apply(&plan.encode());
            commit(&group, index, &plan);
            if index % 20 == 15 {
                checkpoint(&group, index);
            }
        }
        model.check(&group);
        drop((group, log));
    }
}

#[test]
fn a_second_process_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let config = || boltq_log::LogConfig {
        storage: Storage::Disk {
            dir: dir.path().to_owned(),
        },
        ..config()
    };
    let log = Log::open(config(), Arc::new(OsFiles)).unwrap();
    let error = Log::open(config(), Arc::new(OsFiles)).err().unwrap().to_string();
    let pid = std::process::id();
    assert!(
        error.contains(&format!("{} is in use by process {pid};", dir.path().display())),
        "{error}"
    );
    log.close();
    let error = append(&log.group(GROUP), 1, 1, Bytes::new()).unwrap_err();
    assert!(matches!(error, AppendError::Closed), "{error}");
    Log::open(config(), Arc::new(OsFiles)).unwrap();
}

#[test]
fn an_entry_larger_than_a_file_gets_a_file_of_its_own() {
    let files = SimFiles::new();
    let large = Bytes::from(vec![9; 300 << 10]);
    {
        let log = open(&files).unwrap();
        let group = log.group(GROUP);
        for index in 1..=6 {
            let data = if index % 2 == 0 {
                large.clone()
            } else {
                Bytes::from_static(b"small")
            };
            append(&group, 1, index, data).unwrap();
        }
    }
    let log = open(&files).unwrap();
    let entries = log.group(GROUP).entries(LogIndex(1)..LogIndex(9), u64::MAX).unwrap();
    let lengths: Vec<usize> = entries.iter().map(|entry| entry.data.len()).collect();
    assert_eq!(lengths, [5, 307_200, 5, 307_200, 5, 307_200]);
}
