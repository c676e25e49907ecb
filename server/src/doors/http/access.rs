//! Browsers of other origins, and the API key.

use axum::extract::{Query, Request, State};
use axum::http::header::ORIGIN;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::router::{AdminDoor, error};

/// Probes and scrapers have no key. That the description of this API is open tells nobody more than its documentation.
pub(super) const OPEN: [&str; 5] = ["/health", "/livez", "/readyz", "/metrics", "/openapi.json"];

#[derive(Deserialize)]
struct KeyInQuery {
    api_key: Option<String>,
}

/// Answers preflight requests, refuses who has no key, and lets browsers read the answers of the others.
pub(super) async fn check(State(door): State<AdminDoor>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(ORIGIN).cloned();
    let mut response = if request.method() == Method::OPTIONS {
        StatusCode::NO_CONTENT.into_response()
    } else if OPEN.contains(&request.uri().path()) || may_enter(&door, &request) {
        next.run(request).await
    } else {
        door.metrics.authentications_failed.increment();
        error(StatusCode::UNAUTHORIZED, "unauthorized")
    };
    door.cors.put(origin.as_ref(), response.headers_mut());
    response
}

/// The header counts; the query only where there is no header.
fn may_enter(door: &AdminDoor, request: &Request) -> bool {
    match request.headers().get("x-api-key") {
        Some(shown) => door.api_key.accepts(shown.as_bytes()),
        None => {
            let query = Query::<KeyInQuery>::try_from_uri(request.uri());
            let shown = query.ok().and_then(|Query(query)| query.api_key).unwrap_or_default();
            door.api_key.accepts(shown.as_bytes())
        }
    }
}
