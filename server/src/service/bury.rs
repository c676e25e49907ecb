//! Moving messages to the dead letters of their queue.
//!
//! That takes their records, so it is done in portions: each is read, made one proposal of, and waited for before the next
//! one is read. What many large messages take in memory, in one entry of the log and of the time of others is bounded by
//! that, however many there are. Each message moves whole: one command finishes it and publishes its dead letter.

use boltq_core::{MessageId, Millis, Record, RecordBuilder};
use boltq_queue::Claim;
use boltq_queue::command::begin_dead_letter;
use boltq_raft::Proposal;
use bytes::BytesMut;

use super::error::ServiceError;
use super::queue::Queues;
use super::settle::{Claims, unclaim};

/// Records of one portion, in bytes; a single one may be larger.
const PORTION_BYTES_MAX: usize = 1 << 20;
/// Messages of one portion.
const PORTION_MESSAGES_MAX: usize = 1_000;
/// Portions that are in memory at a time, whoever settles.
pub(super) const BURYING_MAX: usize = 4;

/// Headers that a dead letter gets. Those of an earlier death are replaced.
mod header {
    pub(super) const QUEUE: &str = "x-death-queue";
    pub(super) const REASON: &str = "x-death-reason";
    pub(super) const ATTEMPTS: &str = "x-death-attempts";
    pub(super) const TIME: &str = "x-death-time-ms";
    pub(super) const ALL: [&str; 4] = [QUEUE, REASON, ATTEMPTS, TIME];
}

/// The header that says in which queue a message died first.
pub(super) const QUEUE_HEADER: &str = header::QUEUE;

/// Whether a message has this header because it died.
pub(super) fn is_death_header(key: &str) -> bool {
    header::ALL.contains(&key)
}

/// Why a message died; the value of a header.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reason {
    MaxRetry,
    Timeout,
    Rejected,
}

impl Reason {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::MaxRetry => "max_retry",
            Self::Timeout => "ack_timeout",
            Self::Rejected => "rejected",
        }
    }
}

impl Queues {
    /// Moves claimed messages to the dead letters; what became of each, in order. Those that cannot be read stay where they
    /// are and hold up no other; any other failure ends it.
    ///
    /// `claims` are those of the same messages in the same order.
    pub(super) async fn bury<T>(
        &self,
        dead: &[(T, &Claim)],
        mut claims: Claims<'_>,
        reason: Reason,
        now: Millis,
    ) -> Vec<Result<(), ServiceError>> {
        let mut results = Vec::with_capacity(dead.len());
        while results.len() < dead.len() {
            let left = &dead[results.len()..];
            let left = &left[..left.len().min(PORTION_MESSAGES_MAX)];
            match self.bury_portion(left, &mut claims, reason, now).await {
                Ok(buried) => results.resize(results.len() + buried, Ok(())),
                Err(error @ ServiceError::Storage { .. }) => {
                    claims.give_back(1);
                    results.push(Err(error));
                }
                Err(error) => results.resize(dead.len(), Err(error)),
            }
        }
        results
    }

    /// Moves the first of these messages, as many as make one portion, and returns their number.
    async fn bury_portion<T>(
        &self,
        dead: &[(T, &Claim)],
        claims: &mut Claims<'_>,
        reason: Reason,
        now: Millis,
    ) -> Result<usize, ServiceError> {
        let turn = self.inner.burying.acquire().await;
        let _turn = turn.map_err(|_| ServiceError::Stopped)?;
        let places = dead.iter().map(|(_, claim)| (claim.place.stream, claim.place.seq));
        let records = self.read_first(places.collect(), PORTION_BYTES_MAX).await?;
        let mut proposal = Proposal::new();
        let mut count = 0;
        for ((_, claim), bytes) in dead.iter().zip(records) {
            match Record::read(&bytes) {
                Ok(record) => self.write(&mut proposal, claim, &record, reason, now)?,
                Err(error) if count == 0 => {
                    return Err(ServiceError::Storage {
                        what: format!("record at {:?}: {error}", claim.place),
                    });
                }
                Err(_) => break,
            }
            count += 1;
        }
        let places = claims.hand_over(count);
        self.carry_out(proposal, move |plane, now| unclaim(plane, &places, now))
            .await?;
        Ok(count)
    }

    /// Adds the command that moves a message.
    fn write(
        &self,
        proposal: &mut Proposal,
        claim: &Claim,
        record: &Record,
        reason: Reason,
        now: Millis,
    ) -> Result<(), ServiceError> {
        let names = self.inner.plane.with(|plane| {
            let queue = plane.queue_name(claim.queue)?;
            let dead_letters = plane.machine().dead_letter_queue(queue).into_owned();
            Some((queue.to_owned(), dead_letters))
        });
        let (queue, dead_letters) = names.ok_or(ServiceError::QueueDeleted)?;
        let salt = self.salt()?;
        let id = record
            .id
            .unwrap_or_else(|| salt.id(claim.place.stream, claim.place.seq));
        let attempts = claim.attempts.saturating_add(1);
        let out = proposal.begin();
        begin_dead_letter(out, claim.place, &dead_letters);
        // A dead letter that fails again is still one of the queue where it died first.
        let died_before = record.headers().find(|(key, _)| *key == header::QUEUE);
        let origin = died_before.map_or(queue.as_str(), |(_, first)| first);
        write_dead_letter(record, id, origin, reason, attempts, now, out);
        Ok(())
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
    let kept = record.headers().filter(|(key, _)| !is_death_header(key));
    RecordBuilder {
        json: record.json,
        priority: record.priority,
        published_ns: record.published_ns,
        expires: None,
        due: None,
        id: Some(id),
        payload: &record.payload,
    }
    .write_routed(record.origin(), kept.chain(history), out);
}
