//! What happens in single queues on this node, for who watches them. It is counted where a queue is at hand already, and is
//! forgotten with the node and with the queue.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use boltq_queue::QueueId;

use super::{QueuePlane, Waiters};

/// What this node has done with the messages of one queue since its start.
#[derive(Debug, Default)]
pub struct QueueCounts {
    /// Handed to consumers.
    pub delivered: AtomicU64,
    /// Acknowledged.
    pub acked: AtomicU64,
}

/// What happens in one queue on this node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueActivity {
    /// Messages handed to consumers since the start of the node.
    pub delivered: u64,
    /// Messages acknowledged since then.
    pub acked: u64,
    /// Consumers that wait or are subscribed now.
    pub consumers: u32,
}

impl QueuePlane {
    /// Counts acknowledged messages, each by its queue. Neighbours are mostly of the same.
    pub fn count_acked(&self, queues: impl Iterator<Item = QueueId>) {
        let mut queues = queues.peekable();
        while let Some(queue) = queues.next() {
            let mut count = 1;
            while queues.next_if_eq(&queue).is_some() {
                count += 1;
            }
            let known = self.waiters.read().get(&queue).cloned();
            let waiters = known.or_else(|| self.with(|plane| self.waiters(plane, queue)));
            if let Some(waiters) = waiters {
                waiters.counts.acked.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// What happens in queues; only in those that this node has ever handed out or settled messages of.
    #[must_use]
    pub fn activities(&self) -> BTreeMap<QueueId, QueueActivity> {
        let activity = |waiters: &Waiters| QueueActivity {
            delivered: waiters.counts.delivered.load(Ordering::Relaxed),
            acked: waiters.counts.acked.load(Ordering::Relaxed),
            consumers: waiters.consumers.load(Ordering::Relaxed),
        };
        let waiters = self.waiters.read();
        let activities = waiters.iter().map(|(queue, waiters)| (*queue, activity(waiters)));
        activities.collect()
    }
}
