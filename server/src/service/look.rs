//! What there is: statistics, lists, looking without taking; and purging.

use std::time::Duration;

use boltq_core::{MessageId, Millis, Record, check_name};
use boltq_queue::{DEAD_LETTER_SUFFIX, Outcome, Place, QueueId, QueueOptions, QueueStats, Totals, command};
use boltq_raft::{GroupFigures, GroupStatus, Proposal, ReadError};
use bytes::Bytes;

use super::error::ServiceError;
use super::queue::Queues;
use super::survey::Surveyed;

/// For a node to make sure that what it has is current. An election takes about a second.
const CATCH_UP_MAX: Duration = Duration::from_secs(5);

/// A message that was looked at.
#[derive(Debug, Clone)]
pub struct Peeked {
    /// Its id.
    pub id: MessageId,
    /// Failed attempts so far.
    pub attempts: u32,
    /// The message.
    pub record: Record,
}

/// A message that comes next, before it is read.
#[derive(Debug, Clone, Copy)]
struct Next {
    place: Place,
    attempts: u32,
    due: Option<Millis>,
    expires: Option<Millis>,
}

/// A queue as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its name.
    pub name: String,
    /// Can be delivered, or as soon as the backoff is over.
    pub ready: u64,
    /// Held by consumers.
    pub leased: u64,
    /// Not yet due.
    pub delayed: u64,
    /// In the dead-letter queue of this queue, whether ready or leased.
    pub dead_letters: u64,
    /// Consumers that wait or are subscribed.
    pub consumers: u32,
    /// The settings that it has of its own.
    pub options: QueueOptions,
}

/// Everything at once.
#[derive(Debug, Clone)]
pub struct Stats {
    /// Queues by name, those of dead letters apart.
    pub queues: Vec<(String, QueueStats)>,
    /// Dead-letter queues by name.
    pub dead_letters: Vec<(String, QueueStats)>,
    /// Topics that somebody listens to on this node, with how many do.
    pub topics: Vec<(String, u64)>,
    /// Leased, over all queues.
    pub pending: u64,
    /// Not yet due, over all queues.
    pub delayed: u64,
    /// Since the group was created.
    pub totals: Totals,
    /// Messages delivered since the start of this node.
    pub consumed: u64,
    /// Time since the start.
    pub uptime: Duration,
    /// What the log needs.
    pub storage: StorageStats,
    /// The group.
    pub group: GroupStatus,
    /// What the group has counted since the start.
    pub figures: GroupFigures,
}

impl Stats {
    /// Failed attempts since the group was created, whether a retry or a dead letter came of them.
    #[must_use]
    pub fn failed_attempts(&self) -> u64 {
        self.totals.nacked + self.totals.dead_lettered
    }
}

/// What the log needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageStats {
    /// Whether it is on disk.
    pub disk: bool,
    /// Bytes of all files, or of memory.
    pub bytes: u64,
    /// Whether publishes are taken.
    pub writable: bool,
}

impl Queues {
    /// Whether this node leads, so that requests succeed.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.inner.plane.is_leading()
    }

    /// Attempts after the first one, before a message of a queue is a dead letter.
    #[must_use]
    pub fn max_retry(&self, queue: &str) -> u32 {
        self.inner.plane.with(|plane| {
            let own = plane.queue(queue).and_then(|id| plane.machine().options(id));
            self.inner.settings.of(own).max_retry
        })
    }

    /// Time since the start.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.inner.started.elapsed()
    }

    /// Statistics of everything.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats_of(&self.survey())
    }

    /// As [`Queues::stats`], for who has looked at the queues already.
    #[must_use]
    pub fn stats_of(&self, surveyed: &[Surveyed]) -> Stats {
        let all = surveyed.iter().map(|queue| (queue.name.to_string(), queue.stats));
        let all: Vec<_> = all.collect();
        let totals = self.inner.plane.with(|plane| plane.totals());
        let pending = all.iter().map(|(_, stats)| stats.leased).sum();
        let delayed = all.iter().map(|(_, stats)| stats.delayed).sum();
        let (dead_letters, queues) = all
            .into_iter()
            .partition(|(name, _)| name.ends_with(DEAD_LETTER_SUFFIX));
        let usage = self.inner.log.usage();
        Stats {
            queues,
            dead_letters,
            topics: self.inner.plane.hub().topics(),
            pending,
            delayed,
            totals,
            consumed: self.inner.plane.consumed.load(std::sync::atomic::Ordering::Relaxed),
            uptime: self.inner.started.elapsed(),
            storage: StorageStats {
                disk: self.inner.disk,
                bytes: usage.wal_bytes + usage.segment_bytes + usage.checkpoint_bytes,
                writable: self.has_room(),
            },
            group: self.inner.group.status(),
            figures: self.inner.group.figures(),
        }
    }

    /// Queues in byte order of their names: those with a prefix, after a name, `max` at most; and whether there are more.
    #[must_use]
    pub fn list(&self, prefix: &str, after: &str, max: usize) -> (Vec<QueueInfo>, bool) {
        self.inner.plane.with(|plane| {
            let mut found = plane
                .queues()
                .filter(|(name, ..)| name.starts_with(prefix) && *name > after);
            let page: Vec<_> = found
                .by_ref()
                .take(max)
                .map(|(name, id, stats)| (name.to_owned(), id, stats))
                .collect();
            let more = found.next().is_some();
            drop(found);
            (
                page.into_iter()
                    .map(|(name, id, stats)| self.info(plane, name, id, stats))
                    .collect(),
                more,
            )
        })
    }

    /// One queue.
    ///
    /// # Errors
    /// There is none of this name, or cannot be.
    pub fn queue(&self, name: &str) -> Result<QueueInfo, ServiceError> {
        self.inner.plane.with(|plane| {
            let id = plane.queue(name).ok_or_else(|| not_found(name))?;
            let stats = plane.stats(id).ok_or_else(|| not_found(name))?;
            Ok(self.info(plane, name.to_owned(), id, stats))
        })
    }

    fn info(&self, plane: &boltq_queue::Plane, name: String, id: QueueId, stats: QueueStats) -> QueueInfo {
        let dead = plane
            .queue(&plane.machine().dead_letter_queue(&name))
            .filter(|dead| *dead != id)
            .and_then(|id| plane.stats(id))
            .unwrap_or_default();
        QueueInfo {
            ready: stats.ready,
            leased: stats.leased,
            delayed: stats.delayed,
            dead_letters: dead.ready + dead.leased,
            consumers: self.inner.plane.consumers(id),
            options: plane.machine().options(id).cloned().unwrap_or_default(),
            name,
        }
    }

    /// Where the dead letters of a queue are. Those of a dead-letter queue that has named no other are nowhere else, and so
    /// this is a name that no queue has.
    pub(super) fn dead_letter_queue(&self, queue: &str) -> String {
        let plane = &self.inner.plane;
        let dead = plane.with(|plane| plane.machine().dead_letter_queue(queue).into_owned());
        if dead == queue {
            format!("{queue}{DEAD_LETTER_SUFFIX}")
        } else {
            dead
        }
    }

    /// Before statistics, lists and peeks: makes sure that this node is to be asked, and with `linearizable` that it has
    /// everything that was answered before, whoever answered it. Otherwise what is read from a node that does not lead may
    /// be a little old, and from one without a majority older than that.
    ///
    /// # Errors
    /// This node was removed from its cluster. With `linearizable`: nobody leads, or it could not be made sure in time.
    pub async fn begin_look(&self, linearizable: bool) -> Result<(), ServiceError> {
        if self.inner.clustering.is_removed() {
            return Err(ServiceError::Removed);
        }
        if !linearizable {
            return Ok(());
        }
        let caught_up = self.inner.group.catch_up(CATCH_UP_MAX).await;
        caught_up.map_err(|error| match error {
            ReadError::NoLeader => self.not_leader(),
            ReadError::Stopped => ServiceError::Stopped,
            ReadError::NoMajority | ReadError::NotReached(_) | ReadError::Behind { .. } => {
                ServiceError::NotCurrent { why: error.to_string() }
            }
        })
    }

    /// The next messages of a queue in the order of their delivery, without leasing them: `max` at most, and no more than
    /// fit into an answer. Expired ones are left out. A node that does not lead does not know which of them are leased, and
    /// shows those too.
    ///
    /// # Errors
    /// There is no such queue, or the messages cannot be read.
    pub async fn peek(&self, queue: &str, max: usize) -> Result<Vec<Peeked>, ServiceError> {
        let mut places = self.next_places(queue, max)?;
        if places.is_empty() {
            return Ok(Vec::new());
        }
        loop {
            let wanted = places.iter().map(|next| (next.place.stream, next.place.seq)).collect();
            let error = match self.read_answer(wanted).await {
                Ok(records) => return self.peeked(&places, &records),
                Err(error) => error,
            };
            // It may have been settled meanwhile. Each time round, somebody has got on.
            let now = self.next_places(queue, max)?;
            if now.first().map(|next| next.place) == places.first().map(|next| next.place) {
                return Err(error);
            }
            places = now;
        }
    }

    /// What comes next.
    fn next_places(&self, queue: &str, max: usize) -> Result<Vec<Next>, ServiceError> {
        self.inner.plane.with(|plane| {
            let id = plane.queue(queue).ok_or_else(|| not_found(queue))?;
            let mut places = Vec::new();
            plane.peek(id, max, self.inner.plane.now(), &mut places);
            let next = places.into_iter().map(|place| Next {
                place,
                attempts: plane.attempts(place),
                due: plane.due(place),
                expires: plane.expires(place),
            });
            Ok(next.collect())
        })
    }

    fn peeked(&self, places: &[Next], records: &[Bytes]) -> Result<Vec<Peeked>, ServiceError> {
        let (now, salt) = (self.inner.plane.now(), self.salt()?);
        let mut peeked = Vec::with_capacity(records.len());
        for (next, bytes) in places.iter().zip(records) {
            let place = next.place;
            let mut record = match Record::read(bytes) {
                Ok(record) => record,
                Err(error) if peeked.is_empty() => {
                    return Err(ServiceError::Storage {
                        what: format!("record at {place:?}: {error}"),
                    });
                }
                // What stands before it can be shown.
                Err(_) => break,
            };
            // It may have been rescheduled, and its queue may say what it does not.
            record.due = next.due.or(record.due);
            record.expires = next.expires.or(record.expires);
            if !record.expired(now) {
                let id = record.id.unwrap_or_else(|| salt.id(place.stream, place.seq));
                peeked.push(Peeked {
                    id,
                    attempts: next.attempts,
                    record,
                });
            }
        }
        Ok(peeked)
    }

    /// Removes the ready messages of a queue and returns their number. Leased and delayed ones stay.
    ///
    /// # Errors
    /// There is no such queue, or nothing was removed.
    pub async fn purge(&self, queue: &str) -> Result<u64, ServiceError> {
        if !self.inner.plane.is_leading() {
            return Err(self.not_leader());
        }
        let runs = self.inner.plane.with(|plane| {
            let id = plane.queue(queue).ok_or_else(|| not_found(queue))?;
            Ok::<_, ServiceError>(plane.begin_purge(id))
        })?;
        if runs.is_empty() {
            return Ok(0);
        }
        let mut proposal = Proposal::new();
        command::purge(proposal.begin(), &runs);
        let outcomes = self
            .carry_out(proposal, move |plane, now| plane.abort_purge(&runs, now))
            .await?;
        Ok(outcomes
            .iter()
            .map(|outcome| {
                if let Outcome::Purged(count) = outcome {
                    *count
                } else {
                    0
                }
            })
            .sum())
    }

    /// Removes the dead letters of a queue, which is named without the suffix.
    ///
    /// # Errors
    /// The name is not acceptable, there are none, or nothing was removed.
    pub async fn purge_dead_letters(&self, queue: &str) -> Result<u64, ServiceError> {
        // With the suffix, no name is empty.
        check_name(queue)?;
        let dead = self.dead_letter_queue(queue);
        self.purge(&dead).await.map_err(|error| match error {
            // The name was checked, and only the suffix can have made it too long.
            ServiceError::QueueNotFound { .. } | ServiceError::InvalidName(_) => {
                ServiceError::DeadLettersNotFound { queue: dead }
            }
            error => error,
        })
    }
}

/// What is said about a queue that is not there: that no queue can have this name, or that none has. Only then is the name
/// checked, since the dead letters of a long name have one that nobody could create by hand.
pub(super) fn not_found(queue: &str) -> ServiceError {
    match check_name(queue) {
        Err(error) => ServiceError::InvalidName(error),
        Ok(()) => ServiceError::QueueNotFound {
            queue: queue.to_owned(),
        },
    }
}
