//! The replicated state: which topics exist, and what they have.
//!
//! The same commands give the same machine, whatever node applies them. A command is read as a whole before it changes
//! anything, so that one which cannot be read leaves the state as it was.

use std::ops::Range;

use boltq_core::{Applied, DecodeError, Millis, Seq, StateMachine, StorageEffect, StreamId};

use crate::claims::{Answer, Claims};
use crate::command::{Append, Command, CursorOf, Target, read_heads};
use crate::cursors::Cursors;
use crate::outcome::{AppendRefusal, Appended, Commit, Effect, Outcome, Totals};
use crate::partition::{Partition, Stamped};
use crate::settings::{Retention, Settings, Terms, Version};
use crate::snapshot;
use crate::topics::{Topic, Topics};

/// Closed blocks that an append removes from its partition at most: more than it adds.
const APPEND_TRIMS: usize = 2;
/// Closed blocks that a trim removes from a partition at most.
const TRIM_BLOCKS_MAX: usize = 64;

/// The replicated state of a stream group.
#[derive(Debug, Default)]
pub struct Machine {
    pub(crate) now: Millis,
    pub(crate) totals: Totals,
    pub(crate) topics: Topics,
    pub(crate) cursors: Cursors,
    pub(crate) claims: Claims,
    /// What the records of the append at hand say of their times; kept to be filled again without an allocation.
    pub(crate) stamped: Vec<Stamped>,
}

/// Records as they stand in an entry.
#[derive(Debug, Clone, Copy, Default)]
struct Batch {
    count: u32,
    offset: u32,
    bytes: u32,
}

impl Machine {
    /// Takes a secret that senders must not guess: it keeps those who choose their ids with care from making look-ups of remembered
    /// keys slow. No part of the state: replicas have different ones, and who restores a machine gives it one again.
    pub fn scatter(&mut self, secret: u64) {
        self.claims.scatter(secret);
    }

    /// Reads the heads of the records of an append into `stamped`, and changes nothing else.
    fn read_records(&mut self, append: &Append<'_>, offset: u32) -> Result<Batch, DecodeError> {
        const WHAT: &str = "records";
        self.stamped.clear();
        read_heads(append, |head| match self.stamped.last_mut() {
            Some(last) if last.ns == head.published_ns => last.count += 1,
            _ => self.stamped.push(Stamped {
                ns: head.published_ns,
                count: 1,
            }),
        })?;
        let in_entry = |position| u32::try_from(position).ok();
        let offset = in_entry(append.records_at).and_then(|records_at| offset.checked_add(records_at));
        let (Some(offset), Some(bytes)) = (offset, in_entry(append.records.len())) else {
            return Err(DecodeError::Invalid {
                what: WHAT,
                why: "they are further on than an entry can be long",
            });
        };
        Ok(Batch {
            count: append.count,
            offset,
            bytes,
        })
    }

    fn create(&mut self, name: &str, settings: Settings) -> Outcome {
        let new = self.topics.get(name).is_none();
        if new {
            let created = self.next_version();
            self.topics.create(
                name,
                &Terms {
                    created,
                    changed: created,
                    settings,
                },
                0,
            );
        }
        self.topic_outcome(name, new)
    }

    fn update(&mut self, target: Target<'_>, retention: Retention) -> Outcome {
        let Some(topic) = self.target(target) else {
            return Outcome::NoTopic;
        };
        let before = *topic.settings;
        let settings = Settings { retention, ..before };
        if settings != before {
            let changed = self.next_version();
            self.topics.change(target.topic, changed, settings);
        }
        self.topic_outcome(target.topic, false)
    }

    fn topic_outcome(&self, name: &str, new: bool) -> Outcome {
        match self.topics.get(name) {
            Some(topic) => Outcome::Topic {
                new,
                terms: topic.terms(),
            },
            None => Outcome::NoTopic,
        }
    }

    fn adopt(&mut self, name: &str, terms: &Terms, applied: &mut Applied<Effect>) -> Outcome {
        match self.topics.get(name) {
            Some(topic) if topic.created < terms.created => drop(self.end_topic(name, applied)),
            Some(topic) if topic.created == terms.created => self.follow(name, terms),
            Some(_) | None => {}
        }
        Outcome::Adopted
    }

    /// Takes the settings that the home of a topic has, unless they are older than those that are here.
    fn follow(&mut self, name: &str, terms: &Terms) {
        let Some(topic) = self.topics.get(name).filter(|topic| topic.changed < terms.changed) else {
            return;
        };
        // The number of partitions is not one of the things that change.
        let settings = Settings {
            partitions: topic.settings.partitions,
            ..terms.settings
        };
        self.topics.change(name, terms.changed, settings);
    }

    fn delete(&mut self, target: Target<'_>, applied: &mut Applied<Effect>) -> Outcome {
        let is_meant = |topic: &&Topic| target.created == Version::NONE || topic.created <= target.created;
        if self.topics.get(target.topic).filter(is_meant).is_none() {
            return Outcome::NoTopic;
        }
        Outcome::Deleted(self.end_topic(target.topic, applied))
    }

    /// Removes all that a topic has here, and returns how many records that is.
    fn end_topic(&mut self, name: &str, applied: &mut Applied<Effect>) -> u64 {
        let Some(topic) = self.topics.remove(name) else {
            return 0;
        };
        let mut records = 0;
        for partition in topic.partitions.iter() {
            records += partition.record_count();
            partition.release(partition.first_seq()..partition.next_seq(), applied);
            let stream = partition.stream();
            applied.effects.push(Effect::Ended { stream });
            self.cursors.end(stream);
        }
        self.totals.deleted += records;
        records
    }

    fn append(&mut self, append: &Append<'_>, batch: Batch, applied: &mut Applied<Effect>) -> Outcome {
        let before = match self.before_append(append) {
            Ok(before) => before,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        if let Some(before) = before {
            self.totals.duplicates += 1;
            return Outcome::Appended(before);
        }
        self.make_partition(append, applied);
        let Some(topic) = self.topics.get_mut(append.topic) else {
            return Outcome::NoTopic;
        };
        let retention = topic.settings.retention;
        let Some(partition) = topic.partitions.get_mut(append.partition) else {
            return Outcome::NoTopic;
        };
        let range = partition.append(retention, batch.bytes, &self.stamped);
        let stream = partition.stream();
        applied.storage.push(StorageEffect::Placed {
            stream,
            first: Seq(range.start),
            count: batch.count,
            offset: batch.offset,
            bytes: batch.bytes,
        });
        self.totals.appended += u64::from(batch.count);
        let gone = partition.trim_closed(retention, self.now, APPEND_TRIMS);
        self.totals.trimmed += remove(partition, gone, applied);
        let answer = Answer {
            first: Seq(range.start),
            count: batch.count,
            timestamp_ns: partition.last_ns,
        };
        if let Some(claim) = append.claim {
            self.claims.keep(stream, claim.key, answer, self.now, claim.ttl_ms);
        }
        Outcome::Appended(appended(stream, answer, false))
    }

    /// Whether an append can be, and what was answered to the same one before.
    fn before_append(&self, append: &Append<'_>) -> Result<Option<Appended>, AppendRefusal> {
        let created = append.terms.created;
        let there = match self.topics.get(append.topic) {
            Some(topic) if created == Version::NONE || created == topic.created => Some(topic),
            Some(topic) if created < topic.created => return Err(AppendRefusal::Stale),
            Some(_) | None => None,
        };
        let partitions = there.map_or(append.terms.settings.partitions, |topic| topic.settings.partitions);
        if append.partition >= partitions {
            return Err(AppendRefusal::NoPartition { partitions });
        }
        let Some(claim) = append.claim else { return Ok(None) };
        let partition = there.and_then(|topic| topic.partitions.get(append.partition));
        let before = partition.and_then(|partition| {
            let stream = partition.stream();
            let answer = self.claims.find(stream, claim.key, self.now)?;
            Some(appended(stream, answer, true))
        });
        if before.is_none() && self.claims.is_full(claim.claims_max, self.now) {
            return Err(AppendRefusal::ClaimsFull);
        }
        Ok(before)
    }

    /// Makes the topic of an append be what it is in its home, and have the partition.
    fn make_partition(&mut self, append: &Append<'_>, applied: &mut Applied<Effect>) {
        let (name, mut terms) = (append.topic, append.terms);
        if terms.created != Version::NONE {
            self.adopt(name, &terms, applied);
        }
        if let Some(topic) = self.topics.get(name) {
            if topic.partitions.get(append.partition).is_none() {
                self.topics.add_partition(name, append.partition);
            }
            return;
        }
        if terms.created == Version::NONE {
            terms.created = self.next_version();
            terms.changed = terms.created;
        }
        self.topics.create(name, &terms, append.partition);
    }

    fn commit(&mut self, commits: Vec<(CursorOf<'_>, u64)>, cursors_max: u32) -> Outcome {
        let commit = |(cursor, wanted): (CursorOf<'_>, u64)| {
            let Some(partition) = self.partition_of(&cursor) else {
                return Commit::NoPartition;
            };
            let (stream, to) = (partition.stream(), wanted.clamp(Seq::FIRST.0, partition.next_seq()));
            let names = (cursor.group, cursor.member);
            let position = self.cursors.commit(stream, names, to, cursors_max);
            position.map_or(Commit::Full, |position| Commit::At(Seq(position)))
        };
        Outcome::Committed(commits.into_iter().map(commit).collect())
    }

    fn forget(&mut self, cursors: &[CursorOf<'_>]) -> Outcome {
        let mut count = 0;
        for cursor in cursors {
            if let Some(stream) = self.partition_of(cursor).map(Partition::stream) {
                count += u32::from(self.cursors.forget(stream, cursor.group, cursor.member));
            }
        }
        Outcome::Forgotten(count)
    }

    fn trim(&mut self, names: &[&str], applied: &mut Applied<Effect>) -> Outcome {
        let (mut records, mut more) = (0, false);
        for name in names {
            let Some(topic) = self.topics.get_mut(name) else {
                continue;
            };
            let retention = topic.settings.retention;
            for partition in topic.partitions.iter_mut() {
                let gone = partition.trim(retention, self.now, TRIM_BLOCKS_MAX);
                records += remove(partition, gone, applied);
                more |= partition.is_over(retention, self.now);
            }
        }
        self.totals.trimmed += records;
        Outcome::Trimmed { records, more }
    }

    fn redact(&mut self, target: Target<'_>, number: u32, seq: u64, applied: &mut Applied<Effect>) -> Outcome {
        if self.target(target).is_none() {
            return Outcome::NoTopic;
        }
        let topic = self.topics.get_mut(target.topic);
        let Some(partition) = topic.and_then(|topic| topic.partitions.get_mut(number)) else {
            return Outcome::NoRecord;
        };
        match partition.redact(seq) {
            None => Outcome::NoRecord,
            Some(false) => Outcome::Redacted(false),
            Some(true) => {
                let (stream, first) = (partition.stream(), Seq(seq));
                applied.storage.push(StorageEffect::Freed {
                    stream,
                    first,
                    count: 1,
                });
                applied.effects.push(Effect::Redacted { stream, seq: first });
                self.totals.redacted += 1;
                Outcome::Redacted(true)
            }
        }
    }

    fn target(&self, target: Target<'_>) -> Option<&Topic> {
        let topic = self.topics.get(target.topic)?;
        (target.created == Version::NONE || target.created == topic.created).then_some(topic)
    }

    fn partition_of(&self, cursor: &CursorOf<'_>) -> Option<&Partition> {
        self.target(cursor.target)?.partitions.get(cursor.partition)
    }

    fn next_version(&mut self) -> Version {
        self.topics.last_version = self.topics.last_version.next(self.now);
        self.topics.last_version
    }
}

/// Says that `gone`, which is no more, is not wanted, and returns how many records that is.
fn remove(partition: &mut Partition, gone: Range<u64>, applied: &mut Applied<Effect>) -> u64 {
    let count = gone.end - gone.start;
    if count > 0 {
        partition.release(gone, applied);
        partition.forget_gone();
    }
    count
}

fn appended(stream: StreamId, answer: Answer, duplicate: bool) -> Appended {
    Appended {
        stream,
        first: answer.first,
        count: answer.count,
        timestamp_ns: answer.timestamp_ns,
        duplicate,
    }
}

impl StateMachine for Machine {
    type Outcome = Outcome;
    type Effect = Effect;

    fn apply(
        &mut self,
        time: Millis,
        command: &[u8],
        offset: u32,
        applied: &mut Applied<Effect>,
    ) -> Result<Outcome, DecodeError> {
        let command = Command::read(command)?;
        let batch = match &command {
            Command::Append(append) => self.read_records(append, offset)?,
            _ => Batch::default(),
        };
        self.now = self.now.max(time);
        self.cursors.forget_some();
        self.claims.forget_some(self.now);
        Ok(match command {
            Command::Create { topic, settings } => self.create(topic, settings),
            Command::Update { target, retention } => self.update(target, retention),
            Command::Adopt { topic, terms } => self.adopt(topic, &terms, applied),
            Command::Delete(target) => self.delete(target, applied),
            Command::Append(append) => self.append(&append, batch, applied),
            Command::Commit { cursors_max, commits } => self.commit(commits, cursors_max),
            Command::Forget(cursors) => self.forget(&cursors),
            Command::Trim(topics) => self.trim(&topics, applied),
            Command::Redact { target, partition, seq } => self.redact(target, partition, seq, applied),
        })
    }

    fn snapshot(&self) -> Vec<u8> {
        snapshot::write(self).into()
    }

    fn restore(bytes: &[u8]) -> Result<Self, DecodeError> {
        snapshot::read(bytes)
    }
}
