//! The queue plane on this node: the pure plane behind a lock, its log, and who is to be woken.
//!
//! The lock is held for the work of one entry or one request, never over I/O and never over an await. Records are
//! placed in the log before the lock is released, so whoever sees a message as ready can read it.

mod cache;
mod counts;
mod defaults;
mod handler;
mod sharing;
mod state;
mod timer;
mod waking;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use boltq_core::{IdSalt, Millis};
use boltq_kv::{Cache, Change};
use boltq_log::GroupLog;
use boltq_queue::{ConsumerId, Machine, Outcome, Plane, QueueId, Settings};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, broadcast};

use self::cache::CHANGES_MAX;
pub use self::counts::{QueueActivity, QueueCounts};
pub use self::defaults::DefaultTtls;
use self::timer::Timer;
use self::waking::Woken;
pub use self::waking::{Attachment, Waiters};
use crate::clock::Sources;
use crate::hub::Hub;

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

    /// What queues say of messages without a time to live; `None` if none says anything.
    #[must_use]
    pub fn default_ttls(&self) -> Option<Arc<DefaultTtls>> {
        self.default_ttls.read().clone()
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
