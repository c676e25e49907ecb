//! From errors of the messaging plane to gRPC.

use std::collections::HashMap;

use boltq_messaging::StreamError;
use tonic::{Code, Status};

use super::super::error::failed;

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
        StreamError::TopicNotFound { .. } | StreamError::RecordNotFound { .. } => Code::NotFound,
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
    failed(
        code(error),
        error.to_string(),
        error.reason(),
        error.retry_after(),
        HashMap::new(),
    )
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
