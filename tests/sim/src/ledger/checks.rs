//! What of a message's history can never be otherwise.

use std::collections::BTreeSet;

use boltq_server::service::{DEAD_LETTER_SUFFIX, Delivery};

use super::{Begun, Lease, Ledger, Message, Times, Told, lease_of};
use crate::clocks;
use crate::random::hash;
use crate::trace::Checker;

impl Lease {
    /// Whether it lasts for certain, by the clock of this node.
    pub(super) fn is_held(&self, node: usize) -> bool {
        !self.over && self.end_ms.is_some_and(|end_ms| clocks::high_ms(node) < end_ms)
    }
}

impl Ledger {
    pub(super) fn check_delivery(
        &self,
        tag: u64,
        message: &Message,
        begun: Begun,
        queue: &str,
        delivery: &Delivery,
        times: Times,
    ) {
        let dead = queue.strip_suffix(DEAD_LETTER_SUFFIX);
        if dead.unwrap_or(queue) != message.queue || hash(0, &delivery.record.payload) != message.body {
            let what = format!("message {tag} came from {queue}, or with another body, than it was published with");
            self.trace.violation(Checker::NoPhantom, what);
        }
        if message.told == Told::Refused {
            let what = format!("message {tag} is delivered, and its publisher was told that it was refused");
            self.trace.violation(Checker::NoPhantom, what);
        }
        // Whoever leads: one that may have been replaced delivers nothing.
        if message.acked.is_some_and(|acked| acked < begun.event) {
            let what = format!(
                "message {tag} was acknowledged, and node {} delivers it again with lease {:x}",
                begun.node,
                lease_of(delivery)
            );
            self.trace.violation(Checker::AckedStaysAcked, what);
        }
        let certain = message.told == Told::Done || message.begun.earliest_ms().is_some();
        let due_ms = message.due_ms.filter(|_| certain);
        let latest_ms = clocks::high_ms(begun.node).max(times.cluster_ms);
        if due_ms.is_some_and(|due_ms| latest_ms < due_ms) {
            let what = format!("message {tag} is delivered before it is due");
            self.trace.violation(Checker::InTime, what);
        }
        let expired = delivery.record.expires.zip(begun.earliest_ms());
        if let Some((expires, clock_ms)) = expired.filter(|(expires, clock_ms)| expires.0 <= *clock_ms) {
            let what = format!(
                "message {tag} expired at {}, and is delivered after {clock_ms}",
                expires.0
            );
            self.trace.violation(Checker::InTime, what);
        }
    }

    pub(super) fn check_exclusive(&self, tag: u64, message: &Message, node: usize, number: u64, first_lease: u64) {
        for lease in &message.leases {
            if lease.number == number {
                let what = format!("message {tag} is delivered twice with the lease {number:x}");
                self.trace.violation(Checker::LeaseExclusivity, what);
            }
            if lease.number >= first_lease && lease.is_held(node) {
                let what = format!(
                    "message {tag} is given to somebody while lease {:x} lasts",
                    lease.number
                );
                self.trace.violation(Checker::LeaseExclusivity, what);
            }
        }
    }

    /// What a token settles is not held by somebody else.
    pub(super) fn check_fencing(&self, tag: u64, message: &Message, begun: Begun, number: u64, first_lease: u64) {
        for lease in &message.leases {
            let newer = lease.number > number && lease.node == begun.node && lease.answered < begun.event;
            let same_leadership = begun.first_lease == first_lease && lease.number >= first_lease;
            if newer && same_leadership && lease.is_held(begun.node) {
                let what = format!(
                    "message {tag} was settled with lease {number:x} while lease {:x} lasts",
                    lease.number
                );
                self.trace.violation(Checker::Fencing, what);
            }
        }
    }

    /// After everything that there is was delivered and acknowledged: what should have been among it.
    pub(crate) fn check_loss(&self) {
        let inner = self.inner.lock();
        let lost: BTreeSet<u64> = inner
            .messages
            .iter()
            .filter(|(_, message)| {
                let purged = |(queue, event): &(String, u64)| *queue == message.queue && *event > message.begun.event;
                message.told == Told::Done
                    && !message.may_be_acked
                    && !message.expires
                    && !inner.purges.iter().any(purged)
            })
            .map(|(tag, _)| *tag)
            .collect();
        if let Some(first) = lost.first() {
            let queue = &inner.messages[first].queue;
            let what = format!(
                "{} acknowledged messages are gone, the first one is {first} of {queue}: {lost:?}",
                lost.len()
            );
            let checker = match inner.messages[first].routed {
                true => Checker::Routing,
                false => Checker::NoLoss,
            };
            self.trace.violation(checker, what);
        }
    }

    /// A read that had to be current was answered by a node that had applied so much.
    pub(crate) fn read(&self, node: usize, answered: u64, applied: u64) {
        if applied < answered {
            let what =
                format!("node {node} answered a read at entry {applied}, and {answered} was applied before it began");
            self.trace.violation(Checker::CurrentReads, what);
        }
    }
}
