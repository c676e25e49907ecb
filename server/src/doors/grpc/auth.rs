//! The key of a call, as metadata `x-api-key` or `authorization: Bearer`, and what may be done with it.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use tonic::Status;
use tower::{Layer, Service};

use super::error::{denied, unauthenticated};
use crate::access::{Access, Client, Grant, Need, Operation, UntilRevoked};

/// Wraps the services of a node.
#[derive(Clone)]
pub(super) struct AccessLayer {
    access: Arc<Access>,
}

impl AccessLayer {
    pub(super) fn new(access: Arc<Access>) -> Self {
        Self { access }
    }
}

impl<S> Layer<S> for AccessLayer {
    type Service = AccessService<S>;

    fn layer(&self, inner: S) -> AccessService<S> {
        AccessService {
            inner,
            access: self.access.clone(),
        }
    }
}

#[derive(Clone)]
pub(super) struct AccessService<S> {
    inner: S,
    access: Arc<Access>,
}

fn given(headers: &HeaderMap) -> &[u8] {
    if let Some(key) = headers.get("x-api-key") {
        return key.as_bytes();
    }
    let bearer = headers.get(AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
    bearer.strip_prefix(b"Bearer ").unwrap_or_default()
}

impl<S, B> Service<Request<B>> for AccessService<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let operation = Operation::of_grpc(request.uri().path());
        let admitted = match request.extensions().get::<Arc<Client>>() {
            Some(client) => self.access.admit(client, given(request.headers()), operation),
            None => self
                .access
                .admit(&Client::new(None), given(request.headers()), operation),
        };
        match admitted {
            Ok(None) => Box::pin(self.inner.call(request)),
            Ok(Some(grant)) => Box::pin(serve(self.inner.call(request), grant, operation.need)),
            Err(why) => Box::pin(std::future::ready(Ok(denied(&why).into_http()))),
        }
    }
}

/// As long as the key is valid.
async fn serve(
    call: impl Future<Output = Result<Response<Body>, Infallible>>,
    grant: Grant,
    need: Need,
) -> Result<Response<Body>, Infallible> {
    match grant.serve(call, need).await {
        Some(response) => Ok(response?.map(|body| Body::new(UntilRevoked::new(body, grant, trailers)))),
        None => Ok(revoked_status().into_http()),
    }
}

fn revoked_status() -> Status {
    unauthenticated("unauthorized: the key of this call is no longer valid")
}

fn trailers() -> Option<HeaderMap> {
    let mut trailers = HeaderMap::new();
    // Only a status with bytes that no header can have is refused, and this one has none.
    revoked_status().add_header(&mut trailers).ok().map(|()| trailers)
}
