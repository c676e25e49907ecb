//! `/stats`: as STATS of the binary protocol. A node of a cluster adds what it knows of the cluster, as in
//! `/cluster/status`. With `?linearizable=true` only if what this node has is current.

use axum::extract::{Query, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Deserialize;

use super::router::{AdminDoor, error, json};
use crate::doors::{cluster_status, statistics};

#[derive(Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    linearizable: bool,
}

pub(super) async fn stats(
    State(door): State<AdminDoor>,
    wanted: Result<Query<Wanted>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let Ok(Query(wanted)) = wanted else {
        return error(StatusCode::BAD_REQUEST, "linearizable is true or false");
    };
    if let Err(why) = door.queues.begin_look(wanted.linearizable).await {
        let mut response = error(StatusCode::SERVICE_UNAVAILABLE, &why.to_string());
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return response;
    }
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
