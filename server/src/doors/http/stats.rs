//! `/stats`: as STATS of the binary protocol. A node of a cluster adds what it knows of the cluster, as in
//! `/cluster/status`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::router::{AdminDoor, json};
use crate::doors::{cluster_status, statistics};

pub(super) async fn stats(State(door): State<AdminDoor>) -> Response {
    let mut body = Vec::new();
    statistics::put(&mut body, &door.queues.stats());
    if let Some(status) = door.clustering.status()
        && body.pop() == Some(b'}')
    {
        body.extend_from_slice(br#","cluster":"#);
        cluster_status::put(&mut body, Some(&status));
        body.push(b'}');
    }
    json(StatusCode::OK, body)
}
