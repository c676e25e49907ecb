//! Whether the process lives, and whether it is of use.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use serde::Serialize;

use super::router::{AdminDoor, json};
use crate::doors::cluster_status::{leader_of, queue_group, state};
use crate::service::ClusterStatus;

/// A node that knows no leader for so long is not just starting.
const JOINING_MAX: Duration = Duration::from_secs(30);

/// `/health` and `/livez`: that there is an answer is the answer.
pub(super) async fn alive() -> Response {
    json(StatusCode::OK, r#"{"status":"ok"}"#)
}

/// `/readyz`: 503 while requests would fail. A node of a cluster passes them on as long as it knows who leads.
pub(super) async fn ready(State(door): State<AdminDoor>) -> Response {
    let uptime = door.queues.uptime();
    if let Some(status) = door.clustering.status() {
        let readiness = Readiness::of(&status, uptime);
        let code = if readiness.ready {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        // This type cannot fail.
        return json(code, serde_json::to_vec(&readiness).unwrap_or_default());
    }
    let uptime = uptime.as_secs();
    if door.queues.is_leading() {
        return json(
            StatusCode::OK,
            format!(r#"{{"ready":true,"clustered":false,"uptime_seconds":{uptime}}}"#),
        );
    }
    json(
        StatusCode::SERVICE_UNAVAILABLE,
        format!(r#"{{"ready":false,"reason":"no leader elected yet","clustered":false,"uptime_seconds":{uptime}}}"#),
    )
}

#[derive(Serialize)]
struct Readiness<'a> {
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    clustered: bool,
    node_id: &'a str,
    state: &'static str,
    leader_id: String,
    uptime_seconds: u64,
}

impl<'a> Readiness<'a> {
    fn of(status: &'a ClusterStatus, uptime: Duration) -> Self {
        let queue = queue_group(status);
        let ready = !status.removed && queue.is_some_and(|group| group.leader.is_some());
        let reason = match uptime < JOINING_MAX {
            _ if status.removed => "removed from the cluster",
            true => "joining cluster",
            false => "no leader elected yet",
        };
        Self {
            ready,
            reason: (!ready).then_some(reason),
            clustered: true,
            node_id: &status.node.name,
            state: state(queue),
            leader_id: leader_of(status, queue),
            uptime_seconds: uptime.as_secs(),
        }
    }
}

#[cfg(test)]
mod tests {
    use boltq_core::NodeId;
    use boltq_raft::GroupFigures;

    use super::*;
    use crate::service::{GroupView, NodeStatus};

    fn shown(leader: Option<u64>, uptime: u64) -> String {
        shown_of(false, leader, uptime)
    }

    fn shown_of(removed: bool, leader: Option<u64>, uptime: u64) -> String {
        let node = |id: u64| NodeStatus {
            node: NodeId(id),
            name: format!("n{id}"),
            raft: String::new(),
            messaging: String::new(),
            admin: String::new(),
            voter: true,
            version: String::new(),
        };
        let status = ClusterStatus {
            node: node(2),
            removed,
            cluster: None,
            nodes: vec![node(1), node(2)],
            groups: vec![GroupView {
                name: "queue".to_owned(),
                state: if leader.is_some() { "Follower" } else { "Candidate" },
                leader: leader.map(NodeId),
                term: 1,
                last_index: 1,
                applied_index: 1,
                leader_changes: 0,
                figures: GroupFigures::default(),
                members: Vec::new(),
            }],
        };
        serde_json::to_string(&Readiness::of(&status, Duration::from_secs(uptime))).unwrap()
    }

    #[test]
    fn a_node_of_a_cluster_is_ready_when_it_knows_who_leads() {
        let ready = concat!(
            r#"{"ready":true,"clustered":true,"node_id":"n2","state":"Follower","leader_id":"n1","#,
            r#""uptime_seconds":41}"#
        );
        assert_eq!(shown(Some(1), 41), ready);
        let waiting = concat!(
            r#"{"ready":false,"reason":"no leader elected yet","clustered":true,"node_id":"n2","#,
            r#""state":"Candidate","leader_id":"","uptime_seconds":41}"#
        );
        assert_eq!(shown(None, 41), waiting);
        let removed = shown_of(true, Some(1), 41);
        assert!(
            removed.starts_with(r#"{"ready":false,"reason":"removed from the cluster","#),
            "{removed}"
        );
        assert!(shown(None, 29).starts_with(r#"{"ready":false,"reason":"joining cluster","#));
    }
}
