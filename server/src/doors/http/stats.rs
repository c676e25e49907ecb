//! `/stats`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::router::{AdminDoor, json};
use crate::doors::statistics;

pub(super) async fn stats(State(door): State<AdminDoor>) -> Response {
    let mut body = Vec::new();
    statistics::put(&mut body, &door.queues.stats());
    json(StatusCode::OK, body)
}
