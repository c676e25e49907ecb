//! Whether the process lives, and whether it is of use.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::router::{AdminDoor, json};

/// `/health` and `/livez`: that there is an answer is the answer.
pub(super) async fn alive() -> Response {
    json(StatusCode::OK, r#"{"status":"ok"}"#)
}

/// `/readyz`: 503 while requests would fail.
pub(super) async fn ready(State(door): State<AdminDoor>) -> Response {
    let uptime = door.queues.uptime().as_secs();
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
