//! Groups: the unit of order, replication and failover.
//!
//! A group is one Raft log and one state machine with one leader. openraft does elections, replication and membership;
//! this crate gives it storage ([`boltq_log`]) and hides it: nothing above sees an openraft type, and nothing on disk
//! is a dump of one, so that a change of its version stays in here.
//!
//! ```text
//! proposals ─► Proposer ─► entry ─► openraft ─► GroupLog (append, sync) ─► commit ─► GroupHandler::apply ─► outcomes
//! ```
//!
//! A node alone is a cluster of one and takes the same path.

mod beat;
mod checkpoints;
mod config;
mod early;
mod encoding;
mod entry;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod group;
mod in_sync;
mod leadership;
mod membership;
mod metrics;
mod network;
mod proposer;
mod proposing;
mod read;
mod receiver;
mod room;
mod runtime;
#[cfg(feature = "sim")]
pub mod sim;
mod snapshot;
mod standing;
mod starving;
mod store;
mod transport;
mod types;
mod watched;
mod wire;

pub use config::GroupConfig;
pub use early::{Aftermath, Early};
pub use entry::{Command, Commands, Joint, Proposal};
pub use error::{ApplyError, GroupError, InSyncError, MembershipError, ProposeError, ReadError};
pub use group::{Captured, Group, GroupHandler, GroupStatus, Role};
pub use membership::Member;
pub use metrics::{GroupFigures, Snapshots};
pub use network::NoPeers;
pub use proposer::Admitted;
pub use runtime::{blocking, spawn};
pub use transport::{Peer, Receiver, Transport, TransportError};
