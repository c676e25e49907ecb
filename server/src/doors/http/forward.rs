//! What only the leader of the queue plane can do is passed on to it, as it came. A node that has no cache says so itself.
//!
//! A request that was passed on once is not passed on again: the second node would know as little as the first.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Query, Request, State};
use axum::http::header::{CONNECTION, HOST};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::refusal::Refusal;
use super::router::AdminDoor;
use super::topic::Subscribe;
use crate::service::ServiceError;
use crate::tls::Dialer;

/// Marks a request that a node has passed on.
const FORWARDED: &str = "boltq-forwarded";
/// For a connection to the leader to be there.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// For its answer. It waits less for a majority.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The largest value of the cache, with every character escaped, fits.
const BODY_BYTES_MAX: usize = 32 << 20;

/// Listens to a topic, and keeps nothing.
fn any_node_can(uri: &Uri) -> bool {
    let durable = || Query::<Subscribe>::try_from_uri(uri).is_ok_and(|subscribe| subscribe.is_durable());
    uri.path() == "/subscribe" && !durable()
}

pub(super) async fn to_leader(State(door): State<AdminDoor>, request: Request, next: Next) -> Response {
    let here = any_node_can(request.uri()) || door.queues.is_leading() || request.headers().contains_key(FORWARDED);
    let counts = &door.metrics.forwards;
    match door.clustering.queue_leader_admin().filter(|_| !here) {
        None => {
            if !here {
                counts.no_leader.increment();
            }
            // What only the leader can do, the service refuses.
            next.run(request).await
        }
        Some(leader) => {
            counts.sent.increment();
            let passed_on = pass_on(request, &leader, &door.dialer()).await;
            passed_on.unwrap_or_else(|refused| {
                counts.failed.increment();
                tracing::debug!(leader, "a request could not be passed on");
                refused.into_response()
            })
        }
    }
}

/// As [`to_leader`], for the cache.
pub(super) async fn cache_to_leader(door: State<AdminDoor>, request: Request, next: Next) -> Response {
    if door.kv.is_enabled() {
        to_leader(door, request, next).await
    } else {
        next.run(request).await
    }
}

async fn pass_on(request: Request, leader: &str, dialer: &Dialer) -> Result<Response, Refusal> {
    let stream = timeout(CONNECT_MAX, dialer.http1(leader)).await;
    let stream = stream.ok().and_then(Result::ok).ok_or(Refusal::NoLeader)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|_| Refusal::NoLeader)?;
    tokio::spawn(connection);
    let (mut head, body) = request.into_parts();
    let body = to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| {
        let text = format!("the body has more than {BODY_BYTES_MAX} bytes, or was not sent to its end");
        Refusal::Error(StatusCode::PAYLOAD_TOO_LARGE, text)
    })?;
    head.headers.insert(FORWARDED, HeaderValue::from_static("1"));
    head.headers.remove(CONNECTION);
    if let Ok(host) = HeaderValue::from_str(leader) {
        head.headers.insert(HOST, host);
    }
    let request = Request::from_parts(head, Full::new(body));
    match timeout(ANSWER_MAX, sender.send_request(request)).await {
        Ok(Ok(response)) => Ok(response.map(Body::new)),
        // It may have been carried out.
        Ok(Err(_)) | Err(_) => Err(Refusal::of_service(&ServiceError::NoMajority)),
    }
}
