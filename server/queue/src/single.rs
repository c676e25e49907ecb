//! Queues that serve one consumer at a time: whose turn it is.
//!
//! It is the turn of who came first, until it ends; then of who comes next, once nothing is leased or being settled any
//! more. Calls without a connection have no end and cannot be told apart: together they are one consumer, whose turn is over
//! when it holds nothing and another one comes.

use std::collections::BTreeMap;

use crate::place::{ConsumerId, QueueId};

#[derive(Debug)]
struct Turn {
    consumer: ConsumerId,
    ended: bool,
    /// Whether somebody was told to wait.
    awaited: bool,
}

/// Only for queues that somebody asked for messages.
#[derive(Debug, Default)]
pub(crate) struct Singles(BTreeMap<QueueId, Turn>);

impl Singles {
    pub(crate) fn contains(&self, queue: QueueId) -> bool {
        self.0.contains_key(&queue)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a consumer gets messages, which makes it its turn; `idle`: nothing is leased or being settled.
    pub(crate) fn serves(&mut self, queue: QueueId, consumer: ConsumerId, idle: bool) -> bool {
        let turn = self.0.entry(queue).or_insert(Turn {
            consumer,
            ended: false,
            awaited: false,
        });
        if turn.consumer == consumer && !turn.ended {
            return true;
        }
        let over = turn.ended || turn.consumer == ConsumerId::DETACHED;
        if over && idle {
            *turn = Turn {
                consumer,
                ended: false,
                awaited: turn.awaited,
            };
            return true;
        }
        turn.awaited = true;
        false
    }

    /// A consumer has ended. Returns the queues where it was its turn.
    pub(crate) fn end(&mut self, consumer: ConsumerId) -> Vec<QueueId> {
        let turns = self.0.iter_mut().filter(|(_, turn)| turn.consumer == consumer);
        let ended = turns.map(|(queue, turn)| {
            turn.ended = true;
            *queue
        });
        ended.collect()
    }

    /// Whether somebody waits for the end of a turn that nothing but leases and settlements can hold up.
    pub(crate) fn is_awaited(&self, queue: QueueId) -> bool {
        let turn = self.0.get(&queue);
        turn.is_some_and(|turn| turn.awaited && (turn.ended || turn.consumer == ConsumerId::DETACHED))
    }

    /// The queue serves everybody, or is no more.
    pub(crate) fn forget(&mut self, queue: QueueId) {
        self.0.remove(&queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: QueueId = QueueId(3);
    const ANN: ConsumerId = ConsumerId(7);
    const BOB: ConsumerId = ConsumerId(8);

    #[test]
    fn the_next_one_takes_over_when_the_first_has_ended_and_nothing_is_left_of_it() {
        let mut singles = Singles::default();
        assert!(singles.serves(QUEUE, ANN, true));
        assert!(!singles.serves(QUEUE, BOB, true));
        assert!(singles.serves(QUEUE, ANN, false));
        assert!(singles.serves(QueueId(4), BOB, true));
        assert!(!singles.is_awaited(QUEUE));
        assert_eq!(singles.end(ANN), [QUEUE]);
        assert!(singles.is_awaited(QUEUE) && !singles.serves(QUEUE, BOB, false));
        assert!(singles.serves(QUEUE, BOB, true) && !singles.is_awaited(QUEUE));
        assert!(!singles.serves(QUEUE, ANN, true));
    }

    #[test]
    fn calls_without_a_connection_give_way_as_soon_as_they_hold_nothing() {
        let mut singles = Singles::default();
        assert!(singles.serves(QUEUE, ConsumerId::DETACHED, true));
        assert!(singles.serves(QUEUE, ConsumerId::DETACHED, false));
        assert!(!singles.serves(QUEUE, ANN, false) && singles.is_awaited(QUEUE));
        assert!(singles.serves(QUEUE, ANN, true));
        assert!(!singles.serves(QUEUE, ConsumerId::DETACHED, true));
    }
}
