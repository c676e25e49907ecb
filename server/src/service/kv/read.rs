//! Reads of the leader, and figures of any node.

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use boltq_kv::{Cache, Entry, Pattern, Totals};

use super::{Kv, KvError, LOOKED_AT_MAX};
use crate::clock;

/// Reads that are told to the cache with the next write.
const READS_MAX: usize = 1_024;

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
    pub totals: Totals,
}

impl Kv {
    /// The value of a key. Before it is taken out there is `room` for an answer with a value of its bytes.
    ///
    /// # Errors
    /// The key is not acceptable, or this node does not lead.
    pub async fn get<R, F: Future<Output = R>>(
        &self,
        key: &str,
        room: impl Fn(usize) -> F,
    ) -> Result<(Option<Entry>, R), KvError> {
        self.check(key)?;
        self.leads()?;
        let bytes = |entry: Option<&Entry>| entry.map_or(0, |entry| entry.value.len());
        let mut bytes_max = self.with_cache(|cache| bytes(cache.get(key, clock::now())));
        let (entry, room) = loop {
            let room = room(bytes_max).await;
            let entry = self.with_cache(|cache| cache.get(key, clock::now()).cloned());
            match bytes(entry.as_ref()) {
                // It was set anew meanwhile, and somebody has got on.
                more if more > bytes_max => bytes_max = more,
                _ => break (entry, room),
            }
        };
        self.confirm_lead().await?;
        self.count(key, entry.is_some());
        Ok((entry, room))
    }

    /// Whether a key has a value. Does not count as a read.
    ///
    /// # Errors
    /// As for [`Kv::get`].
    pub async fn exists(&self, key: &str) -> Result<bool, KvError> {
        self.check(key)?;
        self.leads()?;
        let exists = self.with_cache(|cache| cache.get(key, clock::now()).is_some());
        self.confirm_lead().await?;
        Ok(exists)
    }

    /// Shows keys with their values, in byte order from after `after` on, until `visit` has enough or there are no more. They
    /// are not all of one moment. Returns the last that was looked at, if more may follow.
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
        self.with_cache(|cache| {
            let now = cache.at(clock::now());
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
        Some(self.with_cache(|cache| KvStats {
            keys: cache.len(clock::now()) as u64,
            bytes: cache.bytes(),
            hits: inner.hits.load(Ordering::Relaxed),
            misses: inner.misses.load(Ordering::Relaxed),
            totals: cache.totals(),
        }))
    }

    pub(super) fn with_cache<R>(&self, look: impl FnOnce(&Cache) -> R) -> R {
        self.inner.queues.inner.plane.with_cache(look)
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

    fn count(&self, key: &str, found: bool) {
        let inner = &self.inner;
        let count = if found { &inner.hits } else { &inner.misses };
        count.fetch_add(1, Ordering::Relaxed);
        if found && inner.config.keys_max > 0 {
            let mut reads = inner.reads.lock();
            if reads.len() >= READS_MAX {
                reads.pop_front();
            }
            reads.push_back(key.to_owned());
        }
    }
}
