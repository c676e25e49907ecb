//! Records that several streams have: the same bytes of an entry are placed more than once.

use std::sync::Arc;

use boltq_core::{GroupId, LogIndex};
use boltq_log::testing::SimFiles;
use boltq_log::{GroupLog, Log, LogConfig};
use bytes::{BufMut, Bytes, BytesMut};

use crate::common::*;

const GROUP: GroupId = GroupId(1);
const STREAMS: u64 = 5;

/// An entry whose records all streams get, from `first` on.
fn shared(first: u64, records: &[Bytes]) -> Bytes {
    let head = 8 + STREAMS * 28;
    let bytes: usize = records.iter().map(Bytes::len).sum();
    let mut out = BytesMut::new();
    out.put_u32_le(STREAMS as u32);
    for stream in 0..STREAMS {
        out.put_u64_le(stream);
        out.put_u64_le(first);
        out.put_u32_le(records.len() as u32);
        out.put_u32_le(head as u32);
        out.put_u32_le(bytes as u32);
    }
    out.put_u32_le(0);
    records.iter().for_each(|record| out.put_slice(record));
    out.freeze()
}

struct Writer {
    group: GroupLog,
    model: Model,
    index: u64,
}

impl Writer {
    fn commit(&mut self, data: &Bytes) {
        self.index += 1;
        self.model.apply(data);
        append(&self.group, 1, self.index, data.clone()).unwrap();
        self.group.place(LogIndex(self.index), &effects(data)).unwrap();
    }

    /// Entries that all streams share, of which each stream is done with another part, and single ones in between.
    fn write(&mut self, random: &mut Random) {
        for round in 0..60 {
            let records: Vec<_> = (0..20)
                .map(|n| record(&vec![n; 50 + random.below(400) as usize]))
                .collect();
            self.commit(&shared(round * 20 + 1, &records));
        }
        // What is wanted of an entry by one is done with by another, and little is wanted of most.
        for stream in 0..STREAMS {
            let kept = 100 * (stream + 1) + 1;
            self.commit(&Plan::free(stream, 1, kept - 1).encode());
            self.commit(&Plan::free(stream, kept + 3, 4).encode());
            self.commit(&Plan::free(stream, kept + 30, 1_200 - kept - 29).encode());
        }
    }

    fn free_all(&mut self) {
        let live: Vec<_> = self.model.live.keys().copied().collect();
        for (stream, seq) in live {
            self.commit(&Plan::free(stream, seq, 1).encode());
        }
    }
}

fn writer(log: &Log) -> Writer {
    Writer {
        group: log.group(GROUP),
        model: Model::default(),
        index: 0,
    }
}

#[test]
fn in_memory_each_stream_has_its_records_as_long_as_it_wants_them() {
    let log = Log::open(memory(), Arc::new(SimFiles::new())).unwrap();
    let mut writer = writer(&log);
    writer.write(&mut Random(1));
    writer.group.purge(id(1, writer.index));
    writer.model.check(&writer.group);
    writer.free_all();
    writer.group.purge(id(1, writer.index));
    let usage = log.usage();
    assert_eq!((usage.wal_bytes, usage.live_bytes, usage.rows), (0, 0, 0));
}

#[test]
fn on_disk_they_survive_compaction_and_a_start_and_their_files_go() {
    let files = SimFiles::new();
    let config = LogConfig {
        compaction_threshold: 0,
        ..config()
    };
    let open = || Log::open(config.clone(), Arc::new(files.clone())).unwrap();
    let log = open();
    let mut first = writer(&log);
    first.write(&mut Random(2));
    eventually("a segment", || {
        checkpoint(&first.group, first.index);
        log.usage().segment_bytes > 0
    });
    first.model.check(&first.group);
    checkpoint(&first.group, first.index);
    log.close();
    let log = open();
    let mut again = Writer {
        group: log.group(GROUP),
        ..first
    };
    again.model.check(&again.group);
    again.free_all();
    eventually("no records and no segments", || {
        checkpoint(&again.group, again.index);
        let usage = log.usage();
        usage.rows == 0 && usage.live_bytes == 0 && usage.segment_bytes == 0
    });
}
