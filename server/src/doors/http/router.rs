//! Which path is answered by whom.

use std::sync::Arc;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Router, middleware};

use super::{access, health, metrics, stats};
use crate::config::ApiKey;
use crate::service::Queues;
use crate::telemetry::DoorMetrics;

/// What the routes answer from.
#[derive(Clone)]
pub(super) struct AdminDoor {
    pub(super) queues: Queues,
    pub(super) api_key: ApiKey,
    pub(super) metrics: Arc<DoorMetrics>,
}

/// Everything on the admin port.
pub fn router(queues: Queues, api_key: ApiKey, metrics: Arc<DoorMetrics>) -> Router {
    let door = AdminDoor {
        queues,
        api_key,
        metrics,
    };
    Router::new()
        .route("/health", any(health::alive))
        .route("/livez", any(health::alive))
        .route("/readyz", any(health::ready))
        .route("/stats", get(stats::stats))
        .route("/metrics", any(metrics::metrics))
        .fallback(|| async { error(StatusCode::NOT_FOUND, "not found") })
        .method_not_allowed_fallback(|| async { error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed") })
        .layer(middleware::from_fn_with_state(door.clone(), access::check))
        .with_state(door)
}

pub(super) fn json(status: StatusCode, body: impl Into<axum::body::Body>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

/// For sentences without quotes.
pub(super) fn error(status: StatusCode, text: &'static str) -> Response {
    json(status, format!(r#"{{"error":"{text}"}}"#))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn body(response: Response) -> String {
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        String::from_utf8(bytes.into()).unwrap()
    }

    #[tokio::test]
    async fn errors_are_objects_with_one_member() {
        let response = error(StatusCode::UNAUTHORIZED, "unauthorized");
        assert_eq!(response.status(), 401);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        assert_eq!(body(response).await, r#"{"error":"unauthorized"}"#);
    }
}
