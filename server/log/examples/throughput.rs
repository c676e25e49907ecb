//! Appends to a log in a directory and prints how fast that went.
//!
//! `cargo run --release -p boltq-log --example throughput -- DIR [always|interval|never|memory]`

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a measurement, not part of the server"
)]

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use boltq_core::{GroupId, LogIndex, NodeId, Term};
use boltq_log::{Entry, EntryId, GroupLog, Log, LogConfig, OsFiles, Storage, SyncPolicy};
use bytes::Bytes;

/// Time that each shape is measured.
const MEASURED: Duration = Duration::from_secs(2);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().unwrap_or_else(|| panic!("give a directory"));
    let (sync, storage) = match arguments.next().as_deref() {
        None | Some("always") => (SyncPolicy::Always, Storage::Disk { dir: dir.into() }),
        Some("interval") => (
            SyncPolicy::Interval(Duration::from_millis(10)),
            Storage::Disk { dir: dir.into() },
        ),
        Some("never") => (SyncPolicy::Never, Storage::Disk { dir: dir.into() }),
        Some("memory") => (SyncPolicy::Never, Storage::Memory),
        Some(other) => panic!("unknown policy {other}"),
    };
    let config = LogConfig {
        sync,
        storage,
        ..LogConfig::default()
    };
    let start = Instant::now();
    let log = Log::open(config, Arc::new(OsFiles)).unwrap();
    println!("open: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    println!("entry bytes  outstanding  entries/s   MB/s   p50 us   p99 us");
    for (group, (bytes, outstanding)) in [
        (256, 1),
        (256, 16),
        (256, 256),
        (4 << 10, 16),
        (64 << 10, 1),
        (64 << 10, 16),
        (1 << 20, 4),
    ]
    .iter()
    .enumerate()
    {
        measure(&log.group(GroupId(u32::try_from(group).unwrap())), *bytes, *outstanding);
    }
    log.close();
}

/// Keeps `outstanding` appends on their way for a while; purges behind them, so that files are recycled.
fn measure(group: &GroupLog, bytes: usize, outstanding: usize) {
    let data = Bytes::from(vec![7; bytes]);
    let (sender, receiver) = sync_channel(outstanding);
    let mut index = group.raft_state().last.map_or(0, |last| last.index.0);
    let mut latencies = Vec::new();
    let (start, mut unsaved) = (Instant::now(), 0);
    let mut waiting = 0;
    while start.elapsed() < MEASURED || waiting > 0 {
        while waiting < outstanding && start.elapsed() < MEASURED {
            index += 1;
            let entry = Entry {
                id: id(index),
                kind: 0,
                data: data.clone(),
            };
            let (sender, begun) = (sender.clone(), Instant::now());
            group.append(
                vec![entry],
                Box::new(move |outcome| {
                    outcome.unwrap();
                    sender.send(begun.elapsed()).unwrap();
                }),
            );
            waiting += 1;
            unsaved += bytes;
        }
        latencies.push(receiver.recv().unwrap());
        waiting -= 1;
        if unsaved > 32 << 20 {
            let applied = id(index - outstanding as u64);
            group
                .write_checkpoint(group.capture(), applied, b"", b"".as_slice().into())
                .unwrap();
            group.purge(applied);
            unsaved = 0;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    // A group that rests must not keep the log of the others.
    group
        .write_checkpoint(group.capture(), id(index), b"", b"".as_slice().into())
        .unwrap();
    group.purge(id(index));
    latencies.sort_unstable();
    let at = |percent: usize| latencies[latencies.len() * percent / 100].as_micros();
    let rate = latencies.len() as f64 / seconds;
    println!(
        "{bytes:>11}  {outstanding:>11}  {rate:>9.0}  {:>5.0}  {:>7}  {:>7}",
        rate * bytes as f64 / 1e6,
        at(50),
        at(99),
    );
}

fn id(index: u64) -> EntryId {
    EntryId {
        term: Term(1),
        leader: NodeId(1),
        index: LogIndex(index),
    }
}
