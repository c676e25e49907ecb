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

mod config;
mod encoding;
mod entry;
mod error;
mod group;
mod network;
mod proposer;
mod store;
mod types;

pub use config::GroupConfig;
pub use entry::{Command, Commands, Joint, Proposal};
pub use error::{ApplyError, GroupError, ProposeError};
pub use group::{Group, GroupHandler, GroupStatus};
pub use proposer::Admitted;
