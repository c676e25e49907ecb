//! What can come out of a group.

use boltq_core::{DecodeError, GroupId, NodeId};

/// Everything that can come out of [`crate::Group::propose`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProposeError {
    /// Another node leads the group, or none does.
    #[error("this node does not lead the group; leader: {leader:?}")]
    NotLeader {
        /// Who leads, as far as is known.
        leader: Option<NodeId>,
    },
    /// The node stopped, or its log failed, before the outcome was known: the commands may have been carried out.
    #[error("the group stopped before the outcome was known")]
    Stopped,
}

/// Why a group could not be opened or came to its end.
#[derive(Debug, Clone, thiserror::Error)]
pub enum GroupError {
    /// The checkpoint cannot be read.
    #[error("checkpoint of group {group}: {source}")]
    Checkpoint {
        /// The group.
        group: GroupId,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// openraft refused to start or stopped.
    #[error("group {group}: {what}")]
    Raft {
        /// The group.
        group: GroupId,
        /// What it said.
        what: String,
    },
}

/// Why an entry could not be applied. The node stops: its state may differ from that of other replicas from here on.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The entry is of a version that is not known, or damaged.
    #[error("entry cannot be read: {0}")]
    Decode(#[from] DecodeError),
    /// The store does not know the places that the state machine gave.
    #[error("records cannot be placed: {0}")]
    Place(String),
}
