//! What a group can be told.

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
    /// The clock of the node. Its time goes into the entries that this node proposes.
    pub clock: fn() -> Millis,
    /// Commands that may wait for their outcome, in bytes. Beyond it callers wait. Default 32 MiB.
    pub proposal_bytes_max: usize,
    /// Commands in one entry, in bytes; a single larger proposal still gets an entry of its own. Default 1 MiB.
    pub entry_bytes_max: usize,
    /// Log written since the last checkpoint before the next one is taken, in bytes. Default 32 MiB.
    pub checkpoint_interval_bytes: u64,
}

impl GroupConfig {
    /// The defaults for a group on a node.
    #[must_use]
    pub fn new(group: GroupId, node: NodeId, clock: fn() -> Millis) -> Self {
        Self {
            group,
            node,
            address: String::new(),
            clock,
            proposal_bytes_max: 32 << 20,
            entry_bytes_max: 1 << 20,
            checkpoint_interval_bytes: 32 << 20,
        }
    }
}
