//! Many threads at once on real files: groups that append, read, free and write checkpoints while compaction runs.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use boltq_core::{GroupId, LogIndex, Seq, StreamId};
use boltq_log::{Entry, GroupLog, Log, LogConfig, OsFiles, ReadMode, Storage};

use crate::common::*;

const GROUPS: u32 = 4;
const STEPS: u64 = 400;

fn open_at(dir: &Path) -> Log {
    let config = LogConfig {
        storage: Storage::Disk { dir: dir.to_owned() },
        compaction_threshold: 300 << 10,
        ..config()
    };
    Log::open(config, Arc::new(OsFiles)).unwrap()
}

/// Appends without waiting, places at once, and frees most of it again. Returns what has to be there.
fn work(group: &GroupLog, seed: u64) -> (u64, Model) {
    let mut random = Random(seed);
    let mut model = Model::default();
    for index in 1..=STEPS {
        let mut plan = Plan::default();
        let stream = random.below(5);
        let first = *model.next.get(&stream).unwrap_or(&1);
        let count = 1 + random.below(30);
        let records = (0..count).map(|_| record(&vec![seed as u8; random.below(500) as usize]));
        plan.placed.push((stream, first, records.collect()));
        let live: Vec<_> = model.live.keys().copied().collect();
        if let Some((stream, first)) = live.get(random.below(live.len() as u64) as usize) {
            let count = (*first..first + 40)
                .take_while(|seq| model.live.contains_key(&(*stream, *seq)))
                .count();
            plan.freed.push((*stream, *first, count as u64));
        }
        let data = plan.encode();
        model.apply(&data);
        let entry = Entry {
            id: id(1, index),
            kind: 1,
            data: data.clone(),
        };
        group.append(vec![entry], Box::new(|outcome| outcome.unwrap()));
        group.place(LogIndex(index), &effects(&data)).unwrap();
        let some: Vec<_> = model.live.iter().skip(random.below(50) as usize).step_by(17).collect();
        let places: Vec<_> = some
            .iter()
            .map(|((stream, seq), _)| (StreamId(*stream), Seq(*seq)))
            .collect();
        let mut out = Vec::new();
        assert!(group.read(&places, ReadMode::Disk, &mut out).unwrap());
        assert!(out.iter().eq(some.into_iter().map(|(_, record)| record)));
        if random.one_in(25) {
            checkpoint(group, index);
        }
    }
    wait(|done| group.append(Vec::new(), done)).unwrap();
    (STEPS, model)
}

#[test]
fn groups_that_work_at_once_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_at(dir.path());
    let threads: Vec<_> = (0..GROUPS)
        .map(|id| {
            let group = log.group(GroupId(id));
            thread::spawn(move || work(&group, u64::from(id)))
        })
        .collect();
    let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    for (id, (_, model)) in results.iter().enumerate() {
        model.check(&log.group(GroupId(id as u32)));
    }
    log.close();
    let log = open_at(dir.path());
    for (group_id, (last, model)) in results.iter().enumerate() {
        let group = log.group(GroupId(group_id as u32));
        assert_eq!(group.raft_state().last, Some(id(1, *last)));
        let applied = group.checkpoint().map_or(0, |checkpoint| checkpoint.applied.index.0);
        for entry in group
            .entries(LogIndex(applied + 1)..LogIndex(last + 1), u64::MAX)
            .unwrap()
        {
            group.place(entry.id.index, &effects(&entry.data)).unwrap();
        }
        model.check(&group);
    }
}
