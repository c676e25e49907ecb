//! Names, checked before a server is asked.

use boltq_core::{NameError, check_name};

/// The rule of all names, but for the length: the dead letters of a queue may have a longer one, and the server knows.
pub(super) fn queue_name(text: &str) -> Result<String, String> {
    match check_name(text) {
        Ok(()) | Err(NameError::TooLong { .. }) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn node_name(text: &str) -> Result<String, String> {
    match check_name(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
