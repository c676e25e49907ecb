//! What one request holds, or the input of one connection.

use std::sync::Arc;
use std::task::Context;

use super::budget::{Connection, Refusal};
use super::watch::{Progress, Watched};

/// Gives back what it holds when it is dropped.
#[derive(Debug)]
pub(in crate::doors) struct Account {
    connection: Arc<Connection>,
    bytes: usize,
    /// Made when something is waited for the first time: most requests arrive in one piece.
    watched: Option<Watched>,
}

impl Account {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self {
            connection,
            bytes: 0,
            watched: None,
        }
    }

    #[cfg(test)]
    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// From now on it holds so many bytes.
    ///
    /// # Errors
    /// They are not there. It holds what it held before.
    pub(in crate::doors) fn hold(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.try_hold(bytes).inspect_err(|_| self.connection.count_refusal())
    }

    /// As `hold`, for what can be done without.
    pub(in crate::doors) fn try_hold(&mut self, bytes: usize) -> Result<(), Refusal> {
        if bytes > self.bytes {
            self.connection.take(bytes - self.bytes)?;
        } else if bytes < self.bytes {
            self.connection.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// The rest of something is waited for. The task is woken when it has come no further for too long.
    ///
    /// # Errors
    /// That is the case.
    pub(in crate::doors) fn waits(&mut self, progress: Progress, context: &mut Context<'_>) -> Result<(), Refusal> {
        let watched = self.watched.get_or_insert_with(|| Watched::new(&self.connection));
        watched.waits(progress, context)
    }

    /// Nothing is waited for any more.
    pub(in crate::doors) fn waits_no_more(&self) {
        if let Some(watched) = &self.watched {
            watched.waits_no_more();
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.connection.give_back(self.bytes);
    }
}
