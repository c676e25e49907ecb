//! Memory mode holds what is wanted, and little more.

use std::sync::Arc;

use boltq_core::{GroupId, LogIndex};
use boltq_log::testing::SimFiles;
use boltq_log::{Log, Space};

use crate::common::*;

const GROUP: GroupId = GroupId(1);

fn open_memory() -> Log {
    Log::open(memory(), Arc::new(SimFiles::new())).unwrap()
}

#[test]
fn a_straggler_does_not_hold_its_entry() {
    let log = open_memory();
    let group = log.group(GROUP);
    let plan = Plan::place(1, 1, (0..1000).map(|_| record(&[7; 1000])).collect());
    commit(&group, 1, &plan);
    group.purge(id(1, 1));
    assert!(log.usage().wal_bytes > 1_000_000);
    commit(&group, 2, &Plan::free(1, 1, 499));
    commit(&group, 3, &Plan::free(1, 501, 500));
    group.purge(id(1, 3));
    assert_eq!(read_one(&group, 1, 500).unwrap(), record(&[7; 1000]));
    let usage = log.usage();
    assert!(usage.wal_bytes < 4_000, "{usage:?}");
    assert_eq!(usage.rows, 1);
    commit(&group, 4, &Plan::free(1, 500, 1));
    group.purge(id(1, 4));
    assert_eq!((log.usage().wal_bytes, log.usage().rows), (0, 0));
}

#[test]
fn an_entry_that_is_not_purged_is_kept_whole() {
    let log = open_memory();
    let group = log.group(GROUP);
    let plan = Plan::place(1, 1, (0..100).map(|_| record(&[7; 1000])).collect());
    commit(&group, 1, &plan);
    commit(&group, 2, &Plan::free(1, 1, 99));
    assert_eq!(
        group.entries(LogIndex(1)..LogIndex(2), u64::MAX).unwrap()[0].data,
        plan.encode()
    );
    // Purging is what lets it go.
    group.purge(id(1, 2));
    assert!(log.usage().wal_bytes < 4_000);
    assert_eq!(read_one(&group, 1, 100).unwrap(), record(&[7; 1000]));
}

#[test]
fn whatever_is_done_what_is_wanted_is_there_and_the_rest_goes() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let log = open_memory();
        let group = log.group(GROUP);
        let mut model = Model::default();
        let mut index = 0;
        for _ in 0..200 {
            let mut plan = Plan::default();
            if random.below(5) < 3 {
                for stream in 0..1 + random.below(3) {
                    let first = *model.next.get(&stream).unwrap_or(&1);
                    let records =
                        (0..1 + random.below(40)).map(|_| record(&vec![seed as u8; random.below(300) as usize]));
                    plan.placed.push((stream, first, records.collect()));
                }
            }
            let live: Vec<_> = model.live.keys().copied().collect();
            if let Some((stream, first)) = live.get(random.below(live.len() as u64) as usize) {
                let count = (*first..first + 60)
                    .take_while(|seq| model.live.contains_key(&(*stream, *seq)))
                    .count();
                plan.freed.push((*stream, *first, count as u64));
            }
            index += 1;
            model.apply(&plan.encode());
            commit(&group, index, &plan);
            if random.one_in(4) {
                group.purge(id(1, index - random.below(3).min(index - 1)));
                model.check(&group);
            }
        }
        model.check(&group);
        for (stream, seq) in model.live.keys() {
            index += 1;
            commit(&group, index, &Plan::free(*stream, *seq, 1));
        }
        group.purge(id(1, index));
        let usage = log.usage();
        assert_eq!(
            (usage.wal_bytes, usage.live_bytes, usage.rows),
            (0, 0, 0),
            "seed {seed}"
        );
    }
}

#[test]
fn a_checkpoint_is_kept_and_nothing_needs_a_device() {
    let log = open_memory();
    let group = log.group(GROUP);
    assert_eq!(group.checkpoint(), None);
    commit(&group, 1, &Plan::place(1, 1, vec![record(b"a")]));
    checkpoint(&group, 1);
    let checkpoint = group.checkpoint().unwrap();
    assert_eq!((checkpoint.applied, &checkpoint.state[..]), (id(1, 1), &b"state"[..]));
    assert_eq!(
        (log.space(), log.failure().is_none(), group.bytes_since_checkpoint()),
        (Space::Ample, true, 0)
    );
}
