//! `boltq cluster …`

use boltq_proto::cluster::v1::{
    GetStatusRequest, JoinRequest, JoinResponse, LeaveRequest, Node, TransferLeadershipRequest,
};

use super::Context;
use crate::args::Cluster;
use crate::connect::answer;
use crate::error::CliError;
use crate::printer::{ClusterStatus, Joined, Left, Transferred};

pub(super) async fn run(context: &mut Context, cluster: Cluster) -> Result<(), CliError> {
    match cluster {
        Cluster::Status => status(context).await,
        Cluster::Join {
            address,
            node_id,
            non_voter,
        } => {
            let request = JoinRequest {
                node_id,
                address,
                non_voter,
            };
            join(context, request).await
        }
        Cluster::Leave { node } => leave(context, node).await,
        Cluster::Transfer { group, node } => transfer(context, group, node).await,
    }
}

async fn status(context: &mut Context) -> Result<(), CliError> {
    let mut client = context.server.cluster();
    let status = answer(client.get_status(GetStatusRequest {}), None).await?;
    context.printer.print(&ClusterStatus::from(status))?;
    Ok(())
}

async fn join(context: &mut Context, request: JoinRequest) -> Result<(), CliError> {
    let mut client = context.server.cluster();
    let JoinResponse { node, groups } = answer(client.join(request), None).await?;
    context.printer.print(&Joined {
        node: given(node)?.into(),
        groups,
    })?;
    Ok(())
}

async fn leave(context: &mut Context, node_id: String) -> Result<(), CliError> {
    let mut client = context.server.cluster();
    let request = LeaveRequest {
        node_id: node_id.clone(),
    };
    let groups = answer(client.leave(request), None).await?.groups;
    context.printer.print(&Left { node_id, groups })?;
    Ok(())
}

async fn transfer(context: &mut Context, group: String, node_id: String) -> Result<(), CliError> {
    let mut client = context.server.cluster();
    let request = TransferLeadershipRequest {
        group: group.clone(),
        node_id,
    };
    let leader = answer(client.transfer_leadership(request), None).await?.leader;
    context.printer.print(&Transferred {
        group,
        leader: given(leader)?.into(),
    })?;
    Ok(())
}

fn given(node: Option<Node>) -> Result<Node, CliError> {
    node.ok_or_else(|| CliError::BadAnswer("no node in it".to_owned()))
}
