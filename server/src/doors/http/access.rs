//! Browsers of other origins, and keys.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::header::{ORIGIN, RETRY_AFTER};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::router::{AdminDoor, error};
use crate::access::{Client, Denied, Grant, Operation, UntilRevoked};

#[derive(Deserialize)]
struct KeyInQuery {
    api_key: Option<String>,
}

/// Answers preflight requests, refuses who has no key, and lets browsers read the answers of the others.
pub(super) async fn check(State(door): State<AdminDoor>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(ORIGIN).cloned();
    let mut response = if request.method() == Method::OPTIONS {
        StatusCode::NO_CONTENT.into_response()
    } else {
        let operation = Operation::of_http(request.uri().path());
        match admit(&door, &request, operation) {
            Ok(None) => next.run(request).await,
            Ok(Some(grant)) => match grant.serve(next.run(request), operation.need).await {
                // What is sent while it is asked for ends with the key.
                Some(response) => response.map(|body| Body::new(UntilRevoked::new(body, grant, || None))),
                None => error(
                    StatusCode::UNAUTHORIZED,
                    "unauthorized: the key of this request is no longer valid",
                ),
            },
            Err(why) => refused(&why),
        }
    };
    door.cors.put(origin.as_ref(), response.headers_mut());
    response
}

/// The header counts; the query only where there is no header.
fn admit(door: &AdminDoor, request: &Request, operation: Operation) -> Result<Option<Grant>, Denied> {
    let client = request.extensions().get::<Arc<Client>>().cloned();
    let client = client.unwrap_or_else(|| Arc::new(Client::new(None)));
    match request.headers().get("x-api-key") {
        Some(shown) => door.access.admit(&client, shown.as_bytes(), operation),
        None => {
            let query = Query::<KeyInQuery>::try_from_uri(request.uri());
            let shown = query.ok().and_then(|Query(query)| query.api_key).unwrap_or_default();
            door.access.admit(&client, shown.as_bytes(), operation)
        }
    }
}

fn refused(why: &Denied) -> Response {
    let text = why.to_string();
    match why {
        Denied::Unauthorized => error(StatusCode::UNAUTHORIZED, &text),
        Denied::Forbidden { .. } => error(StatusCode::FORBIDDEN, &text),
        Denied::TooMany { wait } => {
            let mut response = error(StatusCode::TOO_MANY_REQUESTS, &text);
            let seconds = HeaderValue::from(wait.as_secs() + 1);
            response.headers_mut().insert(RETRY_AFTER, seconds);
            response
        }
    }
}
