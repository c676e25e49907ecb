//! The registry of a cluster: which nodes belong to it, in which role, and where they are.
//!
//! It is the replicated state of the group `meta`, and what is *wanted*: the leader of each group brings the members of its
//! group into line with it, one step at a time. So a node joins or leaves with one command, whatever happens on the way.
//!
//! ```text
//! command  u8 kind, body
//!   1 found       u64 cluster id
//!   2 register    node
//!   3 unregister  u64 node
//! node     u64 node, u8 voter, then as u32 length and bytes: name, raft, messaging and admin address, version
//! snapshot u8 format, u64 cluster id, u64 changes, u32 count, nodes
//! ```

mod registry;
mod snapshot;

pub mod command;

pub use registry::{NODES_MAX, NodeInfo, Outcome, Registry};
