//! Messages that wait for their due time: which there are, taking them back, and giving them another time.
//!
//! The machine knows everything that is shown of them, so none is read. A change claims its message first, and only one that is not
//! due can be claimed for it: a message is either changed or delivered, and who asks is told which.

use std::collections::BTreeSet;
use std::time::Duration;

use boltq_core::{MessageId, Millis, Seq};
use boltq_queue::{Listing, Outcome, Place, Run, ScheduleError, Scheduled, command};
use boltq_raft::Proposal;

use super::batch::duration_ns;
use super::error::{ServiceError, SettleError};
use super::look::not_found;
use super::queue::Queues;
use super::settle::unclaim;

/// A message that is not due yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledMessage {
    /// Its id.
    pub id: MessageId,
    /// When it is due.
    pub due: Millis,
    /// 0-9.
    pub priority: u8,
}

/// Where a list of scheduled messages goes on: behind the last one that was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledAfter {
    due: Millis,
    seq: Seq,
}

impl ScheduledAfter {
    /// As a client keeps it.
    #[must_use]
    pub fn to_token(self) -> String {
        format!("{:x}.{:x}", self.due.0, self.seq.0)
    }

    /// What a client has kept.
    #[must_use]
    pub fn from_token(token: &str) -> Option<Self> {
        let (due, seq) = token.split_once('.')?;
        let part = |text| u64::from_str_radix(text, 16).ok();
        Some(Self {
            due: Millis(part(due)?),
            seq: Seq(part(seq)?),
        })
    }
}

/// A due time instead of the one that a message had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewDue {
    /// At this time.
    At(Millis),
    /// So long from now.
    After(Duration),
}

impl Queues {
    /// Messages of a queue that are not due, in the order of their due times: `max` at most, behind one of a page before; and where
    /// the next page begins, if there are more.
    ///
    /// # Errors
    /// This node does not lead, or there is no such queue.
    pub async fn scheduled(
        &self,
        queue: &str,
        after: Option<ScheduledAfter>,
        max: usize,
    ) -> Result<(Vec<ScheduledMessage>, Option<ScheduledAfter>), ServiceError> {
        if !self.is_leading() {
            return Err(self.not_leader());
        }
        let id = self.inner.plane.with(|plane| plane.queue(queue));
        let id = id.ok_or_else(|| not_found(queue))?;
        let mut listing = Listing::new(after.map(|after| (after.due, after.seq)), max);
        while self.inner.plane.with(|plane| plane.list_scheduled(id, &mut listing)) {
            tokio::task::yield_now().await;
        }
        let (found, more) = listing.finish(id);
        let last = found.last().filter(|_| more);
        let next = last.map(|Scheduled { place, due, .. }| ScheduledAfter {
            due: *due,
            seq: place.seq,
        });
        let salt = self.salt()?;
        let message = |found: Scheduled| ScheduledMessage {
            id: salt.id(found.place.stream, found.place.seq),
            due: found.due,
            priority: found.priority,
        };
        Ok((found.into_iter().map(message).collect(), next))
    }

    /// Removes messages that are not due; one result for each, in order.
    ///
    /// # Errors
    /// None was removed, or with [`ServiceError::Stopped`] the outcome is unknown.
    pub async fn cancel_scheduled(&self, ids: &[MessageId]) -> Result<Vec<Result<(), SettleError>>, ServiceError> {
        if !self.is_leading() {
            return Err(self.not_leader());
        }
        let claims: Vec<_> = self.inner.plane.with(|plane| {
            let mut claimed = BTreeSet::new();
            let claim = |id: &MessageId| {
                let place = plane.find(*id);
                // This call takes it back: named once more, it is there no longer.
                if !claimed.insert(place) {
                    return Err(ScheduleError::NotFound);
                }
                plane.claim_scheduled(place).map(|()| place).inspect_err(|_| {
                    claimed.remove(&place);
                })
            };
            ids.iter().map(claim).collect()
        });
        let places: Vec<Place> = claims.iter().filter_map(|claim| claim.ok()).collect();
        let missing = self
            .change(&places, |proposal| command::cancel(proposal.begin(), &places))
            .await?;
        let cancelled = |claim: Result<Place, ScheduleError>| match claim {
            Ok(place) if missing.iter().any(|run| run.contains(place)) => Err(SettleError::NotFound),
            Ok(_) => Ok(()),
            Err(ScheduleError::NotFound) => Err(SettleError::NotFound),
            Err(ScheduleError::NotScheduled) => Err(SettleError::NotScheduled),
        };
        Ok(claims.into_iter().map(cancelled).collect())
    }

    /// Gives a message that is not due another due time, and returns it. One that is not later than now makes it due at once.
    ///
    /// # Errors
    /// The message is not there or is due; or nothing was changed.
    pub async fn reschedule(&self, id: MessageId, due: NewDue) -> Result<Millis, ServiceError> {
        if !self.is_leading() {
            return Err(self.not_leader());
        }
        let due = match due {
            NewDue::At(at) => at,
            NewDue::After(delay) => self.after_now(delay),
        };
        let why = |why: ScheduleError| match why {
            ScheduleError::NotFound => ServiceError::MessageNotFound { id },
            ScheduleError::NotScheduled => ServiceError::NotScheduled { id },
        };
        let place = self.inner.plane.with(|plane| {
            let place = plane.find(id);
            plane.claim_scheduled(place).map(|()| place)
        });
        let place = place.map_err(why)?;
        let reschedule = |proposal: &mut Proposal| command::reschedule(proposal.begin(), place, due);
        let missing = self.change(&[place], reschedule).await?;
        match missing.is_empty() {
            true => Ok(due),
            false => Err(why(ScheduleError::NotFound)),
        }
    }

    /// Up to the next millisecond, as the due times of publishes are: never early.
    fn after_now(&self, delay: Duration) -> Millis {
        let now = (self.inner.plane.sources().clock)();
        let delay = u64::try_from(duration_ns(delay)).unwrap_or(u64::MAX);
        Millis(now.unix_ns().saturating_add(delay).div_ceil(1_000_000))
    }

    /// Proposes a command about claimed messages, and returns those that were not there any more.
    async fn change(&self, places: &[Place], write: impl FnOnce(&mut Proposal)) -> Result<Vec<Run>, ServiceError> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let mut proposal = Proposal::new();
        write(&mut proposal);
        let places = places.to_vec();
        let outcomes = self
            .carry_out(proposal, move |plane, now| unclaim(plane, &places, now))
            .await?;
        let missing = outcomes.into_iter().filter_map(|outcome| match outcome {
            Outcome::Settled { missing, .. } => Some(missing),
            _ => None,
        });
        Ok(missing.flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_on_where_the_one_before_ended() {
        let after = ScheduledAfter {
            due: Millis(1_800_000_000_123),
            seq: Seq(77),
        };
        assert_eq!(ScheduledAfter::from_token(&after.to_token()), Some(after));
        for token in ["", ".", "1", "1.", "x.1", "1.1.1", "11111111111111111.1"] {
            assert_eq!(ScheduledAfter::from_token(token), None, "{token}");
        }
    }
}
