//! A stream group as one would write it without a thought for cost: every record is a row.

use std::collections::{BTreeMap, VecDeque};

use boltq_core::{Millis, Seq, StreamId};

use super::fixture::Said;
use crate::command::ClaimRequest;
use crate::{AppendRefusal, Appended, Commit, Outcome, Retention, Settings, Terms, Version};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) seq: u64,
    pub(super) ns: u64,
    pub(super) bytes: u64,
    pub(super) content: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(super) struct Partition {
    pub(super) stream: u64,
    /// Neighbours that go together; the last one takes more.
    pub(super) blocks: VecDeque<Vec<Row>>,
    pub(super) next: u64,
    pub(super) last_ns: u64,
    pub(super) cursors: BTreeMap<(String, String), u64>,
}

impl Partition {
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.blocks.iter().flatten()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.rows().map(|row| row.bytes).sum()
    }

    pub(super) fn first(&self) -> u64 {
        self.rows().next().map_or(self.next, |row| row.seq)
    }

    fn append(&mut self, retention: Retention, said: &[Said]) {
        let mut rows = Vec::new();
        for (stamp, content) in said {
            self.last_ns = self.last_ns.max(*stamp);
            rows.push(Row {
                seq: self.next,
                ns: self.last_ns,
                bytes: content.len() as u64 + 15,
                content: Some(content.clone()),
            });
            self.next += 1;
        }
        let ms = |row: &Row| row.ns / 1_000_000;
        let part = |all: u64, most: u64| if all == 0 { most } else { most.min(all / 8) };
        let takes_more = self.blocks.back().is_some_and(|block| {
            let bytes: u64 = block.iter().map(|row| row.bytes).sum();
            let span = ms(rows.last().unwrap()) - ms(&block[0]);
            bytes < part(retention.max_bytes, 65_536) && span <= part(retention.max_age_ms, 86_400_000)
        });
        match self.blocks.back_mut().filter(|_| takes_more) {
            Some(block) => block.extend(rows),
            None => self.blocks.push_back(rows),
        }
    }

    /// Removes blocks, and checks that no record goes early or because of what it is itself.
    fn trim(&mut self, retention: Retention, now: u64, blocks_max: usize, open_too: bool) -> u64 {
        let mut gone = 0;
        for _ in 0..blocks_max {
            let Some(oldest) = self.blocks.front() else { break };
            let is_open = self.blocks.len() == 1;
            let newest_ms = oldest.last().unwrap().ns / 1_000_000;
            let too_old = retention.max_age_ms > 0 && newest_ms + retention.max_age_ms <= now;
            let too_many = retention.max_bytes > 0 && self.bytes() > retention.max_bytes && !is_open;
            if !(too_old || too_many) || is_open && !open_too {
                break;
            }
            gone += self.blocks.pop_front().unwrap().len() as u64;
        }
        gone
    }
}

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) terms: Terms,
    pub(super) partitions: BTreeMap<u32, Partition>,
}

#[derive(Debug)]
struct Claim {
    key: u128,
    stream: u64,
    until: u64,
    answer: Appended,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) now: u64,
    version: u64,
    stream: u64,
    pub(super) topics: BTreeMap<String, Topic>,
    claims: VecDeque<Claim>,
    /// Positions of topics that are no more, which are forgotten little by little.
    forgetting: usize,
}

impl Model {
    /// Before each command.
    pub(super) fn begin(&mut self, now: u64) {
        self.now = self.now.max(now);
        self.forgetting = self.forgetting.saturating_sub(64);
        for _ in 0..4 {
            if self.claims.front().is_some_and(|claim| claim.until <= self.now) {
                self.claims.pop_front();
            }
        }
    }

    pub(super) fn claim_count(&self) -> usize {
        self.claims.len()
    }

    pub(super) fn cursor_count(&self) -> usize {
        let partitions = self.topics.values().flat_map(|topic| topic.partitions.values());
        self.forgetting + partitions.map(|partition| partition.cursors.len()).sum::<usize>()
    }

    fn next_version(&mut self) -> Version {
        self.version = (self.version + 1).max(self.now << 20);
        Version(self.version)
    }

    fn new_partition(&mut self) -> Partition {
        self.stream += 1;
        Partition {
            stream: self.stream,
            next: 1,
            ..Partition::default()
        }
    }

    pub(super) fn create(&mut self, name: &str, settings: Settings) -> Outcome {
        let new = !self.topics.contains_key(name);
        if new {
            let created = self.next_version();
            let terms = Terms {
                created,
                changed: created,
                settings,
            };
            let partitions = BTreeMap::from([(0, self.new_partition())]);
            self.topics.insert(name.to_owned(), Topic { terms, partitions });
        }
        Outcome::Topic {
            new,
            terms: self.topics[name].terms,
        }
    }

    fn meant(&mut self, name: &str, created: Version) -> Option<&mut Topic> {
        let topic = self.topics.get_mut(name)?;
        (created == Version::NONE || created == topic.terms.created).then_some(topic)
    }

    pub(super) fn update(&mut self, name: &str, created: Version, retention: Retention) -> Outcome {
        let Some(topic) = self.meant(name, created) else {
            return Outcome::NoTopic;
        };
        if topic.terms.settings.retention != retention {
            let changed = self.next_version();
            let terms = &mut self.topics.get_mut(name).unwrap().terms;
            terms.settings.retention = retention;
            terms.changed = changed;
        }
        Outcome::Topic {
            new: false,
            terms: self.topics[name].terms,
        }
    }

    pub(super) fn adopt(&mut self, name: &str, terms: &Terms) -> Outcome {
        if let Some(topic) = self.topics.get_mut(name) {
            if topic.terms.created < terms.created {
                self.end(name);
            } else if topic.terms.created == terms.created && topic.terms.changed < terms.changed {
                topic.terms.changed = terms.changed;
                topic.terms.settings.retention = terms.settings.retention;
            }
        }
        Outcome::Adopted
    }

    fn end(&mut self, name: &str) -> u64 {
        let topic = self.topics.remove(name).unwrap();
        let partitions = topic.partitions.values();
        self.forgetting += partitions
            .clone()
            .map(|partition| partition.cursors.len())
            .sum::<usize>();
        partitions.map(|partition| partition.rows().count() as u64).sum()
    }

    pub(super) fn delete(&mut self, name: &str, created: Version) -> Outcome {
        match self.topics.get(name) {
            Some(topic) if created == Version::NONE || topic.terms.created <= created => {
                Outcome::Deleted(self.end(name))
            }
            _ => Outcome::NoTopic,
        }
    }

    pub(super) fn append(
        &mut self,
        (name, number): (&str, u32),
        terms: &Terms,
        claim: Option<ClaimRequest>,
        said: &[Said],
    ) -> Outcome {
        let created = terms.created;
        let there = self.topics.get(name).map(|topic| topic.terms);
        if there.is_some_and(|there| created != Version::NONE && created < there.created) {
            return Outcome::Refused(AppendRefusal::Stale);
        }
        let same = there.filter(|there| created == Version::NONE || created == there.created);
        let partitions = same.unwrap_or(*terms).settings.partitions;
        if number >= partitions {
            return Outcome::Refused(AppendRefusal::NoPartition { partitions });
        }
        if let Some(claim) = claim {
            let stream = same.and_then(|_| Some(self.topics[name].partitions.get(&number)?.stream));
            let before = self
                .claims
                .iter()
                .find(|known| known.key == claim.key.0 && Some(known.stream) == stream && known.until > self.now);
            if let Some(before) = before {
                return Outcome::Appended(Appended {
                    duplicate: true,
                    ..before.answer
                });
            }
            let lives = self.claims.front().is_some_and(|first| first.until > self.now);
            if lives && self.claims.len() >= claim.claims_max as usize {
                return Outcome::Refused(AppendRefusal::ClaimsFull);
            }
        }
        if created != Version::NONE {
            self.adopt(name, terms);
        }
        if !self.topics.contains_key(name) {
            let mut terms = *terms;
            if created == Version::NONE {
                terms.created = self.next_version();
                terms.changed = terms.created;
            }
            let partitions = BTreeMap::new();
            self.topics.insert(name.to_owned(), Topic { terms, partitions });
        }
        if !self.topics[name].partitions.contains_key(&number) {
            let new = self.new_partition();
            self.topics.get_mut(name).unwrap().partitions.insert(number, new);
        }
        self.store((name, number), claim, said)
    }

    fn store(&mut self, (name, number): (&str, u32), claim: Option<ClaimRequest>, said: &[Said]) -> Outcome {
        let topic = self.topics.get_mut(name).unwrap();
        let retention = topic.terms.settings.retention;
        let partition = topic.partitions.get_mut(&number).unwrap();
        let answer = Appended {
            stream: StreamId(partition.stream),
            first: Seq(partition.next),
            count: u32::try_from(said.len()).unwrap(),
            timestamp_ns: said.iter().map(|(stamp, _)| *stamp).fold(partition.last_ns, u64::max),
            duplicate: false,
        };
        partition.append(retention, said);
        partition.trim(retention, self.now, 2, false);
        if let Some(claim) = claim {
            self.claims.push_back(Claim {
                key: claim.key.0,
                stream: answer.stream.0,
                until: (self.now + claim.ttl_ms).div_ceil(1_000) * 1_000,
                answer,
            });
        }
        Outcome::Appended(answer)
    }

    pub(super) fn commit(
        &mut self,
        (name, created, number): (&str, Version, u32),
        names: (&str, &str),
        wanted: u64,
        cursors_max: usize,
    ) -> Commit {
        let count = self.cursor_count();
        let topic = self.meant(name, created);
        let Some(partition) = topic.and_then(|topic| topic.partitions.get_mut(&number)) else {
            return Commit::NoPartition;
        };
        let names = (names.0.to_owned(), names.1.to_owned());
        if !partition.cursors.contains_key(&names) && count >= cursors_max {
            return Commit::Full;
        }
        let position = partition.cursors.entry(names).or_insert(1);
        *position = (*position).max(wanted.clamp(1, partition.next));
        Commit::At(Seq(*position))
    }

    pub(super) fn forget(&mut self, (name, created, number): (&str, Version, u32), names: (&str, &str)) -> bool {
        let topic = self.meant(name, created);
        let partition = topic.and_then(|topic| topic.partitions.get_mut(&number));
        let names = (names.0.to_owned(), names.1.to_owned());
        partition.is_some_and(|partition| partition.cursors.remove(&names).is_some())
    }

    pub(super) fn trim(&mut self, names: &[&str]) -> Outcome {
        let mut records = 0;
        let mut more = false;
        for name in names {
            let Some(topic) = self.topics.get_mut(*name) else {
                continue;
            };
            let retention = topic.terms.settings.retention;
            for partition in topic.partitions.values_mut() {
                records += partition.trim(retention, self.now, 65, true);
                // The model has no bound that matters: nothing here has more blocks.
                let again = partition.trim(retention, self.now, usize::MAX, true);
                more |= again > 0;
                assert_eq!(again, 0, "more blocks than this test is made for");
            }
        }
        Outcome::Trimmed { records, more }
    }

    pub(super) fn redact(&mut self, (name, created, number): (&str, Version, u32), seq: u64) -> Outcome {
        let Some(topic) = self.meant(name, created) else {
            return Outcome::NoTopic;
        };
        let partition = topic.partitions.get_mut(&number);
        let rows = partition
            .into_iter()
            .flat_map(|partition| partition.blocks.iter_mut().flatten());
        match rows.into_iter().find(|row| row.seq == seq) {
            Some(row) => Outcome::Redacted(row.content.take().is_some()),
            None => Outcome::NoRecord,
        }
    }

    pub(super) fn overdue(&self, now: Millis) -> Vec<&str> {
        let over = |topic: &Topic| {
            let Retention { max_age_ms, max_bytes } = topic.terms.settings.retention;
            topic.partitions.values().any(|partition| {
                let too_many = max_bytes > 0 && partition.bytes() > max_bytes && partition.blocks.len() > 1;
                let newest = partition.blocks.front().and_then(|block| block.last());
                let too_old = newest.is_some_and(|row| max_age_ms > 0 && row.ns / 1_000_000 + max_age_ms <= now.0);
                too_many || too_old
            })
        };
        let topics = self.topics.iter().filter(|(_, topic)| over(topic));
        topics.map(|(name, _)| name.as_str()).collect()
    }
}
