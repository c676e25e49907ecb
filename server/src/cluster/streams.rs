//! Calls for the leaders of the groups of the messaging plane.

use std::sync::{Arc, Weak};
use std::time::Duration;

use boltq_core::GroupId;
use boltq_messaging::{Passed, Route, Streams};
use boltq_raft::TransportError;
use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::Cluster;
use super::calls::STREAM_CALLS;

/// The way to them from this node. The cluster holds the plane, so this holds the cluster weakly.
pub struct LeaderRoute(Weak<Cluster>);

impl LeaderRoute {
    /// Over the connections of a cluster.
    #[must_use]
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        Self(Arc::downgrade(cluster))
    }
}

impl Route for LeaderRoute {
    fn pass_on(&self, group: GroupId, call: Bytes, within: Duration) -> BoxFuture<'_, Passed> {
        Box::pin(async move {
            let Some(cluster) = self.0.upgrade() else {
                return Passed::Nobody("this node is stopping".to_owned());
            };
            cluster.pass_on(group, call, within).await
        })
    }
}

impl Cluster {
    /// From now on this node carries out calls of others for the groups that it leads.
    pub fn lead_streams(&self, streams: Streams) {
        // Once, when the node starts.
        let _ = self.streams.set(streams);
    }

    pub(super) async fn serve_streams(&self, request: Bytes) -> Result<Bytes, String> {
        match self.streams.get() {
            Some(streams) => Ok(streams.serve(&request).await),
            None => Err("the messaging plane is not there, or not yet".to_owned()),
        }
    }

    async fn pass_on(&self, group: GroupId, call: Bytes, within: Duration) -> Passed {
        if self.departure.is_removed() {
            return Passed::Nobody("this node was removed from its cluster; ask another one".to_owned());
        }
        let Some(leader) = self.leader_of(group) else {
            return Passed::Nobody("no leader is known".to_owned());
        };
        if leader.node == self.me.node {
            return Passed::Nobody("this node is about to lead it".to_owned());
        }
        match self.peers.forward(&leader, STREAM_CALLS, call, within).await {
            Ok(answer) => Passed::Answered(answer),
            Err(error @ (TransportError::Unreachable { .. } | TransportError::Refused { .. })) => {
                Passed::Nobody(error.to_string())
            }
            Err(error) => Passed::Lost(error.to_string()),
        }
    }
}
