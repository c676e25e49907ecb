//! The cluster at one moment.

use boltq_raft::Role;

use super::{AnyGroup, Cluster, group_name};
use crate::service::{ClusterStatus, GroupView, MemberView, NodeStatus};

impl Cluster {
    /// The cluster as this node sees it.
    #[must_use]
    pub fn status(&self) -> ClusterStatus {
        let registry = self.plane.registry();
        let mut nodes: Vec<NodeStatus> = registry.nodes().cloned().collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        ClusterStatus {
            node: self.me.clone(),
            removed: self.departure.is_removed(),
            cluster: registry.cluster(),
            nodes,
            groups: self.groups.iter().map(|group| view(&**group)).collect(),
        }
    }
}

fn view(group: &dyn AnyGroup) -> GroupView {
    let status = group.status();
    let last = status.last.map_or(0, |last| last.0);
    let member = |member: boltq_raft::Member| MemberView {
        node: member.peer.node,
        address: member.peer.address,
        voter: member.voter,
        lag: member.matched.map(|matched| last.saturating_sub(matched.0)),
        answers: status.leading.then_some(member.answers),
    };
    GroupView {
        name: group_name(group.id()),
        state: match status.role {
            Role::Leader => "Leader",
            Role::Follower => "Follower",
            Role::Candidate => "Candidate",
            Role::Learner => "Learner",
            Role::Stopped => "Shutdown",
        },
        leader: status.leader,
        term: status.term.0,
        last_index: last,
        applied_index: status.applied.map_or(0, |applied| applied.0),
        leader_changes: status.leader_changes,
        figures: group.figures(),
        members: group.members().into_iter().map(member).collect(),
    }
}
