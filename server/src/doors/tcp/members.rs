//! Answering changes of who belongs to the cluster.

use tokio::io::{AsyncRead, AsyncWrite};

use super::bodies::ClusterJoin;
use super::connection::Connection;
use super::reply::{self, Refusal};
use crate::service::JoinRequest;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    pub(super) async fn join(&mut self, join: &ClusterJoin<'_>) {
        let request = JoinRequest {
            name: join.node_id.clone().into_owned(),
            address: join.addr.clone().into_owned(),
            voter: true,
            refresh: false,
        };
        match self.door.clustering().join(request).await {
            Ok(node) => reply::cluster_change(&mut self.out, "joined", &node.name),
            Err(error) => reply::refusal(&mut self.out, &Refusal::from(&error)),
        }
    }

    pub(super) async fn leave(&mut self, node_id: &str) {
        match self.door.clustering().leave(node_id).await {
            Ok(()) => reply::cluster_change(&mut self.out, "removed", node_id),
            Err(error) => reply::refusal(&mut self.out, &Refusal::from(&error)),
        }
    }
}
