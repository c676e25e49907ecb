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
use crate::trace::{Checker, note};

const EVERY: Duration = Duration::from_millis(20);

/// What was seen of a node since it started.
#[derive(Debug, Default)]
struct Seen {
    node: usize,
    term: u64,
    applied: u64,
    leading: bool,
    /// Entries up to here were compared.
    compared: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Watch {
    /// By the address of the node, which is as good as a name while it runs.
    seen: Vec<(Arc<Node>, Seen)>,
    leaders: BTreeMap<u64, usize>,
    applied: BTreeMap<u64, (EntryId, u64, usize)>,
}

impl Watch {
    pub(crate) async fn run(mut self, cluster: Arc<Cluster>) {
        loop {
            self.look(&cluster);
            sleep(EVERY).await;
        }
    }

    pub(crate) fn look(&mut self, cluster: &Cluster) {
        let nodes = cluster.nodes();
        self.seen
            .retain(|(known, _)| nodes.iter().any(|node| Arc::ptr_eq(node, known)));
        for node in nodes {
            if !self.seen.iter().any(|(known, _)| Arc::ptr_eq(&node, known)) {
                let seen = Seen {
                    node: node.index,
                    ..Seen::default()
                };
                self.seen.push((node, seen));
            }
        }
        for (node, seen) in &mut self.seen {
            look_at(cluster, node, seen, &mut self.leaders);
            compare(cluster, node, seen, &mut self.applied);
        }
    }
}

fn look_at(cluster: &Cluster, node: &Node, seen: &mut Seen, leaders: &mut BTreeMap<u64, usize>) {
    let status = node.group.status();
    let (term, applied) = (status.term.0, status.applied.map_or(0, |applied| applied.0));
    if term < seen.term || applied < seen.applied {
        let what = format!(
            "node {} went back from term {} and entry {} to term {term} and entry {applied}",
            seen.node, seen.term, seen.applied
        );
        cluster.trace.violation(Checker::Monotonic, what);
    }
    if status.leading {
        let leader = *leaders.entry(term).or_insert(seen.node);
        if leader != seen.node {
            let what = format!("nodes {leader} and {} lead in term {term}", seen.node);
            cluster.trace.violation(Checker::OneLeader, what);
        }
    }
    if status.leading && !seen.leading {
        cluster.trace.count("leaderships");
    }
    if status.leading != seen.leading {
        note!(
            cluster.trace,
            "n{} {} in term {term}, applied {applied}",
            seen.node,
            if status.leading { "leads" } else { "leads no more" }
        );
    }
    (seen.term, seen.applied, seen.leading) = (term, applied, status.leading);
}

/// Compares entries that were applied with those that others applied.
fn compare(cluster: &Cluster, node: &Node, seen: &mut Seen, applied: &mut BTreeMap<u64, (EntryId, u64, usize)>) {
    let range = LogIndex(seen.compared + 1)..LogIndex(seen.applied + 1);
    if range.is_empty() {
        return;
    }
    // Entries that were given up meanwhile, or cannot be read any more as the power is gone, are compared elsewhere.
    let Ok(entries) = node.group.log().entries(range, u64::MAX) else {
        return;
    };
    for entry in entries {
        let print = hash(u64::from(entry.kind), &entry.data);
        let known = applied.entry(entry.id.index.0).or_insert((entry.id, print, seen.node));
        if (known.0, known.1) != (entry.id, print) {
            let what = format!(
                "entry {} is of term {} on node {}, and of term {} on node {}{}",
                entry.id.index.0,
                known.0.term.0,
                known.2,
                entry.id.term.0,
                seen.node,
                if known.0 == entry.id { ", with other bytes" } else { "" }
            );
            cluster.trace.violation(Checker::LogAgreement, what);
        }
    }
    seen.compared = seen.applied;
}
