//! Watching: what there is, then what changes.
//!
//! Who wants to begin with what there is reads it a piece at a time, and hears of changes from the first moment on. A change
//! of a key that was read already comes after it; one of a key that is still to be read is left out, because what is read
//! then has it. So nothing is missed, each key is reported in its order, and nobody holds more than a piece.
//!
//! Changes are kept as keys and versions. The value of a version is looked up when it is to be sent; if it is not there any
//! more, a later change is on its way and says what became of the key.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use boltq_kv::{Cache, Change, Entry, Pattern};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, error::TryRecvError};
use tokio::time::{Instant, sleep_until};

use super::{Kv, KvError, LOOKED_AT_MAX};
use crate::clock;
use crate::service::ServiceError;

/// How often a watcher looks whether this node still belongs to its cluster: one that does not hears of nothing.
const REMOVED_LOOK: Duration = Duration::from_secs(1);

/// Changes from a moment on.
pub struct KvWatch {
    kv: Kv,
    pattern: String,
    changes: broadcast::Receiver<Change>,
    /// What there was, as far as it was read and not reported.
    found: VecDeque<Change>,
    stage: Stage,
    look_again: Instant,
}

/// What comes after `found`.
enum Stage {
    /// More of what there is, after this key; none: from the first on.
    Listing(Option<Arc<str>>),
    /// It is to be said that everything up to this version was reported.
    Listed(u64),
    /// Changes.
    Following,
}

/// What to report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvEvent {
    /// A key has a value of this version, see [`KvWatch::entry`].
    Put(Arc<str>, u64),
    /// It has none any more.
    Removed(Arc<str>, u64),
    /// No key has one.
    Flushed(u64),
    /// What there was was reported. From here on there are changes after this version.
    Ready(u64),
}

/// Why there is nothing more to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEnd {
    /// The watcher was too far behind.
    TooSlow,
    /// The node stops, or has got its state from another one.
    Interrupted,
    /// The node was removed from its cluster.
    Removed,
}

impl Kv {
    /// Changes of keys that a pattern names, from now on; after what there is, if that is wanted.
    ///
    /// # Errors
    /// There is no cache, or this node was removed from its cluster.
    pub fn watch(&self, pattern: String, initial: bool) -> Result<KvWatch, KvError> {
        self.enabled()?;
        let queues = &self.inner.queues.inner;
        if queues.clustering.is_removed() {
            return Err(ServiceError::Removed.into());
        }
        let (version, changes) = queues.plane.watch_cache(Cache::version);
        Ok(KvWatch {
            kv: self.clone(),
            pattern,
            changes,
            found: VecDeque::new(),
            stage: match initial {
                true => Stage::Listing(None),
                false => Stage::Listed(version),
            },
            look_again: Instant::now() + REMOVED_LOOK,
        })
    }
}

impl KvWatch {
    /// What to report next.
    ///
    /// # Errors
    /// There is nothing more to hear.
    pub async fn next(&mut self) -> Result<KvEvent, WatchEnd> {
        loop {
            if let Some(change) = self.found.pop_front() {
                return Ok(event(change));
            }
            match &mut self.stage {
                Stage::Listing(after) => {
                    let after = after.take();
                    self.list_some(after.as_deref())?;
                    // Many keys are looked at for a while; others want to write.
                    tokio::task::yield_now().await;
                }
                Stage::Listed(version) => {
                    let version = *version;
                    self.stage = Stage::Following;
                    return Ok(KvEvent::Ready(version));
                }
                Stage::Following => {
                    let change = self.change().await?;
                    if self.is_meant(&change) {
                        return Ok(event(change));
                    }
                }
            }
        }
    }

    /// The value of a key, if it is still the one of this version.
    #[must_use]
    pub fn entry(&self, key: &str, version: u64) -> Option<Entry> {
        self.kv.with_cache(|cache| {
            let entry = cache.get(key, clock::now());
            entry.filter(|entry| entry.version == version).cloned()
        })
    }

    /// Bytes of that value.
    #[must_use]
    pub fn bytes(&self, key: &str, version: u64) -> Option<usize> {
        self.kv.with_cache(|cache| {
            let entry = cache.get(key, clock::now());
            let entry = entry.filter(|entry| entry.version == version);
            entry.map(|entry| entry.value.len())
        })
    }

    async fn change(&mut self) -> Result<Change, WatchEnd> {
        let queues = &self.kv.inner.queues;
        loop {
            tokio::select! {
                change = self.changes.recv() => return change.map_err(|error| match error {
                    RecvError::Lagged(_) => WatchEnd::TooSlow,
                    RecvError::Closed => WatchEnd::Interrupted,
                }),
                () = queues.stopping() => return Err(WatchEnd::Interrupted),
                () = sleep_until(self.look_again) => {
                    if queues.inner.clustering.is_removed() {
                        return Err(WatchEnd::Removed);
                    }
                    self.look_again = Instant::now() + REMOVED_LOOK;
                }
            }
        }
    }

    /// Finds what changed among the keys up to `after`, and then the next keys.
    fn list_some(&mut self, after: Option<&str>) -> Result<(), WatchEnd> {
        let Listed {
            keys,
            last,
            behind,
            version,
        } = self.listed(after);
        for _ in 0..behind {
            let change = self.changes.try_recv().map_err(|error| match error {
                TryRecvError::Lagged(_) => WatchEnd::TooSlow,
                TryRecvError::Closed | TryRecvError::Empty => WatchEnd::Interrupted,
            })?;
            if self.is_meant(&change) && was_read(&change, after) {
                self.found.push_back(change);
            }
        }
        self.found.extend(keys);
        self.stage = match last {
            Some(last) => Stage::Listing(Some(last)),
            None => Stage::Listed(version),
        };
        Ok(())
    }

    fn listed(&self, after: Option<&str>) -> Listed {
        let pattern = Pattern::parse(&self.pattern);
        self.kv.with_cache(|cache| {
            let now = cache.at(clock::now());
            let mut looked_at = cache.range(pattern, after).peekable();
            let (mut keys, mut last) = (Vec::new(), None);
            for (key, entry) in looked_at.by_ref().take(LOOKED_AT_MAX) {
                last = Some(key);
                if pattern.matches(key) && entry.is_alive(now) {
                    keys.push(Change::Put {
                        key: Arc::from(key),
                        version: entry.version,
                    });
                }
            }
            let more = looked_at.peek().is_some();
            Listed {
                keys,
                last: last.filter(|_| more).map(Arc::from),
                // Changes are told while the cache cannot be read: these are all up to this version.
                behind: self.changes.len(),
                version: cache.version(),
            }
        })
    }

    fn is_meant(&self, change: &Change) -> bool {
        match change {
            Change::Put { key, .. } | Change::Removed { key, .. } => Pattern::parse(&self.pattern).matches(key),
            Change::Flushed { .. } => true,
        }
    }
}

/// A piece of what there is.
struct Listed {
    keys: Vec<Change>,
    /// The last key that was looked at, if there are more.
    last: Option<Arc<str>>,
    /// Changes that were made before, and not heard of yet.
    behind: usize,
    version: u64,
}

/// Whether a change is of a key that was read before the change.
fn was_read(change: &Change, after: Option<&str>) -> bool {
    let Some(after) = after else { return false };
    match change {
        Change::Put { key, .. } | Change::Removed { key, .. } => &**key <= after,
        Change::Flushed { .. } => true,
    }
}

fn event(change: Change) -> KvEvent {
    match change {
        Change::Put { key, version } => KvEvent::Put(key, version),
        Change::Removed { key, version } => KvEvent::Removed(key, version),
        Change::Flushed { version } => KvEvent::Flushed(version),
    }
}
