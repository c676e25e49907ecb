//! What is looked at all the time, from outside of the nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::LogIndex;
use boltq_log::EntryId;
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::node::Node;
use crate::random::hash;
use crate::trace::{Checker, Trace, note};

const EVERY: Duration = Duration::from_millis(20);

/// A node at one moment.
#[derive(Debug, Default, Clone, Copy)]
struct Sight {
    node: usize,
    term: u64,
    applied: u64,
    /// It is elected, and nothing keeps it from leading.
    leading: bool,
    /// It hands out messages.
    serves: bool,
}

impl Sight {
    fn of(node: &Node) -> Self {
        let status = node.group.status();
        Self {
            node: node.index,
            term: status.term.0,
            applied: status.applied.map_or(0, |applied| applied.0),
            leading: status.leading,
            serves: node.leads(),
        }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Watch {
    /// Nodes that run, as they were last seen, and up to which entry they were compared.
    seen: Vec<(Arc<Node>, Sight, u64)>,
    rules: Rules,
}

impl Watch {
    pub(crate) async fn run(mut self, cluster: Arc<Cluster>) {
        loop {
            self.look(&cluster);
            sleep(EVERY).await;
        }
    }

    fn look(&mut self, cluster: &Cluster) {
        let nodes = cluster.nodes();
        self.seen
            .retain(|(known, ..)| nodes.iter().any(|node| Arc::ptr_eq(node, known)));
        for node in nodes {
            if !self.seen.iter().any(|(known, ..)| Arc::ptr_eq(&node, known)) {
                self.seen.push((node, Sight::default(), 0));
            }
        }
        for (node, seen, compared) in &mut self.seen {
            let now = Sight::of(node);
            self.rules.go_on(&cluster.trace, *seen, now);
            cluster.ledger.has_applied(now.applied);
            if now.leading != seen.leading {
                let what = if now.leading { "leads" } else { "leads no more" };
                note!(
                    cluster.trace,
                    "n{} {what} in term {}, applied {}",
                    now.node,
                    now.term,
                    now.applied
                );
                if now.leading {
                    cluster.trace.count("leaderships");
                }
            }
            *seen = now;
            self.rules.compare(&cluster.trace, node, now, compared);
        }
    }
}

/// What was seen of all nodes.
#[derive(Default)]
struct Rules {
    /// By term.
    leaders: BTreeMap<u64, usize>,
    /// By index: which entry it is, what is in it, and who had it first.
    applied: BTreeMap<u64, (EntryId, u64, usize)>,
}

impl Rules {
    /// From one look at a process to the next.
    fn go_on(&mut self, trace: &Trace, before: Sight, now: Sight) {
        if now.term < before.term || now.applied < before.applied {
            let what = format!("a node went back from {before:?} to {now:?}");
            trace.violation(Checker::Monotonic, what);
        }
        // openraft may elect two in a term, of which only the later one can commit anything. The numbers of leases count on it.
        if now.serves {
            let leader = *self.leaders.entry(now.term).or_insert(now.node);
            if leader != now.node {
                let what = format!("nodes {leader} and {} lead in term {}", now.node, now.term);
                trace.violation(Checker::OneLeader, what);
            }
        }
    }

    /// Compares entries that were applied with those that others applied.
    fn compare(&mut self, trace: &Trace, node: &Node, now: Sight, compared: &mut u64) {
        let range = LogIndex(*compared + 1)..LogIndex(now.applied + 1);
        if range.is_empty() {
            return;
        }
        // Entries that were given up meanwhile, or cannot be read any more as the power is gone, are compared elsewhere.
        let Ok(entries) = node.group.log().entries(range, u64::MAX) else {
            return;
        };
        for entry in entries {
            self.has_applied(trace, now.node, entry.id, hash(u64::from(entry.kind), &entry.data));
        }
        *compared = now.applied;
    }

    fn has_applied(&mut self, trace: &Trace, node: usize, id: EntryId, print: u64) {
        let known = *self.applied.entry(id.index.0).or_insert((id, print, node));
        if (known.0, known.1) != (id, print) {
            let what = format!(
                "entry {} is of term {} on node {}, and of term {} on node {node}{}",
                id.index.0,
                known.0.term.0,
                known.2,
                id.term.0,
                if known.0 == id { ", with other bytes" } else { "" }
            );
            trace.violation(Checker::LogAgreement, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use boltq_core::{NodeId, Term};

    use super::*;
    use crate::clocks;

    fn sight(node: usize, term: u64, applied: u64, serves: bool) -> Sight {
        Sight {
            node,
            term,
            applied,
            leading: serves,
            serves,
        }
    }

    /// What is found when nodes are seen so, one after the other.
    fn found(steps: &[(Sight, Sight)]) -> Option<Checker> {
        clocks::begin(0);
        let (trace, mut rules) = (Trace::default(), Rules::default());
        for (before, now) in steps {
            rules.go_on(&trace, *before, *now);
        }
        trace.found().map(|found| found.checker)
    }

    #[test]
    fn terms_and_applied_entries_do_not_go_back() {
        let before = sight(1, 4, 20, false);
        assert_eq!(found(&[(before, sight(1, 4, 20, false))]), None);
        assert_eq!(found(&[(before, sight(1, 5, 21, false))]), None);
        assert_eq!(found(&[(before, sight(1, 3, 21, false))]), Some(Checker::Monotonic));
        assert_eq!(found(&[(before, sight(1, 5, 19, false))]), Some(Checker::Monotonic));
    }

    #[test]
    fn a_term_has_one_leader() {
        let leads = |node, term| (Sight::default(), sight(node, term, 0, true));
        assert_eq!(found(&[leads(0, 1), leads(0, 1), leads(1, 2), leads(0, 3)]), None);
        assert_eq!(
            found(&[leads(0, 1), leads(1, 2), leads(2, 1)]),
            Some(Checker::OneLeader)
        );
    }

    #[test]
    fn an_entry_is_the_same_everywhere() {
        let found = |entries: &[(usize, u64, u64)]| {
            clocks::begin(0);
            let (trace, mut rules) = (Trace::default(), Rules::default());
            for (node, term, print) in entries {
                let id = EntryId {
                    term: Term(*term),
                    leader: NodeId(1),
                    index: LogIndex(9),
                };
                rules.has_applied(&trace, *node, id, *print);
            }
            trace.found().map(|found| found.checker)
        };
        assert_eq!(found(&[(0, 1, 77), (1, 1, 77), (2, 1, 77)]), None);
        assert_eq!(found(&[(0, 1, 77), (1, 1, 78)]), Some(Checker::LogAgreement));
        assert_eq!(found(&[(0, 1, 77), (1, 2, 77)]), Some(Checker::LogAgreement));
    }
}
