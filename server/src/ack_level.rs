//! How much a publisher waits for.

use std::fmt;

/// What has happened to a message when its publish is answered. The later ones promise more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AckLevel {
    /// The leader has taken it into memory.
    None,
    /// It is in the log of the leader, as durable as `storage.sync` says.
    Leader,
    /// A majority has it, or as many voters as `cluster.min_in_sync` says, and it can be delivered.
    Quorum,
}

impl AckLevel {
    /// As it is written in the configuration and in requests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Leader => "LEADER",
            Self::Quorum => "QUORUM",
        }
    }
}

impl fmt::Display for AckLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
