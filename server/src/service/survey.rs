//! Figures of all queues, for who looks at them together.
//!
//! There may be many thousands, and nobody should wait until all were looked at: the plane is held for some at a time. So the
//! figures are not all of the same moment, and each is right.

use std::sync::Arc;

use boltq_queue::QueueStats;

use super::queue::Queues;
use crate::plane::QueueActivity;

/// Queues that are looked at while everybody else waits.
const TOGETHER_MAX: usize = 256;

/// A queue, and what happens in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surveyed {
    /// Its name.
    pub name: Arc<str>,
    /// What is in it now.
    pub stats: QueueStats,
    /// Messages that were ever put into it, from wherever they came.
    pub published: u64,
    /// What this node has done with them since its start.
    pub activity: QueueActivity,
}

impl Queues {
    /// All queues, in the byte order of their names.
    #[must_use]
    pub fn survey(&self) -> Vec<Surveyed> {
        let plane = &self.inner.plane;
        let activities = plane.activities();
        let mut surveyed: Vec<Surveyed> = Vec::new();
        loop {
            let before = surveyed.len();
            plane.with(|plane| {
                let after = surveyed.last().map(|last| last.name.clone());
                let next = plane.queues_after(after.as_deref()).take(TOGETHER_MAX);
                surveyed.extend(next.map(|(name, id, stats)| Surveyed {
                    name: name.clone(),
                    stats,
                    published: plane.published(id),
                    activity: activities.get(&id).copied().unwrap_or_default(),
                }));
            });
            if surveyed.len() < before + TOGETHER_MAX {
                return surveyed;
            }
        }
    }
}
