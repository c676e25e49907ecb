//! The API key of the gRPC door: metadata `x-api-key`, or `authorization: Bearer`. Health needs none, so that probes work.

use std::task::{Context, Poll};

use futures_util::future::{Either, Ready, ready};
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use tonic::body::Body;
use tower::{Layer, Service};

use super::error::unauthenticated;
use crate::config::ApiKey;

const OPEN_PREFIX: &str = "/grpc.health.v1.Health/";

#[derive(Clone)]
pub(super) struct ApiKeyLayer {
    key: ApiKey,
}

impl ApiKeyLayer {
    pub(super) fn new(key: ApiKey) -> Self {
        Self { key }
    }
}

impl<S> Layer<S> for ApiKeyLayer {
    type Service = ApiKeyService<S>;

    fn layer(&self, inner: S) -> ApiKeyService<S> {
        ApiKeyService {
            inner,
            key: self.key.clone(),
        }
    }
}

#[derive(Clone)]
pub(super) struct ApiKeyService<S> {
    inner: S,
    key: ApiKey,
}

fn given(headers: &HeaderMap) -> &[u8] {
    if let Some(key) = headers.get("x-api-key") {
        return key.as_bytes();
    }
    let bearer = headers.get(AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
    bearer.strip_prefix(b"Bearer ").unwrap_or_default()
}

impl<S, B> Service<Request<B>> for ApiKeyService<S>
where
    S: Service<Request<B>, Response = Response<axum::body::Body>>,
{
    type Response = Response<axum::body::Body>;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<Self::Response, S::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if request.uri().path().starts_with(OPEN_PREFIX) || self.key.accepts(given(request.headers())) {
            return Either::Left(self.inner.call(request));
        }
        Either::Right(ready(Ok(unauthenticated()
            .into_http::<Body>()
            .map(axum::body::Body::new))))
    }
}
