//! Messages with an ordering key come in their order, and one at a time.

use std::collections::BTreeMap;

use boltq_server::service::{DEAD_LETTER_SUFFIX, Delivery};

use super::{Begun, Inner, Ledger, Times, lease_of};
use crate::trace::Checker;

/// A message that was delivered in its queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    tag: u64,
    /// When it was for the first time.
    answered: u64,
    /// Of the last time.
    lease: u64,
}

/// Of each queue and key: places in the order of publishing.
pub(super) type Turns = BTreeMap<(String, String), BTreeMap<u64, Turn>>;

impl Ledger {
    /// Dead letters come as they are.
    pub(super) fn check_turn(
        &self,
        inner: &mut Inner,
        tag: u64,
        begun: Begun,
        queue: &str,
        delivery: &Delivery,
        times: Times,
    ) {
        let key = delivery.record.ordering_key();
        if inner
            .messages
            .get(&tag)
            .is_some_and(|message| message.ordering_key != key)
        {
            let what = format!("message {tag} comes with the ordering key {key:?}, and has another one");
            self.trace.violation(Checker::NoPhantom, what);
        }
        if key.is_empty() || queue.ends_with(DEAD_LETTER_SUFFIX) {
            return;
        }
        self.trace.count("deliveries with an ordering key");
        let seq = sequence_of(delivery);
        let turns = inner.turns.entry((queue.to_owned(), key.to_owned())).or_default();
        for (other_seq, other) in turns.iter().filter(|(other_seq, _)| **other_seq != seq) {
            if *other_seq > seq && other.answered < begun.event {
                let what = format!(
                    "message {tag} of key {key} comes behind {}, which was published later",
                    other.tag
                );
                self.trace.violation(Checker::KeyOrder, what);
            }
            // One that was settled by its id may be done, whoever held it.
            let message = inner.messages.get(&other.tag).filter(|message| !message.may_be_acked);
            let mut leases = message.iter().flat_map(|message| &message.leases);
            let held = leases.any(|lease| {
                lease.number == other.lease && lease.number >= times.first_lease && lease.is_held(begun.node)
            });
            if held {
                let what = format!("message {tag} of key {key} comes while somebody holds {}", other.tag);
                self.trace.violation(Checker::KeyOrder, what);
            }
        }
        let (answered, lease) = (inner.event, lease_of(delivery));
        let turn = turns.entry(seq).or_insert(Turn { tag, answered, lease });
        turn.lease = lease;
    }
}

/// The place within its stream, from the token.
fn sequence_of(delivery: &Delivery) -> u64 {
    let token = delivery.token.to_bytes();
    let mut sequence = [0; 8];
    sequence.copy_from_slice(&token[8..16]);
    u64::from_be_bytes(sequence)
}

#[cfg(test)]
mod tests {
    use boltq_core::{MessageId, Record, RecordBuilder};
    use boltq_server::service::DeliveryToken;
    use bytes::BytesMut;

    use super::super::{Publish, Told};
    use super::*;
    use crate::clocks;
    use crate::trace::Trace;

    const FIRST: u64 = 1 << 40;

    /// Messages 1 to 3 of a key, in this order; the clocks stand.
    struct History {
        ledger: Ledger,
        trace: Trace,
    }

    impl History {
        fn begin() -> Self {
            clocks::begin(0);
            let trace = Trace::default();
            let ledger = Ledger::new(trace.clone());
            for tag in 1..=3u64 {
                let publish = Publish {
                    tag,
                    queue: "q".to_owned(),
                    payload: tag.to_le_bytes().to_vec(),
                    priority: 0,
                    delay_ms: 0,
                    ttl_ms: 0,
                    ordering_key: "k".to_owned(),
                    idempotency_key: String::new(),
                    again: false,
                };
                let begun = ledger.begin(0, FIRST);
                ledger.publishing(begun, std::slice::from_ref(&publish));
                let id = MessageId(u128::from(tag).to_be_bytes());
                ledger.published(begun, &[publish], Told::Done, &[id]);
            }
            Self { ledger, trace }
        }

        fn deliver(&self, queue: &str, tag: u64, lease: u64) -> Begun {
            let begun = self.ledger.begin(0, FIRST);
            self.deliver_since(begun, queue, tag, lease);
            begun
        }

        fn deliver_since(&self, begun: Begun, queue: &str, tag: u64, lease: u64) {
            let mut token = [0; 24];
            token[8..16].copy_from_slice(&tag.to_be_bytes());
            token[16..].copy_from_slice(&lease.to_be_bytes());
            let mut bytes = BytesMut::new();
            let builder = RecordBuilder {
                json: false,
                priority: 0,
                published_ns: 0,
                expires: None,
                due: None,
                ordering_key: "k",
                id: None,
                payload: &tag.to_le_bytes(),
            };
            builder.write(std::iter::empty(), &mut bytes);
            let delivery = Delivery {
                token: DeliveryToken::from_bytes(&token).unwrap(),
                id: MessageId(u128::from(tag).to_be_bytes()),
                attempts: 0,
                record: Record::read(&bytes.freeze()).unwrap(),
            };
            let times = Times {
                lease_ms: 60_000,
                first_lease: FIRST,
                cluster_ms: 0,
            };
            self.ledger.delivered(begun, queue, &delivery, times);
        }

        fn found(&self) -> Option<Checker> {
            self.trace.found().map(|found| found.checker)
        }
    }

    #[test]
    fn one_after_the_other_is_in_order() {
        let history = History::begin();
        for (tag, lease) in [(1, 1), (1, 2), (2, 3), (3, 4)] {
            history.deliver("q", tag, FIRST + lease);
            history.ledger.lets_go(tag, FIRST + lease);
        }
        // A dead letter is no message of the key any more, whoever has it.
        history.deliver("q_dead_letter", 1, FIRST + 5);
        assert_eq!(history.found(), None);
    }

    #[test]
    fn a_message_that_comes_behind_a_later_one_is_found() {
        let history = History::begin();
        let early = history.ledger.begin(0, FIRST);
        history.deliver("q", 2, FIRST + 1);
        history.ledger.lets_go(2, FIRST + 1);
        // The answer to a request that began before may be late.
        history.deliver_since(early, "q", 1, FIRST + 2);
        history.ledger.lets_go(1, FIRST + 2);
        assert_eq!(history.found(), None);
        history.deliver("q", 1, FIRST + 3);
        assert_eq!(history.found(), Some(Checker::KeyOrder));
    }

    #[test]
    fn two_that_are_out_together_are_found_unless_one_may_be_done() {
        let history = History::begin();
        history.deliver("q", 1, FIRST + 1);
        history.deliver("q", 2, FIRST + 2);
        assert_eq!(history.found(), Some(Checker::KeyOrder));

        let history = History::begin();
        history.deliver("q", 1, FIRST + 1);
        history.ledger.acking(1);
        history.deliver("q", 2, FIRST + 2);
        assert_eq!(history.found(), None);
    }
}
