//! Work queues: what the operations stand on, publishing, and consumers. Handing messages out is in [`super::take`], settling
//! in [`super::settle`].

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use boltq_core::{IdSalt, MessageId, Millis, Record, check_name};
use boltq_log::{Log, Space};
use boltq_queue::{ConsumerId, Outcome, Plane, QueueId, Settings, command};
use boltq_raft::{Group, Proposal, ProposeError};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::bury::BURYING_MAX;
use super::cluster::{Clustering, Leader};
use super::error::ServiceError;
use super::expiry::Expiry;
use super::observing::{Deliveries, Timings};
use super::publish::PublishCounts;
use super::routed::Routing;
use super::token::DeliveryToken;
use crate::ack_level::AckLevel;
use crate::plane::{Answer, Attachment, QueuePlane};
use crate::telemetry::Via;
use crate::telemetry::trace::Tracer;

/// The queue plane as the doors use it; clones are cheap and share it.
#[derive(Clone)]
pub struct Queues {
    pub(super) inner: Arc<Inner>,
    /// Whose they are, for figures.
    pub(super) via: Via,
}

pub(super) struct Inner {
    pub(super) group: Group<QueuePlane>,
    pub(super) plane: Arc<QueuePlane>,
    pub(super) log: Log,
    /// Whether the log is on disk.
    pub(super) disk: bool,
    pub(super) settings: Settings,
    /// Key of the message ids, once it is known here.
    salt: OnceLock<IdSalt>,
    /// Whom to ask when this node does not lead.
    pub(super) clustering: Clustering,
    /// For the nodes to confirm a command. None waits for ever: a node that is alone confirms when its disk does.
    pub(super) confirm_max: Option<Duration>,
    /// The least that a publisher may ask to wait for.
    pub(super) min_ack_level: AckLevel,
    pub(super) publishes: Arc<PublishCounts>,
    pub(super) routing: Routing,
    pub(super) started: std::time::Instant,
    pub(super) stop: CancellationToken,
    consumers: AtomicU64,
    /// What is being done about messages whose time is over.
    pub(super) expiry: Expiry,
    /// Portions of dead letters that are in memory at a time.
    pub(super) burying: Semaphore,
    pub(super) timings: Timings,
    /// None: nobody is told of traces.
    pub(super) tracer: Option<Tracer>,
    /// Those of recorded traces.
    pub(super) deliveries: Deliveries,
}

/// Left in the prepared files of the log when settling is refused too, in bytes.
const RESERVE_BYTES: usize = 64 * 1024;

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

/// What the queues stand on, and what they are told.
pub struct Parts {
    /// The log of the plane.
    pub log: Log,
    /// Whether it is on disk.
    pub disk: bool,
    /// For messages that say nothing themselves.
    pub settings: Settings,
    /// The other nodes.
    pub clustering: Clustering,
    /// For the nodes to confirm a command; none: for ever.
    pub confirm_max: Option<Duration>,
    /// The least that a publisher may ask to wait for.
    pub min_ack_level: AckLevel,
    /// Who is told of traces, if anybody.
    pub tracer: Option<Tracer>,
}

/// Who takes messages: a connection or a stream. What it holds becomes available to others when it is dropped, without
/// counting as a failed attempt.
pub struct Consumer {
    pub(super) id: ConsumerId,
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
    /// Over an open group. When `stop` is cancelled, nobody waits for messages any more.
    #[must_use]
    pub fn new(group: Group<QueuePlane>, plane: Arc<QueuePlane>, parts: Parts, stop: CancellationToken) -> Self {
        let Parts {
            log,
            disk,
            settings,
            clustering,
            confirm_max,
            min_ack_level,
            tracer,
        } = parts;
        let routing = Routing::new((plane.sources().random)());
        Self {
            inner: Arc::new(Inner {
                group,
                plane,
                log,
                disk,
                settings,
                salt: OnceLock::new(),
                clustering,
                confirm_max,
                min_ack_level,
                publishes: Arc::default(),
                routing,
                started: std::time::Instant::now(),
                stop,
                consumers: AtomicU64::new(ConsumerId::FIRST.0),
                expiry: Expiry::default(),
                burying: Semaphore::new(BURYING_MAX),
                timings: Timings::default(),
                tracer,
                deliveries: Deliveries::default(),
            }),
            via: Via::default(),
        }
    }

    /// As long as this node leads a group whose message ids have no key, tries to give it one. Returns when it has one.
    pub async fn keyed(&self) {
        while self.inner.plane.salt().is_none() {
            self.inner.plane.led().await;
            let mut proposal = Proposal::new();
            command::init(proposal.begin(), IdSalt((self.inner.plane.sources().random)()));
            if let Err(error) = self.inner.group.propose(proposal).await {
                tracing::debug!(%error, "message ids have no key yet; trying again");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// The key of the message ids. It is the first thing in the log of a group, so whoever leads one has it.
    pub(super) fn salt(&self) -> Result<IdSalt, ServiceError> {
        if let Some(salt) = self.inner.salt.get() {
            return Ok(*salt);
        }
        let salt = self.inner.plane.salt().ok_or_else(|| self.not_leader())?;
        Ok(*self.inner.salt.get_or_init(|| salt))
    }

    /// Where to go instead.
    pub(crate) fn not_leader(&self) -> ServiceError {
        if self.inner.clustering.is_removed() {
            return ServiceError::Removed;
        }
        ServiceError::NotLeader(self.leader())
    }

    /// Another node that leads.
    #[must_use]
    pub fn leader(&self) -> Leader {
        self.inner.clustering.queue_leader()
    }

    pub(super) fn refused(&self, error: &ProposeError) -> ServiceError {
        match error {
            ProposeError::NotLeader { .. } => self.not_leader(),
            ProposeError::TooLarge { .. } => ServiceError::InvalidArgument {
                what: error.to_string(),
            },
            ProposeError::Stopped => ServiceError::Stopped,
        }
    }

    /// Waits for the outcome for as long as it may take, or until no majority answers any more.
    pub(super) async fn confirmed<T>(
        &self,
        outcome: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, ServiceError> {
        match self.inner.confirm_max {
            None => outcome.await,
            Some(within) => tokio::select! {
                biased;
                outcome = tokio::time::timeout(within, outcome) => outcome.unwrap_or(Err(ServiceError::NoMajority)),
                () = self.inner.group.cut_off() => Err(ServiceError::NoMajority),
            },
        }
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
            id: ConsumerId::DETACHED,
            queues: self.clone(),
            room: None,
        }
    }

    /// Registers a consumer of a queue, which is created if it does not exist.
    ///
    /// # Errors
    /// The name is not acceptable, or the queue cannot be created.
    pub async fn attach(&self, queue: &str) -> Result<Attachment, ServiceError> {
        if let Some(attachment) = self.inner.plane.attach_to(|plane| plane.queue(queue)) {
            return Ok(attachment);
        }
        let id = self.declare(queue).await?;
        let attachment = self.inner.plane.attach_to(|_| Some(id));
        attachment.ok_or(ServiceError::QueueDeleted)
    }

    async fn declare(&self, queue: &str) -> Result<QueueId, ServiceError> {
        check_name(queue)?;
        let mut proposal = Proposal::new();
        command::declare(proposal.begin(), queue);
        match self.confirmed(self.propose(proposal)).await?.first() {
            Some(Outcome::Declared(queue)) => Ok(*queue),
            _ => Err(ServiceError::Stopped),
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

    /// Proposes commands of the queues.
    pub(super) async fn propose(&self, proposal: Proposal) -> Result<Vec<Outcome>, ServiceError> {
        let answers = self.propose_any(proposal).await?;
        Ok(answers.into_iter().filter_map(Answer::queue).collect())
    }

    pub(super) async fn propose_any(&self, proposal: Proposal) -> Result<Vec<Answer>, ServiceError> {
        // Elsewhere, it is not for this node to say whether there is room.
        if self.inner.log.space() == Space::Full && self.inner.plane.is_leading() {
            self.check_reserve(proposal.len())?;
        }
        let outcome = self.inner.group.propose(proposal).await;
        outcome.map_err(|error| self.refused(&error))
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
        undo: impl FnOnce(&mut Plane, Millis) + Send + 'static,
    ) -> Result<Vec<Outcome>, ServiceError> {
        let queues = self.clone();
        let task = boltq_raft::spawn(async move {
            let result = queues.propose(proposal).await;
            if result
                .as_ref()
                .is_err_and(|error| !matches!(error, ServiceError::Stopped))
            {
                let now = queues.inner.plane.now();
                queues.inner.plane.with(|plane| undo(plane, now));
            }
            result
        });
        self.confirmed(async { task.await.unwrap_or(Err(ServiceError::Stopped)) })
            .await
    }
}
