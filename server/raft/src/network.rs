//! The network of a node that has no peers yet.
//!
//! Groups are opened with themselves as the only member, so openraft never calls it; if a membership with other nodes
//! is found on disk, they are unreachable, and the group waits instead of pretending.

use std::future::Future;

use openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::impls::BasicNode;
use openraft::network::RPCOption;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::{RaftNetworkFactory, network::v2::RaftNetworkV2};

use crate::store::CheckpointData;
use crate::types::{TypeConfig, Vote};

pub(crate) struct NoPeers;

pub(crate) struct NoPeer {
    target: u64,
}

impl NoPeer {
    fn unreachable(&self) -> Unreachable<TypeConfig> {
        Unreachable::from_string(format!(
            "node {} cannot be reached: clustering is not available",
            self.target
        ))
    }
}

impl RaftNetworkFactory<TypeConfig> for NoPeers {
    type Network = NoPeer;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> NoPeer {
        NoPeer { target }
    }
}

impl RaftNetworkV2<TypeConfig> for NoPeer {
    type SnapshotData = CheckpointData;

    async fn append_entries(
        &mut self,
        _request: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(self.unreachable()))
    }

    async fn vote(
        &mut self,
        _request: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(self.unreachable()))
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: openraft::alias::SnapshotOf<TypeConfig, CheckpointData>,
        _cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        Err(StreamingError::Unreachable(self.unreachable()))
    }
}
