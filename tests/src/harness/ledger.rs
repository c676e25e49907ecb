//! What the clients of a server know about each message, and what that allows after a crash.
//!
//! A request that got no answer may have been carried out or not. So a message is in one of three states: it must be
//! there, it may be there, or it must not be there.

use std::collections::HashSet;

/// The knowledge of all clients together. Messages are numbers that are published once.
#[derive(Debug, Default)]
pub struct Ledger {
    must: HashSet<u64>,
    may: HashSet<u64>,
    gone: HashSet<u64>,
}

/// What one client saw happen, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The publish was acknowledged.
    Published(u64),
    /// The publish was sent and got no answer.
    PublishUnanswered(u64),
    /// The acknowledgement was confirmed.
    Acked(u64),
    /// The acknowledgement was sent and got no answer.
    AckUnanswered(u64),
}

impl Ledger {
    /// Adds what clients saw. Of one message the publish has to come before the acknowledgement, so events of all
    /// publishers go first.
    pub fn record(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            match event {
                Event::Published(number) => {
                    self.must.insert(number);
                }
                Event::PublishUnanswered(number) => {
                    self.may.insert(number);
                }
                Event::Acked(number) => {
                    self.must.remove(&number);
                    self.may.remove(&number);
                    assert!(self.gone.insert(number), "{number} was acknowledged twice");
                }
                Event::AckUnanswered(number) => {
                    self.must.remove(&number);
                    self.may.insert(number);
                }
            }
        }
    }

    /// How many messages there can be.
    pub fn bounds(&self) -> std::ops::RangeInclusive<u64> {
        self.must.len() as u64..=(self.must.len() + self.may.len()) as u64
    }

    /// Compares with everything that is there, which is acknowledged and gone now.
    pub fn settle(&mut self, found: &[u64]) {
        for number in found {
            assert!(
                !self.gone.contains(number),
                "{number} was acknowledged and came back, or came twice"
            );
            assert!(
                self.must.remove(number) || self.may.remove(number),
                "{number} was never published"
            );
            self.gone.insert(*number);
        }
        let mut lost: Vec<_> = self.must.iter().copied().collect();
        lost.sort_unstable();
        assert!(
            lost.is_empty(),
            "{} acknowledged messages are lost: {:?}",
            lost.len(),
            &lost[..lost.len().min(20)]
        );
        // What is not there now must not appear later either.
        self.gone.extend(self.may.drain());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unanswered_publish_may_be_there_or_not() {
        for found in [vec![], vec![1]] {
            let mut ledger = Ledger::default();
            ledger.record([Event::PublishUnanswered(1), Event::Published(2), Event::Acked(2)]);
            assert_eq!(ledger.bounds(), 0..=1);
            ledger.settle(&found);
        }
    }

    #[test]
    #[should_panic(expected = "lost")]
    fn a_lost_message_is_noticed() {
        let mut ledger = Ledger::default();
        ledger.record([Event::Published(1)]);
        ledger.settle(&[]);
    }

    #[test]
    #[should_panic(expected = "came back")]
    fn a_message_that_comes_back_is_noticed() {
        let mut ledger = Ledger::default();
        ledger.record([Event::Published(1), Event::Acked(1)]);
        ledger.settle(&[1]);
    }

    #[test]
    #[should_panic(expected = "came twice")]
    fn a_message_that_comes_twice_is_noticed() {
        let mut ledger = Ledger::default();
        ledger.record([Event::Published(1)]);
        ledger.settle(&[1, 1]);
    }
}
