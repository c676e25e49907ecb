//! What is refused although the command itself is in order: what takes the majority away, a node that comes as one that is
//! there already, and one that has other groups.

use std::collections::BTreeSet;
use std::time::Duration;

use boltq_core::NodeId;
use boltq_meta::NodeInfo;
use boltq_raft::Peer;
use futures_util::future::join_all;

use super::{Cluster, ClusterError, group_name};
use crate::peer::PeerInfo;

/// For a voter to say that it is there.
const ANSWER_MAX: Duration = Duration::from_secs(3);

impl Cluster {
    /// Whether the cluster can do without the vote of a node that has one.
    pub(super) async fn check_vote_may_go(&self, node: &NodeInfo) -> Result<(), ClusterError> {
        let registry = self.plane.registry();
        if node.voter && registry.nodes().filter(|node| node.voter).count() == 1 {
            return Err(ClusterError::Refused(format!(
                "{:?} is the only voter; a cluster without one can do nothing",
                node.name
            )));
        }
        self.check_majority_without(node).await
    }

    /// A group has to be on all nodes. One that is new is refused if it would not be; one that belongs to the cluster already is
    /// not kept from saying where it is now.
    pub(super) fn check_groups(&self, come: &PeerInfo, address: &str) -> Result<(), ClusterError> {
        let own = self.stream_groups();
        // A node of an earlier version does not say.
        let Some(other) = come.stream_groups.filter(|other| *other != own) else {
            return Ok(());
        };
        if self.plane.registry().node(come.node).is_some() {
            tracing::error!(
                node = come.name,
                address,
                other,
                own,
                "a node has another number of stream groups than this one; give all nodes the same messaging.stream, and cluster.stream_groups"
            );
            return Ok(());
        }
        Err(ClusterError::Refused(format!(
            "the node at {address} has {other} stream groups, and this cluster {own}; give all nodes the same messaging.stream, and \
             cluster.stream_groups"
        )))
    }

    /// Whether those who vote when a node has left can do anything: in each group that it votes in, a majority of them has to
    /// answer now. Otherwise the group would wait for nodes that are down, and the operator would hear "removed".
    async fn check_majority_without(&self, leaving: &NodeInfo) -> Result<(), ClusterError> {
        let answering = self.answering(leaving.node).await;
        let shortage = self.groups.iter().find_map(|group| {
            let members = group.members().into_iter().filter(|member| member.voter);
            let voters: BTreeSet<NodeId> = members.map(|member| member.peer.node).collect();
            let (there, left) = majority_without(&voters, &answering, leaving.node)?;
            Some((group_name(group.id()), there, left))
        });
        let Some((group, there, left)) = shortage else {
            return Ok(());
        };
        Err(ClusterError::Refused(format!(
            "without {:?}, only {there} of the {left} voters of the group {group} would answer, and nothing could be written; start \
             the others first, or remove those that are gone",
            leaving.name
        )))
    }

    /// This node, and all others that are voters of a group and say now that they are. They are asked: what is known of them
    /// is old by up to two election timeouts.
    async fn answering(&self, leaving: NodeId) -> BTreeSet<NodeId> {
        let members = self.groups.iter().flat_map(|group| group.members());
        let others = members.filter(|member| member.voter && member.peer.node != leaving);
        let others: BTreeSet<Peer> = others
            .filter(|member| member.peer.node != self.me.node)
            .map(|member| self.addresses.now(&member.peer))
            .collect();
        let asked = others.into_iter().map(async |peer| {
            let answer = self.peers.identify(&peer.address, ANSWER_MAX).await;
            answer.ok().map(|info| info.node).filter(|node| *node == peer.node)
        });
        let answers = join_all(asked).await.into_iter().flatten();
        answers.chain([self.me.node]).collect()
    }

    /// A node is in one place. Whoever comes as one that still answers elsewhere runs on a copy of its data, and would take its
    /// place without its knowing. One that says of itself, in both places, that it is reached in one and the same, is one.
    pub(super) async fn check_is_no_copy(&self, come: &PeerInfo, address: &str) -> Result<(), ClusterError> {
        let registry = self.plane.registry();
        let Some(known) = registry.node(come.node).filter(|known| known.raft != address) else {
            return Ok(());
        };
        let there = if known.node == self.me.node {
            Some(self.me.raft.clone())
        } else {
            let answer = self.identify(&known.raft).await.ok();
            answer
                .filter(|info| info.node == come.node)
                .map(|info| info.raft_address)
        };
        if there.is_none_or(|there| there == come.raft_address) {
            return Ok(());
        }
        Err(ClusterError::Refused(format!(
            "the node at {address} says that it is {:?}, which is still there, at {}; if its data directory was copied, start it on \
             an empty one, under another cluster.node_id",
            known.name, known.raft
        )))
    }
}

/// How many voters would answer, and how many there would be, if that is no majority. Nothing if the node does not vote.
fn majority_without(
    voters: &BTreeSet<NodeId>,
    answering: &BTreeSet<NodeId>,
    leaving: NodeId,
) -> Option<(usize, usize)> {
    let left = || voters.iter().filter(|voter| **voter != leaving);
    let there = left().filter(|voter| answering.contains(voter)).count();
    let left = left().count();
    (voters.contains(&leaving) && there * 2 <= left).then_some((there, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(ids: &[u64]) -> BTreeSet<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    fn without(voters: &[u64], answering: &[u64], leaving: u64) -> Option<(usize, usize)> {
        majority_without(&nodes(voters), &nodes(answering), NodeId(leaving))
    }

    #[test]
    fn a_majority_of_those_that_are_left_has_to_answer() {
        assert_eq!(without(&[1, 2, 3], &[1, 2, 3], 3), None);
        assert_eq!(without(&[1, 2, 3], &[1, 3], 3), Some((1, 2)));
        assert_eq!(without(&[1, 2, 3, 4, 5], &[1, 2, 5], 5), Some((2, 4)));
        assert_eq!(without(&[1, 2, 3, 4], &[1, 2, 4], 4), None);
    }

    #[test]
    fn who_is_down_may_be_removed() {
        assert_eq!(without(&[1, 2, 3], &[1, 3], 2), None);
        assert_eq!(without(&[1, 2], &[1], 2), None);
    }

    #[test]
    fn a_learner_may_always_leave() {
        assert_eq!(without(&[1, 2, 3], &[1], 4), None);
    }
}
