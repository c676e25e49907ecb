//! The queues of an overview: those that matter most, and what changed since the overview before.
//!
//! A server may have many thousands of queues, and somebody looks each second. So an answer has the first ones of an order that
//! the caller chooses, and what a watch keeps between two looks is a name, which it shares with the plane, and a number for each queue.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use boltq_queue::QueueStats;

use super::look::{QueueInfo, Stats};
use super::overview::Overview;
use super::queue::Queues;
use super::survey::Surveyed;

/// Which queues come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueOrder {
    /// Those with the most messages.
    Depth,
    /// Those whose number of messages changes fastest, up or down.
    Change,
    /// By name.
    Name,
}

/// The queues that are wanted.
#[derive(Debug, Clone)]
pub struct QueueSelection {
    /// At most.
    pub max: usize,
    /// Which come first.
    pub order: QueueOrder,
    /// In their names.
    pub name_contains: String,
}

/// A queue that was chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// As it is now.
    pub info: QueueInfo,
    /// Messages that it has more per second; unknown at the first look.
    pub change: Option<f64>,
}

/// Messages per second over all queues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Accepted.
    pub published: f64,
    /// Handed to consumers.
    pub consumed: f64,
    /// Acknowledged.
    pub acked: f64,
    /// Failed attempts, whatever came of them.
    pub nacked: f64,
    /// Over.
    pub expired: f64,
    /// Moved to dead letters.
    pub dead_lettered: f64,
}

/// What was counted at one look.
#[derive(Debug, Clone, Copy)]
struct Counted([u64; 6]);

impl Counted {
    fn of(stats: &Stats) -> Self {
        let totals = &stats.totals;
        Self([
            totals.published,
            stats.consumed,
            totals.acked,
            stats.failed_attempts(),
            totals.expired,
            totals.dead_lettered,
        ])
    }

    fn since(self, before: Self, seconds: f64) -> Rates {
        // A state that came from another node may have less.
        let rate = |at: usize| self.0[at].saturating_sub(before.0[at]) as f64 / seconds;
        let [published, consumed, acked, nacked, expired, dead_lettered] = [0, 1, 2, 3, 4, 5].map(rate);
        Rates {
            published,
            consumed,
            acked,
            nacked,
            expired,
            dead_lettered,
        }
    }
}

/// What there was at the look before.
struct Before {
    /// Since the start of the node.
    at: Duration,
    counted: Counted,
    /// Messages of each queue, by name.
    depths: Vec<(Arc<str>, u64)>,
}

/// Looks that are compared with each other.
#[derive(Default)]
pub struct OverviewWatch {
    before: Option<Before>,
}

/// What is said of the queues, beside their totals.
pub struct Look {
    /// Since the look before.
    pub rates: Option<Rates>,
    /// In the order that was asked for.
    pub chosen: Vec<Chosen>,
    /// How many could have been chosen.
    pub matching: usize,
}

fn depth(stats: &QueueStats) -> u64 {
    stats.ready.saturating_add(stats.leased).saturating_add(stats.delayed)
}

impl OverviewWatch {
    /// Chooses queues of an overview, and compares them with the one before.
    pub fn look(&mut self, queues: &Queues, overview: &Overview, selection: &QueueSelection) -> Look {
        let now = overview.stats.uptime;
        let counted = Counted::of(&overview.stats);
        let before = self.before.take();
        let seconds = before.as_ref().map(|before| {
            let passed = now.saturating_sub(before.at);
            passed.as_secs_f64().max(1e-3)
        });
        let rates = before.as_ref().zip(seconds);
        let rates = rates.map(|(before, seconds)| counted.since(before.counted, seconds));
        let depths = before.as_ref().map_or(&[][..], |before| &before.depths);
        let (first, matching) = choose(&overview.queues, depths, selection);
        let chosen = first.into_iter().filter_map(|(queue, grown)| {
            Some(Chosen {
                // It may have been deleted since.
                info: queues.queue(&queue.name).ok()?,
                change: seconds.map(|seconds| grown as f64 / seconds),
            })
        });
        let chosen = chosen.collect();
        let depths = overview.queues.iter();
        self.before = Some(Before {
            at: now,
            counted,
            depths: depths.map(|queue| (queue.name.clone(), depth(&queue.stats))).collect(),
        });
        Look {
            rates,
            chosen,
            matching,
        }
    }
}

/// The first queues, each with what it has more than before, and how many there are to choose from. Both lists are by name.
fn choose<'q>(
    queues: &'q [Surveyed],
    before: &[(Arc<str>, u64)],
    selection: &QueueSelection,
) -> (Vec<(&'q Surveyed, i64)>, usize) {
    let mut before = before.iter().peekable();
    let mut grown = |queue: &Surveyed| {
        while before.next_if(|(name, _)| *name < queue.name).is_some() {}
        // A queue that was not there had nothing.
        let had = before
            .next_if(|(name, _)| *name == queue.name)
            .map_or(0, |(_, depth)| *depth);
        let has = depth(&queue.stats);
        i64::try_from(has.abs_diff(had)).map_or(i64::MAX, |by| if has < had { -by } else { by })
    };
    let all = queues.iter().map(|queue| (queue, grown(queue)));
    let mut all: Vec<_> = all
        .filter(|(queue, _)| queue.name.contains(&selection.name_contains))
        .collect();
    let matching = all.len();
    // Stable, and they are by name: equal ones stay where they are.
    match selection.order {
        QueueOrder::Name => {}
        QueueOrder::Depth => all.sort_by_key(|(queue, _)| Reverse(depth(&queue.stats))),
        QueueOrder::Change => all.sort_by_key(|(queue, grown)| Reverse((grown.unsigned_abs(), depth(&queue.stats)))),
    }
    all.truncate(selection.max);
    (all, matching)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::QueueActivity;

    fn surveyed(queues: &[(&str, u64)]) -> Vec<Surveyed> {
        let queue = |(name, ready): &(&str, u64)| Surveyed {
            name: (*name).into(),
            stats: QueueStats {
                ready: *ready,
                leased: 1,
                delayed: 1,
            },
            published: 0,
            activity: QueueActivity::default(),
        };
        queues.iter().map(queue).collect()
    }

    fn names(queues: &[(&str, u64)], before: &[(&str, u64)], selection: &QueueSelection) -> (String, usize) {
        let queues = surveyed(queues);
        let before = surveyed(before);
        let before: Vec<_> = before
            .iter()
            .map(|queue| (queue.name.clone(), depth(&queue.stats)))
            .collect();
        let (chosen, matching) = choose(&queues, &before, selection);
        let names: Vec<_> = chosen
            .iter()
            .map(|(queue, grown)| format!("{}{grown:+}", queue.name))
            .collect();
        (names.join(" "), matching)
    }

    #[test]
    fn the_first_ones_of_each_order_are_chosen_and_all_that_match_are_counted() {
        let now = [("a", 3), ("ab", 9), ("b", 0), ("new", 5)];
        let before = [("a", 3), ("aa", 7), ("ab", 8), ("b", 90), ("z", 1)];
        let mut selection = QueueSelection {
            max: 3,
            order: QueueOrder::Depth,
            name_contains: String::new(),
        };
        assert_eq!(names(&now, &before, &selection), ("ab+1 new+7 a+0".to_owned(), 4));
        selection.order = QueueOrder::Change;
        assert_eq!(names(&now, &before, &selection), ("b-90 new+7 ab+1".to_owned(), 4));
        selection.order = QueueOrder::Name;
        selection.max = 2;
        assert_eq!(names(&now, &before, &selection), ("a+0 ab+1".to_owned(), 4));
        selection.name_contains = "b".to_owned();
        assert_eq!(names(&now, &before, &selection), ("ab+1 b-90".to_owned(), 2));
        // With nothing to compare with, the largest come first.
        selection.order = QueueOrder::Change;
        selection.name_contains.clear();
        assert_eq!(names(&now, &[], &selection), ("ab+11 new+7".to_owned(), 4));
    }
}
