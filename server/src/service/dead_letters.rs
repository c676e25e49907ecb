//! Which queues have dead letters.

use std::collections::BTreeMap;

use boltq_queue::{DEAD_LETTER_SUFFIX, QueueStats};

use super::queue::Queues;

/// The dead letters of a queue as they are now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLettersInfo {
    /// The queue that they come from. It may be gone.
    pub queue: String,
    /// The queue that they are in. Several may have theirs in one.
    pub name: String,
    /// Can be delivered.
    pub ready: u64,
    /// Held by consumers, and by redriving.
    pub leased: u64,
}

impl Queues {
    /// Queues with dead letters, or that had some, in byte order of their names: those with a prefix, after a name, `max` at
    /// most; and whether there are more.
    #[must_use]
    pub fn dead_letters(&self, prefix: &str, after: &str, max: usize) -> (Vec<DeadLettersInfo>, bool) {
        self.inner.plane.with(|plane| {
            let mut all: BTreeMap<&str, (&str, QueueStats)> = BTreeMap::new();
            for (name, _, stats) in plane.queues() {
                // Those of a queue that is gone are there all the same.
                if let Some(queue) = name.strip_suffix(DEAD_LETTER_SUFFIX) {
                    all.entry(queue).or_insert((name, stats));
                }
                let dead = plane.machine().dead_letter_queue(name);
                let there = plane.queue(&dead).filter(|_| dead != name);
                let there = there.and_then(|id| Some((plane.queue_name(id)?, plane.stats(id)?)));
                if let Some(there) = there {
                    all.insert(name, there);
                }
            }
            let mut found = all
                .into_iter()
                .filter(|(queue, _)| queue.starts_with(prefix) && *queue > after);
            let info = |(queue, (name, stats)): (&str, (&str, QueueStats))| DeadLettersInfo {
                queue: queue.to_owned(),
                name: name.to_owned(),
                ready: stats.ready,
                leased: stats.leased,
            };
            let page = found.by_ref().take(max).map(info).collect();
            (page, found.next().is_some())
        })
    }
}
