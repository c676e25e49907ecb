//! Why an operation on the cache was not carried out.

use boltq_kv::IncrementError;

use super::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::service::ServiceError;

/// Why an operation on the cache was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KvError {
    /// There is no cache.
    #[error("cache not enabled")]
    Off,
    /// The key is not acceptable.
    #[error("key has {bytes} bytes; 1 to {KEY_BYTES_MAX} are allowed")]
    Key {
        /// What it has.
        bytes: usize,
    },
    /// The value is not acceptable.
    #[error("value has {bytes} bytes; at most {VALUE_BYTES_MAX} are allowed")]
    ValueTooLarge {
        /// What it has.
        bytes: usize,
    },
    /// The condition was not met.
    #[error("condition not met: {}", there_is(*version))]
    ConditionNotMet {
        /// The version of the value that there is.
        version: Option<u64>,
    },
    /// The value cannot be counted with.
    #[error(transparent)]
    Increment(#[from] IncrementError),
    /// What any operation can answer.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

fn there_is(version: Option<u64>) -> String {
    version.map_or_else(
        || "the key has no value".to_owned(),
        |version| format!("the value has version {version}"),
    )
}
