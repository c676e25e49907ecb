//! `/metrics` of a node that belongs to a cluster.

use std::collections::BTreeSet;

use boltq_core::NodeId;

use super::group_metrics;
use crate::cluster::{META_GROUP, group_name};
use crate::doors::cluster_status::name_of;
use crate::service::{ClusterStatus, GroupView};
use crate::telemetry::Exposition;

pub(super) fn put(out: &mut Exposition, status: &ClusterStatus) {
    out.gauge(
        "boltq_brokers_total",
        "Nodes registered in the cluster.",
        status.nodes.len() as u64,
    );
    if let Some(fenced) = fenced(status) {
        out.gauge(
            "boltq_brokers_fenced",
            "Nodes that do not answer the leader of a group; only a node that leads one knows.",
            fenced,
        );
    }
    out.gauge(
        "boltq_cluster_removed",
        "1 on a node that was removed from its cluster and serves nothing.",
        u64::from(status.removed),
    );
    let meta = group_name(META_GROUP);
    let version = status.groups.iter().find(|group| group.name == meta);
    out.counter(
        "boltq_metadata_version",
        "Version of the registry of the cluster on this node.",
        version.map(|group| group.applied_index).unwrap_or_default(),
    );
    for group in &status.groups {
        put_group(out, status, group);
    }
}

/// How many nodes do not answer, if this one can know.
fn fenced(status: &ClusterStatus) -> Option<u64> {
    let members = status.groups.iter().flat_map(|group| &group.members);
    let known = members.filter_map(|member| Some((member.node, member.answers?)));
    let known: Vec<_> = known.collect();
    let silent: BTreeSet<NodeId> = known
        .iter()
        .filter(|(_, answers)| !answers)
        .map(|(node, _)| *node)
        .collect();
    (!known.is_empty()).then_some(silent.len() as u64)
}

fn put_group(out: &mut Exposition, status: &ClusterStatus, group: &GroupView) {
    let label = ("group", group.name.as_str());
    out.labelled_gauge(
        "boltq_raft_term",
        "Term of a replication group, as this node knows it.",
        &[label],
        group.term,
    );
    out.labelled_gauge(
        "boltq_raft_is_leader",
        "1 on the node that leads the group.",
        &[label],
        u64::from(group.state == "Leader"),
    );
    out.labelled_gauge(
        "boltq_raft_last_index",
        "Last entry in the log of this node.",
        &[label],
        group.last_index,
    );
    out.labelled_gauge(
        "boltq_raft_applied_index",
        "Last entry that this node has applied.",
        &[label],
        group.applied_index,
    );
    out.labelled_counter(
        "boltq_raft_leader_changes_total",
        "Changes of the leader of the group that this node has seen since its start.",
        &[label],
        group.leader_changes,
    );
    group_metrics::put(out, &group.name, &group.figures);
    let members = |voter| group.members.iter().filter(|member| member.voter == voter).count() as u64;
    for (role, count) in [("voter", members(true)), ("learner", members(false))] {
        out.labelled_gauge(
            "boltq_raft_members",
            "Members of the group by role.",
            &[label, ("role", role)],
            count,
        );
    }
    for member in &group.members {
        let Some(lag) = member.lag else { continue };
        out.labelled_gauge(
            "boltq_raft_lag",
            "Entries that a member lacks; only the leader knows.",
            &[label, ("node", &name_of(status, member.node))],
            lag,
        );
    }
}
