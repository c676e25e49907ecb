//! Which queues have dead letters.

use super::bury::DEAD_LETTER_SUFFIX;
use super::queue::Queues;

/// The dead letters of a queue as they are now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLettersInfo {
    /// The queue that they come from. It may be gone, or never have been.
    pub queue: String,
    /// The queue that they are in.
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
            let mut all: Vec<_> = plane
                .queues()
                .filter_map(|(name, _, stats)| {
                    let queue = name.strip_suffix(DEAD_LETTER_SUFFIX)?;
                    (queue.starts_with(prefix) && queue > after).then_some((queue, name, stats))
                })
                .collect();
            // With the suffix, names are in another order: "a" is before "a!", and "a_dead_letter" is behind "a!_dead_letter".
            all.sort_unstable_by_key(|(queue, ..)| *queue);
            let info = |(queue, name, stats): &(&str, &str, boltq_queue::QueueStats)| DeadLettersInfo {
                queue: (*queue).to_owned(),
                name: (*name).to_owned(),
                ready: stats.ready,
                leased: stats.leased,
            };
            (all.iter().take(max).map(info).collect(), all.len() > max)
        })
    }
}
