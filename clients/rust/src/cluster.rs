//! The cluster: what it consists of, and how that is changed.

use boltq_proto::cluster::v1 as proto;
use boltq_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use tonic::transport::Channel;

use crate::net::Repeat;
use crate::{Client, Result};

/// The cluster. The messages of the protocol are described in its files.
#[derive(Debug, Clone)]
pub struct Cluster {
    client: Client,
}

impl Cluster {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// The cluster as the node sees it that answers. A node that is alone answers too.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub async fn status(&self) -> Result<proto::GetStatusResponse> {
        let make = |channel, request| async move { service(channel).get_status(request).await };
        let request = proto::GetStatusRequest {};
        self.client.caller().call(Repeat::Always, request, make).await
    }

    /// Takes a node into the cluster, or tells the others its new address.
    ///
    /// # Errors
    /// `NODE_NOT_REACHED`, `REFUSED`, `CLUSTERING_NOT_ENABLED`; others see [`Error`](crate::Error).
    pub async fn join(&self, request: proto::JoinRequest) -> Result<proto::JoinResponse> {
        let make = |channel, request| async move { service(channel).join(request).await };
        self.client.caller().call(Repeat::IfNotDone, request, make).await
    }

    /// Takes a node out of the cluster, for good.
    ///
    /// # Errors
    /// `NODE_NOT_FOUND`, `REFUSED`, `CLUSTERING_NOT_ENABLED`; others see [`Error`](crate::Error).
    pub async fn leave(&self, node_id: &str) -> Result<proto::LeaveResponse> {
        let make = |channel, request| async move { service(channel).leave(request).await };
        let request = proto::LeaveRequest {
            node_id: node_id.to_owned(),
        };
        self.client.caller().call(Repeat::IfNotDone, request, make).await
    }

    /// Hands a group over to another voter, or to whichever has most of the log if `node_id` is empty.
    ///
    /// # Errors
    /// `GROUP_NOT_FOUND`, `NODE_NOT_FOUND`, `REFUSED`; others see [`Error`](crate::Error).
    pub async fn transfer_leadership(&self, group: &str, node_id: &str) -> Result<proto::TransferLeadershipResponse> {
        let make = |channel, request| async move { service(channel).transfer_leadership(request).await };
        let request = proto::TransferLeadershipRequest {
            group: group.to_owned(),
            node_id: node_id.to_owned(),
        };
        self.client.caller().call(Repeat::IfNotDone, request, make).await
    }
}

fn service(channel: Channel) -> ClusterServiceClient<Channel> {
    ClusterServiceClient::new(channel)
}
