//! Publishing, and how much the answer waits for.
//!
//! An answer at QUORUM comes with the outcome. One at LEADER or NONE comes before, so what would have been refused after it
//! is only counted.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use boltq_core::{LogIndex, MessageId};
use boltq_log::Space;
use boltq_queue::{Outcome, QueueId};
use boltq_raft::{Early, InSyncError, Proposal, ProposeError};
use tokio::time::Instant;

use super::batch::PublishBatch;
use super::error::ServiceError;
use super::key_room::KeyRoom;
use super::managing::limits;
use super::observing::Publishing;
use super::queue::Queues;
use crate::ack_level::AckLevel;
use crate::plane::Answer;

/// A batch that has room, see [`Queues::admit`].
pub struct Admitted {
    messages: usize,
    level: AckLevel,
    publishing: Publishing,
    proposal: boltq_raft::Admitted,
}

/// What became of the messages of a batch.
#[derive(Debug, Default)]
pub struct Published {
    /// Of those that were stored, in their order.
    pub ids: Vec<MessageId>,
    /// Positions in the batch of those that were not, rising, and why. The others were stored.
    pub refused: Vec<(usize, ServiceError)>,
}

impl Published {
    /// One answer for each message, in order.
    pub fn into_answers(self) -> impl Iterator<Item = Result<MessageId, ServiceError>> {
        let count = self.ids.len() + self.refused.len();
        let mut ids = self.ids.into_iter();
        let mut refused = self.refused.into_iter().peekable();
        (0..count).filter_map(move |position| match refused.next_if(|(at, _)| *at == position) {
            Some((_, error)) => Some(Err(error)),
            None => ids.next().map(Ok),
        })
    }
}

/// How many of so many messages were not stored.
fn lost_of(answers: &[Answer], messages: u64) -> u64 {
    let lost = answers.iter().map(|answer| match answer {
        Answer::Queue(Outcome::Published(_) | Outcome::PublishedBefore(_)) => 0,
        Answer::Queue(Outcome::Full { refused, .. }) => *refused,
        _ => messages,
    });
    lost.sum::<u64>().min(messages)
}

/// What became of publishes that were not simply stored, since the start of this node.
#[derive(Debug, Default)]
pub struct PublishCounts {
    leader: EarlyCounts,
    none: EarlyCounts,
    /// Messages that were refused because too few voters answered.
    pub too_few_replicas: AtomicU64,
    /// Messages whose publisher was told that a majority has them, and too few others.
    pub not_in_sync: AtomicU64,
    /// Messages that were published with the same key before, and were not stored again.
    pub repeated: AtomicU64,
}

/// Messages whose publish was answered before its outcome was known.
#[derive(Debug, Default)]
pub struct EarlyCounts {
    /// All of them.
    pub answered: AtomicU64,
    /// Those of them that were refused later, or of which nobody knows.
    pub lost: AtomicU64,
}

impl PublishCounts {
    /// None: at this level the outcome is the answer.
    #[must_use]
    pub fn early(&self, level: AckLevel) -> Option<&EarlyCounts> {
        match level {
            AckLevel::Quorum => None,
            AckLevel::Leader => Some(&self.leader),
            AckLevel::None => Some(&self.none),
        }
    }
}

impl Queues {
    /// An empty batch of messages that are received now.
    #[must_use]
    pub fn batch(&self) -> PublishBatch {
        let received = (self.inner.plane.sources().clock)();
        PublishBatch::new(
            received,
            self.inner.settings.dedup_ttl_ms,
            self.inner.plane.default_ttls(),
            KeyRoom::new(self.clone()),
            self.publishing(received),
        )
    }

    /// What became of publishes.
    #[must_use]
    pub fn publish_counts(&self) -> &PublishCounts {
        &self.inner.publishes
    }

    /// Whether publishers may ask for this.
    ///
    /// # Errors
    /// [`ServiceError::AckLevelTooLow`]
    pub fn check_level(&self, level: AckLevel) -> Result<(), ServiceError> {
        let min = self.inner.min_ack_level;
        if level >= min {
            Ok(())
        } else {
            Err(ServiceError::AckLevelTooLow { level, min })
        }
    }

    /// Waits until there is room for a batch among those whose outcome is not known yet. Whoever takes several batches at
    /// once takes the next one after this, so that what waits in memory is bounded.
    ///
    /// # Errors
    /// Another node leads, the storage is full, too few voters answer, or the node stops.
    pub async fn admit(&self, batch: PublishBatch, level: AckLevel) -> Result<Admitted, ServiceError> {
        let messages = batch.len();
        let (proposal, publishing) = batch.into_parts();
        self.admit_proposal(messages, proposal, publishing, level).await
    }

    pub(super) async fn admit_proposal(
        &self,
        messages: usize,
        proposal: Proposal,
        publishing: Publishing,
        level: AckLevel,
    ) -> Result<Admitted, ServiceError> {
        match self.make_room(messages, proposal, level).await {
            Ok(proposal) => Ok(Admitted {
                messages,
                level,
                publishing,
                proposal,
            }),
            Err(error) => {
                publishing.answered(self, Err(&error));
                Err(error)
            }
        }
    }

    async fn make_room(
        &self,
        messages: usize,
        proposal: Proposal,
        level: AckLevel,
    ) -> Result<boltq_raft::Admitted, ServiceError> {
        self.check_takes()?;
        // Without a key, the answer could not be given.
        self.salt()?;
        let admitting = self.inner.group.admit(proposal);
        let proposal = admitting.await.map_err(|error| self.refused(&error))?;
        // While it waited, the disk may have become full, or others may have gone.
        self.check_takes()?;
        if level == AckLevel::Quorum {
            let enough = self.inner.group.enough_answer();
            enough.map_err(|error| self.not_in_sync(error, messages))?;
        }
        Ok(proposal)
    }

    /// Whether this node and enough others have room.
    pub(super) fn has_room(&self) -> bool {
        self.inner.log.space() == Space::Ample && !self.inner.group.too_few_have_room()
    }

    /// Whether this node takes messages. Who leads is asked first: that this one has no room is nothing to a publisher whose
    /// messages another one would take.
    pub(super) fn check_takes(&self) -> Result<(), ServiceError> {
        if !self.is_leading() {
            return Err(self.not_leader());
        }
        if self.has_room() {
            Ok(())
        } else {
            Err(ServiceError::StorageFull)
        }
    }

    /// Publishes a batch that has room. Returns when as much is known as its level says: at QUORUM what became of each message,
    /// otherwise nothing.
    ///
    /// # Errors
    /// Nothing was stored, or with [`ServiceError::Stopped`] and [`ServiceError::NoMajority`] the outcome is unknown. With
    /// [`ServiceError::NotInSync`] the messages were stored.
    pub async fn publish_admitted(&self, admitted: Admitted) -> Result<Published, ServiceError> {
        let Admitted {
            messages,
            level,
            publishing,
            proposal,
        } = admitted;
        let published = match level {
            AckLevel::Quorum => self.publish_stored(messages, proposal).await,
            AckLevel::Leader => self.publish_early(messages, proposal, (level, Early::Logged)).await,
            // Nothing else would tell that it goes nowhere.
            AckLevel::None if !self.hears_a_majority() => Err(self.not_leader()),
            AckLevel::None => self.publish_early(messages, proposal, (level, Early::Accepted)).await,
        };
        match &published {
            Err(error) => publishing.answered(self, Err(error)),
            // Of some that were stored, nothing is said of the others.
            Ok(Published { ids, refused }) => match refused.first() {
                Some((_, error)) if ids.is_empty() => publishing.answered(self, Err(error)),
                _ if level == AckLevel::Quorum => publishing.stored(self, single(ids)),
                _ => publishing.answered(self, Ok(())),
            },
        }
        published
    }

    /// [`Queues::admit`], then [`Queues::publish_admitted`], at QUORUM; for who takes a message that was not stored for a
    /// failure of all.
    ///
    /// # Errors
    /// As for both, and [`ServiceError::QueueFull`].
    pub async fn publish(&self, batch: PublishBatch) -> Result<Vec<MessageId>, ServiceError> {
        let admitted = self.admit(batch, AckLevel::Quorum).await?;
        let published = self.publish_admitted(admitted).await?;
        match published.refused.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(published.ids),
        }
    }

    /// Whether this node leads, and not only in its own opinion.
    fn hears_a_majority(&self) -> bool {
        self.is_leading() && self.inner.group.status().leader.is_some()
    }

    async fn publish_stored(&self, messages: usize, proposal: boltq_raft::Admitted) -> Result<Published, ServiceError> {
        let salt = self.salt()?;
        let mut ids = Vec::with_capacity(messages);
        let mut refused = Vec::new();
        for outcome in self.stored(messages, proposal).await? {
            match outcome {
                Outcome::Published(runs) => ids.extend(runs.places().map(|place| salt.id(place.stream, place.seq))),
                Outcome::PublishedBefore(place) => {
                    self.inner.publishes.repeated.fetch_add(1, Ordering::Relaxed);
                    ids.push(salt.id(place.stream, place.seq));
                }
                Outcome::Full {
                    queue,
                    published,
                    refused: missing,
                } => {
                    ids.extend(published.places().map(|place| salt.id(place.stream, place.seq)));
                    let error = self.full(queue);
                    let next = ids.len() + refused.len();
                    let missing = usize::try_from(missing).unwrap_or(usize::MAX);
                    refused.extend((0..missing).map(|n| (next + n, error.clone())));
                }
                _ => return Err(ServiceError::Stopped),
            }
        }
        Ok(Published { ids, refused })
    }

    fn full(&self, queue: QueueId) -> ServiceError {
        self.inner.plane.with(|plane| ServiceError::QueueFull {
            queue: plane.queue_name(queue).unwrap_or_default().to_owned(),
            limits: limits(plane.machine().options(queue)),
        })
    }

    /// As [`Queues::publish_admitted`], for what was routed.
    pub(super) async fn route_admitted(
        &self,
        admitted: Admitted,
        id: Option<MessageId>,
    ) -> Result<Vec<Outcome>, ServiceError> {
        let stored = self.stored(admitted.messages, admitted.proposal).await;
        match &stored {
            Ok(_) => admitted.publishing.stored(self, id),
            Err(error) => admitted.publishing.answered(self, Err(error)),
        }
        stored
    }

    /// Proposes messages, and waits until as many nodes have them as is asked for.
    async fn stored(&self, messages: usize, proposal: boltq_raft::Admitted) -> Result<Vec<Outcome>, ServiceError> {
        let group = &self.inner.group;
        let wait_from = group.may_wait_for_sync().then(Instant::now);
        let outcome = pin!(async {
            let placed = group.propose_placed(proposal).await;
            placed.map_err(|error| self.refused(&error))
        });
        let (outcomes, entry) = self.confirmed(outcome).await?;
        if let Some(from) = wait_from {
            let in_sync = self.in_sync(entry, from).await;
            in_sync.map_err(|error| self.not_in_sync(error, messages))?;
        }
        Ok(outcomes.into_iter().filter_map(Answer::queue).collect())
    }

    /// Waits for more than a majority for what is left of the time that an outcome may take.
    async fn in_sync(&self, entry: LogIndex, from: Instant) -> Result<(), InSyncError> {
        let in_sync = self.inner.group.in_sync(entry);
        let Some(within) = self.inner.confirm_max else {
            return in_sync.await;
        };
        let left = within.saturating_sub(from.elapsed());
        let wanted = self.inner.group.min_in_sync();
        let waited = tokio::time::timeout(left, in_sync).await;
        waited.unwrap_or(Err(InSyncError::Unknown { wanted }))
    }

    async fn publish_early(
        &self,
        messages: usize,
        proposal: boltq_raft::Admitted,
        (level, early): (AckLevel, Early),
    ) -> Result<Published, ServiceError> {
        let messages = messages as u64;
        let counts = self.inner.publishes.clone();
        let aftermath = move |outcome: Result<Vec<Answer>, ProposeError>| {
            let lost = outcome.map_or(messages, |answers| lost_of(&answers, messages));
            if let Some(counts) = counts.early(level).filter(|_| lost > 0) {
                counts.lost.fetch_add(lost, Ordering::Relaxed);
            }
        };
        let answer = async {
            let group = &self.inner.group;
            let answer = group.propose_early(proposal, early, Box::new(aftermath));
            answer.await.map_err(|error| self.refused(&error))
        };
        self.confirmed(answer).await?;
        if let Some(counts) = self.inner.publishes.early(level) {
            counts.answered.fetch_add(messages, Ordering::Relaxed);
        }
        Ok(Published::default())
    }

    /// Counts the messages, too.
    fn not_in_sync(&self, error: InSyncError, messages: usize) -> ServiceError {
        let counts = &self.inner.publishes;
        let (count, error) = match error {
            InSyncError::TooFewAnswer { answering, wanted } => (
                &counts.too_few_replicas,
                ServiceError::NotEnoughReplicas { answering, wanted },
            ),
            InSyncError::Unknown { .. } => (&counts.not_in_sync, ServiceError::NotInSync),
        };
        count.fetch_add(messages as u64, Ordering::Relaxed);
        error
    }
}

/// The id of a publish that has only one.
pub(super) fn single(ids: &[MessageId]) -> Option<MessageId> {
    match ids {
        [id] => Some(*id),
        _ => None,
    }
}
