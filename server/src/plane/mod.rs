//! The queue plane on this node: the pure plane behind a lock, its log, and who is to be woken.
//!
//! The lock is held for the work of one entry or one request, never over I/O and never over an await. Records are
//! placed in the log before the lock is released, so whoever sees a message as ready can read it.

mod counts;
mod defaults;
mod sharing;
mod state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use boltq_core::{Applied, DecodeError, IdSalt, Millis, StateMachine, Term};
use boltq_kv::{Cache, Change};
use boltq_log::{EntryId, GroupLog};
use boltq_queue::{Claim, ConsumerId, Effect, Machine, Outcome, Place, Plane, QueueId, Settings};
use boltq_raft::{ApplyError, Command, Commands, GroupHandler};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, broadcast};

pub use self::counts::{QueueActivity, QueueCounts};
pub use self::defaults::DefaultTtls;
use crate::clock::Sources;
use crate::hub::Hub;

/// Consumers that wait for messages of one queue.
#[derive(Debug, Default)]
pub struct Waiters {
    /// One permit for each time that something became ready; a consumer that leaves something passes it on.
    pub ready: Notify,
    consumers: AtomicU32,
    closed: AtomicBool,
    /// What has become of its messages.
    pub counts: QueueCounts,
}

impl Waiters {
    /// Whether the queue was deleted: nothing becomes ready any more.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.ready.notify_waiters();
    }
}

/// Counts a consumer of a queue while it lives.
#[derive(Debug)]
pub struct Attachment {
    /// The queue.
    pub queue: QueueId,
    /// Where it waits.
    pub waiters: Arc<Waiters>,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.waiters.consumers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Changes of the cache that a watcher may be behind. They have keys and no values.
const CHANGES_MAX: usize = 4_096;

/// The answer to a command.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Of the queues.
    Queue(Outcome),
    /// Of the cache.
    Cache(boltq_kv::Outcome),
}

impl Answer {
    /// If it is of the queues.
    pub fn queue(self) -> Option<Outcome> {
        match self {
            Self::Queue(outcome) => Some(outcome),
            Self::Cache(_) => None,
        }
    }

    /// If it is of the cache.
    pub fn cache(self) -> Option<boltq_kv::Outcome> {
        match self {
            Self::Queue(_) => None,
            Self::Cache(outcome) => Some(outcome),
        }
    }
}

/// See the module.
pub struct QueuePlane {
    plane: Mutex<Plane>,
    /// Taken after the lock of the plane.
    cache: RwLock<Cache>,
    /// Used under the lock of the cache. Another one whenever the cache is replaced as a whole.
    changes: RwLock<broadcast::Sender<Change>>,
    settings: Settings,
    sources: Sources,
    log: GroupLog,
    waiters: RwLock<BTreeMap<QueueId, Arc<Waiters>>>,
    /// Told when a consumer holds less than before.
    rooms: RwLock<BTreeMap<ConsumerId, Arc<Notify>>>,
    timer: Timer,
    /// Of the next message that expires.
    expiry: Timer,
    hub: Arc<Hub>,
    default_ttls: RwLock<Option<Arc<DefaultTtls>>>,
    leading: AtomicBool,
    leadership: Notify,
    /// Messages delivered since the start.
    pub consumed: AtomicU64,
}

/// Tells a task that waits for a moment when an earlier one has come up. Used under the lock of the plane.
#[derive(Debug)]
struct Timer {
    armed: AtomicU64,
    earlier: Notify,
}

impl Default for Timer {
    fn default() -> Self {
        Self {
            armed: AtomicU64::new(u64::MAX),
            earlier: Notify::new(),
        }
    }
}

impl Timer {
    /// The task is about to wait for this moment.
    fn arm(&self, next: Option<Millis>) {
        self.armed.store(next.unwrap_or(Millis::MAX).0, Ordering::Relaxed);
    }

    fn want(&self, at: Millis) {
        if at.0 < self.armed.load(Ordering::Relaxed) {
            self.armed.store(at.0, Ordering::Relaxed);
            self.earlier.notify_one();
        }
    }
}

/// Whom a change of the plane concerns.
#[derive(Debug, Default)]
struct Woken {
    /// One consumer of each has to look.
    queues: Vec<QueueId>,
    /// All consumers of each have to look, as it serves only one of them.
    singles: Vec<QueueId>,
    /// They hold less than before.
    relieved: Vec<ConsumerId>,
}

impl Woken {
    fn take(plane: &mut Plane) -> Self {
        let mut woken = Self::default();
        plane.take_woken(&mut woken.queues);
        plane.take_relieved(&mut woken.relieved);
        woken
            .singles
            .extend(woken.queues.extract_if(.., |queue| plane.wakes_all(*queue)));
        woken
    }
}

impl QueuePlane {
    /// An empty plane over a log; the group restores it.
    #[must_use]
    pub fn new(settings: Settings, log: GroupLog) -> Self {
        Self::with_sources(settings, log, Sources::default())
    }

    /// As [`QueuePlane::new`], with time and chance from elsewhere.
    #[must_use]
    pub fn with_sources(settings: Settings, log: GroupLog, sources: Sources) -> Self {
        Self {
            plane: Mutex::new(Plane::new(Machine::default(), settings)),
            cache: RwLock::default(),
            changes: RwLock::new(broadcast::Sender::new(CHANGES_MAX)),
            settings,
            sources,
            log,
            waiters: RwLock::new(BTreeMap::new()),
            rooms: RwLock::new(BTreeMap::new()),
            timer: Timer::default(),
            expiry: Timer::default(),
            hub: Arc::default(),
            default_ttls: RwLock::default(),
            leading: AtomicBool::new(false),
            leadership: Notify::new(),
            consumed: AtomicU64::new(0),
        }
    }

    /// The time of this node, as the state machines count.
    #[must_use]
    pub fn now(&self) -> Millis {
        (self.sources.clock)().millis()
    }

    /// Where time and chance come from.
    #[must_use]
    pub fn sources(&self) -> Sources {
        self.sources
    }

    /// Runs `work` on the plane, then wakes consumers and timer as needed.
    pub fn with<R>(&self, work: impl FnOnce(&mut Plane) -> R) -> R {
        let mut plane = self.plane.lock();
        let result = work(&mut plane);
        let woken = Woken::take(&mut plane);
        if let Some(next) = plane.next_tick() {
            self.timer.want(next);
        }
        if let Some(next) = plane.next_expiry() {
            self.expiry.want(next);
        }
        drop(plane);
        self.wake_all(woken);
        result
    }

    fn wake_all(&self, woken: Woken) {
        self.freed(woken.relieved.into_iter());
        if !woken.singles.is_empty() {
            let waiters = self.waiters.read();
            for queue in &woken.singles {
                if let Some(waiters) = waiters.get(queue) {
                    waiters.ready.notify_waiters();
                }
            }
        }
        self.wake(&woken.queues);
    }

    /// Looks at the cache.
    pub fn with_cache<R>(&self, look: impl FnOnce(&Cache) -> R) -> R {
        look(&self.cache.read())
    }

    /// Looks at the cache, and hears of what changes after that. The receiver ends when another node's state has taken the
    /// place of this one's.
    pub fn watch_cache<R>(&self, look: impl FnOnce(&Cache) -> R) -> (R, broadcast::Receiver<Change>) {
        let cache = self.cache.read();
        (look(&cache), self.changes.read().subscribe())
    }

    fn apply_to_cache(&self, time: Millis, command: &Command<'_>) -> Result<Answer, DecodeError> {
        let mut cache = self.cache.write();
        let mut applied = Applied::default();
        let outcome = cache.apply(time, command.bytes, command.offset, &mut applied)?;
        let changes = self.changes.read();
        if changes.receiver_count() > 0 {
            for change in applied.effects {
                // The last watcher may have gone.
                let _ = changes.send(change);
            }
        }
        Ok(Answer::Cache(outcome))
    }

    /// Lets time pass: what is due becomes ready, leases that ended are claimed. Returns the next moment, for which the
    /// timer is armed then. For the timer task alone.
    pub fn tick(&self, now: Millis, timed_out: &mut Vec<Claim>, max: usize) -> Option<Millis> {
        let mut woken = Woken::default();
        let mut plane = self.plane.lock();
        if plane.is_leading() {
            plane.tick(now, timed_out, max);
            woken = Woken::take(&mut plane);
        }
        let next = plane.next_tick();
        self.timer.arm(next);
        drop(plane);
        self.wake_all(woken);
        next
    }

    /// Returns when something is due earlier than what the last [`QueuePlane::tick`] returned.
    pub async fn earlier(&self) {
        self.timer.earlier.notified().await;
    }

    /// Claims messages whose time to live is over, `max` at most. Returns when the next one expires, for which the task that expires
    /// them is armed then; for that task alone.
    pub fn claim_expired(&self, now: Millis, max: usize, expired: &mut Vec<Place>) -> Option<Millis> {
        let mut plane = self.plane.lock();
        plane.claim_expired(now, max, expired);
        let next = plane.next_expiry();
        self.expiry.arm(next);
        next
    }

    /// Returns when something expires earlier than what the last [`QueuePlane::claim_expired`] returned.
    pub async fn expires_earlier(&self) {
        self.expiry.earlier.notified().await;
    }

    /// Wakes one consumer of each queue.
    pub fn wake(&self, queues: &[QueueId]) {
        if queues.is_empty() {
            return;
        }
        let waiters = self.waiters.read();
        for queue in queues {
            if let Some(waiters) = waiters.get(queue) {
                waiters.ready.notify_one();
            }
        }
    }

    /// Registers a consumer, which is told through what it gets when it holds less than before, whoever settled the
    /// message or whatever ended the lease.
    #[must_use]
    pub fn register(&self, consumer: ConsumerId) -> Arc<Notify> {
        self.rooms.write().entry(consumer).or_default().clone()
    }

    /// Forgets a consumer, and makes available what it holds.
    pub fn forget(&self, consumer: ConsumerId) {
        self.rooms.write().remove(&consumer);
        self.with(|plane| plane.release_consumer(consumer, self.now()));
    }

    /// Tells consumers that they have room. Neighbours are mostly the same.
    pub fn freed(&self, consumers: impl Iterator<Item = ConsumerId>) {
        let mut told = None;
        for consumer in consumers {
            if told != Some(consumer) {
                told = Some(consumer);
                if let Some(room) = self.rooms.read().get(&consumer) {
                    room.notify_one();
                }
            }
        }
    }

    /// Registers a consumer of the queue that `find` finds, if it is there. The lock is held for both, so that whoever is
    /// registered is told when the queue is deleted.
    #[must_use]
    pub fn attach_to(&self, find: impl FnOnce(&Plane) -> Option<QueueId>) -> Option<Attachment> {
        self.with(|plane| {
            let queue = find(plane)?;
            let waiters = self.waiters(plane, queue)?;
            waiters.consumers.fetch_add(1, Ordering::Relaxed);
            Some(Attachment { queue, waiters })
        })
    }

    /// Those of a queue that is there, under the lock that it is deleted under.
    fn waiters(&self, plane: &Plane, queue: QueueId) -> Option<Arc<Waiters>> {
        plane.queue_name(queue)?;
        let known = self.waiters.read().get(&queue).cloned();
        Some(known.unwrap_or_else(|| self.waiters.write().entry(queue).or_default().clone()))
    }

    /// Tells who waits for queues that they are no more, and follows what queues say of messages without a time to live.
    fn follow_queues(&self, plane: &Plane, effects: &[Effect]) {
        let mut changed = false;
        for effect in effects {
            match effect {
                Effect::QueueDeleted { queue } => {
                    changed = true;
                    if let Some(waiters) = self.waiters.write().remove(queue) {
                        waiters.close();
                    }
                }
                Effect::QueueChanged { .. } => changed = true,
                Effect::Failed { .. } | Effect::Rescheduled { .. } | Effect::TopicPublished { .. } => {}
            }
        }
        if changed {
            *self.default_ttls.write() = DefaultTtls::of(plane.machine());
        }
    }

    /// What queues say of messages without a time to live; `None` if none says anything.
    #[must_use]
    pub fn default_ttls(&self) -> Option<Arc<DefaultTtls>> {
        self.default_ttls.read().clone()
    }

    /// Consumers that are registered for a queue.
    #[must_use]
    pub fn consumers(&self, queue: QueueId) -> u32 {
        self.waiters
            .read()
            .get(&queue)
            .map_or(0, |waiters| waiters.consumers.load(Ordering::Relaxed))
    }

    /// The log of the group.
    #[must_use]
    pub fn log(&self) -> &GroupLog {
        &self.log
    }

    /// Who listens to topics here.
    #[must_use]
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Whether this node leads and may hand messages out.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.leading.load(Ordering::Acquire)
    }

    /// Returns when this node leads.
    pub async fn led(&self) {
        loop {
            let changed = self.leadership.notified();
            if self.is_leading() {
                return;
            }
            changed.await;
        }
    }

    /// Key of the message ids of this group, once it is set.
    #[must_use]
    pub fn salt(&self) -> Option<IdSalt> {
        self.plane.lock().machine().salt()
    }
}

impl GroupHandler for QueuePlane {
    type Outcome = Answer;

    fn apply(&self, entry: EntryId, commands: Commands<'_>) -> Result<Vec<Answer>, ApplyError> {
        let time = commands.time();
        self.with(|plane| {
            let mut applied = Applied::<Effect>::default();
            let mut outcomes = Vec::new();
            for command in commands {
                let command = command?;
                outcomes.push(if boltq_kv::command::is_command(command.bytes) {
                    self.apply_to_cache(time, &command)?
                } else {
                    let before = applied.effects.len();
                    let outcome = plane.apply(time, command.bytes, command.offset, &mut applied)?;
                    self.hub
                        .follow(&applied.effects[before..], command.bytes, command.offset);
                    Answer::Queue(outcome)
                });
            }
            self.log
                .place(entry.index, &applied.storage)
                .map_err(|error| ApplyError::Place(error.to_string()))?;
            self.follow_queues(plane, &applied.effects);
            Ok(outcomes)
        })
    }

    fn share(outcome: &mut Answer, items: u32) -> Answer {
        sharing::take_front(outcome, u64::from(items))
    }

    fn snapshot(&self) -> Vec<u8> {
        let plane = self.plane.lock();
        state::write(plane.machine(), &self.cache.read())
    }

    fn restore(&self, state: &[u8]) -> Result<(), DecodeError> {
        let (queues, cache) = state::read(state)?;
        let mut plane = self.plane.lock();
        let mut there = self.cache.write();
        *plane = Plane::new(queues, self.settings);
        self.waiters.write().retain(|queue, waiters| {
            let there = plane.queue_name(*queue).is_some();
            if !there {
                waiters.close();
            }
            there
        });
        *self.default_ttls.write() = DefaultTtls::of(plane.machine());
        *there = cache;
        *self.changes.write() = broadcast::Sender::new(CHANGES_MAX);
        Ok(())
    }

    fn leadership(&self, leading: Option<Term>) {
        self.with(|plane| match leading {
            Some(term) => plane.lead_by_chance(term, self.now(), (self.sources.random)()),
            None => plane.follow(),
        });
        self.leading.store(leading.is_some(), Ordering::Release);
        self.leadership.notify_waiters();
        if leading.is_none() {
            // Whoever waits for a message has to look elsewhere.
            for waiters in self.waiters.read().values() {
                waiters.ready.notify_waiters();
            }
            // And so has who waits for room: the leases that it held are no more, and nobody settles them here.
            for room in self.rooms.read().values() {
                room.notify_one();
            }
        }
        match leading {
            Some(term) => tracing::info!(term = term.0, "this node leads the queue plane"),
            None => tracing::info!("this node no longer leads the queue plane"),
        }
    }
}
