//! Torn tails are cut, and damage in what had been synced is refused by file and offset.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use boltq_core::{GroupId, LogIndex};
use boltq_log::testing::SimFiles;
use boltq_log::{Entry, FileLayer, Log, LogConfig, OpenError, ReadError};
use bytes::Bytes;
use proptest::prelude::*;

use crate::common::*;

const GROUP: GroupId = GroupId(1);
const FIRST: &str = "wal-0000000000000001.log";

/// A directory with five entries in one file; the process was killed, or closed the log.
fn five_entries(close: bool) -> SimFiles {
    let files = SimFiles::new();
    let (log, steps) = Log::open_stepped(config(), Arc::new(files.clone()), Arc::new(|| ())).unwrap();
    for index in 1..=5 {
        let entry = Entry {
            id: id(1, index),
            kind: 1,
            data: Bytes::from(format!("entry {index}")),
        };
        log.group(GROUP)
            .append(vec![entry], Box::new(|outcome| outcome.unwrap()));
        while steps.step() {}
    }
    if close {
        log.close();
    }
    files
}

/// Where the frames of a file start and end.
fn frames(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut frames = Vec::new();
    let mut at = 0;
    while bytes.get(at..at + 3) == Some(b"BqF") {
        let payload = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        let end = (at + 40 + payload).next_multiple_of(8);
        frames.push((at, end));
        at = end;
    }
    frames
}

fn expect_damage(files: &SimFiles, name: &str, offset: usize, what: &str) {
    match open(files) {
        Err(OpenError::Damaged {
            path, offset: found, ..
        }) => {
            assert_eq!(
                (path.as_path(), found),
                (Path::new(DIR).join(name).as_path(), offset as u64),
                "{what}"
            );
        }
        Err(error) => panic!("{what}: {error}"),
        Ok(_) => panic!("{what}: it opened"),
    }
}

#[test]
fn every_torn_tail_opens_to_the_last_whole_entry_and_goes_on() {
    let files = five_entries(false);
    let whole = contents(&files, FIRST);
    let (start, end) = *frames(&whole).last().unwrap();
    for at in start..end {
        let mut zeroed = whole.clone();
        zeroed[at..].fill(0);
        let mut garbage = whole.clone();
        let mut random = Random(at as u64);
        garbage[at..at + 300].fill_with(|| random.next() as u8);
        // A file has its length before it is used, so this was no crash.
        expect_damage(&copy_with(&files, FIRST, &whole[..at]), FIRST, at, "cut");
        for (what, torn) in [("zeroed", &zeroed), ("garbage", &garbage)] {
            let last = if torn.get(start..end) == Some(&whole[start..end]) {
                5
            } else {
                4
            };
            let files = copy_with(&files, FIRST, torn);
            for index in last..last + 2 {
                let log = open(&files).unwrap_or_else(|error| panic!("{what} at {at}: {error}"));
                let group = log.group(GROUP);
                assert_eq!(group.raft_state().last, Some(id(1, index)), "{what} at {at}");
                let entries = group.entries(LogIndex(1)..LogIndex(9), u64::MAX).unwrap();
                assert!(
                    entries
                        .iter()
                        .all(|entry| entry.data == format!("entry {}", entry.id.index))
                );
                append(&group, 1, index + 1, Bytes::from(format!("entry {}", index + 1))).unwrap();
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_anything_synced_is_refused_by_file_and_offset() {
    for close in [false, true] {
        let files = five_entries(close);
        let whole = contents(&files, FIRST);
        let frames = frames(&whole);
        // Closed, the last one says that all entries were synced.
        assert_eq!(frames.len(), if close { 7 } else { 6 });
        for (start, end) in &frames[..frames.len() - 1] {
            for at in *start..*end {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << (at % 8);
                expect_damage(
                    &copy_with(&files, FIRST, &flipped),
                    FIRST,
                    *start,
                    &format!("byte {at}"),
                );
            }
        }
    }
}

#[test]
fn the_last_frame_of_a_file_is_covered_by_the_next_file() {
    let files = five_entries(true);
    drop(open(&files).unwrap().group(GROUP));
    let log = open(&files).unwrap();
    append(&log.group(GROUP), 1, 6, Bytes::new()).unwrap();
    log.close();
    let whole = contents(&files, FIRST);
    let (start, _) = *frames(&whole).last().unwrap();
    let mut flipped = whole.clone();
    flipped[start + 20] ^= 1;
    expect_damage(&copy_with(&files, FIRST, &flipped), FIRST, start, "last frame");
    expect_damage(&copy_with(&files, FIRST, &whole[..start]), FIRST, start, "cut file");
}

#[test]
fn a_file_that_is_gone_is_named() {
    let files = SimFiles::new();
    let log = open(&files).unwrap();
    for index in 1..=60 {
        append(&log.group(GROUP), 1, index, Bytes::from(vec![7; 5000])).unwrap();
    }
    log.close();
    let all = names(&files);
    let wals: Vec<&String> = all.iter().filter(|name| name.starts_with("wal-")).collect();
    assert!(wals.len() > 4);
    for name in &wals[..3] {
        let files = files.after_kill();
        files.remove(&Path::new(DIR).join(name)).unwrap();
        let error = open(&files).err().unwrap();
        assert!(
            matches!(&error, OpenError::Missing { path, .. } if path.ends_with(name)),
            "{error}"
        );
    }
}

/// A directory with a checkpoint, and a segment that its rows point into.
fn with_segment() -> (SimFiles, Model) {
    let files = SimFiles::new();
    let log = open_compacting(&files);
    let group = log.group(GROUP);
    let mut model = Model::default();
    let mut index = 0;
    let mut commit = |plan: &Plan| {
        index += 1;
        model.apply(&plan.encode());
        commit(&group, index, plan);
    };
    for n in 0..30 {
        commit(&Plan::place(
            1,
            n * 10 + 1,
            (0..10).map(|n| record(&[n; 300])).collect(),
        ));
    }
    for n in 0..29 {
        commit(&Plan::free(1, n * 10 + 1, 9));
    }
    checkpoint(&group, index);
    eventually("a segment", || log.usage().segment_bytes > 0);
    checkpoint(&group, index);
    log.close();
    (files, model)
}

fn open_compacting(files: &SimFiles) -> Log {
    let config = LogConfig {
        compaction_threshold: 0,
        row_bytes: 300,
        ..config()
    };
    Log::open(config, Arc::new(files.clone())).unwrap()
}

fn name_of(files: &SimFiles, prefix: &str) -> String {
    names(files).into_iter().find(|name| name.starts_with(prefix)).unwrap()
}

#[test]
fn a_damaged_checkpoint_is_refused_by_name() {
    let (files, _) = with_segment();
    let name = name_of(&files, "ckp-");
    let whole = contents(&files, &name);
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        expect_damage(&copy_with(&files, &name, &flipped), &name, 0, &format!("byte {at}"));
        if at % 16 == 0 {
            expect_damage(
                &copy_with(&files, &name, &whole[..at]),
                &name,
                0,
                &format!("cut at {at}"),
            );
        }
    }
}

#[test]
fn a_damaged_segment_refuses_what_it_cannot_serve() {
    let (files, model) = with_segment();
    let name = name_of(&files, "seg-");
    let whole = contents(&files, &name);
    let frames = frames(&whole);
    let footer = frames.len() - 2;
    for (position, (start, end)) in frames.iter().enumerate() {
        for at in (*start..*end).step_by(7) {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            let files = copy_with(&files, &name, &flipped);
            if position >= footer {
                assert!(
                    matches!(open(&files), Err(OpenError::Damaged { path, .. }) if path.ends_with(&name)),
                    "byte {at}"
                );
                continue;
            }
            let log = open(&files).unwrap();
            let group = log.group(GROUP);
            let mut damaged = 0;
            for ((stream, seq), expected) in &model.live {
                match read_one(&group, *stream, *seq) {
                    Ok(record) => assert_eq!(record, expected),
                    Err(ReadError::Damaged { file, offset, .. }) => {
                        assert_eq!((file.ends_with(&name), offset), (true, *start as u64), "byte {at}");
                        damaged += 1;
                    }
                    Err(error) => panic!("byte {at}: {error}"),
                }
            }
            assert!(damaged > 0, "byte {at} of the segment is not checked");
        }
    }
    let files = copy_with(&files, &name, &whole[..whole.len() - 8]);
    assert!(matches!(open(&files), Err(OpenError::Damaged { path, .. }) if path.ends_with(&name)));
}

#[test]
fn a_segment_that_is_gone_is_named() {
    let (files, model) = with_segment();
    let log = open(&files).unwrap();
    model.check(&log.group(GROUP));
    log.close();
    let name = name_of(&files, "seg-");
    files.remove(&Path::new(DIR).join(&name)).unwrap();
    let error = open(&files).err().unwrap();
    assert!(
        matches!(&error, OpenError::Missing { path, .. } if path.ends_with(&name)),
        "{error}"
    );
}

#[test]
fn a_log_that_lost_its_end_is_refused() {
    let (files, _) = with_segment();
    for name in names(&files).iter().filter(|name| name.starts_with("wal-")) {
        files.remove(&Path::new(DIR).join(name)).unwrap();
    }
    let error = open(&files).err().unwrap();
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_in_any_file_are_opened_or_refused_without_panic(bytes: Vec<u8>, from in 0usize..600, cut: bool) {
        static SEGMENT: LazyLock<SimFiles> = LazyLock::new(|| with_segment().0);
        let files = &*SEGMENT;
        for prefix in ["wal-", "seg-", "ckp-"] {
            let name = name_of(files, prefix);
            let mut changed = contents(files, &name);
            let from = from.min(changed.len());
            let end = (from + bytes.len()).min(changed.len());
            changed[from..end].copy_from_slice(&bytes[..end - from]);
            if cut {
                changed.truncate(end);
            }
            let _ = open(&copy_with(files, &name, &changed));
            let _ = open(&copy_with(files, &name, &bytes));
        }
    }
}
