//! Consumers that wait for messages of a queue or for room of their own, and who of them is told of a change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use boltq_queue::{ConsumerId, Plane, QueueId};
use tokio::sync::Notify;

use super::{QueueCounts, QueuePlane};

/// Consumers that wait for messages of one queue.
#[derive(Debug, Default)]
pub struct Waiters {
    /// One permit for each time that something became ready; a consumer that leaves something passes it on.
    pub ready: Notify,
    pub(super) consumers: AtomicU32,
    closed: AtomicBool,
    /// What has become of its messages.
    pub counts: QueueCounts,
}

impl Waiters {
    /// Whether the queue was deleted: nothing becomes ready any more.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
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

/// Whom a change of the plane concerns.
#[derive(Debug, Default)]
pub(super) struct Woken {
    /// One consumer of each has to look.
    queues: Vec<QueueId>,
    /// All consumers of each have to look, as it serves only one of them.
    singles: Vec<QueueId>,
    /// They hold less than before.
    relieved: Vec<ConsumerId>,
}

impl Woken {
    pub(super) fn take(plane: &mut Plane) -> Self {
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
    pub(super) fn wake_all(&self, woken: Woken) {
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
    pub(super) fn waiters(&self, plane: &Plane, queue: QueueId) -> Option<Arc<Waiters>> {
        plane.queue_name(queue)?;
        let known = self.waiters.read().get(&queue).cloned();
        Some(known.unwrap_or_else(|| self.waiters.write().entry(queue).or_default().clone()))
    }

    /// Consumers that are registered for a queue.
    #[must_use]
    pub fn consumers(&self, queue: QueueId) -> u32 {
        self.waiters
            .read()
            .get(&queue)
            .map_or(0, |waiters| waiters.consumers.load(Ordering::Relaxed))
    }
}
