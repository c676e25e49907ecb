//! What can come out of a group.

use boltq_core::{DecodeError, GroupId, LogIndex, NodeId};

/// Everything that can come out of [`crate::Group::propose`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProposeError {
    /// Another node leads the group, or none does.
    #[error("this node does not lead the group; leader: {leader:?}")]
    NotLeader {
        /// Who leads, as far as is known.
        leader: Option<NodeId>,
    },
    /// The commands do not fit into an entry. Nothing was proposed.
    #[error("{bytes} bytes of commands in one proposal; at most {bytes_max} are allowed, propose them in portions")]
    TooLarge {
        /// Of the commands.
        bytes: usize,
        /// What is allowed.
        bytes_max: usize,
    },
    /// The node stopped, or its log failed, before the outcome was known: the commands may have been carried out.
    #[error("the group stopped before the outcome was known")]
    Stopped,
}

/// Why it is not so that as many voters have an entry as [`crate::GroupConfig::min_in_sync`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InSyncError {
    /// Too few voters are there.
    #[error("{answering} voters answer; {wanted} have to have what is answered")]
    TooFewAnswer {
        /// Voters that answer, this node included.
        answering: usize,
        /// What is asked for.
        wanted: usize,
    },
    /// This node stopped leading before enough voters confirmed the entry, which a majority has.
    #[error("a majority has it; whether {wanted} voters do is not known")]
    Unknown {
        /// What is asked for.
        wanted: usize,
    },
}

/// Why a read cannot be made sure to be current. What the node has can be read nevertheless.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Nobody is known to lead the group.
    #[error("nobody is known to lead the group")]
    NoLeader,
    /// The leader does not reach a majority of the voters, which may have elected another one.
    #[error("the leader does not reach a majority of the nodes")]
    NoMajority,
    /// The leader does not answer.
    #[error("the leader was not reached: {0}")]
    NotReached(String),
    /// This node lags.
    #[error("this node has not applied entry {wanted} in time")]
    Behind {
        /// Up to which everything was committed.
        wanted: LogIndex,
    },
    /// The group stopped.
    #[error("the group stopped")]
    Stopped,
}

/// Why the members of a group were not changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MembershipError {
    /// Another node leads the group, or none does. Nothing was changed.
    #[error("this node does not lead the group; leader: {leader:?}")]
    NotLeader {
        /// Who leads, as far as is known.
        leader: Option<NodeId>,
    },
    /// No majority confirmed the change in time; it may still happen.
    #[error("no majority of the voters confirmed the change in time; it may still happen")]
    NoMajority,
    /// Another change is on its way, or this one does not fit the members that there are.
    #[error("{0}")]
    Refused(String),
    /// The group stopped before the outcome was known.
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
