//! What the configuration says of the plane.

use std::time::Duration;

use boltq_stream::Retention;

/// See `docs/configuration.md`, `messaging.stream`.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Partitions of a topic that is created by its first record, and of one that says nothing itself.
    pub default_partitions: u32,
    /// How long records of such a topic are kept.
    pub retention: Retention,
    /// How long keys of appends are remembered.
    pub claims_ttl: Duration,
    /// Keys that a group remembers.
    pub claims_max: u32,
    /// Positions that a group keeps.
    pub cursors_max: u32,
    /// How often a leader looks for records that are not to be kept.
    pub maintenance_interval: Duration,
    /// For the nodes to confirm a command. None waits for ever: a node that is alone confirms when its disk does.
    pub confirm_max: Option<Duration>,
}
