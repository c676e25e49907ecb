//! What changes the cache.

use std::time::Duration;

use boltq_kv::Outcome;
use boltq_kv::command::{self, Condition, TimeToLive};
use boltq_log::Space;
use boltq_raft::Proposal;

use super::{Kv, KvError, VALUE_BYTES_MAX};
use crate::clock;
use crate::plane::Answer;
use crate::service::ServiceError;

/// Keys that are removed by one command.
const SWEPT_MAX: u32 = 1_000;

impl Kv {
    /// Sets a key, and returns the version of its value.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn set(&self, key: &str, value: &[u8], live: TimeToLive, condition: Condition) -> Result<u64, KvError> {
        self.check(key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(KvError::ValueTooLarge { bytes: value.len() });
        }
        self.has_room()?;
        let mut proposal = self.proposal();
        let keys_max = self.inner.config.keys_max;
        command::set(proposal.begin(), key, value, live, condition, keys_max);
        match self.propose(proposal).await? {
            Outcome::Set(version) => Ok(version),
            Outcome::Refused(version) => Err(KvError::ConditionNotMet { version }),
            _ => Err(ServiceError::Stopped.into()),
        }
    }

    /// Deletes a key; whether there was a value.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn delete(&self, key: &str, condition: Condition) -> Result<bool, KvError> {
        self.check(key)?;
        let mut proposal = Proposal::new();
        command::delete(proposal.begin(), key, condition);
        match self.propose(proposal).await? {
            Outcome::Deleted(deleted) => Ok(deleted),
            Outcome::Refused(version) => Err(KvError::ConditionNotMet { version }),
            _ => Err(ServiceError::Stopped.into()),
        }
    }

    /// Changes how long a value lives from now on; whether there is one.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn expire(&self, key: &str, live: TimeToLive) -> Result<bool, KvError> {
        self.check(key)?;
        let mut proposal = Proposal::new();
        command::expire(proposal.begin(), key, live);
        match self.propose(proposal).await? {
            Outcome::Expires(found) => Ok(found),
            _ => Err(ServiceError::Stopped.into()),
        }
    }

    /// Adds to a number, and returns the sum and its version.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn increment(&self, key: &str, by: i64) -> Result<(i64, u64), KvError> {
        self.check(key)?;
        self.has_room()?;
        let mut proposal = self.proposal();
        let keys_max = self.inner.config.keys_max;
        command::increment(proposal.begin(), key, by, TimeToLive::Unlimited, keys_max);
        match self.propose(proposal).await? {
            Outcome::Incremented(result) => Ok(result?),
            _ => Err(ServiceError::Stopped.into()),
        }
    }

    /// Removes everything; returns how many keys that were.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn flush(&self) -> Result<u64, KvError> {
        self.enabled()?;
        let mut proposal = Proposal::new();
        command::flush(proposal.begin());
        match self.propose(proposal).await? {
            Outcome::Removed(count) => Ok(count),
            _ => Err(ServiceError::Stopped.into()),
        }
    }

    /// Removes what is over, as long as this node leads. Ends when it is dropped.
    pub async fn sweep(&self) {
        if !self.inner.config.enabled {
            return;
        }
        loop {
            tokio::time::sleep(self.inner.config.cleanup).await;
            while let Err(error) = self.sweep_all().await {
                tracing::debug!(%error, "what is over stays in the cache a little longer");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }

    async fn sweep_all(&self) -> Result<(), KvError> {
        let queues = &self.inner.queues;
        let wanted = || queues.is_leading() && self.with_cache(|cache| cache.has_expired(clock::now()));
        while wanted() {
            let mut proposal = Proposal::new();
            command::sweep(proposal.begin(), SWEPT_MAX);
            self.propose(proposal).await?;
        }
        Ok(())
    }

    /// What makes the storage larger is not taken while it is full.
    fn has_room(&self) -> Result<(), KvError> {
        match self.inner.queues.inner.log.space() {
            Space::Full => Err(ServiceError::StorageFull.into()),
            Space::Ample => Ok(()),
        }
    }

    /// A proposal that begins with what was read since the last one.
    fn proposal(&self) -> Proposal {
        let mut proposal = Proposal::new();
        if self.inner.config.keys_max > 0 {
            let reads = std::mem::take(&mut *self.inner.reads.lock());
            if !reads.is_empty() {
                command::touch(proposal.begin(), reads.iter().map(String::as_str));
            }
        }
        proposal
    }

    /// The outcome of the last command.
    async fn propose(&self, proposal: Proposal) -> Result<Outcome, KvError> {
        let queues = &self.inner.queues;
        let answers = queues.confirmed(queues.propose_any(proposal)).await?;
        let last = answers.into_iter().next_back().and_then(Answer::cache);
        last.ok_or_else(|| ServiceError::Stopped.into())
    }
}
