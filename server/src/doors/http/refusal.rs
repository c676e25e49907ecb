//! Errors of the admin port.

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::router::{error, json};
use crate::doors::body::{Members, read};
use crate::service::ServiceError;

/// Why nothing was done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// With this status, for this reason.
    Error(StatusCode, String),
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
        Self::Error(status, error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Error(status, text) => error(status, &text),
            Self::NoLeader => {
                let body = r#"{"error":"not leader","leader":"","leader_id":""}"#;
                let mut response = json(StatusCode::SERVICE_UNAVAILABLE, body);
                // An election takes about a second.
                response
                    .headers_mut()
                    .insert(RETRY_AFTER, HeaderValue::from_static("1"));
                response
            }
        }
    }
}

/// The whole body.
pub(super) async fn whole(body: Body, bytes_max: usize) -> Result<Bytes, Refusal> {
    let whole = to_bytes(body, bytes_max).await;
    whole.map_err(|_| {
        let text = format!("the body has more than {bytes_max} bytes, or was not sent to its end");
        Refusal::Error(StatusCode::PAYLOAD_TOO_LARGE, text)
    })
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
