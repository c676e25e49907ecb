//! Which path is answered by whom.

use std::sync::Arc;

use axum::http::header::ALLOW;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
use parking_lot::Mutex;
use serde::Serialize;

use super::cors::Cors;
use super::queue_metrics::Shown;
use super::routes::{Place, ROUTES, Verb};
use super::{access, forward};
use crate::access::Access;
use crate::config::Config;
use crate::doors::json::put_string;
use crate::service::{Clustering, Kv, Queues};
use crate::telemetry::DoorMetrics;
use crate::tls::{Dialer, TlsStore};

/// What the routes answer from.
#[derive(Clone)]
pub(super) struct AdminDoor {
    pub(super) queues: Queues,
    pub(super) kv: Kv,
    pub(super) clustering: Clustering,
    pub(super) access: Arc<Access>,
    pub(super) tls: Option<Arc<TlsStore>>,
    pub(super) cors: Cors,
    /// `storage.compaction_threshold`.
    pub(super) compaction_threshold_bytes: u64,
    pub(super) metrics: Arc<DoorMetrics>,
    /// Queues with metrics of their own.
    pub(super) shown: Arc<Mutex<Shown>>,
}

impl AdminDoor {
    /// For requests that are passed on.
    pub(super) fn dialer(&self) -> Dialer {
        Dialer::new(self.tls.clone())
    }
}

/// Everything on the admin port.
pub fn router(
    (queues, kv): (Queues, Kv),
    clustering: Clustering,
    access: Arc<Access>,
    tls: Option<Arc<TlsStore>>,
    metrics: Arc<DoorMetrics>,
    config: &Config,
) -> Router {
    let door = AdminDoor {
        queues,
        kv,
        clustering,
        access,
        tls,
        cors: Cors::new(config.server.cors.clone()),
        compaction_threshold_bytes: config.storage.compaction_threshold_bytes,
        metrics,
        shown: Arc::new(Mutex::new(Shown::new(config.metrics.queues_max))),
    };
    // After the method is known to be right, and before anything else.
    let leads = middleware::from_fn_with_state(door.clone(), forward::to_leader);
    let caches = middleware::from_fn_with_state(door.clone(), forward::cache_to_leader);
    let mut router = Router::new();
    for route in ROUTES {
        let handler = (route.handler)();
        let handler = match route.place {
            Place::Here => handler,
            Place::Leader => handler.route_layer(leads.clone()),
            Place::Cache => handler.route_layer(caches.clone()),
        };
        let handler = match route.verb {
            Verb::Take => handler.head(get_only),
            Verb::Any | Verb::Get | Verb::Post => handler,
        };
        router = router.route(route.path, handler);
    }
    router
        .fallback(|| async { error(StatusCode::NOT_FOUND, "not found") })
        .method_not_allowed_fallback(|| async { method_not_allowed() })
        .layer(middleware::from_fn_with_state(door.clone(), access::check))
        .with_state(door)
}

fn method_not_allowed() -> Response {
    error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
}

async fn get_only() -> Response {
    ([(ALLOW, "GET")], method_not_allowed()).into_response()
}

/// An answer whose type cannot fail to be written.
pub(super) fn object(body: &impl Serialize) -> Response {
    json(StatusCode::OK, serde_json::to_vec(body).unwrap_or_default())
}

pub(super) fn json(status: StatusCode, body: impl Into<axum::body::Body>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

pub(super) fn error(status: StatusCode, text: &str) -> Response {
    let mut body = br#"{"error":"#.to_vec();
    put_string(&mut body, text);
    body.push(b'}');
    json(status, body)
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
