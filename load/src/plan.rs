//! What a load does.

use crate::driver::Batch;

/// What a load does, from its start until it is stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What each publisher sends again and again.
    pub batch: Batch,
    /// At least 1; each has a connection of its own.
    pub publishers: usize,
    /// Each has a connection of its own. 0: nobody consumes.
    pub consumers: usize,
    /// Batches of each publisher that may be unanswered, at least 1.
    pub outstanding: usize,
    /// Messages each second, of all publishers together: an open loop. `None`: a closed loop.
    pub rate: Option<f64>,
    /// Of a closed loop: messages that may be published and not settled, over all publishers. One that ran ahead of its consumers
    /// would measure a growing backlog. `None`: any number.
    pub backlog: Option<u64>,
    /// Messages of each consumer that may be delivered and not settled.
    pub in_flight: u32,
}
