//! What reading costs, and how far it gets.

use boltq_core::{Seq, StreamId};
use boltq_log::testing::SimFiles;
use boltq_log::{GroupLog, Log, ReadMode};
use bytes::Bytes;

use crate::common::*;

const RECORDS: u64 = 100;
const RECORD_BYTES: usize = 4_000;
/// Of one frame; far more than the cache takes.
const FRAME_BYTES: u64 = RECORDS * RECORD_BYTES as u64;
/// For what is read beside the frames.
const SLACK_BYTES: u64 = 64 << 10;

/// `frames` entries, each of which places its records one by one.
fn filled(files: &SimFiles, frames: u64) -> (Log, GroupLog) {
    let log = open(files).unwrap();
    let group = log.group(boltq_core::GroupId(1));
    for frame in 0..frames {
        let first = frame * RECORDS + 1;
        let record = |seq: u64| record(&vec![seq as u8; RECORD_BYTES]);
        let plan = Plan {
            placed: (first..first + RECORDS)
                .map(|seq| (1, seq, vec![record(seq)]))
                .collect(),
            ..Plan::default()
        };
        commit(&group, frame + 1, &plan);
    }
    (log, group)
}

fn place(seq: u64) -> (StreamId, Seq) {
    (StreamId(1), Seq(seq))
}

fn reading<T>(files: &SimFiles, work: impl FnOnce() -> T) -> (T, u64) {
    let before = files.bytes_read();
    let result = work();
    (result, files.bytes_read() - before)
}

fn first_of(group: &GroupLog, places: &[(StreamId, Seq)], bytes_max: usize) -> Vec<Bytes> {
    let mut out = Vec::new();
    assert!(group.read_first(places, bytes_max, ReadMode::Disk, &mut out).unwrap());
    out
}

#[test]
fn placing_the_records_of_an_entry_reads_it_once() {
    let files = SimFiles::new();
    let ((_log, group), read) = reading(&files, || filled(&files, 1));
    assert!(read < FRAME_BYTES + SLACK_BYTES, "{read} bytes for {FRAME_BYTES}");
    assert_eq!(read_one(&group, 1, 7).unwrap(), record(&[7; RECORD_BYTES]));
}

#[test]
fn a_call_reads_each_frame_once_whatever_the_order_of_its_places() {
    let files = SimFiles::new();
    let (_log, group) = filled(&files, 3);
    // From frame to frame, and backwards within each.
    let places: Vec<_> = (0..RECORDS)
        .rev()
        .flat_map(|seq| (0..3).map(move |frame| place(frame * RECORDS + seq + 1)))
        .collect();
    let (out, read) = reading(&files, || {
        let mut out = Vec::new();
        assert!(group.read(&places, ReadMode::Disk, &mut out).unwrap());
        out
    });
    assert!(
        read < 3 * (FRAME_BYTES + SLACK_BYTES),
        "{read} bytes for 3 times {FRAME_BYTES}"
    );
    for ((_, seq), bytes) in places.iter().zip(&out) {
        assert_eq!(*bytes, record(&vec![seq.0 as u8; RECORD_BYTES]));
    }
    let (first, read) = reading(&files, || first_of(&group, &places, usize::MAX));
    assert_eq!(first, out);
    assert!(
        read < 3 * (FRAME_BYTES + SLACK_BYTES),
        "{read} bytes for 3 times {FRAME_BYTES}"
    );
}

#[test]
fn the_first_records_end_where_the_bytes_do_but_there_is_always_one() {
    let files = SimFiles::new();
    let (_log, group) = filled(&files, 2);
    let places: Vec<_> = (1..=2 * RECORDS).map(place).collect();
    let one = record(&[1; RECORD_BYTES]).len();
    assert_eq!(first_of(&group, &places, 10 * one).len(), 10);
    assert_eq!(first_of(&group, &places, 10 * one - 1).len(), 9);
    let (out, read) = reading(&files, || first_of(&group, &places, 1));
    assert_eq!(out.len(), 1);
    assert!(read < FRAME_BYTES + SLACK_BYTES, "the second frame was read too");
    assert!(first_of(&group, &[], 1).is_empty());
    let mut out = Vec::new();
    assert!(!group.read_first(&places, 1, ReadMode::Cached, &mut out).unwrap());
    assert!(out.is_empty());
}

#[test]
fn what_cannot_be_read_is_an_error_only_for_who_asks_for_it_first() {
    let files = SimFiles::new();
    let (log, group) = filled(&files, 2);
    let missing = [place(1), place(2), place(999), place(3)];
    assert_eq!(first_of(&group, &missing, usize::MAX).len(), 2);
    let mut out = Vec::new();
    let error = group
        .read_first(&missing[2..], 1, ReadMode::Disk, &mut out)
        .unwrap_err();
    assert!(error.to_string().contains("999"), "{error}");
    // A frame that is longer than a file has one of its own.
    let mut long = names(&files)
        .into_iter()
        .filter(|name| contents(&files, name).len() as u64 > FRAME_BYTES);
    let second = std::path::Path::new(DIR).join(long.next_back().unwrap());
    files.flip_bit(&second, 100_000, 3).unwrap();
    let (good, bad) = (1, RECORDS + 1);
    let places = [place(good), place(good + 1), place(bad), place(good + 2)];
    assert_eq!(first_of(&group, &places, usize::MAX).len(), 2);
    let error = group.read_first(&places[2..], 1, ReadMode::Disk, &mut out).unwrap_err();
    assert!(error.to_string().contains("wal-"), "{error}");
    assert!(group.read(&places, ReadMode::Disk, &mut out).is_err() && out.is_empty());
    drop(log);
}
