//! Power losses at any operation: what was acknowledged is there, and what is there was once written.
//!
//! A seed chooses the policy, what is done, and after how many operations of the file system the power goes. The file system
//! then forgets parts of what was not synced, and the log is opened again. With threads, their timing adds to that. In
//! steps, the seed chooses that too, and so it says everything.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use boltq_core::{GroupId, LogIndex, Seq, StreamId};
use boltq_log::testing::SimFiles;
use boltq_log::{
    AppendError, Completion, Entry, EntryId, ExportedRun, FileLayer, GroupLog, InstallError, Log, LogConfig, OpenError,
    PlaceError, ReadError, ReadMode, Steps, SyncPolicy,
};
use bytes::Bytes;

use crate::common::*;

/// A group as the outside knows it.
#[derive(Default)]
struct Group {
    /// Entries that were appended, by index: the last one of each index.
    entries: BTreeMap<u64, (EntryId, Bytes)>,
    /// Every entry that ever was.
    submitted: HashMap<EntryId, Bytes>,
    /// The last one that was acknowledged, if nothing before it was replaced since.
    acked: u64,
    applied: u64,
    model: Model,
    /// The state after each entry that was applied.
    states: HashMap<EntryId, Model>,
    checkpointed: u64,
    purged: u64,
    acked_vote: u64,
    votes: u64,
    /// What was erased, and its erasure complete.
    gone: BTreeSet<u64>,
}

struct Run {
    random: Random,
    files: SimFiles,
    config: LogConfig,
    stepped: bool,
    /// Of the log that is open.
    steps: Option<Steps>,
    term: u64,
    groups: BTreeMap<u32, Group>,
    /// Records that were made.
    records: u64,
}

impl Run {
    fn new(seed: u64, stepped: bool) -> Self {
        let mut random = Random(seed);
        let policies = [
            SyncPolicy::Always,
            SyncPolicy::Always,
            SyncPolicy::Interval(Duration::from_micros(300)),
            SyncPolicy::Never,
        ];
        let config = LogConfig {
            sync: policies[random.below(4) as usize],
            compaction_threshold: 150 << 10,
            ..config()
        };
        let groups = (1..=1 + random.below(3))
            .map(|id| (u32::try_from(id).unwrap(), Group::default()))
            .collect();
        Self {
            random,
            files: SimFiles::new(),
            config,
            stepped,
            steps: None,
            term: 0,
            groups,
            records: 0,
        }
    }

    fn open(&mut self) -> Result<Log, OpenError> {
        let files = Arc::new(self.files.clone());
        if !self.stepped {
            return Log::open(self.config.clone(), files);
        }
        let (log, steps) = Log::open_stepped(self.config.clone(), files, Arc::new(|| ()))?;
        self.steps = Some(steps);
        Ok(log)
    }

    /// Takes some steps, and lets some time go by.
    fn step(&mut self, at: Duration) {
        if let Some(steps) = &self.steps {
            steps.set_time(at);
            for _ in 0..self.random.below(3) {
                steps.step();
            }
        }
    }

    /// One life of the process, from a start to a power loss.
    fn live(&mut self) {
        // Some do not get beyond the start.
        if self.random.one_in(5) {
            self.files.stop_after(self.random.below(12));
            let failed = self.open().map(|log| log.close());
            drop(failed);
            self.files = self.files.crash(self.random.next());
        }
        self.term += 1;
        let log = self.open().unwrap();
        for id in self.groups.keys().copied().collect::<Vec<_>>() {
            self.verify(id, &log.group(GroupId(id)));
        }
        self.files.stop_after(20 + self.random.below(300));
        for n in 0..400 {
            self.step(Duration::from_millis(n * 20));
            let id = 1 + u32::try_from(self.random.below(self.groups.len() as u64)).unwrap();
            let group = log.group(GroupId(id));
            if self.act(id, &group).is_err() {
                break;
            }
            self.note_gone(id, &group);
        }
        let clean = self.random.one_in(4);
        if clean {
            log.close();
        }
        // The power goes first: what the end of the process would sync is not.
        self.files = self.files.crash(self.random.next());
        for known in self.groups.values() {
            assert!(secrets(&self.files).is_disjoint(&known.gone), "what was erased is back");
        }
        drop(log);
        self.steps = None;
    }

    fn verify(&mut self, id: u32, group: &GroupLog) {
        let always = self.config.sync == SyncPolicy::Always;
        let known = self.groups.get_mut(&id).unwrap();
        let state = group.raft_state();
        let vote = state
            .vote
            .map_or(0, |vote| u64::from_le_bytes(vote[..].try_into().unwrap()));
        assert!(
            (known.acked_vote..=known.votes).contains(&vote),
            "vote {vote}, {} was acknowledged",
            known.acked_vote
        );
        known.acked_vote = vote;

        let checkpoint = group.checkpoint();
        let start = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.applied.index.0);
        assert!(
            start >= known.checkpointed,
            "checkpoint {start}, {} was acknowledged",
            known.checkpointed
        );
        known.checkpointed = start;
        known.model = match &checkpoint {
            Some(checkpoint) => known.states[&checkpoint.applied].clone(),
            None => Model::default(),
        };
        let last = state.last.map_or(0, |last| last.index.0);
        assert!(last >= start, "the log ends at {last}, before the checkpoint {start}");
        assert!(
            !always || last >= known.acked,
            "the log ends at {last}, {} was acknowledged",
            known.acked
        );

        let entries = group
            .entries(LogIndex(start + 1)..LogIndex(last + 1), u64::MAX)
            .unwrap();
        assert_eq!(entries.len() as u64, last - start);
        for entry in entries {
            let index = entry.id.index.0;
            // Unless everything is synced, a truncation may be lost, and what it cut off is there again.
            assert!(
                !always || known.entries[&index].0 == entry.id,
                "entry {index}: {:?} was replaced",
                entry.id
            );
            assert!(
                known.submitted[&entry.id] == entry.data,
                "entry {index} is not what was appended"
            );
            known.entries.insert(index, (entry.id, entry.data.clone()));
            group.place(entry.id.index, &effects(&entry.data)).unwrap();
            known.model.apply(&entry.data);
            known.states.insert(entry.id, known.model.clone());
        }
        known.entries.split_off(&(last + 1));
        let of_its_history = |checkpoint: EntryId| known.entries.get(&start).is_some_and(|(id, _)| *id == checkpoint);
        if checkpoint.is_some_and(|checkpoint| !of_its_history(checkpoint.applied)) {
            known.entries = known.entries.split_off(&(start + 1));
        }
        known.applied = last;
        known.acked = last;
        known.purged = state.purged.map_or(0, |purged| purged.index.0);
        assert!(known.purged <= start, "purged beyond the checkpoint");
        known.model.check(group);
        known.states.retain(|id, _| id.index.0 >= start);
    }

    /// If all erasures are complete, what was erased is in no file.
    fn note_gone(&mut self, id: u32, group: &GroupLog) {
        let known = self.groups.get_mut(&id).unwrap();
        let erased: BTreeSet<u64> = known.model.erased.values().map(|record| number_of(record)).collect();
        if erased.is_subset(&known.gone) || group.erasures().pending > 0 {
            return;
        }
        let found: Vec<u64> = secrets(&self.files).intersection(&erased).copied().collect();
        assert!(found.is_empty(), "{found:?} were erased and are there");
        known.gone.extend(erased);
    }

    /// Does what erasures want.
    fn erase(&mut self, id: u32, group: &GroupLog) {
        let wanted = group.erasures();
        let known = self.groups.get_mut(&id).unwrap();
        if let Some((entry, _)) = known.entries.get(&known.applied).filter(|_| wanted.wants_checkpoint)
            && group
                .write_checkpoint(group.capture(), *entry, b"meta", b"state".as_slice().into())
                .is_ok()
        {
            known.checkpointed = known.applied;
        }
        let upto = wanted.purge_upto.map_or(0, |upto| upto.0.min(known.checkpointed));
        if upto > known.purged {
            group.purge(group.entry_id(LogIndex(upto)).unwrap());
            known.purged = upto;
        }
    }

    fn act(&mut self, id: u32, group: &GroupLog) -> Result<(), AppendError> {
        match self.random.below(24) {
            0..=10 => self.append(id, group),
            11..=13 => {
                let known = self.groups.get_mut(&id).unwrap();
                if apply(known, group, &self.files) {
                    Ok(())
                } else {
                    Err(AppendError::Closed)
                }
            }
            14 => self.replace_tail(id, group),
            15..=16 => {
                let known = self.groups.get_mut(&id).unwrap();
                let Some((entry, _)) = known.entries.get(&known.applied) else {
                    return Ok(());
                };
                // A full or failing device shows in the log, too.
                if group
                    .write_checkpoint(group.capture(), *entry, b"meta", b"state".as_slice().into())
                    .is_ok()
                {
                    known.checkpointed = known.applied;
                }
                Ok(())
            }
            17 => {
                let known = self.groups.get_mut(&id).unwrap();
                let upto = known.checkpointed - self.random.below(4).min(known.checkpointed);
                if upto > known.purged {
                    // A purge that is lost brings back entries from before a state that was installed.
                    group.purge(group.entry_id(LogIndex(upto)).unwrap());
                    known.purged = upto;
                }
                Ok(())
            }
            18 => {
                let known = self.groups.get_mut(&id).unwrap();
                known.votes += 1;
                let vote = known.votes;
                let vote_bytes = Bytes::copy_from_slice(&vote.to_le_bytes());
                settle(self.steps.as_ref(), |done| group.save_vote(vote_bytes, done))?;
                known.acked_vote = vote;
                Ok(())
            }
            19 => self.install(id, group),
            20..=22 => {
                self.erase(id, group);
                Ok(())
            }
            _ => {
                let known = &self.groups[&id];
                let live: Vec<_> = known.model.live.keys().copied().collect();
                if let Some((stream, seq)) = live.get(self.random.below(live.len() as u64) as usize) {
                    let mut out = Vec::new();
                    let place = (StreamId(*stream), Seq(*seq));
                    // After the power went, there is nothing to be read.
                    if group.read(&[place], ReadMode::Disk, &mut out).is_ok() {
                        assert_eq!(out[0], known.model.live[&(*stream, *seq)]);
                    }
                }
                Ok(())
            }
        }
    }

    fn append(&mut self, id: u32, group: &GroupLog) -> Result<(), AppendError> {
        let known = self.groups.get_mut(&id).unwrap();
        let mut next = known
            .entries
            .last_key_value()
            .map_or(known.purged.max(known.applied), |(index, _)| *index);
        let mut batch = Vec::new();
        // What comes next in a stream after all entries so far, applied or not.
        let mut model = known.model.clone();
        for (_, data) in known.entries.range(known.applied + 1..).map(|(_, entry)| entry) {
            model.apply(data);
        }
        for _ in 0..=self.random.below(3) {
            next += 1;
            let data = plan(&mut self.random, &mut self.records, &model).encode();
            model.apply(&data);
            let entry = id_of(self.term, next);
            known.entries.insert(next, (entry, data.clone()));
            known.submitted.insert(entry, data.clone());
            batch.push(Entry {
                id: entry,
                kind: 1,
                data,
            });
        }
        if self.random.one_in(3) {
            // Nobody waits; the next one that is waited for says it for all.
            group.append(batch, Box::new(|_| ()));
            return Ok(());
        }
        settle(self.steps.as_ref(), |done| group.append(batch, done))?;
        known.acked = next;
        if self.random.one_in(2) && !apply(known, group, &self.files) {
            return Err(AppendError::Closed);
        }
        Ok(())
    }

    /// Takes over a state as another node would send it: of a later or another history, or of this one.
    fn install(&mut self, id: u32, group: &GroupLog) -> Result<(), AppendError> {
        let known = self.groups.get_mut(&id).unwrap();
        let last = known.entries.last_key_value().map_or(0, |(index, _)| *index);
        let least = known.applied.max(known.purged);
        let mut model = known.model.clone();
        let same = known
            .entries
            .get(&known.applied)
            .filter(|_| known.applied > known.purged);
        let applied = match same {
            Some((entry, _)) if self.random.one_in(2) => *entry,
            _ => {
                self.term += 1;
                for _ in 0..self.random.below(5) {
                    model.apply(&plan(&mut self.random, &mut self.records, &model).encode());
                }
                id_of(self.term, least + 1 + self.random.below(last.max(least) + 5 - least))
            }
        };
        let stays = same.is_some_and(|(entry, _)| *entry == applied);
        if !stays {
            // Without an answer, either may be found after a crash.
            known.acked = known.acked.min(applied.index.0);
        }
        known.states.insert(applied, model.clone());
        let install = || -> Result<(), InstallError> {
            let mut install = group.begin_install()?;
            for ((stream, seq), record) in &model.live {
                install.add(&ExportedRun {
                    stream: StreamId(*stream),
                    first: Seq(*seq),
                    count: 1,
                    live: 1,
                    data: record.clone(),
                })?;
            }
            install.commit(applied, b"meta", b"state")
        };
        if install().is_err() {
            return Err(AppendError::Closed);
        }
        if !stays {
            known.entries.clear();
        }
        known.entries = known.entries.split_off(&(applied.index.0 + 1));
        (known.applied, known.purged) = (applied.index.0, applied.index.0);
        known.checkpointed = applied.index.0;
        known.acked = known.acked.max(applied.index.0);
        known.model = model;
        Ok(())
    }

    fn replace_tail(&mut self, id: u32, group: &GroupLog) -> Result<(), AppendError> {
        let known = self.groups.get_mut(&id).unwrap();
        let last = known.entries.last_key_value().map_or(0, |(index, _)| *index);
        if last <= known.applied {
            return Ok(());
        }
        let keep = known.applied + self.random.below(last - known.applied);
        // Without an answer, either may be found after a crash.
        known.acked = known.acked.min(keep);
        settle(self.steps.as_ref(), |done| {
            group.truncate_after(Some(LogIndex(keep)), done);
        })?;
        known.entries.split_off(&(keep + 1));
        self.term += 1;
        Ok(())
    }
}

/// Waits for the outcome, or takes steps to it.
fn settle(steps: Option<&Steps>, run: impl FnOnce(Completion)) -> Result<(), AppendError> {
    let Some(steps) = steps else {
        return wait(run);
    };
    let (sender, receiver) = mpsc::channel();
    run(Box::new(move |outcome| sender.send(outcome).unwrap()));
    loop {
        match receiver.try_recv() {
            Ok(outcome) => return outcome,
            Err(_) => assert!(steps.step(), "nothing is left to do, and it was not completed"),
        }
    }
}

fn id_of(term: u64, index: u64) -> EntryId {
    id(term, index)
}

/// Returns whether the power is still there.
fn apply(known: &mut Group, group: &GroupLog, files: &SimFiles) -> bool {
    for (index, (id, data)) in known.entries.range(known.applied + 1..) {
        match group.place(LogIndex(*index), &effects(data)) {
            Ok(()) => {}
            // Records of long entries are looked at and may have left the memory, or an append failed that nobody waited for.
            Err(PlaceError::Read(ReadError::Io { .. } | ReadError::NoEntry { .. }))
                if files.list(Path::new(DIR)).is_err() =>
            {
                return false;
            }
            Err(error) => panic!("{error}"),
        }
        known.model.apply(data);
        known.states.insert(*id, known.model.clone());
        known.applied = *index;
    }
    true
}

fn plan(random: &mut Random, number: &mut u64, model: &Model) -> Plan {
    let mut plan = Plan::default();
    let mut model = model.clone();
    let places = if model.live.len() > 300 { 0 } else { random.below(3) };
    for _ in 0..places {
        let stream = 1 + random.below(4);
        if plan.placed.iter().any(|(placed, _, _)| *placed == stream) {
            continue;
        }
        let first = *model.next.get(&stream).unwrap_or(&1);
        let count = [1, 2, 30][random.below(3) as usize];
        let records = (0..count)
            .map(|_| {
                *number += 1;
                secret(*number, random.below(400) as usize)
            })
            .collect();
        plan.placed.push((stream, first, records));
    }
    for _ in 0..random.below(4) {
        let live: Vec<_> = model.live.keys().copied().collect();
        let Some((stream, first)) = live.get(random.below(live.len() as u64) as usize).copied() else {
            break;
        };
        let most = 1 + random.below(40);
        let count = (first..first + most)
            .take_while(|seq| model.live.remove(&(stream, *seq)).is_some())
            .count();
        plan.freed.push((stream, first, count as u64));
    }
    for _ in 0..random.below(8) / 6 {
        let live: Vec<_> = model.live.keys().copied().collect();
        if let Some(place) = live.get(random.below(live.len() as u64) as usize) {
            model.live.remove(place);
            plan.erased.push(*place);
        }
    }
    plan
}

/// Runs seeds; with threads and in steps. Returns how many records were erased for certain.
fn run_seeds(stepped: bool, runs: u64) -> usize {
    let runs: u64 = std::env::var("BOLTQ_LOG_CRASH_RUNS").map_or(runs, |runs| runs.parse().unwrap());
    let from: u64 = std::env::var("BOLTQ_LOG_CRASH_SEED").map_or(0, |seed| seed.parse().unwrap());
    let mut gone = 0;
    for seed in from..from + runs {
        let outcome = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed, stepped);
            for _ in 0..8 {
                run.live();
            }
            run.groups.values().map(|known| known.gone.len()).sum::<usize>()
        });
        gone += outcome.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    gone
}

#[test]
fn nothing_acknowledged_is_lost_whenever_the_power_goes() {
    run_seeds(false, 25);
}

#[test]
fn nothing_acknowledged_is_lost_whenever_the_power_goes_between_steps() {
    assert!(run_seeds(true, 40) > 0, "nothing was erased");
}

#[test]
fn equal_steps_make_equal_files() {
    let mut images = Vec::new();
    for seed in [1, 1, 2, 2, 3, 3] {
        let mut run = Run::new(seed, true);
        let mut lives = Vec::new();
        for _ in 0..6 {
            run.live();
            lives.push((run.files.image(), run.files.operations(), run.files.bytes_read()));
        }
        images.push(lives);
    }
    for pair in images.chunks(2) {
        assert!(pair[0] == pair[1], "the same seed did something else");
    }
    assert!(
        images[0] != images[2] && images[2] != images[4],
        "the seed does not matter"
    );
}
