use boltq_core::*; use boltq_log::*; use boltq_log::testing::SimFiles; use bytes::*; use std::{path::Path, sync::{Arc, mpsc}};
extern crate libfuzzer_sys as _;
fn wait(run: impl FnOnce(Completion)) { let (s, r) = mpsc::channel(); run(Box::new(move |o| s.send(o).unwrap())); r.recv().unwrap().unwrap(); }
fn main() {
    let disk = SimFiles::new();
    let config = LogConfig { storage: Storage::Disk { dir: "/d".into() }, wal_file_bytes: WAL_FILE_BYTES_MIN, ..Default::default() };
    let id = |t, i| EntryId { term: Term(t), leader: NodeId(1), index: LogIndex(i) };
    let open = || Log::open(config.clone(), Arc::new(disk.clone())).unwrap();
    let app = |log: &Log, t, i: u64| wait(|d| log.group(GroupId(1)).append(vec![Entry { id: id(t, i), kind: 1, data: Bytes::from(format!("entry {i}")) }], d));
    let log = open(); std::thread::sleep(std::time::Duration::from_millis(200));
    wait(|d| log.group(GroupId(1)).save_vote(Bytes::from_static(b"vote"), d));
    for i in 1..=3 { app(&log, 1, i); }
    wait(|d| log.group(GroupId(1)).truncate_after(Some(LogIndex(2)), d));
    log.close(); drop(log);
    let dir = Path::new("/d");
    for f in disk.list(dir).unwrap() { eprintln!("{} {}", f.name, f.bytes); }
    disk.remove(&dir.join("wal-0000000000000002.log")).unwrap(); disk.sync_dir(dir).unwrap();
    let log = open(); app(&log, 2, 3); app(&log, 2, 4); log.group(GroupId(1)).purge(id(1, 1)); app(&log, 2, 5);
    log.close(); drop(log);
    let get = |n: &str| { let f = disk.open(&dir.join(n)).unwrap(); let mut b = vec![0; f.len().unwrap() as usize]; f.pread(&mut b, 0).unwrap();
        let e = b.iter().rposition(|x| *x != 0).map_or(0, |l| (l + 1).next_multiple_of(8)); b.truncate(e); b };
    for f in disk.list(dir).unwrap() { eprintln!("{} {}", f.name, f.bytes); }
    let two = [&get("wal-0000000000000001.log")[..], b"--next--", &get("wal-0000000000000002.log")].concat();
    std::fs::write("fuzz/seeds/wal/two_files", two).unwrap();
    let mut out = BytesMut::new();
    RecordBuilder { json: true, priority: 4, published_ns: 1_767_225_600_000_000_000, expires: Some(Millis(1_767_225_700_000)), due: Some(Millis(1_767_225_650_000)), id: Some(MessageId([7; 16])), payload: br#"{"n":1}"# }
        .write([("tenant", "acme"), ("", "é")].into_iter(), &mut out);
    std::fs::write("fuzz/seeds/record/all_fields", &out).unwrap();
    let mut out = BytesMut::new();
    RecordBuilder { json: false, priority: 0, published_ns: 1, expires: None, due: None, id: None, payload: b"plain" }.write(std::iter::empty(), &mut out);
    std::fs::write("fuzz/seeds/record/plain", &out).unwrap();
}
