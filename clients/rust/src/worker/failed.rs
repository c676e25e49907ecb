//! What goes wrong in a worker: for the server, what becomes of the message; for the application, what it is told.

use std::fmt;
use std::time::Duration;

use crate::Error;
use crate::settler::Settlement;

/// The longest pause that the server takes.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Why a handler did not do its work: what becomes of the message then. Any error can be turned into one (`?`), and the message is
/// delivered again after a pause that the server chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    why: String,
    then: Settlement,
}

impl Failed {
    /// It is delivered again after a pause that the server chooses.
    #[must_use]
    pub fn new(why: impl fmt::Display) -> Self {
        Self {
            why: why.to_string(),
            then: Settlement::Nack { delay: None },
        }
    }

    /// It is delivered again after this time, 24 h at most.
    #[must_use]
    pub fn retry_after(delay: Duration, why: impl fmt::Display) -> Self {
        Self {
            why: why.to_string(),
            then: Settlement::Nack {
                delay: Some(delay.min(RETRY_DELAY_MAX)),
            },
        }
    }

    /// It goes to the dead letters: there is no use in trying again.
    #[must_use]
    pub fn dead_letter(why: impl fmt::Display) -> Self {
        Self {
            why: why.to_string(),
            then: Settlement::DeadLetter,
        }
    }

    /// What went wrong.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// What becomes of the message.
    pub(super) fn then(&self) -> Settlement {
        self.then
    }
}

// For `?`. It is no error itself, or this would be its own conversion.
impl<E: std::error::Error> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

/// What a worker tells of a message; see [`WorkerBuilder::on_error`](crate::WorkerBuilder::on_error).
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// Its handler has failed or panicked.
    #[error("the handler failed: {}", .0.why())]
    Handler(Failed),
    /// Its handler has run for [`max_lease`](crate::WorkerBuilder::max_lease) and was dropped: the message has failed.
    #[error("the handler has held the message for as long as max_lease allows, and was dropped")]
    LeaseCeiling,
    /// Its lease could not be extended, because it had ended. If the handler still runs, it does so for nothing.
    #[error("the lease was lost: {0}")]
    LeaseLost(Error),
    /// It could not be settled as its handler has ended; it comes again, unless somebody else has settled it.
    #[error("{0}")]
    NotSettled(Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_the_longest_that_the_server_takes_at_most() {
        let pause = |delay| match Failed::retry_after(delay, "not now").then {
            Settlement::Nack { delay } => delay,
            _ => None,
        };
        assert_eq!(pause(Duration::MAX), Some(RETRY_DELAY_MAX));
        assert_eq!(pause(Duration::ZERO), Some(Duration::ZERO));
    }
}
