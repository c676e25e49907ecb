//! What a node says of itself to those that have proved themselves.

use std::sync::Arc;

use boltq_core::NodeId;
use boltq_proto::internal::v1::IdentifyResponse;

/// Who a node is and where it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its id, which stays.
    pub node: NodeId,
    /// What its operator calls it.
    pub name: String,
    /// The cluster that it belongs to; 0 if it is in none yet.
    pub cluster: u64,
    /// Host and port for nodes.
    pub raft_address: String,
    /// Host and port for clients.
    pub messaging_address: String,
    /// Host and port for operators.
    pub admin_address: String,
    /// Of the program.
    pub version: String,
    /// What it has for `cluster.stream_groups`; earlier versions do not say.
    pub stream_groups: Option<u32>,
}

/// Says who this node is, now: its cluster comes with a join.
pub type InfoSource = Arc<dyn Fn() -> PeerInfo + Send + Sync>;

impl From<PeerInfo> for IdentifyResponse {
    fn from(info: PeerInfo) -> Self {
        Self {
            node: info.node.0,
            name: info.name,
            cluster: info.cluster,
            raft_address: info.raft_address,
            messaging_address: info.messaging_address,
            admin_address: info.admin_address,
            version: info.version,
            stream_groups: info.stream_groups,
        }
    }
}

impl From<IdentifyResponse> for PeerInfo {
    fn from(info: IdentifyResponse) -> Self {
        Self {
            node: NodeId(info.node),
            name: info.name,
            cluster: info.cluster,
            raft_address: info.raft_address,
            messaging_address: info.messaging_address,
            admin_address: info.admin_address,
            version: info.version,
            stream_groups: info.stream_groups,
        }
    }
}
