//! Fills a log with a million streams of ten records, and prints how long it takes to open it again.
//!
//! `cargo run --release -p boltq-log --example many_streams -- DIR [streams]`

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a measurement, not part of the server"
)]

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use boltq_core::{GroupId, LogIndex, NodeId, Seq, StorageEffect, StreamId, Term};
use boltq_log::{Entry, EntryId, GroupLog, Log, LogConfig, OsFiles, Storage};
use bytes::Bytes;

/// Records of a stream; one entry has those of `TOGETHER` streams.
const RECORDS: u32 = 10;
const TOGETHER: u64 = 500;
/// Bytes of a record, its length included.
const RECORD_BYTES: u32 = 50;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().unwrap_or_else(|| panic!("give a directory"));
    let streams: u64 = arguments.next().map_or(1_000_000, |count| count.parse().unwrap());
    let config = LogConfig {
        storage: Storage::Disk { dir: dir.into() },
        ..LogConfig::default()
    };
    let log = Log::open(config.clone(), Arc::new(OsFiles)).unwrap();
    fill(&log.group(GroupId(1)), streams);
    log.close();
    drop(log);
    let before = resident_kib();
    let start = Instant::now();
    let log = Log::open(config, Arc::new(OsFiles)).unwrap();
    println!("open: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    println!("resident: {before} KiB before, {} KiB after", resident_kib());
    println!("{:?}", log.usage());
}

fn fill(group: &GroupLog, streams: u64) {
    let mut record = vec![7; RECORD_BYTES as usize];
    record[..4].copy_from_slice(&(RECORD_BYTES - 4).to_le_bytes());
    let together = u32::try_from(TOGETHER).unwrap();
    let data = Bytes::from(record.repeat((RECORDS * together) as usize));
    let mut index = 0;
    for from in (0..streams).step_by(together as usize) {
        index += 1;
        let id = EntryId {
            term: Term(1),
            leader: NodeId(1),
            index: LogIndex(index),
        };
        let data = data.clone();
        let (sender, receiver) = sync_channel(1);
        group.append(
            vec![Entry { id, kind: 0, data }],
            Box::new(move |outcome| sender.send(outcome).unwrap()),
        );
        receiver.recv().unwrap().unwrap();
        let place = |n: u32| StorageEffect::Placed {
            stream: StreamId(from + u64::from(n)),
            first: Seq(1),
            count: RECORDS,
            offset: n * RECORDS * RECORD_BYTES,
            bytes: RECORDS * RECORD_BYTES,
        };
        group
            .place(LogIndex(index), &(0..together).map(place).collect::<Vec<_>>())
            .unwrap();
    }
    let last = group.entry_id(LogIndex(index)).unwrap();
    group
        .write_checkpoint(group.capture(), last, b"", Bytes::from_static(b"state"))
        .unwrap();
    group.purge(last);
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let digits = line.and_then(|line| line.split_whitespace().next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}
