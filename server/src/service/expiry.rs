//! Removing messages whose time is over.
//!
//! The machine knows the ends of lives, and [`Queues::expire_in_time`] removes each message at its end, wherever it stands in its
//! queue, unless somebody holds it. Who delivers looks all the same, because a message that expired a moment ago may still be there,
//! and one that was published before ends were kept is known by its record alone. One command removes a batch. At most
//! [`EXPIRING_MAX`] of them are on their way; who comes upon more waits. A queue whose head has more expired messages than a call may
//! walk past is swept in the background, until something comes that lives.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_queue::command::Settle;
use boltq_queue::{ClaimError, ConsumerId, Handle as PlaneHandle, Place, QueueId};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::error::ServiceError;
use super::queue::Queues;
use super::take::{Held, Look};

/// Messages that are looked at together behind a head that has expired.
pub(super) const LOOK_AHEAD_MESSAGES: usize = BATCH_MESSAGES_MAX;
/// Batches of expired messages on their way.
const EXPIRING_MAX: usize = 16;
/// Messages that are removed in time by one command.
const IN_TIME_MAX: usize = 4 * BATCH_MESSAGES_MAX;
/// Longest sleep until the next look, so that a clock that is set forward is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// While they cannot be removed, it is tried this often.
const RETRY: Duration = Duration::from_millis(200);
/// What the sweeper looks at is its own for as long as that takes; only a stop in between makes the time matter.
const SWEEP_LEASE_MS: u64 = 30_000;

/// What is being done about expired messages.
pub(super) struct Expiry {
    expiring: Arc<Semaphore>,
    /// Queues to be swept.
    sweeps: Mutex<BTreeSet<QueueId>>,
    wanted: Notify,
}

impl Default for Expiry {
    fn default() -> Self {
        Self {
            expiring: Arc::new(Semaphore::new(EXPIRING_MAX)),
            sweeps: Mutex::default(),
            wanted: Notify::new(),
        }
    }
}

impl Expiry {
    /// The head of this queue has expired, and there is more behind it.
    pub(super) fn sweep_later(&self, queue: QueueId) {
        self.sweeps.lock().insert(queue);
        self.wanted.notify_one();
    }

    /// The queue after `last`, so that each gets its turn.
    async fn next(&self, last: QueueId) -> QueueId {
        loop {
            let next = {
                let mut sweeps = self.sweeps.lock();
                let after = sweeps.range(QueueId(last.0.saturating_add(1))..).next();
                let next = after.or_else(|| sweeps.first()).copied();
                if let Some(next) = next {
                    sweeps.remove(&next);
                }
                next
            };
            match next {
                Some(next) => return next,
                None => self.wanted.notified().await,
            }
        }
    }
}

/// Leased messages whose time is over; given back when this is dropped.
pub(super) struct Expired<'a>(pub(super) Held<'a>);

impl Expired<'_> {
    /// They belong to a command from now on.
    fn claim(mut self) -> Vec<Place> {
        let leased = std::mem::take(&mut self.0.leased);
        let now = self.0.queues.inner.plane.now();
        self.0.queues.inner.plane.with(|plane| {
            let claims = leased.iter().map(|leased| {
                let handle = PlaneHandle::Token {
                    place: leased.place,
                    lease: leased.lease,
                };
                plane.claim(handle, now)
            });
            let claimed = claims.filter_map(|claim| match claim {
                Ok(claim) | Err(ClaimError::Expired(claim)) => Some(claim.place),
                // Its consumer went away, and it went on to another one.
                Err(ClaimError::NotFound | ClaimError::LeaseLost | ClaimError::Later) => None,
            });
            claimed.collect()
        })
    }
}

impl Queues {
    /// Removes messages in the background, if their turn comes in time; otherwise they are given back.
    pub(super) async fn start_expiry(
        &self,
        expired: Expired<'_>,
        until: Instant,
    ) -> Option<JoinHandle<Result<(), ServiceError>>> {
        if expired.0.leased.is_empty() {
            return None;
        }
        let turn = Arc::clone(&self.inner.expiry.expiring).acquire_owned();
        let turn = tokio::time::timeout_at(until, turn).await.ok()?.ok()?;
        Some(self.expire_in_turn(expired.claim(), turn))
    }

    fn expire_in_turn(&self, places: Vec<Place>, turn: OwnedSemaphorePermit) -> JoinHandle<Result<(), ServiceError>> {
        let queues = self.clone();
        boltq_raft::spawn(async move {
            let expired = queues.finish(Settle::Expire, places).await;
            drop(turn);
            expired
        })
    }

    /// Removes messages when their time to live is over. Never returns.
    pub(crate) async fn expire_in_time(&self) {
        let plane = &self.inner.plane;
        loop {
            let mut expired = Vec::new();
            let next = plane.claim_expired(plane.now(), IN_TIME_MAX, &mut expired);
            if !expired.is_empty() {
                if let Err(error) = self.finish(Settle::Expire, expired).await {
                    tracing::debug!(%error, "expired messages are not removed");
                    tokio::time::sleep(RETRY).await;
                }
                continue;
            }
            let sleep = next.map_or(SLEEP_MAX, |next| {
                Duration::from_millis(next.since(plane.now())).min(SLEEP_MAX)
            });
            tokio::select! {
                biased;
                () = tokio::time::sleep(sleep) => {}
                () = plane.expires_earlier() => {}
            }
        }
    }

    /// Sweeps queues whose heads have expired. Never returns.
    pub(crate) async fn sweep(&self) {
        let mut last = QueueId(0);
        loop {
            last = self.inner.expiry.next(last).await;
            match self.sweep_batch(last).await {
                Ok(true) => self.inner.expiry.sweep_later(last),
                Ok(false) => {}
                // Whoever comes upon them next has it told; this would only try again and again.
                Err(error) => tracing::debug!(%error, "expired messages are not removed"),
            }
        }
    }

    /// Whether everything that was looked at had expired.
    async fn sweep_batch(&self, queue: QueueId) -> Result<bool, ServiceError> {
        let look = Look {
            consumer: ConsumerId::SWEEPER,
            queue,
            messages: LOOK_AHEAD_MESSAGES,
            deliver: 0,
            lease_ms: Some(SWEEP_LEASE_MS),
        };
        let found = self.look(look).await?;
        let more = found.looked > 0 && !found.lives;
        let turn = Arc::clone(&self.inner.expiry.expiring).acquire_owned().await;
        let turn = turn.map_err(|_| ServiceError::Stopped)?;
        let expiry = self.expire_in_turn(found.expired.claim(), turn);
        expiry.await.unwrap_or(Err(ServiceError::Stopped))?;
        Ok(more)
    }
}
