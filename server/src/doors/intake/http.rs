//! From a request of HTTP to its answer, with what it holds in the meantime.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::{BoxError, Router};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tonic::Status;
use tower::Service;

use super::answers::Hold;
use super::body::{Metered, Open};
use super::budget::{Connection, Refusal};
use super::unread::Unread;

/// For the request itself: its task, its parsed headers, its place in the connection.
const REQUEST_BYTES: usize = 4 << 10;
/// Of the map of headers, for each.
const HEADER_BYTES: usize = 32;

/// Who counts the bodies on a port.
#[derive(Debug, Clone, Copy)]
pub(in crate::doors) enum Bodies {
    /// `MessageLayer`, which is behind the router.
    Grpc,
    /// Nobody else: each body is one message.
    Plain,
}

/// Answers a request, if there is room for it.
pub(in crate::doors) async fn serve_request(
    mut router: Router,
    connection: Arc<Connection>,
    bodies: Bodies,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible> {
    let version = request.version();
    let mut request = request.map(|body| Unread::new(body, version));
    let base = REQUEST_BYTES + header_bytes(request.headers()) + request.uri().path().len();
    let mut account = connection.account();
    if let Err(refusal) = account.hold(base) {
        let response = match bodies {
            Bodies::Grpc => refused(request.headers(), refusal),
            Bodies::Plain => refused_over_http(refusal),
        };
        return Ok(response.map(|body| Answer {
            body,
            hold: None,
            _open: None,
        }));
    }
    let open = Open::new(account, base);
    request.extensions_mut().insert(connection.reader().clone());
    let response = match bodies {
        Bodies::Grpc => {
            request.extensions_mut().insert(open.clone());
            router.call(request).await?
        }
        Bodies::Plain => {
            let metered = |body| Metered::one(body, open.clone(), |refusal| -> BoxError { Box::new(refusal) });
            router.call(request.map(metered)).await?
        }
    };
    let (mut parts, body) = response.into_parts();
    let hold = parts.extensions.remove::<Arc<Hold>>();
    let _open = Some(open);
    Ok(Response::from_parts(parts, Answer { body, hold, _open }))
}

fn header_bytes(headers: &HeaderMap) -> usize {
    let bytes =
        |(name, value): (&http::HeaderName, &http::HeaderValue)| name.as_str().len() + value.len() + HEADER_BYTES;
    headers.iter().map(bytes).sum()
}

fn refused(headers: &HeaderMap, refusal: Refusal) -> Response<axum::body::Body> {
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    // What reads gRPC-Web understands 503.
    if content_type == b"application/grpc" || content_type.starts_with(b"application/grpc+") {
        let response: Response<tonic::body::Body> = Status::from(refusal).into_http();
        return response.map(axum::body::Body::new);
    }
    with_error(StatusCode::SERVICE_UNAVAILABLE, refusal)
}

fn refused_over_http(refusal: Refusal) -> Response<axum::body::Body> {
    let (status, after) = refusal.over_http();
    let mut response = with_error(status, refusal);
    if let Some(after) = after {
        let seconds = http::HeaderValue::from(after.as_secs().max(1));
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

fn with_error(status: StatusCode, refusal: Refusal) -> Response<axum::body::Body> {
    let mut response = Response::new(axum::body::Body::from(format!(r#"{{"error":"{refusal}"}}"#)));
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// The body of an answer. What the request holds is given back with it, and what the answer holds with its bytes.
pub(in crate::doors) struct Answer {
    body: axum::body::Body,
    /// Room for all of it, if it is one message.
    hold: Option<Arc<Hold>>,
    _open: Option<Open>,
}

impl Answer {
    fn attach(&mut self, bytes: Bytes) -> Bytes {
        match self.hold.take() {
            Some(hold) => hold.attach(bytes),
            None => bytes,
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if self.hold.is_none() {
            return frame;
        }
        // From here on it lies in the connection until the client takes it.
        frame.map_ok(|frame| frame.map_data(|bytes| self.attach(bytes)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
