//! A cluster by the book.

use boltq_proto::cluster::v1::cluster_service_server::ClusterService;
use boltq_proto::cluster::v1::*;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::{Answer, Service};

fn member(name: &str, voter: bool) -> Node {
    Node {
        node_id: name.to_owned(),
        raft_address: format!("{name}:9100"),
        voter,
        ..Node::default()
    }
}

#[tonic::async_trait]
impl ClusterService for Service {
    async fn join(&self, request: Request<JoinRequest>) -> Answer<JoinResponse> {
        let request = request.into_inner();
        let node = Some(member("n4", !request.non_voter));
        self.asked.lock().unwrap().joined.push(request);
        let groups = vec!["meta".to_owned(), "queue".to_owned()];
        Ok(Response::new(JoinResponse { node, groups }))
    }

    async fn leave(&self, request: Request<LeaveRequest>) -> Answer<LeaveResponse> {
        let node = request.into_inner().node_id;
        if node == "n9" {
            let info = ErrorDetails::with_error_info("NODE_NOT_FOUND", "boltq", std::collections::HashMap::new());
            let text = format!("node {node:?} is not in the cluster");
            return Err(Status::with_error_details(Code::NotFound, text, info));
        }
        self.asked.lock().unwrap().left.push(node);
        let groups = vec!["meta".to_owned(), "queue".to_owned()];
        Ok(Response::new(LeaveResponse { groups }))
    }

    async fn get_status(&self, _: Request<GetStatusRequest>) -> Answer<GetStatusResponse> {
        Ok(Response::new(GetStatusResponse::default()))
    }

    async fn transfer_leadership(
        &self,
        request: Request<TransferLeadershipRequest>,
    ) -> Answer<TransferLeadershipResponse> {
        self.asked.lock().unwrap().transferred.push(request.into_inner());
        let leader = Some(member("n2", true));
        Ok(Response::new(TransferLeadershipResponse { leader }))
    }
}
