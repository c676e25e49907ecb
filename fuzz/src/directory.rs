//! Data directories whose files are anybody's bytes.
//!
//! A directory is opened or refused. If it is opened, what it offers is read, an entry and a vote are appended, a
//! checkpoint is written, and then it is opened again: a log that was opened once has to go on, and to say the same.

use std::io::IoSlice;
use std::path::Path;
use std::sync::{Arc, mpsc};

use boltq_core::{GroupId, LogIndex, Seq, StorageEffect, StreamId};
use boltq_log::testing::SimFiles;
use boltq_log::{
    Completion, Entry, EntryId, FileLayer, GroupLog, Log, LogConfig, ReadMode, Storage, WAL_FILE_BYTES_MIN,
};
use bytes::Bytes;

/// Names of the files of `tests/vectors/log/v1`, which say what they hold: the first one is for group 1 and ends with entry 6.
pub const CHECKPOINT: &str = "ckp-1-0000000000000006";
/// Index of the last entry in [`CHECKPOINT`], which is the file id of its frame.
pub const CHECKPOINT_ID: u64 = 6;
/// The segment that the recorded checkpoint points into.
pub const SEGMENT: &str = "seg-0000000000000004.log";
/// File id of [`SEGMENT`].
pub const SEGMENT_ID: u64 = 4;
/// Two files of the log that may follow each other. The recorded checkpoint goes on in the second.
pub const WALS: [&str; 2] = ["wal-0000000000000001.log", "wal-0000000000000002.log"];

const DIR: &str = "/data";
/// A damaged file can name very many.
const GROUPS_MAX: usize = 8;
const ENTRIES_BYTES_MAX: u64 = 1 << 20;
/// Streams of the recorded checkpoint, and sequences that it has, had, and never had.
const STREAMS: [u64; 2] = [7, 9];
const SEQS: std::ops::RangeInclusive<u64> = 0..=7;

/// A file system with these files in the directory.
pub fn disk(files: &[(&str, &[u8])]) -> SimFiles {
    let disk = SimFiles::new();
    for (name, bytes) in files {
        let file = disk.create(&Path::new(DIR).join(name)).expect("created");
        file.pwritev(&mut [IoSlice::new(bytes)], 0).expect("written");
        file.fdatasync().expect("synced");
    }
    disk.sync_dir(Path::new(DIR)).expect("synced");
    disk
}

/// Opens the directory; nothing if it is refused.
pub fn open(disk: &SimFiles) -> Option<Log> {
    let config = LogConfig {
        storage: Storage::Disk { dir: DIR.into() },
        wal_file_bytes: WAL_FILE_BYTES_MIN,
        ..LogConfig::default()
    };
    Log::open(config, Arc::new(disk.clone())).ok()
}

/// Opens, reads, changes and opens again; returns whether the directory was accepted.
pub fn exercise(files: &[(&str, &[u8])]) -> bool {
    let disk = disk(files);
    let Some(log) = open(&disk) else { return false };
    let groups: Vec<GroupId> = log.groups().into_iter().take(GROUPS_MAX).collect();
    for id in &groups {
        read(&log.group(*id));
    }
    let changed: Vec<(GroupId, EntryId)> = groups
        .iter()
        .filter_map(|id| Some((*id, change(&log.group(*id))?)))
        .collect();
    log.usage();
    log.close();
    drop(log);

    let Some(log) = open(&disk) else {
        assert!(is_used_up(&disk), "a directory that was opened once is opened again");
        return true;
    };
    for (id, last) in changed {
        check_changed(&log.group(id), last);
    }
    log.close();
    true
}

/// Whether there is no number left for another file. No log gets there, but what is forged does.
fn is_used_up(disk: &SimFiles) -> bool {
    const LAST: u64 = u32::MAX as u64;
    disk.image().into_keys().any(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let number = name.strip_prefix("wal-").and_then(|name| name.strip_suffix(".log"));
        number.is_some_and(|number| u64::from_str_radix(number, 16).is_ok_and(|number| number + 4 > LAST))
    })
}

/// Everything that a caller can ask for. Damage may be found only here, and is then an error.
pub fn read(group: &GroupLog) {
    let state = group.raft_state();
    let all = LogIndex(0)..LogIndex(u64::MAX);
    if let Ok(entries) = group.entries(all, ENTRIES_BYTES_MAX) {
        for pair in entries.windows(2) {
            assert_eq!(pair[0].id.index.0 + 1, pair[1].id.index.0, "entries have a hole");
        }
        if let (Some(purged), Some(first)) = (state.purged, entries.first()) {
            assert!(purged.index < first.id.index, "a purged entry is there");
        }
    }
    if let Some(last) = state.last {
        assert_eq!(group.entry_id(last.index), Some(last));
    }
    for stream in STREAMS.map(StreamId) {
        for seq in SEQS.map(Seq) {
            let mut records = Vec::new();
            if group.read(&[(stream, seq)], ReadMode::Disk, &mut records).is_ok() {
                assert_eq!(records.len(), 1);
                let _ = boltq_core::Record::read(&records[0]);
            }
        }
    }
}

/// Appends a vote and an entry, frees a record, and writes a checkpoint. Returns the id of the entry, if the log has room
/// for another index.
fn change(group: &GroupLog) -> Option<EntryId> {
    let mut id = group.raft_state().last.unwrap_or_default();
    id.index = LogIndex(id.index.0.checked_add(1)?);
    let entry = Entry {
        id,
        kind: 1,
        data: Bytes::from_static(b"appended"),
    };
    wait(|done| group.save_vote(Bytes::from_static(b"voted"), done)).then_some(())?;
    wait(|done| group.append(vec![entry], done)).then_some(())?;
    // Whether there is such a record is up to the input.
    let _ = group.place(
        id.index,
        &[StorageEffect::Freed {
            stream: StreamId(STREAMS[0]),
            first: Seq(1),
            count: 1,
        }],
    );
    let erase = |seq| StorageEffect::Erased {
        stream: StreamId(STREAMS[0]),
        seq: Seq(seq),
    };
    let _ = group.place(id.index, &[erase(5)]);
    if id.index.0.is_multiple_of(2) {
        group
            .write_checkpoint(group.capture(), id, b"meta", Bytes::from_static(b"state"))
            .expect("written");
        group.purge(id);
    }
    Some(id)
}

fn check_changed(group: &GroupLog, last: EntryId) {
    let state = group.raft_state();
    assert_eq!((state.vote.as_deref(), state.last), (Some(&b"voted"[..]), Some(last)));
    if last.index.0.is_multiple_of(2) {
        let checkpoint = group.checkpoint().expect("the checkpoint that was written");
        assert_eq!(
            (checkpoint.applied, &checkpoint.meta[..], &checkpoint.state[..]),
            (last, &b"meta"[..], &b"state"[..])
        );
    } else {
        let entries = group.entries(last.index..LogIndex(u64::MAX), u64::MAX).expect("read");
        assert_eq!(entries[0].data, &b"appended"[..]);
    }
}

fn wait(run: impl FnOnce(Completion)) -> bool {
    let (sender, receiver) = mpsc::channel();
    run(Box::new(move |outcome| {
        let _ = sender.send(outcome.is_ok());
    }));
    receiver.recv().expect("every append is answered")
}
