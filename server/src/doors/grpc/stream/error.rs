//! From errors of the messaging plane to gRPC.

use std::collections::HashMap;

use boltq_messaging::StreamError;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::super::error::DOMAIN;

/// The table: one row per error.
fn code(error: &StreamError) -> Code {
    match error {
        StreamError::InvalidName(_)
        | StreamError::InvalidArgument(_)
        | StreamError::RecordTooLarge { .. }
        | StreamError::HeadersTooLarge { .. }
        | StreamError::KeyTooLong { .. }
        | StreamError::IdempotencyKeyTooLong { .. }
        | StreamError::InvalidCursorName
        | StreamError::NoPartition { .. } => Code::InvalidArgument,
        StreamError::TopicNotFound { .. } => Code::NotFound,
        StreamError::TopicExists { .. } => Code::AlreadyExists,
        StreamError::TopicChanged { .. } => Code::Aborted,
        StreamError::KeysFull | StreamError::CursorsFull | StreamError::StorageFull => Code::ResourceExhausted,
        StreamError::NoLeader { .. }
        | StreamError::Unconfirmed
        | StreamError::NotEnoughReplicas { .. }
        | StreamError::NotInSync
        | StreamError::NotCurrent { .. }
        | StreamError::Stopped => Code::Unavailable,
        StreamError::Storage(_) => Code::DataLoss,
    }
}

/// A failed call.
pub(super) fn status(error: &StreamError) -> Status {
    let mut metadata = HashMap::new();
    if let Some(wait) = error.retry_after() {
        metadata.insert("retry_after_ms".to_owned(), wait.as_millis().to_string());
    }
    let details = ErrorDetails::with_error_info(error.reason(), DOMAIN, metadata);
    Status::with_error_details(code(error), error.to_string(), details)
}

/// For the methods of the service, which have nothing else to do with errors.
pub(super) trait OrStatus<T> {
    /// The value, or what a failed call answers.
    fn or_status(self) -> Result<T, Status>;
}

impl<T> OrStatus<T> for Result<T, StreamError> {
    fn or_status(self) -> Result<T, Status> {
        self.map_err(|error| status(&error))
    }
}
