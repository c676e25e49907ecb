//! What was erased is in no file any more when the log says so, and everything else is.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boltq_core::{GroupId, LogIndex};
use boltq_log::testing::{HangingFiles, SimFiles};
use boltq_log::{AppendError, ErasureProgress, ExportedRun, GroupLog, Log, LogConfig, OpenError, ReadError, Steps};

use crate::common::*;

const GROUP: GroupId = GroupId(1);
const OTHER: GroupId = GroupId(2);
/// The record that is erased.
const ERASED: u64 = 1000;

/// A log in steps, with a state machine for each group.
struct Node {
    files: SimFiles,
    log: Log,
    steps: Steps,
    now: Duration,
    models: Vec<(GroupLog, Model, u64)>,
}

impl Node {
    fn open(files: &SimFiles) -> Result<Self, OpenError> {
        let config = LogConfig {
            // Only what is erased is compacted.
            compaction_threshold: u64::MAX,
            ..config()
        };
        Self::open_with(files, config)
    }

    fn open_with(files: &SimFiles, config: LogConfig) -> Result<Self, OpenError> {
        let (log, steps) = Log::open_stepped(config, Arc::new(files.clone()), Arc::new(|| ()))?;
        let models = [GROUP, OTHER].map(|id| (log.group(id), Model::default(), 0));
        let node = Self {
            files: files.clone(),
            log,
            steps,
            now: Duration::ZERO,
            models: models.into(),
        };
        node.run();
        Ok(node)
    }

    fn group(&self) -> &GroupLog {
        &self.models[0].0
    }

    fn run(&self) {
        while self.steps.step() {}
    }

    fn commit(&mut self, plan: &Plan) {
        self.commit_to(0, plan);
    }

    fn commit_to(&mut self, at: usize, plan: &Plan) {
        let (group, model, last) = &mut self.models[at];
        *last += 1;
        let entry = boltq_log::Entry {
            id: id(1, *last),
            kind: 1,
            data: plan.encode(),
        };
        let data = entry.data.clone();
        group.append(vec![entry], Box::new(|outcome| outcome.unwrap()));
        while self.steps.step() {}
        group.place(LogIndex(*last), &effects(&data)).unwrap();
        model.apply(&data);
    }

    fn checkpoint(&self, at: usize) {
        let (group, _, last) = &self.models[at];
        checkpoint(group, *last);
        self.run();
    }

    /// Does what the groups have to do, once, some time later.
    fn turn(&mut self) {
        self.now += Duration::from_secs(11);
        self.steps.set_time(self.now);
        self.run();
        for (group, _, last) in &self.models {
            let wanted = group.erasures();
            if wanted.wants_checkpoint && *last > 0 {
                let state = b"state".as_slice().into();
                group
                    .write_checkpoint(group.capture(), id(1, *last), b"meta", state)
                    .unwrap();
            }
            if let Some(upto) = wanted.purge_upto {
                group.purge(id(1, upto.0));
            }
            self.run();
        }
    }

    /// Takes turns until all erasures are complete.
    fn finish(&mut self) {
        for _ in 0..20 {
            if self.models.iter().all(|(group, _, _)| group.erasures().pending == 0) {
                return;
            }
            self.turn();
        }
        panic!("not complete: {:?}, {:?}", self.group().erasures(), names(&self.files));
    }

    fn check(&self) {
        for (group, model, _) in &self.models {
            model.check(group);
        }
    }

    /// All is complete, nothing of what was erased is there, and the rest is, here and after a start.
    fn check_erased(&self) {
        assert!(!secrets(&self.files).contains(&ERASED), "{:?}", names(&self.files));
        let after_power_loss = self.files.after_kill().lose_unsynced();
        assert!(!secrets(&after_power_loss).contains(&ERASED), "it comes back");
        self.check();
        let node = Self::open(&self.files.after_kill()).unwrap();
        for (group, model, last) in &self.models {
            let group = node.log.group(group.id());
            let first = group.checkpoint().map_or(0, |checkpoint| checkpoint.applied.index.0);
            for entry in group
                .entries(LogIndex(first + 1)..LogIndex(last + 1), u64::MAX)
                .unwrap()
            {
                group.place(entry.id.index, &effects(&entry.data)).unwrap();
            }
            model.check(&group);
        }
    }
}

/// Records of which the second is erased later.
fn three() -> Plan {
    Plan::place(7, 1, vec![secret(1, 40), secret(ERASED, 40), secret(2, 40)])
}

/// More than a file of other records, so that the log goes on in another one.
fn fill(node: &mut Node, at: usize, stream: u64) {
    for n in 0..18 {
        let first = *node.models[at].1.next.get(&stream).unwrap_or(&1);
        node.commit_to(at, &Plan::place(stream, first, vec![secret(2_000 + n, 4_000)]));
    }
}

#[test]
fn an_erased_record_cannot_be_read_and_its_neighbours_can() {
    for config in [config(), memory()] {
        let log = Log::open(config, Arc::new(SimFiles::new())).unwrap();
        let group = log.group(GROUP);
        commit(&group, 1, &three());
        commit(&group, 2, &Plan::erase(7, 2));
        let read = read_one(&group, 7, 2);
        assert!(
            matches!(read, Err(ReadError::Erased { seq, .. }) if seq.0 == 2),
            "{read:?}"
        );
        assert_eq!(read_one(&group, 7, 1).unwrap(), secret(1, 40));
        assert_eq!(read_one(&group, 7, 3).unwrap(), secret(2, 40));
        let mut out = Vec::new();
        let places = [1, 2, 3].map(|seq| (boltq_core::StreamId(7), boltq_core::Seq(seq)));
        let whole = group.read(&places, boltq_log::ReadMode::Disk, &mut out);
        assert!(
            matches!(whole, Err(ReadError::Erased { .. })) && out.is_empty(),
            "{whole:?}"
        );
        let first = group.read_first(&places, usize::MAX, boltq_log::ReadMode::Disk, &mut out);
        assert!(first.unwrap() && out == [secret(1, 40)], "up to it");
        for again in [Plan::erase(7, 2), Plan::erase(7, 9), Plan::erase(8, 1)] {
            let data = again.encode();
            append(&group, 1, 3, data.clone()).unwrap();
            assert!(group.place(LogIndex(3), &effects(&data)).is_err());
        }
        commit(&group, 4, &Plan::free(7, 3, 1));
        commit(&group, 5, &Plan::free(7, 1, 1));
        let read = read_one(&group, 7, 2);
        assert!(
            matches!(read, Err(ReadError::NoRecord { .. })),
            "its row is gone: {read:?}"
        );
    }
}

#[test]
fn the_bytes_go_from_the_file_of_the_entry_though_others_hold_it() {
    let mut node = Node::open(&SimFiles::new()).unwrap();
    node.commit(&three());
    node.commit_to(1, &Plan::place(7, 1, vec![secret(3, 10)]));
    fill(&mut node, 0, 8);
    node.commit(&Plan::erase(7, 2));
    assert_eq!(node.group().erasures().pending, 1);
    assert!(secrets(&node.files).contains(&ERASED));
    node.finish();
    node.check_erased();
}

#[test]
fn the_bytes_go_though_the_record_had_a_row_of_its_own() {
    let mut node = Node::open(&SimFiles::new()).unwrap();
    node.commit(&Plan::place(7, 1, vec![secret(ERASED, 40)]));
    fill(&mut node, 0, 8);
    node.commit(&Plan::erase(7, 1));
    node.finish();
    node.check_erased();
}

#[test]
fn the_bytes_go_from_a_segment_and_from_no_other() {
    let files = SimFiles::new();
    let all = LogConfig {
        compaction_threshold: 0,
        ..config()
    };
    let mut node = Node::open_with(&files, all).unwrap();
    // Into a segment with a little, and from there into another one with more.
    node.commit(&three());
    fill(&mut node, 0, 8);
    node.commit(&Plan::free(8, 1, 17));
    node.checkpoint(0);
    node.run();
    let segments = |files: &SimFiles| names(files).iter().filter(|name| name.starts_with("seg-")).count();
    assert!(segments(&files) > 0, "{:?}", names(&files));
    node.commit(&Plan::erase(7, 2));
    node.finish();
    node.check_erased();
    assert_eq!(read_one(node.group(), 7, 1).unwrap(), secret(1, 40));
    assert!(
        matches!(read_one(node.group(), 7, 2), Err(ReadError::Erased { .. })),
        "its place stays"
    );
    let before: Vec<String> = names(&files)
        .into_iter()
        .filter(|name| name.starts_with("seg-"))
        .collect();
    fill(&mut node, 0, 9);
    node.commit(&Plan::erase(9, 1));
    node.finish();
    for segment in before {
        assert!(names(&files).contains(&segment), "{segment} does not hold it");
    }
}

/// What a file was before it was recycled stands behind its end.
#[test]
fn the_bytes_go_from_files_that_wait_to_be_recycled_or_were() {
    let mut recycled = 0;
    for records in 0..30 {
        let mut node = Node::open(&SimFiles::new()).unwrap();
        // The same bytes as later, in a file that nothing needs.
        for n in 1..=10 {
            node.commit(&Plan::place(6, n, vec![secret(2_000, 4_000)]));
        }
        node.commit(&Plan::place(5, 1, vec![secret(ERASED, 40)]));
        node.commit(&Plan::free(5, 1, 1));
        node.commit(&Plan::free(6, 1, 10));
        fill(&mut node, 0, 8);
        node.commit(&Plan::free(8, 1, 18));
        node.checkpoint(0);
        for n in 0..records {
            node.commit(&Plan::place(9, n + 1, vec![secret(2_000, 4_000)]));
        }
        recycled += u32::from(secrets(&node.files).contains(&ERASED));
        node.commit(&three());
        node.commit(&Plan::erase(7, 2));
        node.finish();
        node.check_erased();
    }
    assert!(recycled > 5, "the bytes were never in a file that was recycled");
}

#[test]
fn a_purge_that_comes_after_the_log_went_on_is_enough() {
    let mut node = Node::open(&SimFiles::new()).unwrap();
    node.commit(&three());
    node.commit(&Plan::erase(7, 2));
    let state = b"state".as_slice().into();
    let group = node.group();
    group
        .write_checkpoint(group.capture(), id(1, 2), b"meta", state)
        .unwrap();
    // The first frame of the next file says that the entries are needed.
    node.run();
    group.purge(id(1, 2));
    node.run();
    assert_eq!(group.erasures().purge_upto, None);
    node.finish();
    node.check_erased();
}

/// The leader before proposed the same, and its entry was replaced.
#[test]
fn the_bytes_go_from_an_entry_that_was_replaced() {
    let mut node = Node::open(&SimFiles::new()).unwrap();
    fill(&mut node, 0, 8);
    let entry = boltq_log::Entry {
        id: id(1, 19),
        kind: 1,
        data: three().encode(),
    };
    node.group().append(vec![entry], Box::new(|outcome| outcome.unwrap()));
    node.group()
        .truncate_after(Some(LogIndex(18)), Box::new(|outcome| outcome.unwrap()));
    fill(&mut node, 0, 9);
    node.commit(&three());
    node.commit(&Plan::erase(7, 2));
    node.finish();
    node.check_erased();
}

#[test]
fn a_state_that_is_installed_has_no_erased_bytes_and_ends_those_before_it() {
    let mut source = Node::open(&SimFiles::new()).unwrap();
    source.commit(&three());
    fill(&mut source, 0, 8);
    // The other node has it all, and the other group of it keeps the files.
    let mut target = Node::open(&SimFiles::new()).unwrap();
    target.commit(&three());
    target.commit_to(1, &Plan::place(7, 1, vec![secret(3, 10)]));
    fill(&mut target, 0, 8);
    source.commit(&Plan::erase(7, 2));
    source.checkpoint(0);
    assert!(
        secrets(&source.files).contains(&ERASED),
        "not complete, and exported nevertheless"
    );
    let mut runs: Vec<ExportedRun> = Vec::new();
    let mut export = source.group().export().unwrap().unwrap();
    loop {
        let next = export.next(1 << 20).unwrap();
        if next.is_empty() {
            break;
        }
        runs.extend(next);
    }
    assert!(
        runs.iter()
            .all(|run| !run.data.windows(8).any(|bytes| bytes == ERASED.to_le_bytes()))
    );
    let applied = export.applied();
    drop(export);
    let mut install = target.group().begin_install().unwrap();
    for run in &runs {
        install.add(run).unwrap();
    }
    install.commit(applied, b"meta", b"state").unwrap();
    target.models[0].1 = source.models[0].1.clone();
    target.models[0].2 = applied.index.0;
    assert!(matches!(read_one(target.group(), 7, 2), Err(ReadError::Erased { .. })));
    assert_eq!(target.group().erasures().pending, 1, "the files of before are there");
    assert!(secrets(&target.files).contains(&ERASED));
    for mut node in [source, target] {
        node.finish();
        node.check_erased();
    }
}

#[test]
fn a_group_that_had_nothing_has_nothing_to_erase_after_an_install() {
    let node = Node::open(&SimFiles::new()).unwrap();
    let mut install = node.group().begin_install().unwrap();
    let run = ExportedRun {
        stream: boltq_core::StreamId(7),
        first: boltq_core::Seq(1),
        count: 1,
        live: 1,
        data: secret(1, 10),
    };
    install.add(&run).unwrap();
    install.commit(id(1, 5), b"meta", b"state").unwrap();
    assert_eq!(node.group().erasures(), ErasureProgress::default());
}

fn waiter(group: &GroupLog) -> Receiver<Result<(), AppendError>> {
    let (sender, receiver) = channel();
    let sender = Mutex::new(sender);
    group.when_erased(Box::new(move |outcome| sender.lock().unwrap().send(outcome).unwrap()));
    receiver
}

#[test]
fn who_waits_is_told_when_it_is_complete_and_not_before() {
    let mut node = Node::open(&SimFiles::new()).unwrap();
    node.commit(&three());
    fill(&mut node, 0, 8);
    assert!(waiter(node.group()).try_recv().unwrap().is_ok(), "nothing was erased");
    node.commit(&Plan::erase(7, 2));
    let waiting = waiter(node.group());
    assert!(
        waiter(&node.models[1].0).try_recv().unwrap().is_ok(),
        "not in that group"
    );
    let mut turns = 0;
    while waiting.try_recv().is_err() {
        assert!(turns < 20 && secrets(&node.files).contains(&ERASED) || node.group().erasures().pending == 0);
        node.turn();
        turns += 1;
    }
    node.check_erased();
    node.commit(&Plan::erase(7, 1));
    let waiting = waiter(node.group());
    node.log.close();
    assert!(matches!(waiting.try_recv().unwrap(), Err(AppendError::Closed)));
    assert!(matches!(
        waiter(node.group()).try_recv().unwrap(),
        Err(AppendError::Closed)
    ));
}

#[test]
fn many_erasures_do_not_need_a_file_each() {
    let mut node = Node::open(&SimFiles::new()).unwrap();
    node.commit(&Plan::place(7, 1, (0..200).map(|n| secret(n, 10)).collect()));
    let file_bytes = node.log.usage().wal_bytes;
    for seq in 1..=100 {
        node.commit(&Plan::erase(7, seq));
    }
    let usage = node.log.usage();
    assert_eq!(usage.erasures, 100);
    assert!(usage.wal_bytes < file_bytes + 5 * (64 << 10), "{usage:?}");
    node.finish();
    node.check();
}

/// Writes, and does what erasures want, until they are complete.
fn finish_with_threads(group: &GroupLog, mut last: u64) {
    let waiting = waiter(group);
    eventually("the erasure", || {
        last += 1;
        commit(group, last, &Plan::place(20, last, vec![secret(last, 500)]));
        let wanted = group.erasures();
        if wanted.wants_checkpoint {
            let state = b"state".as_slice().into();
            group
                .write_checkpoint(group.capture(), id(1, last), b"meta", state)
                .unwrap();
        }
        if let Some(upto) = wanted.purge_upto {
            group.purge(id(1, upto.0));
        }
        waiting.try_recv().is_ok_and(|outcome| outcome.is_ok())
    });
}

#[test]
fn with_threads_an_erasure_comes_to_an_end_while_others_write() {
    let files = SimFiles::new();
    let log = open(&files).unwrap();
    let group = log.group(GROUP);
    commit(&group, 1, &three());
    commit(&group, 2, &Plan::erase(7, 2));
    finish_with_threads(&group, 2);
    assert!(!secrets(&files).contains(&ERASED));
    assert_eq!(read_one(&group, 7, 3).unwrap(), secret(2, 40));
}

/// Its bytes were read before, and are in a segment that has no name yet.
#[test]
fn what_is_erased_while_it_is_copied_goes_from_the_copy_too() {
    let files = SimFiles::new();
    let hanging = HangingFiles::new(Arc::new(files.clone()));
    let all = LogConfig {
        compaction_threshold: 0,
        ..config()
    };
    let log = Log::open(all, Arc::new(hanging.clone())).unwrap();
    let group = log.group(GROUP);
    commit(&group, 1, &three());
    commit(&group, 2, &Plan::place(9, 1, vec![secret(ERASED + 1, 10)]));
    for n in 1..=20 {
        commit(&group, 2 + n, &Plan::place(8, n, vec![secret(2_000, 4_000)]));
    }
    commit(&group, 23, &Plan::free(8, 1, 20));
    let hang = hanging.hang_at("seg-");
    checkpoint(&group, 23);
    eventually("a copy", || hang.waiting() > 0);
    // One beside others, and one whose row is gone with it.
    commit(&group, 24, &Plan::erase(7, 2));
    commit(&group, 25, &Plan::erase(9, 1));
    drop(hang);
    eventually("the copy", || {
        let copies = names(&files)
            .into_iter()
            .filter(|name| name.starts_with("seg-") && name.ends_with(".log"));
        copies.count() > 0
    });
    finish_with_threads(&group, 25);
    let left = secrets(&files);
    assert!(
        !left.contains(&ERASED) && !left.contains(&(ERASED + 1)),
        "{:?}",
        names(&files)
    );
    assert_eq!(read_one(&group, 7, 3).unwrap(), secret(2, 40));
}
