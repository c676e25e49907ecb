//! Attempts of one call or stream of a client that no server has ever answered.
//!
//! What a client has to know from outside is most often wrong at its first call: the address, the port, TLS. Then its calls do not wait for
//! as long as they may take. Each address is tried, and then for a while again, as a server may just be starting; where a server
//! answers that is none of ours, waiting does not help. Once one has answered, a failure is an outage, and that is waited out.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::address::Address;
use crate::Error;

/// The last failure at each address, until a server answers.
#[derive(Debug, Default)]
pub(super) struct Unreached {
    failures: HashMap<Address, Error>,
    /// When waiting is over; `None` without a failure, and for what waits for ever.
    end: Option<Instant>,
}

impl Unreached {
    /// Remembers a failure, and answers what to report; `None`: another attempt is worth it. Without a limit it waits for ever.
    pub(super) fn note(
        &mut self,
        addresses: &[Address],
        failed: &Address,
        error: &Error,
        limit: Option<Duration>,
    ) -> Option<Error> {
        if self.failures.is_empty() {
            self.end = limit.map(|limit| Instant::now() + limit);
        }
        self.failures.insert(failed.clone(), error.clone());
        let errors: Vec<&Error> = addresses.iter().filter_map(|each| self.failures.get(each)).collect();
        if errors.len() < addresses.len() {
            return None;
        }
        let wrong = errors.iter().all(|error| matches!(error, Error::WrongServer(_)));
        let is_over = self.end.is_some_and(|end| Instant::now() >= end);
        if !wrong && !is_over {
            return None;
        }
        let unknown = errors.iter().any(|error| error.is_outcome_unknown());
        let texts: Vec<String> = errors.iter().map(|error| error.below()).collect();
        let texts = texts.join("; ");
        self.reset();
        Some(match wrong {
            true => Error::WrongServer(texts),
            false => {
                let error = Error::Unreachable(format!(
                    "none has answered within {:?}: {texts}",
                    limit.unwrap_or_default()
                ));
                if unknown { error.with_unknown_outcome() } else { error }
            }
        })
    }

    /// A pause, not longer than it may be.
    pub(super) fn bound(&self, pause: Duration) -> Duration {
        match self.end {
            Some(end) => pause.min(end.saturating_duration_since(Instant::now())),
            None => pause,
        }
    }

    /// A server has answered, or what failed was reported.
    pub(super) fn reset(&mut self) {
        self.failures.clear();
        self.end = None;
    }
}
