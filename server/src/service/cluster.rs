//! What operators ask of the cluster: who is in it, and changes of that.

use std::sync::Arc;

use boltq_core::NodeId;
pub use boltq_meta::NodeInfo as NodeStatus;
use boltq_raft::GroupFigures;

use crate::cluster::{Cluster, ClusterError, group_name};

/// The cluster as the doors use it; clones are cheap and share it. Without clustering there is none behind it.
#[derive(Clone, Default)]
pub struct Clustering {
    cluster: Option<Arc<Cluster>>,
}

/// Who leads the queue plane, for those who ask another node; all of it is empty while nobody is known to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leader {
    /// What the node is called.
    pub name: String,
    /// Host and port for clients.
    pub messaging: String,
    /// Host and port for other nodes.
    pub raft: String,
}

/// A node that is to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinRequest {
    /// What it is called; empty: whatever it calls itself.
    pub name: String,
    /// Where other nodes reach it, host and port.
    pub address: String,
    /// Whether it is to vote.
    pub voter: bool,
    /// Refuses a node that is not there yet: it believes to be a member, and was removed.
    pub refresh: bool,
}

/// The cluster at one moment, as this node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterStatus {
    /// This node.
    pub node: NodeStatus,
    /// This node was removed from the cluster and serves nothing.
    pub removed: bool,
    /// The id of the cluster, once it is known.
    pub cluster: Option<u64>,
    /// All nodes that belong to it, by name.
    pub nodes: Vec<NodeStatus>,
    /// The groups, the registry first.
    pub groups: Vec<GroupView>,
}

/// A group as this node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView {
    /// `meta`, `queue`, `stream-0` …
    pub name: String,
    /// What this node is in it: `Leader`, `Follower`, `Candidate`, `Learner` or `Shutdown`.
    pub state: &'static str,
    /// Who leads it, as far as is known.
    pub leader: Option<NodeId>,
    /// The term.
    pub term: u64,
    /// The last entry in the log of this node.
    pub last_index: u64,
    /// The last entry that this node has applied.
    pub applied_index: u64,
    /// How often this node saw the leader change since its start.
    pub leader_changes: u64,
    /// What it has counted since the start.
    pub figures: GroupFigures,
    /// Its members.
    pub members: Vec<MemberView>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    /// Who.
    pub node: NodeId,
    /// Where others reach it.
    pub address: String,
    /// Whether it votes now.
    pub voter: bool,
    /// Entries that it lacks; only the leader knows.
    pub lag: Option<u64>,
    /// Whether it answers; only the leader knows.
    pub answers: Option<bool>,
}

impl Clustering {
    /// Over a cluster, or over none.
    pub(crate) fn new(cluster: Option<Arc<Cluster>>) -> Self {
        Self { cluster }
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.cluster.is_some()
    }

    /// Whether this node was removed from its cluster.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.departure().is_removed())
    }

    fn cluster(&self) -> Result<&Cluster, ClusterError> {
        self.cluster.as_deref().ok_or(ClusterError::NotEnabled)
    }

    /// Another node that leads the queue plane.
    #[must_use]
    pub fn queue_leader(&self) -> Leader {
        let leader = self.cluster.as_ref().and_then(|cluster| cluster.queue_leader());
        leader.map_or_else(Leader::default, |leader| Leader {
            name: leader.name,
            messaging: leader.messaging,
            raft: leader.raft,
        })
    }

    /// The admin address of the node that leads the queue plane, if it is known and not this one.
    #[must_use]
    pub fn queue_leader_admin(&self) -> Option<String> {
        Some(self.cluster.as_ref()?.queue_leader()?.admin)
    }

    /// What there is; nothing without clustering.
    #[must_use]
    pub fn status(&self) -> Option<ClusterStatus> {
        self.cluster.as_ref().map(|cluster| cluster.status())
    }

    /// Takes a node into the cluster, or tells the others its new address. It gets everything from then on, and a voter
    /// votes once it has caught up. Forwarded to the leader. Joining again is harmless.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub async fn join(&self, request: JoinRequest) -> Result<NodeStatus, ClusterError> {
        self.cluster()?.join(request).await
    }

    /// Takes a node out of the cluster, for good. Forwarded to the leader.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub async fn leave(&self, name: &str) -> Result<(), ClusterError> {
        self.cluster()?.leave(name).await
    }

    /// Hands the leadership of a group (`meta`, `queue`, …) to a node, or to any other voter if `to` is empty. Forwarded to
    /// the leader. Returns when the other node leads.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub async fn transfer(&self, group: &str, to: &str) -> Result<NodeStatus, ClusterError> {
        self.cluster()?.transfer(group, to).await
    }

    /// The names of the groups.
    #[must_use]
    pub fn group_names(&self) -> Vec<String> {
        let groups = self.cluster.as_ref().map(|cluster| cluster.group_ids());
        groups.unwrap_or_default().into_iter().map(group_name).collect()
    }
}
