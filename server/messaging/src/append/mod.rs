//! Appending: records of any topics, which become one proposal for each group that they go to.
//!
//! Records for the same partition keep the order in which they were given, and stand side by side in one command if they
//! follow each other. What the home of a topic has to say is known here, as far as this node has applied; where that is old, the group
//! refuses the command as a whole, and it is tried again with what is current.

mod plan;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use boltq_core::limits::{
    BATCH_MESSAGES_MAX, HEADER_BYTES_MAX, IDEMPOTENCY_KEY_BYTES_MAX, MESSAGE_BYTES_MAX, ORDERING_KEY_BYTES_MAX,
};
use boltq_core::{Seq, check_name};
use boltq_raft::Proposal;
use boltq_stream::command::{self, ClaimRequest};
use boltq_stream::{ClaimKey, Outcome, Settings as TopicSettings, Terms, group_of, partition_of};
use futures_util::future::join_all;

use self::plan::{Command, Plan};
use crate::error::StreamError;
use crate::proposing::{Kind, Ready, Streams};

/// How often an append is tried with what is current. More than once only helps while topics are deleted and created again.
const ATTEMPTS_MAX: usize = 4;

/// A record that is to be appended.
#[derive(Debug, Clone)]
pub struct NewRecord<'a> {
    /// The topic, which is created if there is none.
    pub topic: &'a str,
    /// Where in it.
    pub place: Place<'a>,
    /// Whether the payload is one JSON value. Whoever says so has checked it.
    pub json: bool,
    /// What it says.
    pub payload: &'a [u8],
    /// What goes with it.
    pub headers: Vec<(&'a str, &'a str)>,
    /// Who may have appended it before under this key, and the key.
    pub idempotency: Option<(&'a str, &'a str)>,
}

/// The partition of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// That of a key, which is stored with it. Records with the same one are in one partition.
    Key(&'a str),
    /// This one.
    Partition(u32),
}

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The partition.
    pub partition: u32,
    /// Its number there.
    pub seq: Seq,
    /// Unix nanoseconds.
    pub timestamp_ns: u64,
    /// It was stored by an earlier append with the same idempotency key, and not again.
    pub duplicate: bool,
}

type Results = Vec<Option<Result<Appended, StreamError>>>;

/// Records that are on their way: what goes to each group has its place among what goes there.
pub struct Prepared {
    streams: Streams,
    results: Results,
    parts: Vec<(Ready, Vec<Command>)>,
}

impl Streams {
    /// Appends records, and returns when they are stored: one result for each, in their order.
    ///
    /// # Errors
    /// There are none, or too many for one call. What is wrong with one record is its own result.
    pub async fn append(&self, records: &[NewRecord<'_>]) -> Result<Vec<Result<Appended, StreamError>>, StreamError> {
        let prepared = self.prepare(records).await?;
        Ok(prepared.finish(|| records.to_vec()).await)
    }

    /// The first half of [`Streams::append`]. What is finished in the order in which it was prepared is stored in that order.
    ///
    /// # Errors
    /// There are no records, or too many for one call.
    pub async fn prepare(&self, records: &[NewRecord<'_>]) -> Result<Prepared, StreamError> {
        if records.is_empty() || records.len() > BATCH_MESSAGES_MAX {
            return Err(StreamError::InvalidArgument(format!(
                "{} records in a batch; 1 to {BATCH_MESSAGES_MAX} are allowed",
                records.len()
            )));
        }
        let mut results: Results = records.iter().map(|record| check(record).err().map(Err)).collect();
        let parts = self.plan(records, &mut results, false).await;
        Ok(Prepared {
            streams: self.clone(),
            results,
            parts,
        })
    }

    /// Makes sure that what this node knows of the topics of unresolved records is current.
    async fn look_again(&self, records: &[NewRecord<'_>], results: &Results) -> Result<(), StreamError> {
        let unresolved = records.iter().zip(results).filter(|(_, result)| result.is_none());
        let homes: BTreeSet<u32> = unresolved
            .map(|(record, _)| group_of(record.topic, 0, self.groups()))
            .collect();
        let looks = homes.into_iter().map(|home| self.catch_up(self.numbered(home)));
        join_all(looks).await.into_iter().collect()
    }

    /// Commands for the records without a result. `current`: what this node knows of their topics was made sure of.
    async fn plan<'a>(
        &self,
        records: &[NewRecord<'a>],
        results: &mut Results,
        current: bool,
    ) -> Vec<(Ready, Vec<Command>)> {
        let known = self.terms_of(records, results).await;
        let mut plans: BTreeMap<u32, Plan<'a>> = BTreeMap::new();
        let now_ns = (self.inner.clock)();
        for (index, (record, result)) in records.iter().zip(results.iter_mut()).enumerate() {
            if result.is_some() {
                continue;
            }
            let terms = known.get(record.topic).copied();
            let terms = terms.unwrap_or_else(|| Terms::at_home(self.default_settings()));
            let (partition, partitions) = (record.partition(&terms), terms.settings.partitions);
            if partition >= partitions {
                if current || self.home(record.topic).plane.is_leading() {
                    let topic = record.topic.to_owned();
                    *result = Some(Err(StreamError::NoPartition {
                        topic,
                        partition,
                        partitions,
                    }));
                }
                continue;
            }
            let group = group_of(record.topic, partition, self.groups());
            let plan = plans.entry(group).or_insert_with(Plan::new);
            plan.push(index, record, (partition, &terms), self.claim(record), now_ns);
        }
        let mut parts = Vec::with_capacity(plans.len());
        for (group, plan) in plans {
            let (proposal, commands) = plan.finish();
            match self.ready(self.numbered(group), proposal, Kind::Storing).await {
                Ok(ready) => parts.push((ready, commands)),
                Err(error) => commands.iter().for_each(|command| command.fail(&error, results)),
            }
        }
        parts
    }

    /// What the topics are, of those that there are. One that there is not is created, unless its record goes to where that is
    /// decided, whatever the topic turns out to be.
    async fn terms_of<'a>(&self, records: &[NewRecord<'a>], results: &mut Results) -> HashMap<&'a str, Terms> {
        let (mut known, mut missing) = (HashMap::new(), BTreeSet::new());
        let (mut last, default) = ("", self.default_settings());
        for (record, _) in records
            .iter()
            .zip(results.iter())
            .filter(|(_, result)| result.is_none())
        {
            let topic = record.topic;
            if topic != last && !known.contains_key(topic) {
                let terms = self.terms(topic);
                known.extend(terms.map(|terms| (topic, terms)));
            }
            last = topic;
            if !known.contains_key(topic) && record.needs_terms(default.partitions, self.groups()) {
                missing.insert(topic);
            }
        }
        let created = missing.into_iter().map(|topic| async move {
            let mut proposal = Proposal::new();
            command::create(proposal.begin(), topic, &default);
            (topic, self.propose(self.home(topic), proposal, Kind::Storing).await)
        });
        for (topic, outcomes) in join_all(created).await {
            let error = match outcomes.map(|outcomes| outcomes.into_iter().next()) {
                Ok(Some(Outcome::Topic { terms, .. })) => {
                    known.insert(topic, terms);
                    continue;
                }
                Ok(_) => StreamError::Stopped,
                Err(error) => error,
            };
            for (result, _) in results
                .iter_mut()
                .zip(records)
                .filter(|(_, record)| record.topic == topic)
            {
                result.get_or_insert_with(|| Err(error.clone()));
            }
        }
        known
    }

    fn claim(&self, record: &NewRecord<'_>) -> Option<ClaimRequest> {
        let (sender, key) = record.idempotency?;
        Some(ClaimRequest {
            key: ClaimKey::of(sender, key),
            ttl_ms: millis(self.inner.settings.claims_ttl),
            claims_max: self.inner.settings.claims_max,
        })
    }

    pub(crate) fn default_settings(&self) -> TopicSettings {
        TopicSettings {
            partitions: self.inner.settings.default_partitions,
            retention: self.inner.settings.retention,
        }
    }
}

impl Prepared {
    /// The second half of [`Streams::append`]. `records` gives those that were prepared, if some have to be tried again: their topic was
    /// deleted or created again, or this node had not heard of it.
    pub async fn finish<'a>(
        mut self,
        records: impl FnOnce() -> Vec<NewRecord<'a>>,
    ) -> Vec<Result<Appended, StreamError>> {
        self.send().await;
        if self.results.iter().all(Option::is_some) {
            return self.results.into_iter().flatten().collect();
        }
        let records = records();
        for _ in 1..ATTEMPTS_MAX {
            if let Err(error) = self.streams.look_again(&records, &self.results).await {
                let unresolved = self.results.iter_mut().filter(|result| result.is_none());
                unresolved.for_each(|result| *result = Some(Err(error.clone())));
            }
            self.parts = self.streams.plan(&records, &mut self.results, true).await;
            self.send().await;
            if self.results.iter().all(Option::is_some) {
                break;
            }
        }
        let unresolved = |(result, record): (Option<_>, &NewRecord<'_>)| {
            let topic = record.topic.to_owned();
            result.unwrap_or(Err(StreamError::TopicChanged { topic }))
        };
        self.results.into_iter().zip(&records).map(unresolved).collect()
    }

    /// Leaves those without a result that are worth another attempt.
    async fn send(&mut self) {
        let parts = std::mem::take(&mut self.parts).into_iter();
        let sent = parts.map(|(ready, commands)| async { (self.streams.send(ready).await, commands) });
        for (outcomes, commands) in join_all(sent).await {
            match outcomes {
                Ok(outcomes) => {
                    for (command, outcome) in commands.iter().zip(outcomes) {
                        command.settle(&outcome, &mut self.results);
                    }
                }
                Err(error) => commands
                    .iter()
                    .for_each(|command| command.fail(&error, &mut self.results)),
            }
        }
    }
}

impl NewRecord<'_> {
    fn partition(&self, terms: &Terms) -> u32 {
        match self.place {
            Place::Key(key) => partition_of(key.as_bytes(), terms.settings.partitions),
            Place::Partition(partition) => partition,
        }
    }

    /// Whether it has to be known what its topic is, if this node does not know it. Not for a record that can only go to one
    /// partition, in the group that knows, and not for one that has no place in a topic that is created for it.
    fn needs_terms(&self, default_partitions: u32, groups: u32) -> bool {
        match self.place {
            Place::Key("") => false,
            Place::Key(_) => true,
            Place::Partition(partition) => {
                let home = group_of(self.topic, 0, groups);
                partition < default_partitions && group_of(self.topic, partition, groups) != home
            }
        }
    }
}

fn check(record: &NewRecord<'_>) -> Result<(), StreamError> {
    check_name(record.topic)?;
    let headers = record.headers.iter().map(|(key, value)| key.len() + value.len()).sum();
    if headers > HEADER_BYTES_MAX {
        return Err(StreamError::HeadersTooLarge { bytes: headers });
    }
    let bytes = record.payload.len() + headers;
    if bytes > MESSAGE_BYTES_MAX {
        return Err(StreamError::RecordTooLarge { bytes });
    }
    if let Place::Key(key) = record.place
        && key.len() > ORDERING_KEY_BYTES_MAX
    {
        return Err(StreamError::KeyTooLong { bytes: key.len() });
    }
    match record.idempotency {
        Some((_, key)) if key.len() > IDEMPOTENCY_KEY_BYTES_MAX => {
            Err(StreamError::IdempotencyKeyTooLong { bytes: key.len() })
        }
        _ => Ok(()),
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
