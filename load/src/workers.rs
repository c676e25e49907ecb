//! What one publisher and one consumer do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::driver::{Answered, Consumer, LoadError, Publisher, Received};
use crate::figures::{Shared, Waits};
use crate::stamp::nanos_between;
use crate::timetable::Timetable;

/// When a publisher may send.
#[derive(Debug)]
pub(crate) enum Pace {
    /// Whenever there is room for another batch.
    Closed {
        /// Messages of all publishers that may be on their way.
        backlog: Option<u64>,
    },
    /// When the timetable says so, and there is room.
    Open(Timetable),
}

/// Sends batches until the load stops, and ends when all are answered.
#[derive(Debug)]
pub(crate) struct Publishing {
    pub(crate) shared: Arc<Shared>,
    pub(crate) waits: Arc<Waits>,
    /// Number of this publisher, from 0.
    pub(crate) number: usize,
    pub(crate) pace: Pace,
    /// Messages in a batch.
    pub(crate) messages: u64,
    pub(crate) outstanding: usize,
    /// Whether somebody settles what is published.
    pub(crate) consumed: bool,
    /// When the batches that have no answer were due, the oldest first.
    pub(crate) unanswered: VecDeque<Instant>,
}

impl Publishing {
    pub(crate) async fn run(mut self, mut publisher: impl Publisher) -> Result<(), LoadError> {
        loop {
            self.send(&mut publisher, Instant::now())?;
            let idle = self.unanswered.is_empty();
            if idle && self.shared.is_stopping() {
                return Ok(());
            }
            let may_send_more = self.unanswered.len() < self.outstanding;
            tokio::select! {
                biased;
                answered = publisher.answered(), if !idle => self.take(answered?),
                () = self.shared.woken(self.number), if may_send_more => {}
            }
        }
    }

    /// Sends what is due and has room.
    fn send(&mut self, publisher: &mut impl Publisher, now: Instant) -> Result<(), LoadError> {
        while self.unanswered.len() < self.outstanding && !self.shared.is_stopping() {
            let due = match &mut self.pace {
                Pace::Open(timetable) => timetable.take_due(now),
                Pace::Closed { backlog } => {
                    let has_room = backlog.is_none_or(|most| self.shared.backlog() < most);
                    has_room.then_some(now)
                }
            };
            let Some(due) = due else { break };
            publisher.send(self.shared.clock.stamp(due))?;
            self.unanswered.push_back(due);
            if self.consumed {
                self.shared.grow_backlog(self.messages);
            }
        }
        Ok(())
    }

    fn take(&mut self, answered: Answered) {
        let Answered { stored, refused } = answered;
        if let Some(due) = self.unanswered.pop_front() {
            self.waits.record(nanos_between(due, Instant::now()), stored);
        }
        self.shared.add_published(stored);
        if !refused.is_empty() {
            if self.consumed {
                self.shared.shrink_backlog(refused.len() as u64);
            }
            self.shared.add_failures(refused);
        }
    }
}

/// Acknowledges whatever comes; ends only with an error.
pub(crate) async fn consume(
    mut consumer: impl Consumer,
    shared: Arc<Shared>,
    waits: Arc<Waits>,
) -> Result<(), LoadError> {
    loop {
        let Received {
            tokens,
            payloads,
            settled,
            not_settled,
        } = consumer.next().await?;
        let gone = settled + not_settled.len() as u64;
        if gone > 0 {
            shared.add_settled(settled);
            shared.shrink_backlog(gone);
        }
        if !not_settled.is_empty() {
            shared.add_failures(not_settled);
        }
        if tokens.is_empty() {
            continue;
        }
        let now = Instant::now();
        shared.add_delivered(tokens.len() as u64);
        waits.record_all(
            payloads
                .iter()
                .filter_map(|payload| shared.clock.waited_ns(payload, now)),
        );
        consumer.ack(tokens)?;
    }
}
