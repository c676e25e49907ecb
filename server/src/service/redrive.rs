//! Sending dead letters back to their queue.
//!
//! It looks at them as a consumer does: what it has leased, nobody else takes, and what does not match stays leased until the end,
//! so that it is looked at once. A lease counts no attempt when it is given back.

use std::collections::BTreeMap;
use std::time::Duration;

use boltq_core::{RecordBuilder, check_name};
use boltq_queue::command::begin_redrive;
use boltq_queue::{DEAD_LETTER_SUFFIX, Handle as PlaneHandle, Outcome, QueueId};
use boltq_raft::Proposal;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use super::bury::{QUEUE_HEADER, is_death_header};
use super::error::ServiceError;
use super::queue::{Consumer, Delivery, Queues};
use super::settle::{Claims, unclaim};
use super::take::Look;

/// Messages that are looked at in one go.
const PORTION_MESSAGES_MAX: u64 = 1_000;
/// Longer than anybody waits for a slow redrive. A leadership that ends, ends its leases too.
const LEASE: Duration = Duration::from_secs(7 * 24 * 3_600);
/// A bounded rate is kept over this time.
const RATE_WINDOWS_PER_SECOND: u64 = 10;

/// Which dead letters go back, and how fast.
#[derive(Debug, Clone, Default)]
pub struct Redrive {
    /// The queue, without the suffix.
    pub queue: String,
    /// Headers that they have.
    pub headers: BTreeMap<String, String>,
    /// At most; 0: no bound.
    pub max_messages: u64,
    /// 0: no bound.
    pub max_per_second: u32,
}

impl Redrive {
    fn matches(&self, delivery: &Delivery) -> bool {
        let has = |(key, value): (&String, &String)| {
            // Of a header given twice the last counts, as everywhere.
            let found = delivery.record.headers().filter(|(name, _)| name == key).last();
            found.is_some_and(|(_, found)| found == value)
        };
        self.headers.iter().all(has)
    }

    fn portion(&self, left: u64, redriven: u64) -> u64 {
        let mut portion = PORTION_MESSAGES_MAX.min(left);
        if self.max_messages > 0 {
            portion = portion.min(self.max_messages - redriven);
        }
        if self.max_per_second > 0 {
            portion = portion.min(u64::from(self.max_per_second).div_ceil(RATE_WINDOWS_PER_SECOND));
        }
        portion
    }

    /// When so many may have gone back that began then.
    fn due(&self, begun: Instant, redriven: u64) -> Instant {
        match self.max_per_second {
            0 => begun,
            rate => begun + Duration::from_secs_f64(redriven as f64 / f64::from(rate)),
        }
    }
}

impl Queues {
    /// Sends dead letters back that are ready now, the oldest first, and returns their number. `tell` gets it after each portion;
    /// when nobody listens there any more, it ends.
    ///
    /// # Errors
    /// The name is not acceptable, there are no dead letters, or it could not go on; what had gone back by then stays so.
    pub async fn redrive(&self, redrive: &Redrive, tell: &Sender<u64>) -> Result<u64, ServiceError> {
        // With the suffix, no name is empty.
        check_name(&redrive.queue)?;
        if !self.is_leading() {
            return Err(self.not_leader());
        }
        let dead = self.dead_letter_queue(&redrive.queue);
        // Others may have named the same one.
        let mut redrive = redrive.clone();
        if dead != format!("{}{DEAD_LETTER_SUFFIX}", redrive.queue) {
            redrive.headers.insert(QUEUE_HEADER.to_owned(), redrive.queue.clone());
        }
        let found = self.inner.plane.with(|plane| {
            let id = plane.queue(&dead)?;
            Some((id, plane.stats(id)?.ready))
        });
        // Those that die in the meantime wait for the next time.
        let (id, mut left) = found.ok_or(ServiceError::DeadLettersNotFound { queue: dead })?;
        let (consumer, begun) = (self.consumer(), Instant::now());
        let mut redriven = 0;
        loop {
            let portion = redrive.portion(left, redriven);
            let looked = self.look_at_dead(&consumer, id, portion).await?;
            if looked.is_empty() {
                return Ok(redriven);
            }
            left = left.saturating_sub(looked.len() as u64);
            let back: Vec<_> = looked.iter().filter(|delivery| redrive.matches(delivery)).collect();
            if !back.is_empty() {
                redriven += self.send_back(&back, &redrive.queue).await?;
                if tell.send(redriven).await.is_err() {
                    return Ok(redriven);
                }
                tokio::time::sleep_until(redrive.due(begun, redriven)).await;
            }
        }
    }

    async fn look_at_dead(&self, consumer: &Consumer, queue: QueueId, max: u64) -> Result<Vec<Delivery>, ServiceError> {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        if max == 0 {
            return Ok(Vec::new());
        }
        if !self.is_leading() {
            return Err(self.not_leader());
        }
        let look = Look {
            consumer: consumer.id(),
            queue,
            messages: max,
            deliver: max,
            lease_ms: u64::try_from(LEASE.as_millis()).ok(),
        };
        let found = self.look(look).await?;
        self.confirm_lease(&found.deliveries).await?;
        Ok(found.deliveries)
    }

    /// Each moves whole: one command finishes it and publishes it. Returns how many there were still.
    async fn send_back(&self, dead: &[&Delivery], queue: &str) -> Result<u64, ServiceError> {
        let now = self.inner.plane.now();
        let claimed: Vec<&Delivery> = self.inner.plane.with(|plane| {
            let claim = |delivery: &&&Delivery| {
                let (place, lease) = (delivery.token.place, delivery.token.lease);
                plane.claim(PlaneHandle::Token { place, lease }, now).is_ok()
            };
            dead.iter().filter(claim).copied().collect()
        });
        let mut claims = Claims::new(self, claimed.iter().map(|delivery| delivery.token.place));
        let mut proposal = Proposal::new();
        for delivery in &claimed {
            let record = &delivery.record;
            let out = proposal.begin();
            begin_redrive(out, delivery.token.place, queue);
            let headers = record.headers().filter(|(key, _)| !is_death_header(key));
            RecordBuilder {
                json: record.json,
                priority: record.priority,
                published_ns: record.published_ns,
                expires: None,
                due: None,
                id: Some(delivery.id),
                payload: &record.payload,
            }
            .write_routed(record.origin(), headers, out);
        }
        let places = claims.hand_over(claimed.len());
        let outcomes = self
            .carry_out(proposal, move |plane, now| unclaim(plane, &places, now))
            .await?;
        let moved = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Outcome::Redriven(Some(_))));
        Ok(moved.count() as u64)
    }
}
