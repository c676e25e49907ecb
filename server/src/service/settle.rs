//! Settling leased messages: done, failed, expired, dead.
//!
//! A message is first claimed on the plane, so that nobody else can settle it, lease it or time it out; then the command
//! is proposed. If that fails, or the caller goes away, the claims are given back.

use std::time::Duration;

use boltq_core::{MessageId, Millis, Record, RecordBuilder};
use boltq_queue::command::{FailWriter, Settle, SettleWriter, begin_dead_letter};
use boltq_queue::{Claim, ClaimError, Handle as PlaneHandle, Place, Plane};
use boltq_raft::Proposal;
use bytes::BytesMut;

use super::batch::after;
use super::error::{ServiceError, SettleError};
use super::queue::{Queues, random};
use super::token::Handle;
use crate::clock;

/// Suffix of the dead-letter queue of a queue.
pub const DEAD_LETTER_SUFFIX: &str = "_dead_letter";

/// Headers that a dead letter gets. Those of an earlier death are replaced.
mod header {
    pub(super) const QUEUE: &str = "x-death-queue";
    pub(super) const REASON: &str = "x-death-reason";
    pub(super) const ATTEMPTS: &str = "x-death-attempts";
    pub(super) const TIME: &str = "x-death-time-ms";
    pub(super) const ALL: [&str; 4] = [QUEUE, REASON, ATTEMPTS, TIME];
}

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
}

/// Why a message died; the value of a header.
#[derive(Debug, Clone, Copy)]
enum Reason {
    MaxRetry,
    Timeout,
    Rejected,
}

impl Reason {
    fn text(self) -> &'static str {
        match self {
            Self::MaxRetry => "max_retry",
            Self::Timeout => "ack_timeout",
            Self::Rejected => "rejected",
        }
    }
}

/// Claims that are given back when the caller goes away before their command is proposed.
struct Claims<'a> {
    queues: &'a Queues,
    places: Vec<Place>,
}

impl Claims<'_> {
    /// They belong to a command from now on.
    fn hand_over(mut self) -> Vec<Place> {
        std::mem::take(&mut self.places)
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        if !self.places.is_empty() {
            self.queues.inner.plane.with(|plane| unclaim(plane, &self.places));
        }
    }
}

fn unclaim(plane: &mut Plane, places: &[Place]) {
    let now = clock::now();
    for place in places {
        plane.unclaim(*place, now);
    }
}

impl Queues {
    /// Settles messages; one result for each handle, in order. Returns when the settlement is durable.
    ///
    /// # Errors
    /// Nothing was settled, or with [`ServiceError::Stopped`] the outcome is unknown.
    pub async fn settle(
        &self,
        how: Settlement,
        handles: &[Handle],
    ) -> Result<Vec<Result<(), SettleError>>, ServiceError> {
        if !self.inner.plane.is_leading() {
            return Err(ServiceError::NotLeader);
        }
        let Claimed {
            results,
            claims,
            expired,
        } = self.claim(how, handles);
        let places = claims.iter().map(|claim| claim.place).collect();
        let settled = async {
            match how {
                Settlement::Ack => self.finish(Settle::Ack, places).await,
                Settlement::Nack { delay, dead_letter } => {
                    let reason = if dead_letter { Some(Reason::Rejected) } else { None };
                    self.fail(&claims, delay, reason, Reason::MaxRetry).await
                }
            }
        };
        let (settled, expired) = futures_util::future::join(settled, self.expire(&expired)).await;
        settled.and(expired)?;
        Ok(results)
    }

    fn claim(&self, how: Settlement, handles: &[Handle]) -> Claimed {
        let mut claimed = Claimed {
            results: Vec::with_capacity(handles.len()),
            claims: Vec::with_capacity(handles.len()),
            expired: Vec::new(),
        };
        let now = clock::now();
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
            .freed(claimed.claims.iter().filter_map(|claim| claim.consumer));
        claimed
    }

    /// Removes messages that are claimed or leased and whose time is over.
    pub(super) async fn expire(&self, places: &[Place]) -> Result<(), ServiceError> {
        self.finish(Settle::Expire, places.to_vec()).await
    }

    async fn finish(&self, how: Settle, mut places: Vec<Place>) -> Result<(), ServiceError> {
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
        self.carry_out(proposal, move |plane| unclaim(plane, &places)).await?;
        Ok(())
    }

    /// Counts a failed attempt for each, and moves those that have had enough to the dead letters: for `reason` all of
    /// them, else those whose attempts are exhausted, for `exhausted`.
    async fn fail(
        &self,
        claimed: &[Claim],
        delay: Option<Duration>,
        reason: Option<Reason>,
        exhausted: Reason,
    ) -> Result<(), ServiceError> {
        if claimed.is_empty() {
            return Ok(());
        }
        let claims = Claims {
            queues: self,
            places: claimed.iter().map(|claim| claim.place).collect(),
        };
        let now = clock::now();
        let mut proposal = Proposal::new();
        let mut failed = Vec::new();
        let mut dead = Vec::new();
        for claim in claimed {
            let attempts = claim.attempts.saturating_add(1);
            let (is_exhausted, backoff) = self
                .inner
                .plane
                .with(|plane| (plane.exhausted(attempts), plane.not_before(attempts, now, random())));
            if reason.is_some() || is_exhausted {
                dead.push(claim);
            } else {
                failed.push((claim.place, delay.map_or(backoff, |delay| after(now, delay))));
            }
        }
        if !failed.is_empty() {
            let out = proposal.begin();
            let mut writer = FailWriter::begin(out);
            for (place, not_before) in failed {
                writer.push(out, place, not_before);
            }
            writer.finish(out);
        }
        self.bury(&mut proposal, &dead, reason.unwrap_or(exhausted), now)
            .await?;
        let places = claims.hand_over();
        self.carry_out(proposal, move |plane| unclaim(plane, &places)).await?;
        Ok(())
    }

    /// Adds the commands that move messages to the dead letters of their queue.
    async fn bury(
        &self,
        proposal: &mut Proposal,
        dead: &[&Claim],
        reason: Reason,
        now: Millis,
    ) -> Result<(), ServiceError> {
        if dead.is_empty() {
            return Ok(());
        }
        let records = self
            .read(dead.iter().map(|claim| (claim.place.stream, claim.place.seq)).collect())
            .await?;
        for (claim, bytes) in dead.iter().zip(records) {
            let record = Record::read(&bytes).map_err(|error| ServiceError::Storage {
                what: format!("record at {:?}: {error}", claim.place),
            })?;
            let origin = self
                .inner
                .plane
                .with(|plane| plane.queue_name(claim.queue).map(str::to_owned));
            let Some(queue) = origin else { continue };
            let id = record
                .id
                .unwrap_or_else(|| self.inner.salt.id(claim.place.stream, claim.place.seq));
            let attempts = claim.attempts.saturating_add(1);
            let out = proposal.begin();
            begin_dead_letter(out, claim.place, &dead_letter_queue(&queue));
            // A dead letter that fails again is still one of the queue where it died first.
            let died_before = record.headers().find(|(key, _)| *key == header::QUEUE);
            let origin = died_before.map_or(queue.as_str(), |(_, first)| first);
            write_dead_letter(&record, id, origin, reason, attempts, now, out);
        }
        Ok(())
    }

    /// Counts a failed attempt for leases that have ended. For the timer.
    ///
    /// # Errors
    /// As [`Queues::settle`]; the messages are available again then, without the attempt.
    pub async fn fail_timed_out(&self, claims: Vec<Claim>) -> Result<(), ServiceError> {
        self.inner.plane.freed(claims.iter().filter_map(|claim| claim.consumer));
        let (expired, failed): (Vec<_>, Vec<_>) = claims.into_iter().partition(|claim| claim.expired);
        let expired: Vec<_> = expired.iter().map(|claim| claim.place).collect();
        let failed = self.fail(&failed, None, None, Reason::Timeout);
        let (failed, expired) = futures_util::future::join(failed, self.expire(&expired)).await;
        failed.and(expired)
    }

    /// Moves the end of leases to `lease` from now; one result for each handle.
    ///
    /// # Errors
    /// This node does not lead.
    pub fn extend(&self, handles: &[Handle], lease: Duration) -> Result<Vec<Result<(), SettleError>>, ServiceError> {
        if !self.inner.plane.is_leading() {
            return Err(ServiceError::NotLeader);
        }
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let now = clock::now();
        Ok(self.inner.plane.with(|plane| {
            let extend = |handle: &Handle| {
                plane
                    .extend(plane_handle(plane, handle), lease_ms, now)
                    .map_err(|error| match error {
                        ClaimError::NotFound | ClaimError::Expired(_) => SettleError::NotFound,
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
    fn has(&self, place: Place) -> bool {
        self.claims
            .iter()
            .map(|claim| claim.place)
            .chain(self.expired.iter().copied())
            .any(|claimed| claimed == place)
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
        (Settlement::Nack { .. }, _) => held,
    }
}

/// The dead letters of a dead-letter queue stay in it, so that a poison message does not grow a chain of queues.
pub(super) fn dead_letter_queue(queue: &str) -> String {
    if queue.ends_with(DEAD_LETTER_SUFFIX) {
        queue.to_owned()
    } else {
        format!("{queue}{DEAD_LETTER_SUFFIX}")
    }
}

/// The record of a message that died: same id, payload, priority and time; no expiry, since a dead letter that vanishes
/// cannot be looked at; its history in headers.
fn write_dead_letter(
    record: &Record,
    id: MessageId,
    origin: &str,
    reason: Reason,
    attempts: u32,
    now: Millis,
    out: &mut BytesMut,
) {
    let (attempts, time) = (attempts.to_string(), now.0.to_string());
    let history = [
        (header::QUEUE, origin),
        (header::REASON, reason.text()),
        (header::ATTEMPTS, attempts.as_str()),
        (header::TIME, time.as_str()),
    ];
    let kept = record.headers().filter(|(key, _)| !header::ALL.contains(key));
    RecordBuilder {
        json: record.json,
        priority: record.priority,
        published_ns: record.published_ns,
        expires: None,
        due: None,
        id: Some(id),
        payload: &record.payload,
    }
    .write(kept.chain(history), out);
}
