//! The cluster as the binary protocol and the admin port show it.
//!
//! `cluster` is older than the groups: it tells of the group of the queue plane, as if that were all. What came later is
//! added behind it.

use boltq_core::NodeId;
use serde::Serialize;

use crate::cluster::{QUEUE_GROUP, group_name};
use crate::service::{ClusterStatus, GroupView, MemberView};

/// `None`: this node is alone by configuration.
pub(super) fn put(out: &mut Vec<u8>, status: Option<&ClusterStatus>) {
    let answer = Answer {
        enabled: status.is_some(),
        cluster: status.map(Shown::of),
    };
    // Neither the writer nor these types can fail.
    let _ = serde_json::to_writer(out, &answer);
}

/// The group of the queue plane.
pub(super) fn queue_group(status: &ClusterStatus) -> Option<&GroupView> {
    let name = group_name(QUEUE_GROUP);
    status.groups.iter().find(|group| group.name == name)
}

/// What a node is in a group, in the words that clients know: to them, a learner is a follower.
pub(super) fn state(group: Option<&GroupView>) -> &'static str {
    match group.map(|group| group.state) {
        Some("Learner") => "Follower",
        Some(state) => state,
        None => "Shutdown",
    }
}

/// What a node is called; its number while, or after which, it has no name.
pub(super) fn name_of(status: &ClusterStatus, node: NodeId) -> String {
    let known = status.nodes.iter().chain([&status.node]);
    let named = known.into_iter().find(|known| known.node == node);
    named.map_or_else(|| format!("{:016x}", node.0), |known| known.name.clone())
}

/// The name of the node that leads a group; empty while nobody is known to.
pub(super) fn leader_of(status: &ClusterStatus, group: Option<&GroupView>) -> String {
    let leader = group.and_then(|group| group.leader);
    leader.map(|leader| name_of(status, leader)).unwrap_or_default()
}

/// The members of a group with their names, in the order of these.
pub(super) fn members<'a>(status: &ClusterStatus, group: &'a GroupView) -> Vec<(String, &'a MemberView)> {
    let named = group
        .members
        .iter()
        .map(|member| (name_of(status, member.node), member));
    let mut members: Vec<_> = named.collect();
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    members
}

#[derive(Serialize)]
struct Answer<'a> {
    enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<Shown<'a>>,
}

#[derive(Serialize)]
struct Shown<'a> {
    node_id: &'a str,
    raft_addr: &'a str,
    state: &'static str,
    /// Where other nodes reach it.
    leader: &'a str,
    leader_id: String,
    term: u64,
    last_index: u64,
    /// `id@address`.
    peers: Vec<String>,
    /// The id of this node, as logs name it.
    id: String,
    cluster_id: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    removed: bool,
    groups: Vec<ShownGroup<'a>>,
}

#[derive(Serialize)]
struct ShownGroup<'a> {
    name: &'a str,
    state: &'static str,
    leader_id: String,
    term: u64,
    last_index: u64,
    applied_index: u64,
    members: Vec<ShownMember>,
}

#[derive(Serialize)]
struct ShownMember {
    node_id: String,
    voter: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    lag: Option<u64>,
}

impl<'a> Shown<'a> {
    fn of(status: &'a ClusterStatus) -> Self {
        let queue = queue_group(status);
        let members = queue.map(|group| members(status, group)).unwrap_or_default();
        let leader = queue.and_then(|group| group.leader);
        let leader = members.iter().find(|(_, member)| Some(member.node) == leader);
        let peer = |(name, member): &(String, &MemberView)| format!("{name}@{}", member.address);
        Self {
            node_id: &status.node.name,
            raft_addr: &status.node.raft,
            state: state(queue),
            leader: leader.map(|(_, leader)| leader.address.as_str()).unwrap_or_default(),
            leader_id: leader_of(status, queue),
            term: queue.map(|group| group.term).unwrap_or_default(),
            last_index: queue.map(|group| group.last_index).unwrap_or_default(),
            peers: members.iter().map(peer).collect(),
            id: format!("{:016x}", status.node.node.0),
            cluster_id: status.cluster.map(|id| format!("{id:016x}")).unwrap_or_default(),
            removed: status.removed,
            groups: status
                .groups
                .iter()
                .map(|group| ShownGroup::of(status, group))
                .collect(),
        }
    }
}

impl<'a> ShownGroup<'a> {
    fn of(status: &ClusterStatus, group: &'a GroupView) -> Self {
        let member = |(node_id, member): (String, &MemberView)| ShownMember {
            node_id,
            voter: member.voter,
            lag: member.lag,
        };
        Self {
            name: &group.name,
            state: group.state,
            leader_id: leader_of(status, Some(group)),
            term: group.term,
            last_index: group.last_index,
            applied_index: group.applied_index,
            members: members(status, group).into_iter().map(member).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::NodeStatus;

    fn node(id: u64) -> NodeStatus {
        NodeStatus {
            node: NodeId(id),
            name: format!("n{id}"),
            raft: format!("10.0.0.{id}:9100"),
            messaging: format!("10.0.0.{id}:9091"),
            admin: format!("10.0.0.{id}:9090"),
            voter: true,
            version: "0.1.0".to_owned(),
        }
    }

    fn member(id: u64, voter: bool, lag: Option<u64>) -> MemberView {
        MemberView {
            node: NodeId(id),
            address: format!("10.0.0.{id}:9100"),
            voter,
            lag,
            answers: None,
        }
    }

    fn status(state: &'static str, leader: Option<u64>) -> ClusterStatus {
        let members = vec![
            member(2, true, Some(3)),
            member(1, true, Some(0)),
            member(0xabc, false, None),
        ];
        ClusterStatus {
            node: node(1),
            removed: false,
            cluster: Some(7),
            nodes: vec![node(1), node(2)],
            groups: vec![GroupView {
                name: "queue".to_owned(),
                state,
                leader: leader.map(NodeId),
                term: 4,
                last_index: 90_211,
                applied_index: 90_210,
                leader_changes: 2,
                figures: boltq_raft::GroupFigures::default(),
                members,
            }],
        }
    }

    fn shown(status: Option<&ClusterStatus>) -> String {
        let mut out = Vec::new();
        put(&mut out, status);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn alone_there_is_one_member() {
        assert_eq!(shown(None), r#"{"enabled":false}"#);
    }

    #[test]
    fn the_members_of_the_protocol_come_first_and_the_groups_behind_them() {
        let specified = concat!(
            r#"{"enabled":true,"cluster":{"node_id":"n1","raft_addr":"10.0.0.1:9100","state":"Leader","#,
            r#""leader":"10.0.0.1:9100","leader_id":"n1","term":4,"last_index":90211,"#,
            r#""peers":["0000000000000abc@10.0.0.2748:9100","n1@10.0.0.1:9100","n2@10.0.0.2:9100"],"#,
        );
        let ours = concat!(
            r#""id":"0000000000000001","cluster_id":"0000000000000007","groups":[{"name":"queue","state":"Leader","leader_id":"n1","#,
            r#""term":4,"last_index":90211,"applied_index":90210,"members":[{"node_id":"0000000000000abc","voter":false},"#,
            r#"{"node_id":"n1","voter":true,"lag":0},{"node_id":"n2","voter":true,"lag":3}]}]}}"#,
        );
        assert_eq!(shown(Some(&status("Leader", Some(1)))), [specified, ours].concat());
    }

    #[test]
    fn a_node_that_was_removed_says_so() {
        let removed = ClusterStatus {
            removed: true,
            ..status("Follower", None)
        };
        let text = shown(Some(&removed));
        assert!(
            text.contains(r#""cluster_id":"0000000000000007","removed":true,"groups":"#),
            "{text}"
        );
    }

    #[test]
    fn without_a_leader_its_members_are_empty() {
        let shown = shown(Some(&status("Candidate", None)));
        assert!(
            shown.contains(r#""state":"Candidate","leader":"","leader_id":"","term":4"#),
            "{shown}"
        );
    }

    #[test]
    fn to_clients_a_learner_is_a_follower() {
        let shown = shown(Some(&status("Learner", Some(2))));
        let as_before = r#""state":"Follower","leader":"10.0.0.2:9100","leader_id":"n2""#;
        assert!(shown.contains(as_before), "{shown}");
        assert!(shown.contains(r#""name":"queue","state":"Learner""#), "{shown}");
    }
}
