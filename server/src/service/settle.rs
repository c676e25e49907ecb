//! Settling leased messages: done, failed, expired, dead.
//!
//! A message is first claimed on the plane, so that nobody else can settle it, lease it or time it out; then the command
//! is proposed. If that fails, or the caller goes away, the claims are given back. Moving messages to the dead letters, which
//! needs their records, is in [`super::bury`].

use std::collections::VecDeque;
use std::time::Duration;

use boltq_core::Millis;
use boltq_queue::command::{FailWriter, Settle, SettleWriter};
use boltq_queue::{Claim, ClaimError, Handle as PlaneHandle, Place, Plane};
use boltq_raft::Proposal;

use super::batch::after;
use super::bury::Reason;
use super::error::{ServiceError, SettleError};
use super::queue::Queues;
use super::token::Handle;

/// What is to become of leased messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// Done.
    Ack,
    /// Failed.
    Nack {
        /// Instead of the backoff.
        delay: Option<Duration>,
        /// To the dead letters, whatever the number of attempts.
        dead_letter: bool,
    },
    /// Given back: nobody has worked on them, and no attempt is counted. Nothing is stored for that.
    Release,
}

impl Settlement {
    /// As traces call it.
    fn name(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Nack { dead_letter: false, .. } => "nack",
            Self::Nack { dead_letter: true, .. } => "dead_letter",
            Self::Release => "release",
        }
    }
}

/// Claims that are given back when the caller goes away before their command is proposed.
pub(super) struct Claims<'a> {
    queues: &'a Queues,
    places: VecDeque<Place>,
}

impl<'a> Claims<'a> {
    pub(super) fn new(queues: &'a Queues, places: impl Iterator<Item = Place>) -> Self {
        Self {
            queues,
            places: places.collect(),
        }
    }

    /// The first ones belong to a command from now on.
    pub(super) fn hand_over(&mut self, count: usize) -> Vec<Place> {
        self.places.drain(..count.min(self.places.len())).collect()
    }

    /// Gives the first ones back.
    pub(super) fn give_back(&mut self, count: usize) {
        let places = self.hand_over(count);
        let now = self.queues.inner.plane.now();
        self.queues.inner.plane.with(|plane| unclaim(plane, &places, now));
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        if !self.places.is_empty() {
            self.give_back(self.places.len());
        }
    }
}

pub(super) fn unclaim(plane: &mut Plane, places: &[Place], now: Millis) {
    for place in places {
        plane.unclaim(*place, now);
    }
}

impl Queues {
    /// Settles messages; one result for each handle, in order. Returns when the settlement is durable.
    ///
    /// Many are settled in portions. When one of them fails, those before it are settled, and the results say so.
    ///
    /// # Errors
    /// Nothing was settled, or with [`ServiceError::Stopped`] the outcome is unknown.
    pub async fn settle(
        &self,
        how: Settlement,
        handles: &[Handle],
    ) -> Result<Vec<Result<(), SettleError>>, ServiceError> {
        if !self.inner.plane.is_leading() {
            return Err(self.not_leader());
        }
        let Claimed {
            mut results,
            claims,
            expired,
        } = self.claim(how, handles).await;
        self.count_holds(&claims);
        let settling = self.trace_settling(how.name(), claims.iter());
        let settled = async {
            match how {
                Settlement::Ack => {
                    let places = claims.iter().map(|claim| claim.place).collect();
                    self.finish(Settle::Ack, places).await?;
                    self.inner.plane.count_acked(claims.iter().map(|claim| claim.queue));
                    Ok(())
                }
                Settlement::Nack { delay, dead_letter } => {
                    let reason = if dead_letter { Some(Reason::Rejected) } else { None };
                    let settled = self.fail(&claims, delay, reason, Reason::MaxRetry).await;
                    enter(&mut results, settled)
                }
                Settlement::Release => {
                    // Claims that nothing becomes of are given back when they are dropped.
                    drop(Claims::new(self, claims.iter().map(|claim| claim.place)));
                    Ok(())
                }
            }
        };
        let (settled, expired) = futures_util::future::join(settled, self.expire(&expired)).await;
        if let Some(settling) = settling {
            settling.end(self, settled.as_ref().err());
        }
        settled?;
        if let Err(error) = expired {
            // They are found to be over again by whoever comes upon them next.
            tracing::debug!(%error, "expired messages were not removed");
        }
        Ok(results)
    }

    async fn claim(&self, how: Settlement, handles: &[Handle]) -> Claimed {
        let mut claimed = Claimed {
            results: Vec::with_capacity(handles.len()),
            claims: Vec::with_capacity(handles.len()),
            expired: Vec::new(),
        };
        loop {
            self.claim_some(how, &handles[claimed.results.len()..], &mut claimed);
            if claimed.results.len() == handles.len() {
                return claimed;
            }
            let mut held = Claims::new(self, claimed.places());
            tokio::task::yield_now().await;
            held.hand_over(usize::MAX);
        }
    }

    /// Claims messages up to one that has to be looked for further, when others have had their turn.
    fn claim_some(&self, how: Settlement, handles: &[Handle], claimed: &mut Claimed) {
        let now = self.inner.plane.now();
        let before = claimed.claims.len();
        self.inner.plane.with(|plane| {
            for handle in handles {
                let wanted = plane_handle(plane, handle);
                let result = match plane.claim(wanted, now) {
                    Ok(claim) if counts(how, handle, &claim) => {
                        claimed.claims.push(claim);
                        Ok(())
                    }
                    Ok(claim) => {
                        plane.unclaim(claim.place, now);
                        Err(SettleError::NotFound)
                    }
                    // Named twice in one request: settled by the first, as if it had come in a request before.
                    Err(ClaimError::LeaseLost) if claimed.has(wanted.place()) => Err(SettleError::NotFound),
                    Err(ClaimError::LeaseLost) => Err(SettleError::LeaseLost),
                    Err(ClaimError::NotFound) => Err(SettleError::NotFound),
                    Err(ClaimError::Later) => return,
                    Err(ClaimError::Expired(claim)) => {
                        claimed.expired.push(claim.place);
                        Err(SettleError::NotFound)
                    }
                };
                claimed.results.push(result);
            }
        });
        self.inner
            .plane
            .freed(claimed.claims[before..].iter().filter_map(|claim| claim.consumer));
    }

    /// Removes messages that are claimed and whose time is over.
    async fn expire(&self, places: &[Place]) -> Result<(), ServiceError> {
        self.finish(Settle::Expire, places.to_vec()).await
    }

    /// Settles messages that are claimed with one command.
    pub(super) async fn finish(&self, how: Settle, mut places: Vec<Place>) -> Result<(), ServiceError> {
        if places.is_empty() {
            return Ok(());
        }
        let mut proposal = Proposal::new();
        // In order, so that neighbours become one run.
        places.sort_unstable();
        let out = proposal.begin();
        let mut writer = SettleWriter::begin(out, how);
        for place in &places {
            writer.push(out, *place);
        }
        writer.finish(out);
        self.carry_out(proposal, move |plane, now| unclaim(plane, &places, now))
            .await?;
        Ok(())
    }

    /// Counts a failed attempt for each, and moves those that have had enough to the dead letters: for `reason` all of
    /// them, else those whose attempts are exhausted, for `exhausted`. Says of each, in order, whether that is stored.
    async fn fail(
        &self,
        claimed: &[Claim],
        delay: Option<Duration>,
        reason: Option<Reason>,
        exhausted: Reason,
    ) -> Vec<Result<(), ServiceError>> {
        let now = self.inner.plane.now();
        let mut failed = Vec::new();
        let mut dead = Vec::new();
        self.inner.plane.with(|plane| {
            for (index, claim) in claimed.iter().enumerate() {
                let attempts = claim.attempts.saturating_add(1);
                let settings = plane.settings(claim.queue);
                if reason.is_some() || settings.exhausted(attempts) {
                    dead.push((index, claim));
                } else {
                    let backoff = settings.not_before(attempts, now, (self.inner.plane.sources().random)());
                    failed.push((index, claim.place, delay.map_or(backoff, |delay| after(now, delay))));
                }
            }
        });
        // Neighbours lie together in the log.
        dead.sort_unstable_by_key(|(_, claim)| claim.place);
        let dying = Claims::new(self, dead.iter().map(|(_, claim)| claim.place));
        let mut results = vec![Ok(()); claimed.len()];
        if !failed.is_empty() {
            let mut failing = Claims::new(self, failed.iter().map(|(_, place, _)| *place));
            let mut proposal = Proposal::new();
            let out = proposal.begin();
            let mut writer = FailWriter::begin(out);
            for (_, place, not_before) in &failed {
                writer.push(out, *place, *not_before);
            }
            writer.finish(out);
            let places = failing.hand_over(failed.len());
            let outcome = self
                .carry_out(proposal, move |plane, now| unclaim(plane, &places, now))
                .await;
            for (index, ..) in failed {
                results[index] = outcome.as_ref().map(|_| ()).map_err(Clone::clone);
            }
        }
        let buried = self.bury(&dead, dying, reason.unwrap_or(exhausted), now).await;
        for ((index, _), buried) in dead.iter().zip(buried) {
            results[*index] = buried;
        }
        results
    }

    /// Counts a failed attempt for leases that have ended. For the timer.
    ///
    /// # Errors
    /// Why it could not be stored, and for how many: those messages are available again, without the attempt.
    pub async fn fail_timed_out(&self, claims: Vec<Claim>) -> Result<(), (ServiceError, usize)> {
        self.inner.plane.freed(claims.iter().filter_map(|claim| claim.consumer));
        let settling = self.trace_settling(Reason::Timeout.text(), claims.iter());
        let (expired, failed): (Vec<_>, Vec<_>) = claims.into_iter().partition(|claim| claim.expired);
        let expired: Vec<_> = expired.iter().map(|claim| claim.place).collect();
        let failed = self.fail(&failed, None, None, Reason::Timeout);
        let (failed, removed) = futures_util::future::join(failed, self.expire(&expired)).await;
        if let Some(settling) = settling {
            settling.end(self, failed.iter().find_map(|failed| failed.as_ref().err()));
        }
        let mut errors: Vec<_> = failed.into_iter().filter_map(Result::err).collect();
        if let Err(error) = removed {
            errors.extend(expired.iter().map(|_| error.clone()));
        }
        let count = errors.len();
        errors.into_iter().next().map_or(Ok(()), |error| Err((error, count)))
    }

    /// Moves the end of leases to `lease` from now; one result for each handle.
    ///
    /// # Errors
    /// This node does not lead.
    pub fn extend(&self, handles: &[Handle], lease: Duration) -> Result<Vec<Result<(), SettleError>>, ServiceError> {
        if !self.inner.plane.is_leading() {
            return Err(self.not_leader());
        }
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let now = self.inner.plane.now();
        Ok(self.inner.plane.with(|plane| {
            let extend = |handle: &Handle| {
                plane
                    .extend(plane_handle(plane, handle), lease_ms, now)
                    .map_err(|error| match error {
                        // It is looked for by who settles it. That nobody holds it is known.
                        ClaimError::NotFound | ClaimError::Expired(_) | ClaimError::Later => SettleError::NotFound,
                        ClaimError::LeaseLost => SettleError::LeaseLost,
                    })
            };
            handles.iter().map(extend).collect()
        }))
    }
}

/// What came of handles.
struct Claimed {
    /// One for each handle.
    results: Vec<Result<(), SettleError>>,
    claims: Vec<Claim>,
    /// Claimed too, to be removed.
    expired: Vec<Place>,
}

impl Claimed {
    fn places(&self) -> impl Iterator<Item = Place> {
        let claims = self.claims.iter().map(|claim| claim.place);
        claims.chain(self.expired.iter().copied())
    }

    fn has(&self, place: Place) -> bool {
        self.places().any(|claimed| claimed == place)
    }
}

fn plane_handle(plane: &Plane, handle: &Handle) -> PlaneHandle {
    match handle {
        Handle::Token(token) => PlaneHandle::Token {
            place: token.place,
            lease: token.lease,
        },
        Handle::Id(id) => PlaneHandle::Place(plane.find(*id)),
    }
}

/// Whether a settlement of this message is right. Without a holder the lease has ended: then the failed attempt was
/// counted already, and who knows only the id of a message that was never tried has not got it from us.
fn counts(how: Settlement, handle: &Handle, claim: &Claim) -> bool {
    let held = claim.consumer.is_some();
    match (how, handle) {
        (Settlement::Ack, Handle::Token(_)) => true,
        (Settlement::Ack, Handle::Id(_)) => held || claim.attempts > 0,
        (Settlement::Nack { .. } | Settlement::Release, _) => held,
    }
}

/// Enters what became of the claims, in the order of the handles that they came from. An error if nothing came of any.
fn enter(results: &mut [Result<(), SettleError>], settled: Vec<Result<(), ServiceError>>) -> Result<(), ServiceError> {
    if let Some(Err(error)) = settled.first()
        && settled.iter().all(Result::is_err)
    {
        return Err(error.clone());
    }
    let claimed = results.iter_mut().filter(|result| result.is_ok());
    for (result, settled) in claimed.zip(settled) {
        *result = settled.map_err(|error| SettleError::NotSettled(Box::new(error)));
    }
    Ok(())
}
