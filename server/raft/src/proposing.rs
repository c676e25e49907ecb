//! What a caller does with a group: proposes commands, and waits for as much as it wants to know.

use boltq_core::LogIndex;

use crate::early::{Aftermath, Early};
use crate::entry::Proposal;
use crate::error::{InSyncError, ProposeError};
use crate::group::{Group, GroupHandler};
use crate::proposer::Admitted;

impl<H: GroupHandler> Group<H> {
    /// Proposes commands and waits for their outcomes, which are in the order of the commands.
    ///
    /// # Errors
    /// Another node leads, or the group stopped; then the outcome is unknown.
    pub async fn propose(&self, proposal: Proposal) -> Result<Vec<H::Outcome>, ProposeError> {
        let admitted = self.admit(proposal).await?;
        self.propose_admitted(admitted).await
    }

    /// The first half of [`Group::propose`]: waits until there is room for the proposal. Room is given back once its outcome
    /// is known.
    ///
    /// # Errors
    /// The group stopped.
    pub async fn admit(&self, proposal: Proposal) -> Result<Admitted, ProposeError> {
        self.inner.proposer.admit(proposal).await
    }

    /// The second half of [`Group::propose`].
    ///
    /// # Errors
    /// As for [`Group::propose`].
    pub async fn propose_admitted(&self, admitted: Admitted) -> Result<Vec<H::Outcome>, ProposeError> {
        Ok(self.inner.proposer.propose(admitted).await?.outcomes)
    }

    /// As [`Group::propose_admitted`], and tells which entry the commands are in, to wait for more of the voters to have it:
    /// see [`Group::in_sync`].
    ///
    /// # Errors
    /// As for [`Group::propose`].
    pub async fn propose_placed(&self, admitted: Admitted) -> Result<(Vec<H::Outcome>, LogIndex), ProposeError> {
        let decided = self.inner.proposer.propose(admitted).await?;
        Ok((decided.outcomes, decided.index))
    }

    /// Proposes commands and does not wait for their outcomes: they go to `aftermath`, also if nobody will know them.
    ///
    /// # Errors
    /// Another node leads, or the group stopped, before as much was known as `early` says; `aftermath` is not called then.
    pub async fn propose_early(
        &self,
        admitted: Admitted,
        early: Early,
        aftermath: Aftermath<H::Outcome>,
    ) -> Result<(), ProposeError> {
        self.inner.proposer.propose_early(admitted, early, aftermath).await
    }

    /// Whether as many voters answer as [`crate::GroupConfig::min_in_sync`] asks for. Only who leads can tell, so it is true on
    /// other nodes.
    ///
    /// # Errors
    /// [`InSyncError::TooFewAnswer`]
    pub fn enough_answer(&self) -> Result<(), InSyncError> {
        self.inner.in_sync.as_ref().map_or(Ok(()), |in_sync| in_sync.check())
    }

    /// Waits until as many voters have an entry that was applied here as [`crate::GroupConfig::min_in_sync`] asks for, which may be
    /// never.
    ///
    /// # Errors
    /// [`InSyncError::Unknown`]
    pub async fn in_sync(&self, entry: LogIndex) -> Result<(), InSyncError> {
        match &self.inner.in_sync {
            None => Ok(()),
            Some(in_sync) => in_sync.reached(entry).await,
        }
    }

    /// Whether [`Group::in_sync`] may wait.
    #[must_use]
    pub fn may_wait_for_sync(&self) -> bool {
        self.inner.in_sync.is_some()
    }

    /// What was asked for, see [`crate::GroupConfig::min_in_sync`].
    #[must_use]
    pub fn min_in_sync(&self) -> usize {
        self.inner.config.min_in_sync
    }

    /// Bytes of proposals whose outcome is not known yet.
    #[must_use]
    pub fn unsettled_bytes(&self) -> usize {
        self.inner.proposer.unsettled_bytes()
    }
}
