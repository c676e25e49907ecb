//! What a node is in a group, and how far it is, without openraft's types.

use std::sync::atomic::Ordering;

use boltq_core::{LogIndex, NodeId, Term};
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;

use super::{Group, GroupHandler};
use crate::standing::Standing;

/// What a node is in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It leads.
    Leader,
    /// It votes.
    Follower,
    /// It stands for election.
    Candidate,
    /// It gets everything and does not vote.
    Learner,
    /// The group has stopped.
    Stopped,
}

impl From<ServerState> for Role {
    fn from(state: ServerState) -> Self {
        match state {
            ServerState::Leader => Self::Leader,
            ServerState::Follower => Self::Follower,
            ServerState::Candidate => Self::Candidate,
            ServerState::Learner => Self::Learner,
            ServerState::Shutdown => Self::Stopped,
        }
    }
}

/// A group at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStatus {
    /// What this node is in it.
    pub role: Role,
    /// Who leads, as far as this node knows: nobody, if it has heard nothing for the longest election timeout, twice over.
    pub leader: Option<NodeId>,
    /// Whether it is this node.
    pub leading: bool,
    /// The term.
    pub term: Term,
    /// The last entry of the log.
    pub last: Option<LogIndex>,
    /// The last entry that was applied.
    pub applied: Option<LogIndex>,
    /// Entries applied since the start.
    pub applied_entries: u64,
    /// Checkpoints written since the start.
    pub checkpoints: u64,
    /// How often the leader changed since the start.
    pub leader_changes: u64,
    /// Why the group stopped, if it did.
    pub failed: Option<String>,
}

impl<H: GroupHandler> Group<H> {
    /// What the group is doing.
    #[must_use]
    pub fn status(&self) -> GroupStatus {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        let progress = &self.inner.progress;
        GroupStatus {
            role: metrics.state.into(),
            leader: metrics
                .current_leader
                .map(NodeId)
                .filter(|_| self.inner.hears(&metrics)),
            leading: metrics.state == ServerState::Leader && progress.standing.get() == Standing::Fit,
            term: Term(metrics.current_term),
            last: metrics.last_log_index.map(LogIndex),
            applied: metrics.last_applied.as_ref().map(|id| LogIndex(id.index())),
            applied_entries: progress.applied_entries.load(Ordering::Relaxed),
            checkpoints: progress.checkpoints.load(Ordering::Relaxed),
            leader_changes: progress.leader_changes.load(Ordering::Relaxed),
            failed: metrics.running_state.as_ref().err().map(ToString::to_string),
        }
    }
}
