//! `/metrics`: queues one by one, as many as may be; and the rest of them together.
//!
//! There may be many thousands of queues, and whoever collects metrics pays for each name. So only some have figures of their own:
//! those with the most messages in them, and those in which the most has happened lately, in turns. All others are in
//! `queue="_other"`.
//!
//! Counters must not go down, that of the others included when one of them gets figures of its own. So what is added there is
//! what each has counted since it was last looked at. And a queue that has figures of its own keeps them until it is far from
//! those that ought to: each change of names is a new series for who collects them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::service::{DEAD_LETTER_SUFFIX, Surveyed};
use crate::telemetry::Exposition;

/// Of the queues without figures of their own.
const OTHER: &str = "_other";
/// A queue keeps its figures as long as it is among so many times those that may have some.
const KEPT: usize = 2;

/// What is told of one queue, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Line {
    ready: u64,
    leased: u64,
    delayed: u64,
    dead: u64,
    consumers: u64,
    counts: Counts,
}

/// What only goes up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    published: u64,
    delivered: u64,
    acked: u64,
}

impl Counts {
    fn sum(self) -> u64 {
        self.published + self.delivered + self.acked
    }

    /// What has come since.
    fn since(self, before: Self) -> Self {
        Self {
            published: self.published.saturating_sub(before.published),
            delivered: self.delivered.saturating_sub(before.delivered),
            acked: self.acked.saturating_sub(before.acked),
        }
    }

    fn add(&mut self, more: Self) {
        self.published += more.published;
        self.delivered += more.delivered;
        self.acked += more.acked;
    }
}

impl Line {
    /// Messages that wait for something.
    fn depth(&self) -> u64 {
        self.ready + self.leased + self.delayed + self.dead
    }

    /// Adds all but the counts.
    fn add(&mut self, other: &Self) {
        self.ready += other.ready;
        self.leased += other.leased;
        self.delayed += other.delayed;
        self.dead += other.dead;
        self.consumers += other.consumers;
    }
}

/// What was last known of a queue.
#[derive(Debug, Clone, Copy)]
struct Seen {
    counts: Counts,
    /// What has happened in it; what was long ago counts less.
    lately: u64,
}

/// Which queues have figures of their own.
#[derive(Debug)]
pub(super) struct Shown {
    queues_max: usize,
    names: BTreeSet<Arc<str>>,
    seen: BTreeMap<Arc<str>, Seen>,
    /// What was counted of queues while they had no figures of their own.
    others: Counts,
}

impl Shown {
    pub(super) fn new(queues_max: usize) -> Self {
        Self {
            queues_max,
            names: BTreeSet::new(),
            seen: BTreeMap::new(),
            others: Counts::default(),
        }
    }

    pub(super) fn put(&mut self, out: &mut Exposition, surveyed: &[Surveyed]) {
        let (shown, others) = self.look(surveyed);
        for (name, line) in shown
            .iter()
            .map(|(name, line)| (&**name, line))
            .chain([(OTHER, &others)])
        {
            put_line(out, name, line);
        }
    }

    /// The queues that have figures of their own, and what all others have together.
    fn look(&mut self, surveyed: &[Surveyed]) -> (Vec<(Arc<str>, Line)>, Line) {
        let lines = lines(surveyed);
        let recent = self.follow(&lines);
        self.choose(&lines, &recent);
        let mut others = Line::default();
        let mut shown = Vec::with_capacity(self.names.len());
        for ((name, line), Recent { new, .. }) in lines.into_iter().zip(recent) {
            if self.names.contains(&name) {
                shown.push((name, line));
            } else {
                others.add(&line);
                self.others.add(new);
            }
        }
        others.counts = self.others;
        (shown, others)
    }

    /// What has happened since the last time, in each.
    fn follow(&mut self, lines: &[(Arc<str>, Line)]) -> Vec<Recent> {
        let mut seen = BTreeMap::new();
        let follow = |(name, line): &(Arc<str>, Line)| {
            let before = self.seen.get(name);
            let new = line
                .counts
                .since(before.map_or_else(Counts::default, |before| before.counts));
            let lately = before.map_or(0, |before| before.lately - before.lately / 4) + new.sum();
            let counts = line.counts;
            seen.insert(name.clone(), Seen { counts, lately });
            Recent { new, lately }
        };
        let recent = lines.iter().map(follow).collect();
        // Those that are gone are forgotten.
        self.seen = seen;
        recent
    }

    fn choose(&mut self, lines: &[(Arc<str>, Line)], recent: &[Recent]) {
        let mut by_depth: Vec<usize> = (0..lines.len()).collect();
        let mut by_activity = by_depth.clone();
        by_depth.sort_by_key(|at| std::cmp::Reverse(lines[*at].1.depth()));
        by_activity.sort_by_key(|at| std::cmp::Reverse(recent[*at].lately));
        let in_turns = by_depth
            .into_iter()
            .zip(by_activity)
            .flat_map(|(one, other)| [one, other]);
        let mut ranked = Vec::new();
        let mut ranked_already = vec![false; lines.len()];
        for at in in_turns {
            // This is not a name to be had.
            if !std::mem::replace(&mut ranked_already[at], true) && &*lines[at].0 != OTHER {
                ranked.push(&lines[at].0);
            }
        }
        let near = ranked.iter().take(self.queues_max * KEPT);
        let kept: BTreeSet<Arc<str>> = near
            .filter(|name| self.names.contains(**name))
            .map(|name| (*name).clone())
            .collect();
        self.names = kept;
        let best = ranked.into_iter();
        for name in best {
            if self.names.len() >= self.queues_max {
                break;
            }
            self.names.insert(name.clone());
        }
    }
}

/// What has happened in a queue.
struct Recent {
    /// Since the last time.
    new: Counts,
    /// As in [`Seen`].
    lately: u64,
}

/// Queues in the order of their names, each with its dead letters.
fn lines(surveyed: &[Surveyed]) -> Vec<(Arc<str>, Line)> {
    let is_dead = |queue: &&Surveyed| queue.name.ends_with(DEAD_LETTER_SUFFIX);
    let line = |queue: &Surveyed| Line {
        ready: queue.stats.ready,
        leased: queue.stats.leased,
        delayed: queue.stats.delayed,
        dead: 0,
        consumers: u64::from(queue.activity.consumers),
        counts: Counts {
            published: queue.published,
            delivered: queue.activity.delivered,
            acked: queue.activity.acked,
        },
    };
    let alive = surveyed.iter().filter(|queue| !is_dead(queue));
    let mut lines: BTreeMap<Arc<str>, Line> = alive.map(|queue| (queue.name.clone(), line(queue))).collect();
    for dead in surveyed.iter().filter(is_dead) {
        let origin = dead.name.strip_suffix(DEAD_LETTER_SUFFIX).unwrap_or_default();
        if let Some(line) = lines.get_mut(origin) {
            line.dead = dead.stats.ready + dead.stats.leased;
        } else {
            // Somebody has made it by hand.
            lines.insert(dead.name.clone(), line(dead));
        }
    }
    lines.into_iter().collect()
}

fn put_line(out: &mut Exposition, name: &str, line: &Line) {
    let labels = [("queue", name)];
    for (family, help, value) in [
        (
            "boltq_queue_ready",
            "Messages of a queue that wait for a consumer, or for the end of a backoff.",
            line.ready,
        ),
        (
            "boltq_queue_leased",
            "Messages of a queue that consumers hold; only the leader knows.",
            line.leased,
        ),
        (
            "boltq_queue_delayed",
            "Messages of a queue that are not yet due.",
            line.delayed,
        ),
        ("boltq_queue_dead_letters", "Dead letters of a queue.", line.dead),
        (
            "boltq_queue_consumers",
            "Consumers of a queue that wait or are subscribed on this node.",
            line.consumers,
        ),
    ] {
        out.labelled_gauge(family, help, &labels, value);
    }
    let Counts {
        published,
        delivered,
        acked,
    } = line.counts;
    for (family, help, value) in [
        (
            "boltq_queue_published_total",
            "Messages that were put into a queue, the same on all nodes.",
            published,
        ),
        (
            "boltq_queue_delivered_total",
            "Messages of a queue that this node has handed to consumers since its start.",
            delivered,
        ),
        (
            "boltq_queue_acked_total",
            "Messages of a queue that were acknowledged through this node since its start.",
            acked,
        ),
    ] {
        out.labelled_counter(family, help, &labels, value);
    }
}

#[cfg(test)]
mod tests {
    use crate::plane::QueueActivity;
    use crate::service::QueueStats;

    use super::*;

    fn queue(name: &str, ready: u64, published: u64) -> Surveyed {
        Surveyed {
            name: name.into(),
            stats: QueueStats {
                ready,
                leased: 0,
                delayed: 0,
            },
            published,
            activity: QueueActivity::default(),
        }
    }

    fn names(shown: &[(Arc<str>, Line)]) -> Vec<&str> {
        shown.iter().map(|(name, _)| &**name).collect()
    }

    #[test]
    fn the_deepest_and_the_busiest_are_shown_and_the_rest_is_added_up() {
        let mut shown = Shown::new(2);
        let queues = [
            queue("busy", 1, 900),
            queue("deep", 50, 50),
            queue("idle", 2, 3),
            queue("quiet", 3, 4),
        ];
        let (lines, others) = shown.look(&queues);
        assert_eq!(names(&lines), ["busy", "deep"]);
        assert_eq!((others.ready, others.counts.published), (5, 7));
    }

    #[test]
    fn what_the_others_have_counted_never_goes_down() {
        let mut shown = Shown::new(1);
        let (lines, others) = shown.look(&[queue("a", 9, 9), queue("b", 1, 5), queue("c", 1, 1)]);
        assert_eq!((names(&lines), others.counts.published), (vec!["a"], 6));
        // Far ahead, so that it takes the place.
        let (lines, others) = shown.look(&[queue("a", 0, 9), queue("b", 90, 95), queue("c", 80, 80)]);
        assert_eq!((names(&lines), others.counts.published), (vec!["b"], 6 + 79));
        // What was counted of it before stays where it was counted.
        let (lines, others) = shown.look(&[queue("a", 0, 10), queue("b", 90, 96), queue("c", 80, 80)]);
        assert_eq!((names(&lines), others.counts.published), (vec!["b"], 6 + 79 + 1));
        assert_eq!(lines[0].1.counts.published, 96);
    }

    #[test]
    fn who_is_shown_stays_while_it_is_near() {
        let mut shown = Shown::new(1);
        shown.look(&[queue("a", 9, 9), queue("b", 8, 8), queue("c", 1, 1)]);
        let (lines, _) = shown.look(&[queue("a", 9, 9), queue("b", 10, 10), queue("c", 1, 1)]);
        assert_eq!(names(&lines), ["a"], "second of those that could be");
    }

    #[test]
    fn dead_letters_are_those_of_their_queue() {
        let mut shown = Shown::new(9);
        let queues = [
            queue("a", 1, 1),
            queue("a_dead_letter", 4, 4),
            queue("orphan_dead_letter", 2, 2),
        ];
        let (lines, _) = shown.look(&queues);
        assert_eq!(names(&lines), ["a", "orphan_dead_letter"]);
        assert_eq!((lines[0].1.dead, lines[1].1.ready), (4, 2));
    }

    #[test]
    fn a_queue_that_is_called_as_the_others_is_one_of_them() {
        let mut shown = Shown::new(9);
        let (lines, others) = shown.look(&[queue("_other", 3, 3), queue("a", 1, 1)]);
        assert_eq!((names(&lines), others.ready), (vec!["a"], 3));
        let (lines, others) = Shown::new(0).look(&[queue("a", 1, 1)]);
        assert_eq!((names(&lines), others.counts.published), (vec![], 1));
    }
}
