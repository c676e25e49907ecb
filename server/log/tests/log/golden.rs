//! The formats of version 1 do not change: files that were checked in are still written, byte for byte, and still read.
//!
//! A change of a format gets a version and files of its own; these stay.

use std::path::PathBuf;
use std::sync::Arc;

use boltq_core::{GroupId, LogIndex};
use boltq_log::testing::SimFiles;
use boltq_log::{Log, LogConfig};
use bytes::Bytes;

use crate::common::*;

const GROUP: GroupId = GroupId(1);
const WAL: &str = "wal-0000000000000001.log";
const SEGMENT: &str = "seg-0000000000000004.log";
const CHECKPOINT: &str = "ckp-1-0000000000000006";

/// Writes all kinds of frames, in one order.
fn write_files() -> SimFiles {
    let files = SimFiles::new();
    let config = LogConfig {
        compaction_threshold: 0,
        row_bytes: 64,
        ..config()
    };
    let log = Log::open(config, Arc::new(files.clone())).unwrap();
    eventually("the next file", || log.usage().files == 2);
    let group = log.group(GROUP);
    wait(|done| group.save_vote(Bytes::from_static(b"vote"), done)).unwrap();
    commit(
        &group,
        1,
        &Plan::place(7, 1, (0..6).map(|n| record(&[n; 20])).collect()),
    );
    commit(&group, 2, &Plan::place(9, 1, vec![record(b"nine")]));
    append(&group, 1, 3, Bytes::from_static(b"to be cut off")).unwrap();
    wait(|done| group.truncate_after(Some(LogIndex(2)), done)).unwrap();
    commit(&group, 3, &Plan::free(7, 2, 3));
    group
        .write_checkpoint(group.capture(), id(1, 3), b"meta", b"state")
        .unwrap();
    group.purge(id(1, 3));
    append(&group, 1, 4, Bytes::from_static(b"after the purge")).unwrap();
    let wal = contents(&files, WAL);
    // The rest of the file, so that it is not the one that is written to any more.
    append(&group, 1, 5, Bytes::from(vec![0; 64_000])).unwrap();
    append(&group, 1, 6, Bytes::from(vec![0; 2_000])).unwrap();
    // Two of the log, the next one, and the checkpoint.
    eventually("the next file", || log.usage().files == 4);
    group
        .write_checkpoint(group.capture(), id(1, 6), b"meta", b"state")
        .unwrap();
    group.purge(id(1, 6));
    eventually("a segment", || log.usage().segment_bytes > 0);
    group
        .write_checkpoint(group.capture(), id(1, 6), b"meta", b"state")
        .unwrap();
    log.close();
    write(&files, WAL, &wal);
    files
}

fn golden(name: &str) -> Vec<u8> {
    let path = vector(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn vector(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/log/v1")).join(name)
}

/// Without the zeroes that fill a WAL file.
fn trimmed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| (last + 1).next_multiple_of(8));
    bytes.truncate(end);
    bytes
}

#[test]
fn what_is_written_is_what_was_written() {
    let files = write_files();
    for name in [WAL, SEGMENT, CHECKPOINT] {
        assert!(
            names(&files).contains(&name.to_owned()),
            "{name} of {:?}",
            names(&files)
        );
        let bytes = trimmed(contents(&files, name));
        // For a new version: writes its files, to be looked at and checked in.
        if std::env::var_os("BOLTQ_WRITE_VECTORS").is_some() {
            std::fs::create_dir_all(vector("")).unwrap();
            std::fs::write(vector(name), &bytes).unwrap();
        }
        assert_eq!(bytes, trimmed(golden(name)), "{name}");
    }
}

#[test]
fn what_was_written_is_still_read() {
    let files = SimFiles::new();
    write(&files, WAL, &golden(WAL));
    let log = open(&files).unwrap();
    let state = log.group(GROUP).raft_state();
    assert_eq!(state.vote, Some(Bytes::from_static(b"vote")));
    assert_eq!((state.purged, state.last), (Some(id(1, 3)), Some(id(1, 4))));
    let entries = log.group(GROUP).entries(LogIndex(0)..LogIndex(9), u64::MAX).unwrap();
    assert_eq!(&entries[0].data[..], b"after the purge");

    let files = SimFiles::new();
    write(&files, SEGMENT, &golden(SEGMENT));
    write(&files, CHECKPOINT, &golden(CHECKPOINT));
    // The next entry was to go there.
    write(&files, "wal-0000000000000002.log", &[0; 64 << 10]);
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
