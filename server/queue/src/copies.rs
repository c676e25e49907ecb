//! Copies of messages that several queues get: what each queue makes of them.
//!
//! The record is the same in all queues, so what differs is decided here, while the publish is applied: how many of the
//! copies there is room for, which older messages make room for them, and until when they live. Everything else that a queue
//! says of its messages (attempts, pauses, leases, dead letters) is looked up when it is needed, and makes no difference
//! between a copy and another message.

use boltq_core::{Applied, Millis, RecordHead};

use crate::machine::Machine;
use crate::outcome::Effect;
use crate::place::QueueId;
use crate::publishing::{Batch, Expiry};
use crate::routing::command::Times;

/// What a publish brings to each queue that it is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copies<'a> {
    /// As many as the batch has, which were read before.
    pub(crate) records: &'a [u8],
    pub(crate) batch: Batch,
    pub(crate) times: Times,
}

impl Copies<'_> {
    /// The ends of their lives in a queue that has a default time to live.
    fn ends(&self, default_ttl_ms: u64) -> Vec<Expiry> {
        let mut rest = self.records;
        let records = (0..self.batch.count).map_while(|record| {
            let head = RecordHead::read(rest).ok()?;
            rest = rest.get(head.bytes..)?;
            let at = head.expires.unwrap_or_else(|| end(head.published_ns, default_ttl_ms));
            Some(Expiry { record, at })
        });
        records.collect()
    }
}

/// Up to the next millisecond, as for a message that is published with a time to live.
fn end(published_ns: u64, ttl_ms: u64) -> Millis {
    Millis(published_ns.div_ceil(1_000_000)).plus(ttl_ms)
}

impl Machine {
    /// Appends copies to a queue; whether there was room for all of them. `expiries` are those that their records tell.
    pub(crate) fn append_copies(&mut self, id: QueueId, copies: Copies<'_>, applied: &mut Applied<Effect>) -> bool {
        let Some(queue) = self.queues.get_mut(id.0 as usize) else {
            return false;
        };
        let batch = copies.batch;
        // They were read before as what they are.
        let front = queue.room().front(copies.records, batch).unwrap_or(batch);
        if front.count > 0 {
            let default = queue.options.as_deref().and_then(|options| options.default_ttl_ms);
            match default.filter(|_| copies.times == Times::OfRecordOrQueue) {
                None => queue.append(id, front, &self.expiries, applied),
                Some(ttl_ms) => queue.append(id, front, &copies.ends(ttl_ms), applied),
            };
        }
        self.totals.published += u64::from(front.count);
        self.totals.rejected += u64::from(batch.count - front.count);
        self.make_room(id, applied);
        front.count == batch.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_ends_when_it_would_if_the_publisher_had_said_so() {
        // `received + ttl`, in nanoseconds, up to the next millisecond.
        for (published_ns, ttl_ms) in [(0, 1), (1, 1), (999_999, 5), (1_000_000, 5), (1_000_001, 5)] {
            let wanted = Millis((published_ns + ttl_ms * 1_000_000u64).div_ceil(1_000_000));
            assert_eq!(end(published_ns, ttl_ms), wanted, "{published_ns}");
        }
        assert_eq!(end(u64::MAX, u64::MAX), Millis::MAX);
    }
}
