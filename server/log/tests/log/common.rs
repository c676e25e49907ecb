//! A small state machine over a log: entries say themselves what is placed and freed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;

use boltq_core::codec::Reader;
use boltq_core::{LogIndex, NodeId, RecordBuilder, Seq, StorageEffect, StreamId, Term};
use boltq_log::testing::SimFiles;
use boltq_log::{
    AppendError, Entry, EntryId, FileLayer, GroupLog, Log, LogConfig, OpenError, ReadError, ReadMode, Storage,
    SyncPolicy,
};
use bytes::{BufMut, Bytes, BytesMut};

pub(crate) const DIR: &str = "/data";

pub(crate) fn config() -> LogConfig {
    LogConfig {
        storage: Storage::Disk {
            dir: PathBuf::from(DIR),
        },
        sync: SyncPolicy::Always,
        wal_file_bytes: 64 << 10,
        cache_bytes: 4 << 10,
        row_bytes: 2 << 10,
        open_files: 4,
        ..LogConfig::default()
    }
}

pub(crate) fn memory() -> LogConfig {
    LogConfig {
        storage: Storage::Memory,
        ..config()
    }
}

pub(crate) fn open(files: &SimFiles) -> Result<Log, OpenError> {
    Log::open(config(), Arc::new(files.clone()))
}

pub(crate) fn id(term: u64, index: u64) -> EntryId {
    EntryId {
        term: Term(term),
        leader: NodeId(1),
        index: LogIndex(index),
    }
}

pub(crate) fn record(payload: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    let builder = RecordBuilder {
        json: false,
        priority: 0,
        published_ns: 0,
        expires: None,
        due: None,
        ordering_key: "",
        id: None,
        payload,
    };
    builder.write(std::iter::empty(), &mut out);
    out.freeze()
}

/// What an entry does.
#[derive(Debug, Default, Clone)]
pub(crate) struct Plan {
    pub(crate) placed: Vec<(u64, u64, Vec<Bytes>)>,
    pub(crate) freed: Vec<(u64, u64, u64)>,
    pub(crate) erased: Vec<(u64, u64)>,
}

/// Says in the number of ranges that are freed that there is more, and is not there in plans from before there was more.
const HAS_ERASED: u32 = 1 << 31;

impl Plan {
    pub(crate) fn place(stream: u64, first: u64, records: Vec<Bytes>) -> Self {
        Self {
            placed: vec![(stream, first, records)],
            ..Self::default()
        }
    }

    pub(crate) fn free(stream: u64, first: u64, count: u64) -> Self {
        Self {
            freed: vec![(stream, first, count)],
            ..Self::default()
        }
    }

    pub(crate) fn erase(stream: u64, seq: u64) -> Self {
        Self {
            erased: vec![(stream, seq)],
            ..Self::default()
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let erased_bytes = if self.erased.is_empty() {
            0
        } else {
            4 + self.erased.len() * 16
        };
        let head = 8 + self.placed.len() * 28 + self.freed.len() * 24 + erased_bytes;
        let mut at = u32::try_from(head).unwrap();
        let mut out = BytesMut::new();
        out.put_u32_le(u32::try_from(self.placed.len()).unwrap());
        for (stream, first, records) in &self.placed {
            let bytes = u32::try_from(records.iter().map(Bytes::len).sum::<usize>()).unwrap();
            out.put_u64_le(*stream);
            out.put_u64_le(*first);
            out.put_u32_le(u32::try_from(records.len()).unwrap());
            out.put_u32_le(at);
            out.put_u32_le(bytes);
            at += bytes;
        }
        let more = if self.erased.is_empty() { 0 } else { HAS_ERASED };
        out.put_u32_le(u32::try_from(self.freed.len()).unwrap() | more);
        for (stream, first, count) in &self.freed {
            out.put_u64_le(*stream);
            out.put_u64_le(*first);
            out.put_u64_le(*count);
        }
        if !self.erased.is_empty() {
            out.put_u32_le(u32::try_from(self.erased.len()).unwrap());
            for (stream, seq) in &self.erased {
                out.put_u64_le(*stream);
                out.put_u64_le(*seq);
            }
        }
        for record in self.placed.iter().flat_map(|(_, _, records)| records) {
            out.put_slice(record);
        }
        out.freeze()
    }
}

pub(crate) fn effects(data: &[u8]) -> Vec<StorageEffect> {
    let mut reader = Reader::new(data);
    let mut effects = Vec::new();
    for _ in 0..reader.u32("placed").unwrap() {
        effects.push(StorageEffect::Placed {
            stream: StreamId(reader.u64("stream").unwrap()),
            first: Seq(reader.u64("first").unwrap()),
            count: reader.u32("count").unwrap(),
            offset: reader.u32("offset").unwrap(),
            bytes: reader.u32("bytes").unwrap(),
        });
    }
    let freed = reader.u32("freed").unwrap();
    for _ in 0..freed & !HAS_ERASED {
        effects.push(StorageEffect::Freed {
            stream: StreamId(reader.u64("stream").unwrap()),
            first: Seq(reader.u64("first").unwrap()),
            count: reader.u64("count").unwrap(),
        });
    }
    if freed & HAS_ERASED != 0 {
        for _ in 0..reader.u32("erased").unwrap() {
            effects.push(StorageEffect::Erased {
                stream: StreamId(reader.u64("stream").unwrap()),
                seq: Seq(reader.u64("sequence").unwrap()),
            });
        }
    }
    effects
}

/// The records that are wanted, and what they are.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) live: BTreeMap<(u64, u64), Bytes>,
    pub(crate) next: BTreeMap<u64, u64>,
    /// What was erased.
    pub(crate) erased: BTreeMap<(u64, u64), Bytes>,
}

impl Model {
    pub(crate) fn apply(&mut self, data: &Bytes) {
        for effect in effects(data) {
            match effect {
                StorageEffect::Placed {
                    stream,
                    first,
                    count,
                    offset,
                    ..
                } => {
                    let mut at = offset as usize;
                    for seq in first.0..first.0 + u64::from(count) {
                        let bytes = 4 + u32::from_le_bytes(data[at..at + 4].try_into().unwrap()) as usize;
                        self.live.insert((stream.0, seq), data.slice(at..at + bytes));
                        at += bytes;
                    }
                    self.next.insert(stream.0, first.0 + u64::from(count));
                }
                StorageEffect::Freed { stream, first, count } => {
                    for seq in first.0..first.0 + count {
                        self.live.remove(&(stream.0, seq)).expect("freed once");
                    }
                }
                StorageEffect::Erased { stream, seq } => {
                    let record = self.live.remove(&(stream.0, seq.0)).expect("erased once");
                    self.erased.insert((stream.0, seq.0), record);
                }
            }
        }
    }

    /// Everything that is wanted is there, byte for byte.
    pub(crate) fn check(&self, group: &GroupLog) {
        let places: Vec<_> = self
            .live
            .keys()
            .map(|(stream, seq)| (StreamId(*stream), Seq(*seq)))
            .collect();
        let mut out = Vec::new();
        group.read(&places, ReadMode::Disk, &mut out).unwrap();
        assert!(out.iter().eq(self.live.values()), "records differ");
        for (stream, seq) in self.erased.keys() {
            let read = read_one(group, *stream, *seq);
            // Its place goes with its row.
            let is_gone = matches!(read, Err(ReadError::Erased { .. } | ReadError::NoRecord { .. }));
            assert!(is_gone, "record {seq} of stream {stream} was erased: {read:?}");
        }
    }
}

const SECRET: &[u8; 8] = b"/secret/";

/// A record that is found wherever its bytes are.
pub(crate) fn secret(number: u64, more_bytes: usize) -> Bytes {
    let mut payload = SECRET.to_vec();
    payload.extend_from_slice(&number.to_le_bytes());
    payload.resize(payload.len() + more_bytes, 7);
    record(&payload)
}

fn secrets_in(bytes: &[u8]) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let windows = bytes.windows(16).filter(|window| window.starts_with(SECRET));
    found.extend(windows.map(|window| u64::from_le_bytes(window[8..].try_into().unwrap())));
    found
}

/// The number of a record that [`secret`] has made.
pub(crate) fn number_of(record: &[u8]) -> u64 {
    *secrets_in(record).first().unwrap()
}

/// Those that are in any file, be it in use or not.
pub(crate) fn secrets(files: &SimFiles) -> BTreeSet<u64> {
    files.image().values().flat_map(|bytes| secrets_in(bytes)).collect()
}

pub(crate) fn wait(run: impl FnOnce(boltq_log::Completion)) -> Result<(), AppendError> {
    let (sender, receiver) = mpsc::channel();
    run(Box::new(move |outcome| sender.send(outcome).unwrap()));
    receiver.recv().unwrap()
}

pub(crate) fn append(group: &GroupLog, term: u64, index: u64, data: Bytes) -> Result<(), AppendError> {
    let entry = Entry {
        id: id(term, index),
        kind: 1,
        data,
    };
    wait(|done| group.append(vec![entry], done))
}

/// Appends, waits, and places.
pub(crate) fn commit(group: &GroupLog, index: u64, plan: &Plan) {
    let data = plan.encode();
    append(group, 1, index, data.clone()).unwrap();
    group.place(LogIndex(index), &effects(&data)).unwrap();
}

pub(crate) fn checkpoint(group: &GroupLog, index: u64) {
    group
        .write_checkpoint(group.capture(), id(1, index), b"meta", b"state".as_slice().into())
        .unwrap();
    group.purge(id(1, index));
}

pub(crate) fn read_one(group: &GroupLog, stream: u64, seq: u64) -> Result<Bytes, ReadError> {
    let mut out = Vec::new();
    group.read(&[(StreamId(stream), Seq(seq))], ReadMode::Disk, &mut out)?;
    Ok(out.remove(0))
}

pub(crate) fn contents(files: &SimFiles, name: &str) -> Vec<u8> {
    let file = files.open(&Path::new(DIR).join(name)).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.pread(&mut bytes, 0).unwrap();
    bytes
}

pub(crate) fn names(files: &SimFiles) -> Vec<String> {
    let mut names: Vec<String> = files
        .list(Path::new(DIR))
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    names.sort();
    names
}

/// Another file system with the same files, one of them with other bytes.
pub(crate) fn copy_with(files: &SimFiles, name: &str, bytes: &[u8]) -> SimFiles {
    let copy = SimFiles::new();
    for entry in names(files) {
        let bytes = if entry == name {
            bytes.to_vec()
        } else {
            contents(files, &entry)
        };
        write(&copy, &entry, &bytes);
    }
    copy
}

pub(crate) fn write(files: &SimFiles, name: &str, bytes: &[u8]) {
    let file = files.create(&Path::new(DIR).join(name)).unwrap();
    file.pwritev(&mut [std::io::IoSlice::new(bytes)], 0).unwrap();
    file.fdatasync().unwrap();
    files.sync_dir(Path::new(DIR)).unwrap();
}

/// Polls until something is so; fails after ten seconds.
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !check() {
        assert!(start.elapsed().as_secs() < 30, "{what} did not come to be");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// splitmix64: a seed says everything.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
