//! `boltq.cluster.v1.ClusterService`.

use std::collections::HashMap;
use std::time::Duration;

use boltq_proto::cluster::v1::cluster_service_server::ClusterService;
use boltq_proto::cluster::v1::{
    GetStatusRequest, GetStatusResponse, Group, GroupState, JoinRequest, JoinResponse, LeaveRequest, LeaveResponse,
    Member, Node, TransferLeadershipRequest, TransferLeadershipResponse,
};
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::error::DOMAIN;
use crate::cluster::ClusterError;
use crate::doors::cluster_status::{leader_of, members};
use crate::service::{self, ClusterStatus, Clustering, GroupView, MemberView, NodeStatus};

/// An election takes about as long.
const ELECTION: Duration = Duration::from_secs(1);

pub(super) struct ClusterDoor {
    clustering: Clustering,
}

impl ClusterDoor {
    pub(super) fn new(clustering: Clustering) -> Self {
        Self { clustering }
    }

    /// Where there is no cluster, nothing else is worth a word.
    fn enabled(&self) -> Result<&Clustering, ClusterError> {
        match self.clustering.is_enabled() {
            true => Ok(&self.clustering),
            false => Err(ClusterError::NotEnabled),
        }
    }
}

/// The table: one row per error.
fn code(error: &ClusterError) -> Code {
    match error {
        ClusterError::Invalid(_) => Code::InvalidArgument,
        ClusterError::NotEnabled
        | ClusterError::NotReached { .. }
        | ClusterError::Refused(_)
        | ClusterError::Removed(_) => Code::FailedPrecondition,
        ClusterError::UnknownNode(_) | ClusterError::UnknownGroup(_) => Code::NotFound,
        ClusterError::NoLeader { .. } | ClusterError::Stopped => Code::Unavailable,
    }
}

impl From<ClusterError> for Status {
    fn from(error: ClusterError) -> Self {
        let code = code(&error);
        let mut metadata = HashMap::new();
        if code == Code::Unavailable {
            metadata.insert("retry_after_ms".to_owned(), ELECTION.as_millis().to_string());
        }
        let details = ErrorDetails::with_error_info(error.reason(), DOMAIN, metadata);
        Self::with_error_details(code, error.to_string(), details)
    }
}

#[tonic::async_trait]
impl ClusterService for ClusterDoor {
    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinResponse>, Status> {
        let clustering = self.enabled()?;
        let JoinRequest {
            node_id,
            address,
            non_voter,
        } = request.into_inner();
        if address.is_empty() {
            return Err(ClusterError::Invalid("address is required".to_owned()).into());
        }
        let joining = service::JoinRequest {
            name: node_id,
            address,
            voter: !non_voter,
            refresh: false,
        };
        let joined = clustering.join(joining).await?;
        Ok(Response::new(JoinResponse {
            node: Some(node(joined)),
            groups: clustering.group_names(),
        }))
    }

    async fn leave(&self, request: Request<LeaveRequest>) -> Result<Response<LeaveResponse>, Status> {
        let clustering = self.enabled()?;
        let node_id = request.into_inner().node_id;
        if node_id.is_empty() {
            return Err(ClusterError::Invalid("node_id is required".to_owned()).into());
        }
        clustering.leave(&node_id).await?;
        let groups = clustering.group_names();
        Ok(Response::new(LeaveResponse { groups }))
    }

    async fn get_status(&self, _request: Request<GetStatusRequest>) -> Result<Response<GetStatusResponse>, Status> {
        Ok(Response::new(match self.clustering.status() {
            Some(status) => shown(status),
            None => GetStatusResponse::default(),
        }))
    }

    async fn transfer_leadership(
        &self,
        request: Request<TransferLeadershipRequest>,
    ) -> Result<Response<TransferLeadershipResponse>, Status> {
        let clustering = self.enabled()?;
        let TransferLeadershipRequest { group, node_id } = request.into_inner();
        if group.is_empty() {
            return Err(ClusterError::Invalid("group is required".to_owned()).into());
        }
        let leader = clustering.transfer(&group, &node_id).await?;
        Ok(Response::new(TransferLeadershipResponse {
            leader: Some(node(leader)),
        }))
    }
}

fn shown(status: ClusterStatus) -> GetStatusResponse {
    let groups = status.groups.iter().map(|view| group(&status, view)).collect();
    GetStatusResponse {
        enabled: true,
        removed: status.removed,
        cluster_id: status.cluster.map(|id| format!("{id:016x}")).unwrap_or_default(),
        groups,
        node: Some(node(status.node)),
        nodes: status.nodes.into_iter().map(node).collect(),
    }
}

fn node(node: NodeStatus) -> Node {
    Node {
        node_id: node.name,
        raft_address: node.raft,
        messaging_address: node.messaging,
        admin_address: node.admin,
        voter: node.voter,
        version: node.version,
    }
}

fn state(name: &str) -> GroupState {
    match name {
        "Leader" => GroupState::Leader,
        "Follower" => GroupState::Follower,
        "Candidate" => GroupState::Candidate,
        "Learner" => GroupState::Learner,
        "Shutdown" => GroupState::Shutdown,
        _ => GroupState::Unspecified,
    }
}

fn group(status: &ClusterStatus, view: &GroupView) -> Group {
    let member = |(node_id, member): (String, &MemberView)| Member {
        node_id,
        address: member.address.clone(),
        voter: member.voter,
        lag: member.lag,
    };
    Group {
        name: view.name.clone(),
        state: state(view.state).into(),
        leader_id: leader_of(status, Some(view)),
        term: view.term,
        last_index: view.last_index,
        applied_index: view.applied_index,
        members: members(status, view).into_iter().map(member).collect(),
    }
}
