//! Work queues: publishing, leasing and looking. Settling is in [`super::settle`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use boltq_core::limits::{BATCH_MESSAGES_MAX, FRAME_BYTES_MAX};
use boltq_core::{IdSalt, MessageId, Millis, Record, Seq, StreamId, check_name};
use boltq_log::{Log, ReadMode, Space};
use boltq_queue::{ConsumerId, Leased, Outcome, Place, Plane, QueueId, Settings, command};
use boltq_raft::{Group, Proposal, ProposeError};
use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::batch::PublishBatch;
use super::error::ServiceError;
use super::token::DeliveryToken;
use crate::clock::{self, Instant};
use crate::plane::{Attachment, QueuePlane};

/// The queue plane as the doors use it; clones are cheap and share it.
#[derive(Clone)]
pub struct Queues {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) group: Group<QueuePlane>,
    pub(super) plane: Arc<QueuePlane>,
    pub(super) log: Log,
    /// Whether the log is on disk.
    pub(super) disk: bool,
    pub(super) settings: Settings,
    pub(super) salt: IdSalt,
    pub(super) started: std::time::Instant,
    stop: CancellationToken,
    consumers: AtomicU64,
}

/// Records in one answer, in bytes: clients refuse messages over 4 MiB unless they are told otherwise.
const ANSWER_BYTES_MAX: usize = FRAME_BYTES_MAX - 64 * 1024;
/// Left in the prepared files of the log when settling is refused too, in bytes.
const RESERVE_BYTES: usize = 64 * 1024;
/// What a delivery has beyond its record at most: token, id, times, and the framing of its members.
const ANSWER_ENVELOPE_BYTES: usize = 128;

/// All consumers without a connection together.
const DETACHED: ConsumerId = ConsumerId(0);

/// A message and the right to settle it.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// What settles it.
    pub token: DeliveryToken,
    /// Its id.
    pub id: MessageId,
    /// Failed attempts so far.
    pub attempts: u32,
    /// The message.
    pub record: Record,
}

/// A batch that has room, see [`Queues::admit`].
pub struct Admitted {
    messages: usize,
    proposal: boltq_raft::Admitted,
}

/// Who takes messages: a connection or a stream. What it holds becomes available to others when it is dropped, without
/// counting as a failed attempt.
pub struct Consumer {
    id: ConsumerId,
    queues: Queues,
    /// `None` for who leases in one call and settles in another: those leases end by settlement or timeout only.
    room: Option<Arc<Notify>>,
}

impl Consumer {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> ConsumerId {
        self.id
    }

    /// Returns when it holds less than before; at once, if that happened since the last call.
    pub async fn room(&self) {
        match &self.room {
            Some(room) => room.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Messages that it holds now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.queues.inner.plane.with(|plane| plane.held_by(self.id))
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if self.room.is_some() {
            self.queues.inner.plane.forget(self.id);
        }
    }
}

impl Queues {
    /// Over an open group, once the node leads it and its ids have a key. When `stop` is cancelled, nobody waits for messages
    /// any more.
    ///
    /// # Errors
    /// The key could not be stored.
    pub async fn open(
        group: Group<QueuePlane>,
        plane: Arc<QueuePlane>,
        log: Log,
        disk: bool,
        settings: Settings,
        stop: CancellationToken,
    ) -> Result<Self, ServiceError> {
        let salt = match plane.salt() {
            Some(salt) => salt,
            None => init_salt(&group, &plane).await?,
        };
        let (started, consumers) = (std::time::Instant::now(), AtomicU64::new(DETACHED.0 + 1));
        Ok(Self {
            inner: Arc::new(Inner {
                group,
                plane,
                log,
                disk,
                settings,
                salt,
                started,
                stop,
                consumers,
            }),
        })
    }

    /// An empty batch of messages that are received now.
    #[must_use]
    pub fn batch(&self) -> PublishBatch {
        PublishBatch::new(Instant::now())
    }

    /// Waits until there is room for a batch among those whose outcome is not known yet. Whoever takes several batches at
    /// once takes the next one after this, so that what waits in memory is bounded.
    ///
    /// # Errors
    /// The storage is full, or the node stops.
    pub async fn admit(&self, batch: PublishBatch) -> Result<Admitted, ServiceError> {
        if self.inner.log.space() == Space::Full {
            return Err(ServiceError::StorageFull);
        }
        let messages = batch.len();
        let proposal = self.inner.group.admit(batch.into_proposal()).await?;
        Ok(Admitted { messages, proposal })
    }

    /// Publishes a batch that has room. Returns when it is as durable as the storage is set to be, with one id for each
    /// message.
    ///
    /// # Errors
    /// Nothing was stored, or with [`ServiceError::Stopped`] the outcome is unknown.
    pub async fn publish_admitted(&self, admitted: Admitted) -> Result<Vec<MessageId>, ServiceError> {
        let outcomes = self.inner.group.propose_admitted(admitted.proposal).await?;
        let mut ids = Vec::with_capacity(admitted.messages);
        for outcome in outcomes {
            let Outcome::Published(runs) = outcome else {
                return Err(ServiceError::Stopped);
            };
            ids.extend(runs.places().map(|place| self.inner.salt.id(place.stream, place.seq)));
        }
        Ok(ids)
    }

    /// [`Queues::admit`], then [`Queues::publish_admitted`].
    ///
    /// # Errors
    /// As for both.
    pub async fn publish(&self, batch: PublishBatch) -> Result<Vec<MessageId>, ServiceError> {
        let admitted = self.admit(batch).await?;
        self.publish_admitted(admitted).await
    }

    /// A new consumer.
    #[must_use]
    pub fn consumer(&self) -> Consumer {
        let id = ConsumerId(self.inner.consumers.fetch_add(1, Ordering::Relaxed));
        Consumer {
            id,
            queues: self.clone(),
            room: Some(self.inner.plane.register(id)),
        }
    }

    /// A consumer whose leases outlive it: for calls that have no connection to end with.
    #[must_use]
    pub fn detached_consumer(&self) -> Consumer {
        Consumer {
            id: DETACHED,
            queues: self.clone(),
            room: None,
        }
    }

    /// Leases up to `max` messages, which takes `wait` at most; nothing is an empty list. The queue is created if it
    /// does not exist.
    ///
    /// # Errors
    /// The name is not acceptable, this node does not lead, or the messages cannot be read.
    pub async fn consume(
        &self,
        consumer: &Consumer,
        queue: &str,
        max: usize,
        lease: Option<Duration>,
        wait: Duration,
    ) -> Result<Vec<Delivery>, ServiceError> {
        let attachment = self.attach(queue).await?;
        let waiting = self.next_deliveries(consumer, &attachment, max, lease);
        if wait.is_zero() {
            return self.take(consumer, attachment.queue, max, lease).await;
        }
        match tokio::time::timeout(wait, waiting).await {
            // Nothing came, for whatever reason.
            Err(_) | Ok(Err(ServiceError::Stopped)) => Ok(Vec::new()),
            Ok(deliveries) => deliveries,
        }
    }

    /// Registers a consumer of a queue, which is created if it does not exist.
    ///
    /// # Errors
    /// The name is not acceptable, or the queue cannot be created.
    pub async fn attach(&self, queue: &str) -> Result<Attachment, ServiceError> {
        let id = match self.inner.plane.with(|plane| plane.queue(queue)) {
            Some(id) => id,
            None => self.declare(queue).await?,
        };
        Ok(self.inner.plane.attach(id))
    }

    async fn declare(&self, queue: &str) -> Result<QueueId, ServiceError> {
        check_name(queue)?;
        let mut proposal = Proposal::new();
        command::declare(proposal.begin(), queue);
        match self.propose(proposal).await?.first() {
            Some(Outcome::Declared(queue)) => Ok(*queue),
            _ => Err(ServiceError::Stopped),
        }
    }

    /// Waits until there is something to lease.
    ///
    /// # Errors
    /// As [`Queues::consume`], and [`ServiceError::Stopped`] when the node stops before anything has come.
    pub async fn next_deliveries(
        &self,
        consumer: &Consumer,
        attachment: &Attachment,
        max: usize,
        lease: Option<Duration>,
    ) -> Result<Vec<Delivery>, ServiceError> {
        loop {
            // Registered before looking, so that what becomes ready in between is not missed.
            let ready = attachment.waiters.ready.notified();
            let deliveries = self.take(consumer, attachment.queue, max, lease).await?;
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
            tokio::select! {
                () = ready => {}
                () = self.inner.stop.cancelled() => return Err(ServiceError::Stopped),
            }
        }
    }

    /// Whether the node stops.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.inner.stop.is_cancelled()
    }

    /// Returns when the node begins to stop.
    pub async fn stopping(&self) {
        self.inner.stop.cancelled().await;
    }

    /// Leases what is ready now, leaving out what has expired.
    async fn take(
        &self,
        consumer: &Consumer,
        queue: QueueId,
        max: usize,
        lease: Option<Duration>,
    ) -> Result<Vec<Delivery>, ServiceError> {
        let plane = &self.inner.plane;
        if !plane.is_leading() {
            return Err(ServiceError::NotLeader);
        }
        let lease_ms = lease.map_or(self.inner.settings.ack_timeout_ms, |lease| {
            u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)
        });
        loop {
            let now = clock::now();
            let mut leased = Vec::new();
            let max = max.min(BATCH_MESSAGES_MAX);
            plane.with(|plane| plane.lease(queue, consumer.id, max, lease_ms, now, &mut leased));
            if leased.len() == max {
                // There may be more, and one wake-up came for all of it.
                plane.wake(&[queue]);
            }
            if leased.is_empty() {
                return Ok(Vec::new());
            }
            let held = Held {
                queues: self,
                leased: &leased,
                kept: 0,
            };
            let records = self.records(&leased).await?;
            let kept = records.len();
            let (deliveries, expired) = self.deliveries(&leased[..kept], records, now)?;
            held.keep(kept);
            if !expired.is_empty() {
                self.expire(&expired).await?;
            }
            if !deliveries.is_empty() {
                plane.consumed.fetch_add(deliveries.len() as u64, Ordering::Relaxed);
                return Ok(deliveries);
            }
        }
    }

    async fn records(&self, leased: &[Leased]) -> Result<Vec<Bytes>, ServiceError> {
        let places: Vec<_> = leased
            .iter()
            .map(|leased| (leased.place.stream, leased.place.seq))
            .collect();
        self.read_bounded(&places).await
    }

    /// Reads the first of these records, as many as fit into one answer; at least one.
    pub(super) async fn read_bounded(&self, places: &[(StreamId, Seq)]) -> Result<Vec<Bytes>, ServiceError> {
        let mut records = Vec::with_capacity(places.len());
        let mut bytes = 0;
        // Little at first: nobody knows yet how long they are.
        let mut wanted = 4;
        while records.len() < places.len() {
            let next = &places[records.len()..places.len().min(records.len() + wanted)];
            for record in self.read(next.to_vec()).await? {
                bytes += record.len() + ANSWER_ENVELOPE_BYTES;
                if bytes > ANSWER_BYTES_MAX && !records.is_empty() {
                    return Ok(records);
                }
                records.push(record);
            }
            let average = bytes / records.len().max(1);
            wanted = (ANSWER_BYTES_MAX.saturating_sub(bytes) / average.max(1) + 1).min(BATCH_MESSAGES_MAX);
        }
        Ok(records)
    }

    /// Reads records, from memory if they are there, else on a thread that may block.
    pub(super) async fn read(&self, places: Vec<(StreamId, Seq)>) -> Result<Vec<Bytes>, ServiceError> {
        let log = self.inner.plane.log().clone();
        let mut records = Vec::with_capacity(places.len());
        let failed = |error: boltq_log::ReadError| ServiceError::Storage {
            what: error.to_string(),
        };
        if log.read(&places, ReadMode::Cached, &mut records).map_err(failed)? {
            return Ok(records);
        }
        let read = move || {
            records.clear();
            log.read(&places, ReadMode::Disk, &mut records).map(|_| records)
        };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|_| ServiceError::Stopped)?
            .map_err(failed)
    }

    fn deliveries(
        &self,
        leased: &[Leased],
        records: Vec<Bytes>,
        now: Millis,
    ) -> Result<(Vec<Delivery>, Vec<Place>), ServiceError> {
        let mut deliveries = Vec::with_capacity(leased.len());
        let mut expired = Vec::new();
        let mut noted = Vec::new();
        for (leased, bytes) in leased.iter().zip(records) {
            let record = Record::read(&bytes).map_err(|error| ServiceError::Storage {
                what: format!("record at {:?}: {error}", leased.place),
            })?;
            if record.expired(now) {
                expired.push(leased.place);
                continue;
            }
            if record.expires.is_some() || record.id.is_some() {
                noted.push((leased.place, record.expires, record.id));
            }
            let id = record
                .id
                .unwrap_or_else(|| self.inner.salt.id(leased.place.stream, leased.place.seq));
            let token = DeliveryToken {
                place: leased.place,
                lease: leased.lease,
            };
            deliveries.push(Delivery {
                token,
                id,
                attempts: leased.attempts,
                record,
            });
        }
        if !noted.is_empty() {
            self.inner.plane.with(|plane| {
                for (place, expires, id) in noted {
                    plane.note(place, expires, id);
                }
            });
        }
        Ok((deliveries, expired))
    }

    pub(super) async fn propose(&self, proposal: Proposal) -> Result<Vec<Outcome>, ServiceError> {
        if self.inner.log.space() == Space::Full {
            self.check_reserve(proposal.len())?;
        }
        self.inner.group.propose(proposal).await.map_err(ServiceError::from)
    }

    /// While the disk is full, what is left of the prepared files is for settling, which makes room. The log must never
    /// have to refuse an entry that was proposed.
    fn check_reserve(&self, bytes: usize) -> Result<(), ServiceError> {
        let wanted = self.inner.group.unsettled_bytes() + 2 * bytes + RESERVE_BYTES;
        if self.inner.log.left_bytes() < wanted as u64 {
            Err(ServiceError::StorageFull)
        } else {
            Ok(())
        }
    }

    /// Proposes what settles claimed messages. Goes on to its end when the caller goes away: given back too early, a
    /// message could be leased again while the command that settles it is on its way. `undo` gives the claims back if the
    /// command is certain not to be carried out; while that is unknown, they stay until the leadership ends.
    pub(super) async fn carry_out(
        &self,
        proposal: Proposal,
        undo: impl FnOnce(&mut Plane) + Send + 'static,
    ) -> Result<Vec<Outcome>, ServiceError> {
        let queues = self.clone();
        let task = tokio::spawn(async move {
            let result = queues.propose(proposal).await;
            if result
                .as_ref()
                .is_err_and(|error| !matches!(error, ServiceError::Stopped))
            {
                queues.inner.plane.with(undo);
            }
            result
        });
        task.await.unwrap_or(Err(ServiceError::Stopped))
    }
}

impl From<ProposeError> for ServiceError {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::NotLeader { .. } => Self::NotLeader,
            ProposeError::Stopped => Self::Stopped,
        }
    }
}

/// Gives leases back that were not delivered: those that did not fit, or all when reading failed or was cancelled.
struct Held<'a> {
    queues: &'a Queues,
    leased: &'a [Leased],
    kept: usize,
}

impl Held<'_> {
    /// The first `kept` are delivered.
    fn keep(mut self, kept: usize) {
        self.kept = kept;
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let back = &self.leased[self.kept..];
        if !back.is_empty() {
            self.queues.inner.plane.with(|plane| {
                let now = clock::now();
                for leased in back {
                    plane.release(leased.place, now);
                }
            });
        }
    }
}

async fn init_salt(group: &Group<QueuePlane>, plane: &QueuePlane) -> Result<IdSalt, ServiceError> {
    let mut proposal = Proposal::new();
    command::init(proposal.begin(), IdSalt(random()));
    group.propose(proposal).await?;
    plane.salt().ok_or(ServiceError::Stopped)
}

/// Random bits for what must differ, not for what must not be guessed: the standard library seeds its hashers from the
/// operating system.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}
