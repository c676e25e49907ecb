//! From errors of the service to gRPC: code, `google.rpc.ErrorInfo` with a reason that is never renamed, and how long
//! to wait.

use std::collections::HashMap;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::access::Denied;
use crate::service::ServiceError;

pub(in crate::doors) const DOMAIN: &str = "boltq";

/// The table: one row per error.
fn code(error: &ServiceError) -> Code {
    match error {
        ServiceError::InvalidName(_)
        | ServiceError::MessageTooLarge { .. }
        | ServiceError::HeadersTooLarge { .. }
        | ServiceError::AckLevelTooLow { .. }
        | ServiceError::UnknownExchangeType { .. }
        | ServiceError::InvalidArgument { .. } => Code::InvalidArgument,
        ServiceError::QueueNotFound { .. }
        | ServiceError::QueueDeleted
        | ServiceError::DeadLettersNotFound { .. }
        | ServiceError::MessageNotFound { .. }
        | ServiceError::ExchangeNotFound { .. }
        | ServiceError::SubscriptionNotFound { .. } => Code::NotFound,
        ServiceError::QueueExists { .. } => Code::AlreadyExists,
        ServiceError::ExchangeExists { .. }
        | ServiceError::BacklogTaken { .. }
        | ServiceError::NotScheduled { .. }
        | ServiceError::QueueNotEmpty { .. }
        | ServiceError::QueueIsBacklog { .. } => Code::FailedPrecondition,
        ServiceError::StorageFull
        | ServiceError::KeysFull { .. }
        | ServiceError::QueueFull { .. }
        | ServiceError::QueuesFull { .. } => Code::ResourceExhausted,
        ServiceError::NotLeader { .. }
        | ServiceError::LeaderLost { .. }
        | ServiceError::NoMajority
        | ServiceError::NotEnoughReplicas { .. }
        | ServiceError::NotInSync
        | ServiceError::Removed
        | ServiceError::NotCurrent { .. }
        | ServiceError::Stopped => Code::Unavailable,
        ServiceError::Storage { .. } => Code::DataLoss,
    }
}

impl From<ServiceError> for Status {
    fn from(error: ServiceError) -> Self {
        let mut metadata = HashMap::new();
        if let ServiceError::NotLeader(leader) = &error {
            let known = [("leader", &leader.messaging), ("leader_id", &leader.name)];
            let known = known.into_iter().filter(|(_, value)| !value.is_empty());
            metadata.extend(known.map(|(key, value)| (key.to_owned(), value.clone())));
        }
        failed(
            code(&error),
            error.to_string(),
            error.reason(),
            error.retry_after(),
            metadata,
        )
    }
}

/// A failed call, with why, and how long to wait before the same call can succeed.
pub(super) fn failed(
    code: Code,
    text: String,
    reason: &str,
    retry_after: Option<Duration>,
    mut metadata: HashMap<String, String>,
) -> Status {
    if let Some(wait) = retry_after {
        metadata.insert("retry_after_ms".to_owned(), wait.as_millis().to_string());
    }
    let details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
    Status::with_error_details(code, text, details)
}

/// Refuses a member of a request.
pub(super) fn invalid(what: impl Into<String>) -> Status {
    ServiceError::InvalidArgument { what: what.into() }.into()
}

/// Refuses a caller without the right key.
pub(super) fn unauthenticated(text: &str) -> Status {
    let details = ErrorDetails::with_error_info("UNAUTHENTICATED", DOMAIN, HashMap::new());
    Status::with_error_details(Code::Unauthenticated, text, details)
}

/// Refuses a caller who may not do this.
pub(super) fn denied(denied: &Denied) -> Status {
    let (code, reason, metadata) = match denied {
        Denied::Unauthorized => {
            return unauthenticated(
                "unauthorized: the call shows no key of this server; send one as metadata \"x-api-key\"",
            );
        }
        Denied::TooMany { wait } => {
            let wait = ("retry_after_ms".to_owned(), wait.as_millis().to_string());
            (
                Code::ResourceExhausted,
                "TOO_MANY_FAILED_ATTEMPTS",
                HashMap::from([wait]),
            )
        }
        Denied::Forbidden { operation, .. } => {
            let role = ("role".to_owned(), operation.need.to_string());
            (Code::PermissionDenied, "ROLE_REQUIRED", HashMap::from([role]))
        }
    };
    let details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
    Status::with_error_details(code, denied.to_string(), details)
}
