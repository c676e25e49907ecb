//! The formats do not change: files that were checked in are still written, byte for byte, and still read.
//!
//! A change of a format gets a version and files of its own; those of earlier versions stay, and are still read.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::{GroupId, LogIndex};
use boltq_log::testing::SimFiles;
use boltq_log::{Entry, Log, LogConfig, OpenError, ReadError};
use bytes::Bytes;

use crate::common::*;

const GROUP: GroupId = GroupId(1);
const WAL: &str = "wal-0000000000000001.log";
const SEGMENT: &str = "seg-0000000000000004.log";
const CHECKPOINT: &str = "ckp-1-0000000000000006";
/// The last file of the log.
const NEXT: &str = "wal-0000000000000002.log";
const FIRST_CHECKPOINT: &str = "ckp-1-0000000000000003";
/// Prepared and not used.
const PREPARED: &str = "wal-0000000000000003.log";
/// What is written now.
const VERSION: u8 = 2;
/// That of a checkpoint with erasures.
const ERASING_VERSION: u8 = 3;

/// Writes all kinds of frames, in one order. With `erase`, something is erased before the last checkpoint.
fn write_files(erase: bool) -> SimFiles {
    let files = SimFiles::new();
    let config = LogConfig {
        compaction_threshold: 0,
        // With erasures, so that there are others in the row of what is erased.
        row_bytes: if erase { 128 } else { 64 },
        ..config()
    };
    let (log, steps) = Log::open_stepped(config.clone(), Arc::new(files.clone()), Arc::new(|| ())).unwrap();
    let run = || while steps.step() {};
    run();
    let group = log.group(GROUP);
    let done = || -> boltq_log::Completion { Box::new(|outcome| outcome.unwrap()) };
    let append = |index, data| {
        let entry = Entry {
            id: id(1, index),
            kind: 1,
            data,
        };
        group.append(vec![entry], done());
        run();
    };
    let commit = |index, plan: &Plan| {
        append(index, plan.encode());
        group.place(LogIndex(index), &effects(&plan.encode())).unwrap();
    };
    group.save_vote(Bytes::from_static(b"vote"), done());
    run();
    commit(1, &Plan::place(7, 1, (0..6).map(|n| record(&[n; 20])).collect()));
    commit(2, &Plan::place(9, 1, vec![record(b"nine")]));
    append(3, Bytes::from_static(b"to be cut off"));
    group.truncate_after(Some(LogIndex(2)), done());
    run();
    commit(3, &Plan::free(7, 2, 3));
    group
        .write_checkpoint(group.capture(), id(1, 3), b"meta", b"state".as_slice().into())
        .unwrap();
    group.purge(id(1, 3));
    append(4, Bytes::from_static(b"after the purge"));
    // Idle: the log says how far it is on the device.
    steps.set_time(Duration::from_secs(1));
    run();
    // And the end of the file is where a start finds it.
    let killed = files.after_kill();
    let (second, _steps) = Log::open_stepped(config, Arc::new(killed.clone()), Arc::new(|| ())).unwrap();
    let (wal, first_checkpoint) = (contents(&killed, WAL), contents(&killed, FIRST_CHECKPOINT));
    drop(second);
    // The rest of the file, so that it is not the one that is written to any more.
    append(5, Bytes::from(vec![0; 64_000]));
    append(6, Bytes::from(vec![0; 2_000]));
    let prepared = contents(&files, PREPARED);
    group
        .write_checkpoint(group.capture(), id(1, 6), b"meta", b"state".as_slice().into())
        .unwrap();
    group.purge(id(1, 6));
    run();
    if erase {
        group.place(LogIndex(6), &effects(&Plan::erase(7, 5).encode())).unwrap();
    }
    group
        .write_checkpoint(group.capture(), id(1, 6), b"meta", b"state".as_slice().into())
        .unwrap();
    if !erase {
        run();
    }
    log.close();
    for (name, bytes) in [(WAL, wal), (FIRST_CHECKPOINT, first_checkpoint), (PREPARED, prepared)] {
        write(&files, name, &bytes);
    }
    files
}

fn golden(version: u8, name: &str) -> Vec<u8> {
    let path = vector(version, name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn vector(version: u8, name: &str) -> PathBuf {
    let vectors = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/log"));
    vectors.join(format!("v{version}")).join(name)
}

/// Without the zeroes that fill a WAL file.
fn trimmed(name: &str, mut bytes: Vec<u8>) -> Vec<u8> {
    if !name.starts_with("wal-") {
        return bytes;
    }
    let end = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| (last + 1).next_multiple_of(8));
    bytes.truncate(end);
    bytes
}

#[test]
fn what_is_written_is_what_was_written() {
    let files = write_files(false);
    for name in [WAL, NEXT, PREPARED, FIRST_CHECKPOINT, SEGMENT, CHECKPOINT] {
        compare(&files, VERSION, name);
    }
    let files = write_files(true);
    for name in [SEGMENT, CHECKPOINT] {
        compare(&files, ERASING_VERSION, name);
    }
}

fn compare(files: &SimFiles, version: u8, name: &str) {
    let there = names(files);
    assert!(there.contains(&name.to_owned()), "{name} of {there:?}");
    let bytes = trimmed(name, contents(files, name));
    // For a new version: writes its files, to be looked at and checked in.
    if std::env::var_os("BOLTQ_WRITE_VECTORS").is_some() {
        std::fs::create_dir_all(vector(version, "")).unwrap();
        std::fs::write(vector(version, name), &bytes).unwrap();
    }
    assert_eq!(bytes, golden(version, name), "{name}");
}

#[test]
fn what_was_written_is_still_read() {
    for version in 1..=VERSION {
        read_files(version);
    }
}

#[test]
fn a_checkpoint_with_erasures_is_still_read() {
    let files = SimFiles::new();
    let mut next = golden(VERSION, NEXT);
    next.resize(64 << 10, 0);
    write(&files, NEXT, &next);
    write(&files, SEGMENT, &golden(ERASING_VERSION, SEGMENT));
    write(&files, CHECKPOINT, &golden(ERASING_VERSION, CHECKPOINT));
    let (log, _steps) = Log::open_stepped(config(), Arc::new(files), Arc::new(|| ())).unwrap();
    let group = log.group(GROUP);
    assert_eq!(group.erasures().pending, 1);
    let read = read_one(&group, 7, 5);
    assert!(matches!(read, Err(ReadError::Erased { .. })), "{read:?}");
    for (seq, n) in [(1, 0), (6, 5)] {
        assert_eq!(read_one(&group, 7, seq).unwrap(), record(&[n; 20]));
    }
}

fn read_files(version: u8) {
    let golden = |name| golden(version, name);
    let files = SimFiles::new();
    write(&files, WAL, &golden(WAL));
    write(&files, FIRST_CHECKPOINT, &golden(FIRST_CHECKPOINT));
    let log = open(&files).unwrap();
    let state = log.group(GROUP).raft_state();
    assert_eq!(state.vote, Some(Bytes::from_static(b"vote")));
    assert_eq!((state.purged, state.last), (Some(id(1, 3)), Some(id(1, 4))));
    let entries = log.group(GROUP).entries(LogIndex(0)..LogIndex(9), u64::MAX).unwrap();
    assert_eq!(&entries[0].data[..], b"after the purge");

    let files = SimFiles::new();
    write(&files, SEGMENT, &golden(SEGMENT));
    write(&files, CHECKPOINT, &golden(CHECKPOINT));
    // The next entry was to go there, and later versions know that the log had come that far.
    let error = open(&files).err().unwrap();
    assert!(
        matches!(&error, OpenError::Missing { path, .. } if path.ends_with(NEXT)),
        "{error}"
    );
    if version == 1 {
        write(&files, NEXT, &[0; 64 << 10]);
    } else {
        let mut next = golden(NEXT);
        next.resize(64 << 10, 0);
        write(&files, NEXT, &next);
    }
    let log = open(&files).unwrap();
    let group = log.group(GROUP);
    let checkpoint = group.checkpoint().unwrap();
    assert_eq!(checkpoint.applied, id(1, 6));
    assert_eq!(
        (&checkpoint.meta[..], &checkpoint.state[..]),
        (&b"meta"[..], &b"state"[..])
    );
    assert_eq!(group.raft_state().last, Some(id(1, 6)));
    for (seq, n) in [(1, 0), (5, 4), (6, 5)] {
        assert_eq!(read_one(&group, 7, seq).unwrap(), record(&[n; 20]));
    }
    assert_eq!(read_one(&group, 9, 1).unwrap(), record(b"nine"));
    assert!(read_one(&group, 7, 3).is_err());
}
