//! Who belongs to a group.
//!
//! A new node comes in as a learner, which gets everything and counts for nothing. Once it has caught up it can be promoted
//! to a voter. Changes need a majority of the voters before and after, and there is one at a time.
//!
//! A change of voters is two entries: from the first one on, majorities of the old and of the new voters are needed, and the
//! second one ends that. Should the leader be gone in between, the next one writes the second.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use boltq_core::{LogIndex, NodeId, Term};
use openraft::async_runtime::WatchReceiver;
use openraft::error::{ClientWriteError, RaftError};
use openraft::impls::BasicNode;
use openraft::{ChangeMembers, Instant as _, ServerState};

use crate::error::MembershipError;
use crate::group::{Group, GroupHandler, Inner};
use crate::transport::Peer;
use crate::types::TypeConfig;

/// A change that no majority confirms in this time is reported as open: it may still happen.
const CHANGE_MAX: Duration = Duration::from_secs(10);

/// Between two attempts to end a change of an earlier leader.
const FINISH_RETRY: Duration = Duration::from_millis(200);

/// A node of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Who, and where.
    pub peer: Peer,
    /// Whether it votes.
    pub voter: bool,
    /// The last entry that is known to be on it; only the leader knows.
    pub matched: Option<LogIndex>,
    /// Whether it answers, or is this node; only the leader knows.
    pub answers: bool,
}

impl<H: GroupHandler> Group<H> {
    /// The members as this node knows them, in the order of their ids.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        let (metrics, silence_max) = (self.raft_metrics(), self.silence_max());
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let member = |(id, node): (&u64, &BasicNode)| Member {
            peer: Peer {
                node: NodeId(*id),
                address: node.addr.clone(),
            },
            voter: voters.contains(id),
            matched: metrics
                .replication
                .as_ref()
                .and_then(|replication| replication.get(id).copied().flatten())
                .map(|matched| LogIndex(matched.index())),
            answers: *id == metrics.id
                || metrics
                    .heartbeat
                    .as_ref()
                    .and_then(|heard| heard.get(id)?.as_deref())
                    .is_some_and(|heard| heard.elapsed() < silence_max),
        };
        membership.nodes().map(member).collect()
    }

    /// Whether a change is not confirmed by a majority yet. Until it is, no other one can begin.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        let metrics = self.raft_metrics();
        metrics.membership_config.log_id() != metrics.committed_membership_config.log_id()
    }

    /// Adds a node as a learner, or sets a new address for a member. Without effect if it is there with that address.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn add_learner(&self, peer: &Peer) -> Result<(), MembershipError> {
        let known = self.members().into_iter().find(|member| member.peer.node == peer.node);
        let node = BTreeMap::from([(
            peer.node.0,
            BasicNode {
                addr: peer.address.clone(),
            },
        )]);
        match known {
            Some(member) if member.peer.address == peer.address => Ok(()),
            Some(_) => self.change(ChangeMembers::SetNodes(node)).await,
            None => self.change(ChangeMembers::AddNodes(node)).await,
        }
    }

    /// Makes a learner a voter. Without effect if it is one.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn promote(&self, node: NodeId) -> Result<(), MembershipError> {
        let metrics = self.raft_metrics();
        let mut configs = metrics.membership_config.membership().get_joint_config().iter();
        // In both, if there are two: otherwise the change is not done.
        if configs.all(|voters| voters.contains(&node.0)) {
            return Ok(());
        }
        self.change(ChangeMembers::AddVoterIds(BTreeSet::from([node.0]))).await
    }

    /// Makes a voter a learner. Without effect if it is none.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn demote(&self, node: NodeId) -> Result<(), MembershipError> {
        if !self.votes(node) {
            return Ok(());
        }
        self.change(ChangeMembers::RemoveVoters(BTreeSet::from([node.0]))).await
    }

    /// Removes a node. Without effect if it is not there.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn remove(&self, node: NodeId) -> Result<(), MembershipError> {
        let removed = BTreeSet::from([node.0]);
        match self.members().into_iter().find(|member| member.peer.node == node) {
            None => Ok(()),
            // A voter that is not kept as a learner is gone.
            Some(member) if member.voter => self.change_keeping(ChangeMembers::RemoveVoters(removed), false).await,
            Some(_) => self.change(ChangeMembers::RemoveNodes(removed)).await,
        }
    }

    pub(crate) fn votes(&self, node: NodeId) -> bool {
        self.members()
            .iter()
            .any(|member| member.peer.node == node && member.voter)
    }

    async fn change(&self, change: ChangeMembers<u64, BasicNode>) -> Result<(), MembershipError> {
        self.change_keeping(change, true).await
    }

    /// `learners`: whether voters that are removed stay as learners.
    async fn change_keeping(
        &self,
        change: ChangeMembers<u64, BasicNode>,
        learners: bool,
    ) -> Result<(), MembershipError> {
        let metrics = self.raft_metrics();
        let mut members = metrics.membership_config.membership().nodes();
        // A leader that has taken itself out goes on for a moment, and openraft asserts that it begins nothing new. One that
        // stays as a learner goes on leading, and may.
        if !members.any(|(member, _)| *member == metrics.id) {
            let leader = metrics.current_leader.filter(|leader| *leader != metrics.id);
            return Err(MembershipError::NotLeader {
                leader: leader.map(NodeId),
            });
        }
        let changing = self.raft().change_membership(change, learners);
        match tokio::time::timeout(CHANGE_MAX, changing).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(membership_error(error)),
            Err(_) => Err(MembershipError::NoMajority),
        }
    }
}

impl<H: GroupHandler> Inner<H> {
    /// As the new leader, ends the change that an earlier one has begun, if there is one. Who was to leave stays as a learner,
    /// until somebody asks for it again.
    pub(crate) async fn finish_change(self: Arc<Self>, term: Term) {
        loop {
            let metrics = self.raft.metrics().borrow_watched().clone();
            let joint = metrics.membership_config.membership().get_joint_config().len() > 1;
            if !joint || metrics.state != ServerState::Leader || metrics.current_term != term.0 {
                return;
            }
            tracing::info!(group = %self.config.group, "ending the change of members of an earlier leader");
            let nobody_new = ChangeMembers::AddVoterIds(BTreeSet::new());
            let ending = self.raft.change_membership(nobody_new, true);
            match tokio::time::timeout(CHANGE_MAX, ending).await {
                Ok(Ok(_) | Err(RaftError::Fatal(_))) => return,
                Ok(Err(error)) => tracing::debug!(group = %self.config.group, %error, "not ended yet"),
                Err(_) => {}
            }
            tokio::time::sleep(FINISH_RETRY).await;
        }
    }
}

fn membership_error(error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> MembershipError {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(to)) => MembershipError::NotLeader {
            leader: to.leader_id.map(NodeId),
        },
        RaftError::APIError(error) => MembershipError::Refused(error.to_string()),
        RaftError::Fatal(_) => MembershipError::Stopped,
    }
}
