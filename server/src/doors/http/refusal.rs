//! Errors of the admin port.

use std::error::Error as _;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::LengthLimitError;

use super::router::{error, json};
use crate::doors::body::{Members, read};
use crate::doors::intake;
use crate::service::ServiceError;

/// Why nothing was done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// With this status, for this reason.
    Error(StatusCode, String),
    /// The same, and the request may succeed after so long.
    Later(StatusCode, String, Duration),
    /// Nobody is known to lead, so nobody can be named.
    NoLeader,
}

impl Refusal {
    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        Self::Error(StatusCode::BAD_REQUEST, text.into())
    }

    pub(super) fn of_service(error: &ServiceError) -> Self {
        let status = match error {
            ServiceError::NotLeader { .. } => return Self::NoLeader,
            ServiceError::InvalidName(_)
            | ServiceError::MessageTooLarge { .. }
            | ServiceError::HeadersTooLarge { .. }
            | ServiceError::AckLevelTooLow { .. }
            | ServiceError::InvalidArgument { .. } => StatusCode::BAD_REQUEST,
            ServiceError::QueueNotFound { .. }
            | ServiceError::QueueDeleted
            | ServiceError::DeadLettersNotFound { .. }
            | ServiceError::MessageNotFound { .. }
            | ServiceError::SubscriptionNotFound { .. } => StatusCode::NOT_FOUND,
            ServiceError::NotScheduled { .. } => StatusCode::CONFLICT,
            ServiceError::Removed => StatusCode::GONE,
            ServiceError::StorageFull => StatusCode::INSUFFICIENT_STORAGE,
            ServiceError::KeysFull { .. } | ServiceError::QueueFull { .. } | ServiceError::QueuesFull { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            ServiceError::QueueExists { .. }
            | ServiceError::QueueNotEmpty { .. }
            | ServiceError::QueueIsBacklog { .. } => StatusCode::CONFLICT,
            ServiceError::NoMajority
            | ServiceError::LeaderLost { .. }
            | ServiceError::NotEnoughReplicas { .. }
            | ServiceError::NotInSync
            | ServiceError::NotCurrent { .. }
            | ServiceError::Stopped => StatusCode::SERVICE_UNAVAILABLE,
            ServiceError::ExchangeNotFound { .. }
            | ServiceError::ExchangeExists { .. }
            | ServiceError::UnknownExchangeType { .. }
            | ServiceError::BacklogTaken { .. }
            | ServiceError::Storage { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        match error.retry_after() {
            Some(after) => Self::Later(status, error.to_string(), after),
            None => Self::Error(status, error.to_string()),
        }
    }

    fn of_body(error: &axum::Error, bytes_max: usize) -> Self {
        let mut source = error.source();
        while let Some(found) = source {
            if let Some(refused) = found.downcast_ref::<intake::Refusal>() {
                let (status, after) = refused.over_http();
                return match after {
                    Some(after) => Self::Later(status, refused.to_string(), after),
                    None => Self::Error(status, refused.to_string()),
                };
            }
            if found.is::<LengthLimitError>() {
                let text = format!("the body has more than {bytes_max} bytes");
                return Self::Error(StatusCode::PAYLOAD_TOO_LARGE, text);
            }
            source = found.source();
        }
        Self::bad_request("the body was not sent to its end")
    }
}

impl From<ServiceError> for Refusal {
    fn from(error: ServiceError) -> Self {
        Self::of_service(&error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Error(status, text) => error(status, &text),
            Self::Later(status, text, after) => later(error(status, &text), after),
            Self::NoLeader => {
                let body = r#"{"error":"not leader","leader":"","leader_id":""}"#;
                // An election takes about a second.
                later(json(StatusCode::SERVICE_UNAVAILABLE, body), Duration::from_secs(1))
            }
        }
    }
}

/// Says when to come again, which HTTP does in whole seconds.
fn later(mut response: Response, after: Duration) -> Response {
    let seconds = HeaderValue::from(u64::try_from(after.as_millis().div_ceil(1_000).max(1)).unwrap_or(u64::MAX));
    response.headers_mut().insert(RETRY_AFTER, seconds);
    response
}

/// The whole body.
pub(super) async fn whole(body: Body, bytes_max: usize) -> Result<Bytes, Refusal> {
    let whole = to_bytes(body, bytes_max).await;
    whole.map_err(|error| Refusal::of_body(&error, bytes_max))
}

pub(super) fn members<'de, M: Members<'de>>(body: &'de [u8]) -> Result<M, Refusal> {
    read(body).map_err(|_| Refusal::bad_request("invalid json"))
}

pub(super) fn required(member: &str, text: &str) -> Result<(), Refusal> {
    match member {
        "" => Err(Refusal::bad_request(text)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use axum::BoxError;
    use futures_util::stream;

    use super::*;

    async fn refused(error: impl Into<BoxError>) -> (u16, Option<String>, String) {
        let body = Body::from_stream(stream::iter([Err::<Bytes, BoxError>(error.into())]));
        let response = whole(body, 10).await.unwrap_err().into_response();
        let (head, body) = response.into_parts();
        let after = head
            .headers
            .get(RETRY_AFTER)
            .map(|after| after.to_str().unwrap().to_owned());
        let body = to_bytes(body, 1 << 10).await.unwrap();
        (head.status.as_u16(), after, String::from_utf8(body.into()).unwrap())
    }

    #[tokio::test]
    async fn a_body_that_does_not_arrive_says_why() {
        let (status, after, text) = refused(intake::Refusal::Node { max: 7 }).await;
        assert_eq!((status, after.as_deref()), (429, Some("1")));
        assert!(text.contains("server.max_request_bytes"), "{text}");
        let after_long = Duration::from_secs(30);
        let (status, after, _) = refused(intake::Refusal::Stalled { after: after_long }).await;
        assert_eq!((status, after), (408, None));
        let (status, _, text) = refused("the connection broke").await;
        assert_eq!(
            (status, text.as_str()),
            (400, r#"{"error":"the body was not sent to its end"}"#)
        );
        let long = whole(Body::from(vec![0; 11]), 10).await;
        let text = "the body has more than 10 bytes".to_owned();
        assert_eq!(long, Err(Refusal::Error(StatusCode::PAYLOAD_TOO_LARGE, text)));
        assert_eq!(whole(Body::from(vec![0; 10]), 10).await.unwrap().len(), 10);
    }

    #[test]
    fn times_are_whole_seconds_and_never_none() {
        for (after, seconds) in [(0, "1"), (100, "1"), (1_000, "1"), (1_001, "2"), (60_000, "60")] {
            let response = later(error(StatusCode::SERVICE_UNAVAILABLE, ""), Duration::from_millis(after));
            assert_eq!(response.headers()[RETRY_AFTER], seconds);
        }
    }
}
