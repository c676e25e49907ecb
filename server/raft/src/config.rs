//! What a group can be told.

use std::time::Duration;

use boltq_core::{GroupId, Millis, NodeId};

/// Settings of one group on this node.
#[derive(Debug, Clone)]
pub struct GroupConfig {
    /// The group.
    pub group: GroupId,
    /// This node.
    pub node: NodeId,
    /// Where other nodes reach this one; kept in the membership.
    pub address: String,
    /// Whether a group that is new starts with this node as the only member. Otherwise it waits until the leader of the
    /// group that there is adds this node.
    pub found: bool,
    /// Followers hear from their leader this often. Default 200 ms.
    pub heartbeat: Duration,
    /// A follower that hears nothing for the longer of the two, and then for a random time between them, stands for
    /// election. Default 400 to 700 ms, so that a leader that dies is replaced after 1.1 to 1.4 s.
    pub election: (Duration, Duration),
    /// A leader whose device has not answered for so long gives leadership away. Default 10 s.
    pub stall_max: Duration,
    /// Voters that have to have an entry before [`crate::Group::in_sync`] returns, this node included, if that is more than a
    /// majority. Default 0.
    pub min_in_sync: usize,
    /// The clock of the node. Its time goes into the entries that this node proposes.
    pub clock: fn() -> Millis,
    /// Commands that may wait for their outcome, in bytes. Beyond it callers wait. Default 32 MiB.
    pub proposal_bytes_max: usize,
    /// Commands in one entry, in bytes; a single larger proposal still gets an entry of its own. Default 1 MiB.
    pub entry_bytes_max: usize,
    /// Log written since the last checkpoint before the next one is taken, in bytes; four times the state in that one, if that is
    /// more. Default 32 MiB.
    pub checkpoint_interval_bytes: u64,
    /// Entries since the last checkpoint before the next one is taken, whatever their bytes. Default: any number.
    pub checkpoint_interval_entries: u64,
    /// Entries that a checkpoint covers and that are kept nevertheless, in bytes of log, as long as there are other members:
    /// a follower that was away gets them instead of a snapshot. None of them on a full device. Default 32 MiB.
    pub kept_entries_bytes: u64,
}

impl GroupConfig {
    /// The defaults for a group on a node.
    #[must_use]
    pub fn new(group: GroupId, node: NodeId, clock: fn() -> Millis) -> Self {
        Self {
            group,
            node,
            address: String::new(),
            found: true,
            heartbeat: Duration::from_millis(200),
            election: (Duration::from_millis(400), Duration::from_millis(700)),
            stall_max: Duration::from_secs(10),
            min_in_sync: 0,
            clock,
            proposal_bytes_max: 32 << 20,
            entry_bytes_max: 1 << 20,
            checkpoint_interval_bytes: 32 << 20,
            checkpoint_interval_entries: u64::MAX,
            kept_entries_bytes: 32 << 20,
        }
    }
}
