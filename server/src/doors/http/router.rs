//! Which path is answered by whom.

use std::sync::Arc;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Router, middleware};
use parking_lot::Mutex;

use super::queue_metrics::Shown;
use super::{access, cache, cluster, exchange, forward, health, metrics, stats, topic};
use crate::access::Access;
use crate::config::MetricsConfig;
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
    config: &MetricsConfig,
) -> Router {
    let door = AdminDoor {
        queues,
        kv,
        clustering,
        access,
        tls,
        metrics,
        shown: Arc::new(Mutex::new(Shown::new(config.queues_max))),
    };
    // After the method is known to be right, and before anything else.
    let leads = middleware::from_fn_with_state(door.clone(), forward::to_leader);
    let caches = middleware::from_fn_with_state(door.clone(), forward::cache_to_leader);
    Router::new()
        .route("/health", any(health::alive))
        .route("/livez", any(health::alive))
        .route("/readyz", any(health::ready))
        .route("/stats", get(stats::stats))
        .route("/metrics", any(metrics::metrics))
        .route("/cluster/status", get(cluster::status))
        .route("/cluster/join", post(cluster::join))
        .route("/cluster/leave", post(cluster::leave))
        .route("/cluster/transfer", post(cluster::transfer))
        .route("/publish/topic", post(topic::publish).route_layer(leads.clone()))
        .route("/subscribe", get(topic::subscribe).route_layer(leads.clone()))
        .route("/exchange/declare", post(exchange::declare).route_layer(leads.clone()))
        .route("/exchange/delete", post(exchange::delete).route_layer(leads.clone()))
        .route("/exchange/bind", post(exchange::bind).route_layer(leads.clone()))
        .route("/exchange/unbind", post(exchange::unbind).route_layer(leads.clone()))
        .route("/exchange/publish", post(exchange::publish).route_layer(leads.clone()))
        .route("/cache/get", get(cache::get).route_layer(caches.clone()))
        .route("/cache/set", post(cache::set).route_layer(caches.clone()))
        .route("/cache/del", post(cache::delete).route_layer(caches.clone()))
        .route("/cache/keys", get(cache::keys).route_layer(caches.clone()))
        .route("/cache/exists", get(cache::exists).route_layer(caches.clone()))
        .route("/cache/expire", post(cache::expire).route_layer(caches.clone()))
        .route("/cache/incr", post(cache::increment).route_layer(caches.clone()))
        .route("/cache/flush", post(cache::flush).route_layer(caches.clone()))
        .route("/cache/stats", get(cache::stats))
        .route("/cache/entries", get(cache::entries).route_layer(caches.clone()))
        .fallback(|| async { error(StatusCode::NOT_FOUND, "not found") })
        .method_not_allowed_fallback(|| async { error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed") })
        .layer(middleware::from_fn_with_state(door.clone(), access::check))
        .with_state(door)
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
