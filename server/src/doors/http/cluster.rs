//! `/cluster/…`: who belongs to the cluster, and changes of that.
//!
//! Every route here except for the status is checked in this order: method, clustering, body, members, operation.

use std::borrow::Cow;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde::de::MapAccess;

use super::refusal::{Refusal, members, required, whole};
use super::router::{AdminDoor, json, object};
use crate::cluster::{ClusterError, META_GROUP, META_NAME, group_name};
use crate::doors::body::{Members, switch, text};
use crate::doors::cluster_status;
use crate::service::{Clustering, JoinRequest};

/// Names and addresses need less.
const BODY_BYTES_MAX: usize = 64 << 10;

/// As CLUSTER_STATUS of the binary protocol.
pub(super) async fn status(State(door): State<AdminDoor>) -> Response {
    let mut body = Vec::new();
    cluster_status::put(&mut body, door.clustering.status().as_ref());
    json(StatusCode::OK, body)
}

pub(super) async fn join(State(door): State<AdminDoor>, body: Body) -> Result<Response, Refusal> {
    let body = body_of(&door.clustering, body).await?;
    let join: Join<'_> = members(&body)?;
    required(&join.node_id, "node_id is required")?;
    let address = if join.addr.is_empty() {
        join.meta_addr
    } else {
        join.addr
    };
    required(&address, "addr or meta_addr is required")?;
    let request = JoinRequest {
        name: join.node_id.into_owned(),
        address: address.into_owned(),
        voter: !join.non_voter,
        refresh: join.refresh,
    };
    let node = door.clustering.join(request).await.map_err(Refusal::of_join)?;
    Ok(object(&Joined {
        status: "joined",
        node_id: &node.name,
        role: if node.voter { "voter" } else { "non-voter" },
        groups: groups(&door.clustering),
    }))
}

pub(super) async fn leave(State(door): State<AdminDoor>, body: Body) -> Result<Response, Refusal> {
    let body = body_of(&door.clustering, body).await?;
    let leave: Leave<'_> = members(&body)?;
    required(&leave.node_id, "node_id is required")?;
    let left = door.clustering.leave(&leave.node_id).await;
    left.map_err(|error| Refusal::of(&error))?;
    Ok(object(&Left {
        status: "removed",
        node_id: &leave.node_id,
        groups: groups(&door.clustering),
    }))
}

pub(super) async fn transfer(State(door): State<AdminDoor>, body: Body) -> Result<Response, Refusal> {
    let body = body_of(&door.clustering, body).await?;
    let transfer: Transfer<'_> = members(&body)?;
    required(&transfer.group, "group is required")?;
    let group = match &*transfer.group {
        META_NAME => group_name(META_GROUP),
        other => other.to_owned(),
    };
    let leader = door.clustering.transfer(&group, &transfer.node_id).await;
    let leader = leader.map_err(Refusal::of_transfer)?;
    Ok(object(&Transferred {
        status: "transferred",
        group: &group,
        leader_id: &leader.name,
    }))
}

#[derive(Default)]
struct Join<'a> {
    node_id: Cow<'a, str>,
    addr: Cow<'a, str>,
    meta_addr: Cow<'a, str>,
    non_voter: bool,
    /// From a node that was in the cluster, and has not left by itself.
    refresh: bool,
}

impl<'de> Members<'de> for Join<'de> {
    const NAMES: &'static [&'static str] = &["node_id", "addr", "meta_addr", "non_voter", "refresh"];

    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "node_id" => self.node_id = text(map)?,
            "addr" => self.addr = text(map)?,
            "meta_addr" => self.meta_addr = text(map)?,
            "non_voter" => self.non_voter = switch(map)?,
            _ => self.refresh = switch(map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Leave<'a> {
    node_id: Cow<'a, str>,
}

impl<'de> Members<'de> for Leave<'de> {
    const NAMES: &'static [&'static str] = &["node_id"];

    fn set<A: MapAccess<'de>>(&mut self, _: &str, map: &mut A) -> Result<(), A::Error> {
        self.node_id = text(map)?;
        Ok(())
    }
}

#[derive(Default)]
struct Transfer<'a> {
    group: Cow<'a, str>,
    /// Empty: any other voter.
    node_id: Cow<'a, str>,
}

impl<'de> Members<'de> for Transfer<'de> {
    const NAMES: &'static [&'static str] = &["group", "node_id"];

    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "group" => self.group = text(map)?,
            _ => self.node_id = text(map)?,
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct Joined<'a> {
    status: &'static str,
    node_id: &'a str,
    role: &'static str,
    groups: Vec<String>,
}

#[derive(Serialize)]
struct Left<'a> {
    status: &'static str,
    node_id: &'a str,
    groups: Vec<String>,
}

#[derive(Serialize)]
struct Transferred<'a> {
    status: &'static str,
    group: &'a str,
    leader_id: &'a str,
}

impl Refusal {
    /// What the rules of the cluster are against has always been a failure here, and so is what is unknown.
    fn of(error: &ClusterError) -> Self {
        let status = match error {
            ClusterError::NotEnabled | ClusterError::Invalid(_) => StatusCode::BAD_REQUEST,
            ClusterError::NoLeader { .. } => return Self::NoLeader,
            ClusterError::Removed(_) => StatusCode::GONE,
            ClusterError::Refused(_)
            | ClusterError::UnknownNode(_)
            | ClusterError::UnknownGroup(_)
            | ClusterError::NotReached { .. }
            | ClusterError::Stopped => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::Error(status, error.to_string())
    }

    /// A node that may not come in, or is not there: nodes that join know the first sentence.
    fn of_join(error: ClusterError) -> Self {
        match error {
            ClusterError::NotReached { .. } | ClusterError::Refused(_) => {
                let text = format!("no consensus group on this node accepted the join: {error}");
                Self::Error(StatusCode::BAD_REQUEST, text)
            }
            other => Self::of(&other),
        }
    }

    /// This route is younger than the others, and tells apart what they do not.
    fn of_transfer(error: ClusterError) -> Self {
        let status = match error {
            ClusterError::UnknownNode(_) | ClusterError::UnknownGroup(_) => StatusCode::NOT_FOUND,
            ClusterError::Refused(_) => StatusCode::CONFLICT,
            other => return Self::of(&other),
        };
        Self::Error(status, error.to_string())
    }
}

/// The whole body, if there is a cluster that it could be about.
async fn body_of(clustering: &Clustering, body: Body) -> Result<Bytes, Refusal> {
    if !clustering.is_enabled() {
        return Err(Refusal::of(&ClusterError::NotEnabled));
    }
    whole(body, BODY_BYTES_MAX).await
}

fn groups(clustering: &Clustering) -> Vec<String> {
    let meta = group_name(META_GROUP);
    let shown = |name: String| if name == meta { META_NAME.to_owned() } else { name };
    clustering.group_names().into_iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::http::HeaderValue;
    use axum::http::header::RETRY_AFTER;
    use axum::response::IntoResponse;

    use super::*;

    #[test]
    fn a_join_that_is_refused_begins_with_the_sentence_that_nodes_know() {
        let refused = Refusal::of_join(ClusterError::Refused("too many nodes".to_owned()));
        let text = "no consensus group on this node accepted the join: too many nodes".to_owned();
        assert_eq!(refused, Refusal::Error(StatusCode::BAD_REQUEST, text));
    }

    #[tokio::test]
    async fn without_a_leader_the_client_is_told_when_to_come_again() {
        let error = ClusterError::NoLeader {
            group: "meta".to_owned(),
            why: String::new(),
        };
        let response = Refusal::of_join(error).into_response();
        assert_eq!(
            (response.status().as_u16(), &response.headers()[RETRY_AFTER]),
            (503, &HeaderValue::from_static("1"))
        );
        let body = to_bytes(response.into_body(), 1 << 10).await.unwrap();
        assert_eq!(body, r#"{"error":"not leader","leader":"","leader_id":""}"#);
    }

    #[test]
    fn only_the_youngest_route_tells_apart_what_is_unknown_and_what_is_refused() {
        let status = |refusal: Refusal| match refusal {
            Refusal::Error(status, _) => status.as_u16(),
            Refusal::Later(..) | Refusal::NoLeader => panic!("there is a leader"),
        };
        let unknown = || ClusterError::UnknownNode("n9".to_owned());
        let refused = || ClusterError::Refused("no".to_owned());
        assert_eq!(
            [status(Refusal::of(&unknown())), status(Refusal::of(&refused()))],
            [500, 500]
        );
        assert_eq!(
            [
                status(Refusal::of_transfer(unknown())),
                status(Refusal::of_transfer(refused()))
            ],
            [404, 409]
        );
    }
}
