//! The key-value cache: one function per operation.
//!
//! The leader reads and writes, so whoever reads sees what was answered before. Watching is for any node.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use boltq_core::limits::FRAME_BYTES_MAX;
use boltq_kv::command::{self, Condition, TimeToLive};
use boltq_kv::{Change, Entry, IncrementError, Outcome, Pattern};
use boltq_log::Space;
use boltq_raft::Proposal;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::error::ServiceError;
use super::queue::Queues;
use crate::clock;
use crate::config::CacheConfig;
use crate::plane::Answer;

/// Bytes of a key at most.
pub(super) const KEY_BYTES_MAX: usize = 1_024;
/// Bytes of a value at most. A request has room for a key beside it.
pub(super) const VALUE_BYTES_MAX: usize = FRAME_BYTES_MAX - 16 * KEY_BYTES_MAX;
/// Keys that are looked at while nobody else can write.
const LOOKED_AT_MAX: usize = 1_000;
/// Keys that are removed by one command.
const SWEPT_MAX: u32 = 1_000;
/// Reads that are told to the cache with the next write.
const READS_MAX: usize = 1_024;

/// Why an operation on the cache was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KvError {
    /// There is no cache.
    #[error("cache not enabled")]
    Off,
    /// The key is not acceptable.
    #[error("key has {bytes} bytes; 1 to {KEY_BYTES_MAX} are allowed")]
    Key {
        /// What it has.
        bytes: usize,
    },
    /// The value is not acceptable.
    #[error("value has {bytes} bytes; at most {VALUE_BYTES_MAX} are allowed")]
    ValueTooLarge {
        /// What it has.
        bytes: usize,
    },
    /// The condition was not met.
    #[error("condition not met: {}", there_is(*version))]
    ConditionNotMet {
        /// The version of the value that there is.
        version: Option<u64>,
    },
    /// The value cannot be counted with.
    #[error(transparent)]
    Increment(#[from] IncrementError),
    /// What any operation can answer.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

fn there_is(version: Option<u64>) -> String {
    version.map_or_else(
        || "the key has no value".to_owned(),
        |version| format!("the value has version {version}"),
    )
}

/// Figures of the cache.
#[derive(Debug, Clone, Copy, Default)]
pub struct KvStats {
    /// Keys with a value.
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Reads on this node that found a value, since its start.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Counts since the first start.
    pub totals: boltq_kv::Totals,
}

/// Changes from a moment on.
pub struct KvWatch {
    /// What there was then, if it was asked for.
    pub initial: Vec<(String, Entry)>,
    /// The version of the cache then.
    pub version: u64,
    changes: broadcast::Receiver<Change>,
    pattern: String,
    kv: Kv,
}

/// What happened to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvEvent {
    /// It has this value now.
    Put(String, Entry),
    /// It has none any more.
    Removed(String, u64),
}

/// Why there is nothing more to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEnd {
    /// The watcher was too far behind.
    TooSlow,
    /// The node stops, or has got its state from another one.
    Interrupted,
}

/// The cache as the doors use it; clones are cheap and share it.
#[derive(Clone)]
pub struct Kv {
    inner: Arc<Inner>,
}

struct Inner {
    queues: Queues,
    config: CacheConfig,
    hits: AtomicU64,
    misses: AtomicU64,
    /// Keys that were read since the last write, if it matters.
    reads: Mutex<VecDeque<String>>,
}

impl Kv {
    /// The cache of the plane of `queues`.
    #[must_use]
    pub fn new(queues: Queues, config: CacheConfig) -> Self {
        Self {
            inner: Arc::new(Inner {
                queues,
                config,
                hits: AtomicU64::new(0),
                misses: AtomicU64::new(0),
                reads: Mutex::default(),
            }),
        }
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.inner.config.enabled
    }

    fn enabled(&self) -> Result<(), KvError> {
        if self.inner.config.enabled {
            Ok(())
        } else {
            Err(KvError::Off)
        }
    }

    fn check(&self, key: &str) -> Result<(), KvError> {
        self.enabled()?;
        match key.len() {
            1..=KEY_BYTES_MAX => Ok(()),
            bytes => Err(KvError::Key { bytes }),
        }
    }

    fn leads(&self) -> Result<(), KvError> {
        if self.inner.queues.is_leading() {
            Ok(())
        } else {
            Err(self.inner.queues.not_leader().into())
        }
    }

    /// Makes sure, after a read, that this node still leads. It may have been paused, and others may have written since.
    async fn confirm_lead(&self) -> Result<(), KvError> {
        let group = &self.inner.queues.inner.group;
        if group.holds_lease() || group.confirm_lease().await {
            Ok(())
        } else {
            Err(self.inner.queues.not_leader().into())
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The key is not acceptable, or this node does not lead.
    pub async fn get(&self, key: &str) -> Result<Option<Entry>, KvError> {
        self.check(key)?;
        self.leads()?;
        let plane = &self.inner.queues.inner.plane;
        let entry = plane.with_cache(|cache| cache.get(key, clock::now()).cloned());
        self.confirm_lead().await?;
        let count = if entry.is_some() {
            &self.inner.hits
        } else {
            &self.inner.misses
        };
        count.fetch_add(1, Ordering::Relaxed);
        if entry.is_some() && self.inner.config.keys_max > 0 {
            let mut reads = self.inner.reads.lock();
            if reads.len() >= READS_MAX {
                reads.pop_front();
            }
            reads.push_back(key.to_owned());
        }
        Ok(entry)
    }

    /// Whether a key has a value. Does not count as a read.
    ///
    /// # Errors
    /// As for [`Kv::get`].
    pub async fn exists(&self, key: &str) -> Result<bool, KvError> {
        self.check(key)?;
        self.leads()?;
        let plane = &self.inner.queues.inner.plane;
        let exists = plane.with_cache(|cache| cache.get(key, clock::now()).is_some());
        self.confirm_lead().await?;
        Ok(exists)
    }

    /// Shows keys with their values, in byte order from after `after` on, until `visit` has enough or there are no more. They
    /// are not all of one moment. Returns the last that was shown, if more may follow.
    ///
    /// # Errors
    /// The cache is off, or this node does not lead.
    pub async fn visit(
        &self,
        pattern: &str,
        mut after: Option<String>,
        mut visit: impl FnMut(&str, &Entry) -> ControlFlow<()> + Send,
    ) -> Result<Option<String>, KvError> {
        self.enabled()?;
        self.leads()?;
        let pattern = Pattern::parse(pattern);
        loop {
            let looked_at = self.visit_some(pattern, after.as_deref(), &mut visit);
            self.confirm_lead().await?;
            let Some((last, enough)) = looked_at else {
                return Ok(None);
            };
            after = Some(last);
            if enough.is_break() {
                return Ok(after);
            }
            // Many keys are looked at for a while; others want to write.
            tokio::task::yield_now().await;
        }
    }

    /// Returns the last key that was looked at and whether that was enough; nothing, if there are no more.
    fn visit_some(
        &self,
        pattern: Pattern<'_>,
        after: Option<&str>,
        visit: &mut impl FnMut(&str, &Entry) -> ControlFlow<()>,
    ) -> Option<(String, ControlFlow<()>)> {
        let now = clock::now();
        self.inner.queues.inner.plane.with_cache(|cache| {
            let mut keys = cache.range(pattern, after).peekable();
            let (mut last, mut enough) = (None, ControlFlow::Continue(()));
            for (key, entry) in keys.by_ref().take(LOOKED_AT_MAX) {
                last = Some(key);
                if pattern.matches(key) && entry.is_alive(now) {
                    enough = visit(key, entry);
                }
                if enough.is_break() {
                    break;
                }
            }
            keys.peek()?;
            last.map(|last| (last.to_owned(), enough))
        })
    }

    /// Figures; none if there is no cache. Any node answers.
    #[must_use]
    pub fn stats(&self) -> Option<KvStats> {
        self.enabled().ok()?;
        let inner = &self.inner;
        Some(inner.queues.inner.plane.with_cache(|cache| KvStats {
            keys: cache.len(clock::now()) as u64,
            bytes: cache.bytes(),
            hits: inner.hits.load(Ordering::Relaxed),
            misses: inner.misses.load(Ordering::Relaxed),
            totals: cache.totals(),
        }))
    }

    /// How long a value lives of which nothing is said.
    #[must_use]
    pub fn default_ttl(&self) -> TimeToLive {
        TimeToLive::from_millis(self.inner.config.default_ttl_ms)
    }

    /// Sets a key, and returns the version of its value.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn set(&self, key: &str, value: &[u8], live: TimeToLive, condition: Condition) -> Result<u64, KvError> {
        self.check(key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(KvError::ValueTooLarge { bytes: value.len() });
        }
        self.has_room()?;
        let mut proposal = self.proposal();
        let keys_max = self.inner.config.keys_max;
        command::set(proposal.begin(), key, value, live, condition, keys_max);
        match self.propose(proposal).await? {
            Outcome::Set(version) => Ok(version),
            Outcome::Refused(version) => Err(KvError::ConditionNotMet { version }),
            _ => Err(ServiceError::Stopped.into()),
        }
    }

    /// Deletes a key; whether it had a value.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn delete(&self, key: &str, condition: Condition) -> Result<bool, KvError> {
        self.check(key)?;
        let mut proposal = Proposal::new();
        command::delete(proposal.begin(), key, condition);
        match self.propose(proposal).await? {
            Outcome::Deleted(deleted) => Ok(deleted),
            Outcome::Refused(version) => Err(KvError::ConditionNotMet { version }),
            _ => Err(ServiceError::Stopped.into()),
        }
    }

    /// Changes how long a value lives from now on; whether there is one.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn expire(&self, key: &str, live: TimeToLive) -> Result<bool, KvError> {
        self.check(key)?;
        let mut proposal = Proposal::new();
        command::expire(proposal.begin(), key, live);
        match self.propose(proposal).await? {
            Outcome::Expires(found) => Ok(found),
            _ => Err(ServiceError::Stopped.into()),
        }
    }

    /// Adds to a number, and returns the sum and its version.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn increment(&self, key: &str, by: i64) -> Result<(i64, u64), KvError> {
        self.check(key)?;
        self.has_room()?;
        let mut proposal = self.proposal();
        let keys_max = self.inner.config.keys_max;
        command::increment(proposal.begin(), key, by, TimeToLive::Unlimited, keys_max);
        match self.propose(proposal).await? {
            Outcome::Incremented(result) => Ok(result?),
            _ => Err(ServiceError::Stopped.into()),
        }
    }

    /// Removes everything; returns how many keys that were.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn flush(&self) -> Result<u64, KvError> {
        self.enabled()?;
        let mut proposal = Proposal::new();
        command::flush(proposal.begin());
        match self.propose(proposal).await? {
            Outcome::Removed(count) => Ok(count),
            _ => Err(ServiceError::Stopped.into()),
        }
    }

    /// Changes to keys that a pattern names, from now on.
    ///
    /// # Errors
    /// There is no cache.
    pub fn watch(&self, pattern: String, initial: bool) -> Result<KvWatch, KvError> {
        self.enabled()?;
        let plane = &self.inner.queues.inner.plane;
        let ((initial, version), changes) = plane.watch_cache(|cache| {
            let there = cache.list(Pattern::parse(&pattern), None, clock::now());
            let there = there.map(|(key, entry)| (key.to_owned(), entry.clone()));
            let there = if initial { there.collect() } else { Vec::new() };
            (there, cache.version())
        });
        Ok(KvWatch {
            initial,
            version,
            changes,
            pattern,
            kv: self.clone(),
        })
    }

    /// Removes what is over, as long as this node leads. Ends when it is dropped.
    pub async fn sweep(&self) {
        if !self.inner.config.enabled {
            return;
        }
        loop {
            tokio::time::sleep(self.inner.config.cleanup).await;
            while let Err(error) = self.sweep_all().await {
                tracing::debug!(%error, "what is over stays in the cache a little longer");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }

    async fn sweep_all(&self) -> Result<(), KvError> {
        let queues = &self.inner.queues;
        let wanted = || queues.is_leading() && queues.inner.plane.with_cache(|cache| cache.has_expired(clock::now()));
        while wanted() {
            let mut proposal = Proposal::new();
            command::sweep(proposal.begin(), SWEPT_MAX);
            self.propose(proposal).await?;
        }
        Ok(())
    }

    /// What makes the storage larger is not taken while it is full.
    fn has_room(&self) -> Result<(), KvError> {
        match self.inner.queues.inner.log.space() {
            Space::Full => Err(ServiceError::StorageFull.into()),
            Space::Ample => Ok(()),
        }
    }

    /// A proposal that begins with what was read since the last one.
    fn proposal(&self) -> Proposal {
        let mut proposal = Proposal::new();
        if self.inner.config.keys_max > 0 {
            let reads = std::mem::take(&mut *self.inner.reads.lock());
            if !reads.is_empty() {
                command::touch(proposal.begin(), reads.iter().map(String::as_str));
            }
        }
        proposal
    }

    /// The outcome of the last command.
    async fn propose(&self, proposal: Proposal) -> Result<Outcome, KvError> {
        let queues = &self.inner.queues;
        let answers = queues.confirmed(queues.propose_any(proposal)).await?;
        let last = answers.into_iter().next_back().and_then(Answer::cache);
        last.ok_or_else(|| ServiceError::Stopped.into())
    }
}

impl KvWatch {
    /// What happens next.
    ///
    /// # Errors
    /// There is nothing more to hear.
    pub async fn next(&mut self) -> Result<KvEvent, WatchEnd> {
        loop {
            let change = tokio::select! {
                change = self.changes.recv() => change,
                () = self.kv.inner.queues.stopping() => return Err(WatchEnd::Interrupted),
            };
            let change = change.map_err(|error| match error {
                broadcast::error::RecvError::Lagged(_) => WatchEnd::TooSlow,
                broadcast::error::RecvError::Closed => WatchEnd::Interrupted,
            })?;
            if let Some(event) = self.event(change) {
                return Ok(event);
            }
        }
    }

    /// Nothing, if the key is not meant, or if what became of it will be reported later.
    fn event(&self, change: Change) -> Option<KvEvent> {
        let pattern = Pattern::parse(&self.pattern);
        match change {
            Change::Put { key, version } if pattern.matches(&key) => {
                let plane = &self.kv.inner.queues.inner.plane;
                let entry = plane.with_cache(|cache| cache.get(&key, clock::now()).cloned());
                let entry = entry.filter(|entry| entry.version == version)?;
                Some(KvEvent::Put(key.to_string(), entry))
            }
            Change::Removed { key, version } if pattern.matches(&key) => {
                Some(KvEvent::Removed(key.to_string(), version))
            }
            Change::Put { .. } | Change::Removed { .. } => None,
        }
    }
}
