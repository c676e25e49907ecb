//! `/stats`: as STATS of the binary protocol. A node of a cluster adds what it knows of the cluster, as in
//! `/cluster/status`. With `?linearizable=true` only if what this node has is current.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::query::Parameters;
use super::refusal::Refusal;
use super::router::{AdminDoor, json};
use crate::doors::{cluster_status, statistics};

/// When another look may succeed: an election takes about a second.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

pub(super) async fn stats(State(door): State<AdminDoor>, query: Parameters) -> Result<Response, Refusal> {
    begin_look(&door, &query).await?;
    let mut body = Vec::new();
    statistics::put(&mut body, &door.queues.stats());
    if let Some(status) = door.clustering.status()
        && body.pop() == Some(b'}')
    {
        body.extend_from_slice(br#","cluster":"#);
        cluster_status::put(&mut body, Some(&status));
        body.push(b'}');
    }
    Ok(json(StatusCode::OK, body))
}

/// Before anything is shown: makes sure that this node is to be asked, and with `linearizable` that what it has is current. If
/// not, it is unavailable, whatever the reason.
pub(super) async fn begin_look(door: &AdminDoor, query: &Parameters) -> Result<(), Refusal> {
    let linearizable = query.switch("linearizable")?;
    let looked = door.queues.begin_look(linearizable).await;
    looked.map_err(|error| Refusal::Later(StatusCode::SERVICE_UNAVAILABLE, error.to_string(), LOOK_AGAIN))
}
