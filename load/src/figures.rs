//! What the workers of a load share: what they counted, how long things took, and how they are woken and stopped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;
use tokio::sync::Notify;

use crate::driver::LoadError;
use crate::stamp::Clock;

/// Waiting times up to a minute, in nanoseconds; longer ones count as a minute.
const WAIT_MAX_NS: u64 = 60_000_000_000;
const DIGITS: u8 = 3;
/// Different reasons that are counted by name; a broker that makes them up must not fill the memory.
const REASONS_MAX: usize = 32;

/// Totals since the start of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages whose publish was answered well.
    pub published: u64,
    /// Messages that consumers got; one that came twice counts twice.
    pub delivered: u64,
    /// Messages whose acknowledgement is done.
    pub settled: u64,
    /// Publishes that were refused, and acknowledgements that failed.
    pub failed: u64,
}

/// One for all workers of a load.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    published: AtomicU64,
    delivered: AtomicU64,
    settled: AtomicU64,
    failed: AtomicU64,
    reasons: Mutex<BTreeMap<String, u64>>,
    /// Messages on their way: sent, and not settled.
    backlog: AtomicU64,
    stopping: AtomicBool,
    /// One for each publisher. Each keeps one call that nobody waited for, so none is lost.
    wakers: Vec<Notify>,
}

impl Shared {
    pub(crate) fn new(publishers: usize) -> Self {
        Self {
            clock: Clock::start(),
            published: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            reasons: Mutex::default(),
            backlog: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            wakers: (0..publishers).map(|_| Notify::new()).collect(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            published: read(&self.published),
            delivered: read(&self.delivered),
            settled: read(&self.settled),
            failed: read(&self.failed),
        }
    }

    pub(crate) fn reasons(&self) -> BTreeMap<String, u64> {
        lock(&self.reasons).clone()
    }

    pub(crate) fn forget_reasons(&self) {
        lock(&self.reasons).clear();
    }

    pub(crate) fn add_published(&self, messages: u64) {
        self.published.fetch_add(messages, Ordering::Relaxed);
    }

    pub(crate) fn add_delivered(&self, messages: u64) {
        self.delivered.fetch_add(messages, Ordering::Relaxed);
    }

    pub(crate) fn add_settled(&self, messages: u64) {
        self.settled.fetch_add(messages, Ordering::Relaxed);
    }

    pub(crate) fn add_failures(&self, failures: Vec<String>) {
        self.failed.fetch_add(failures.len() as u64, Ordering::Relaxed);
        let mut reasons = lock(&self.reasons);
        for reason in failures {
            let known = reasons.len() < REASONS_MAX || reasons.contains_key(&reason);
            let reason = if known { reason } else { "others".to_owned() };
            *reasons.entry(reason).or_default() += 1;
        }
    }

    pub(crate) fn backlog(&self) -> u64 {
        self.backlog.load(Ordering::Acquire)
    }

    pub(crate) fn grow_backlog(&self, messages: u64) {
        self.backlog.fetch_add(messages, Ordering::AcqRel);
    }

    /// Messages left the backlog: publishers that waited for room may go on. Others than ours may have been in the queue, so
    /// it can be more than there were.
    pub(crate) fn shrink_backlog(&self, messages: u64) {
        // Never refused: the closure always returns a value.
        let _ = self.backlog.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            Some(now.saturating_sub(messages))
        });
        self.wake_publishers();
    }

    pub(crate) fn wake_publisher(&self, publisher: usize) {
        if let Some(waker) = self.wakers.get(publisher) {
            waker.notify_one();
        }
    }

    fn wake_publishers(&self) {
        self.wakers.iter().for_each(Notify::notify_one);
    }

    /// Returns when this publisher was woken since the last time.
    pub(crate) async fn woken(&self, publisher: usize) {
        match self.wakers.get(publisher) {
            Some(waker) => waker.notified().await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake_publishers();
    }
}

/// Waiting times of one worker. Who reads them takes the lock seldom, so the worker does not wait for it.
#[derive(Debug)]
pub(crate) struct Waits(Mutex<Histogram<u64>>);

impl Waits {
    pub(crate) fn new() -> Result<Self, LoadError> {
        Ok(Self(Mutex::new(empty()?)))
    }

    /// `messages` messages waited so long.
    pub(crate) fn record(&self, wait_ns: u64, messages: u64) {
        lock(&self.0).saturating_record_n(wait_ns, messages);
    }

    pub(crate) fn record_all(&self, waits_ns: impl Iterator<Item = u64>) {
        let mut histogram = lock(&self.0);
        waits_ns.for_each(|wait_ns| histogram.saturating_record(wait_ns));
    }

    pub(crate) fn forget(&self) {
        lock(&self.0).reset();
    }
}

/// The waiting times of all these workers.
pub(crate) fn together<'a>(all: impl Iterator<Item = &'a Waits>) -> Result<Histogram<u64>, LoadError> {
    let mut sum = empty()?;
    for waits in all {
        sum.add(&*lock(&waits.0))?;
    }
    Ok(sum)
}

fn empty() -> Result<Histogram<u64>, LoadError> {
    Ok(Histogram::new_with_max(WAIT_MAX_NS, DIGITS)?)
}

/// A worker that panicked leaves counts that are whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_are_made_up_do_not_fill_the_memory() {
        let shared = Shared::new(1);
        shared.add_failures((0..1_000).map(|n| format!("REASON_{n}")).collect());
        shared.add_failures(vec!["REASON_0".to_owned()]);
        let reasons = shared.reasons();
        assert_eq!(reasons.len(), REASONS_MAX + 1);
        assert_eq!((reasons["REASON_0"], reasons.values().sum()), (2, 1_001_u64));
        assert_eq!(shared.counts().failed, 1_001);
    }

    #[test]
    fn a_wait_beyond_the_scale_counts_as_its_end() {
        let waits = Waits::new().unwrap();
        waits.record(u64::MAX, 2);
        let all = together([&waits, &waits].into_iter()).unwrap();
        assert_eq!(all.len(), 4);
        assert!(all.max() >= WAIT_MAX_NS);
    }
}
