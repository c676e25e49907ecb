//! What the index takes for each stream. `--nocapture` prints it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that measures and prints"
)]
#![allow(unsafe_code, reason = "counts what is allocated")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use boltq_core::{GroupId, LogIndex, NodeId, Seq, StorageEffect, StreamId, Term};
use boltq_log::{Entry, EntryId, GroupLog, Log, LogConfig, OsFiles, Storage, SyncPolicy};
use bytes::Bytes;

/// Enough that what else the log has does not count.
const STREAMS: u64 = 100_000;
/// Streams that an entry has records of.
const TOGETHER: u64 = 5_000;
/// Bytes of a record, its length included.
const RECORD_BYTES: u32 = 24;
const GROUP: GroupId = GroupId(1);

/// Counts what is allocated as the allocator of the server would: in its size classes.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// That of jemalloc: 8, then steps of 16 up to 128, then four steps for each doubling.
fn class(bytes: usize) -> usize {
    match bytes {
        0..=8 => 8,
        9..=128 => bytes.next_multiple_of(16),
        _ => bytes.next_multiple_of(bytes.next_power_of_two() / 8),
    }
}

// SAFETY: everything is passed on to the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(class(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(class(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

fn append(group: &GroupLog, index: u64, data: Bytes) {
    let id = EntryId {
        term: Term(1),
        leader: NodeId(1),
        index: LogIndex(index),
    };
    let (sender, receiver) = mpsc::channel();
    group.append(
        vec![Entry { id, kind: 0, data }],
        Box::new(move |outcome| sender.send(outcome).unwrap()),
    );
    receiver.recv().unwrap().unwrap();
}

/// Places `count` records in each stream, from `first` on; purges what it appended. Returns the last entry.
fn fill(group: &GroupLog, mut index: u64, first: u64, count: u32) -> u64 {
    let mut record = vec![7; RECORD_BYTES as usize];
    record[..4].copy_from_slice(&(RECORD_BYTES - 4).to_le_bytes());
    let data = Bytes::from(record.repeat(count as usize * usize::try_from(TOGETHER).unwrap()));
    let bytes = count * RECORD_BYTES;
    for from in (0..STREAMS).step_by(usize::try_from(TOGETHER).unwrap()) {
        index += 1;
        append(group, index, data.clone());
        let place = |n: u32| StorageEffect::Placed {
            stream: StreamId(from + u64::from(n)),
            first: Seq(first),
            count,
            offset: n * bytes,
            bytes,
        };
        let effects: Vec<StorageEffect> = (0..u32::try_from(TOGETHER).unwrap()).map(place).collect();
        group.place(LogIndex(index), &effects).unwrap();
    }
    group.purge(group.entry_id(LogIndex(index)).unwrap());
    index
}

/// What each stream takes that got ten records in one entry, and then `singles` one by one.
fn each(singles: u64) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let config = LogConfig {
        storage: Storage::Disk {
            dir: dir.path().to_owned(),
        },
        sync: SyncPolicy::Never,
        cache_bytes: 0,
        compaction_threshold: u64::MAX,
        ..LogConfig::default()
    };
    let log = Log::open(config, Arc::new(OsFiles)).unwrap();
    let group = log.group(GROUP);
    let mut last = fill(&group, 0, 1, 10);
    for row in 1..=singles {
        last = fill(&group, last, row * 10 + 1, 1);
    }
    assert_eq!(log.usage().rows as u64, STREAMS * (1 + singles));
    // Without its threads, it is the index that it holds.
    log.close();
    let with_index = BYTES.load(Ordering::Relaxed);
    drop((log, group));
    (with_index - BYTES.load(Ordering::Relaxed)) / usize::try_from(STREAMS).unwrap()
}

#[test]
fn a_million_streams_are_small() {
    let (one, ten) = (each(0), each(9));
    println!("a stream with one row of ten records: {one} bytes; with ten rows: {ten} bytes");
    assert!(one < 56 && ten < 440, "{one}, {ten}");
}
