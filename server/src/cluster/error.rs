//! Why something was not done to the cluster.

use boltq_raft::{MembershipError, ProposeError};

/// The text is for people: what was wrong, and what to do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClusterError {
    /// This node is alone by configuration.
    #[error("clustering is not enabled")]
    NotEnabled,
    /// A member of the request is missing or out of its range.
    #[error("{0}")]
    Invalid(String),
    /// Nobody leads the group now, or it cannot be reached.
    #[error("no leader of the group {group} can be reached; try again: {why}")]
    NoLeader {
        /// What the group is called.
        group: String,
        /// What is known.
        why: String,
    },
    /// The node that wants to join cannot be asked who it is.
    #[error("the node at {address} does not answer as one of this cluster: {why}")]
    NotReached {
        /// Where it was looked for.
        address: String,
        /// What happened.
        why: String,
    },
    /// The rules of the cluster are against it.
    #[error("{0}")]
    Refused(String),
    /// There is no such node.
    #[error("node {0:?} is not in the cluster")]
    UnknownNode(String),
    /// A node that believes to be there was removed.
    #[error("node {0:?} was removed from the cluster; `boltq cluster join` takes it in again")]
    Removed(String),
    /// There is no such group.
    #[error("there is no group {0:?}; there are meta, queue and stream-0, stream-1 …")]
    UnknownGroup(String),
    /// The node is stopping, or the outcome is not known.
    #[error("the node is stopping")]
    Stopped,
}

impl ClusterError {
    /// Stable name for programs; never renamed.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotEnabled => "CLUSTERING_NOT_ENABLED",
            Self::Invalid(_) => "INVALID_ARGUMENT",
            Self::NoLeader { .. } => "NO_LEADER",
            Self::NotReached { .. } => "NODE_NOT_REACHED",
            Self::Refused(_) => "REFUSED",
            Self::UnknownNode(_) => "NODE_NOT_FOUND",
            Self::Removed(_) => "NODE_REMOVED",
            Self::UnknownGroup(_) => "GROUP_NOT_FOUND",
            Self::Stopped => "STOPPED",
        }
    }
}

impl From<ProposeError> for ClusterError {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::NotLeader { .. } => Self::NoLeader {
                group: "meta".to_owned(),
                why: error.to_string(),
            },
            ProposeError::TooLarge { .. } => Self::Refused(error.to_string()),
            ProposeError::Stopped => Self::Stopped,
        }
    }
}

impl From<MembershipError> for ClusterError {
    fn from(error: MembershipError) -> Self {
        Self::Refused(error.to_string())
    }
}
