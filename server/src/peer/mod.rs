//! Traffic between the nodes of a cluster, on a port of its own: one gRPC service, [`boltq_proto::internal::v1`].
//!
//! ```text
//! Peers::call ─► Link (queue, one for each peer) ─► HTTP/2 ─► Exchange ─► Receiver of the group
//! Peers::send ─► a connection of its own         ─► HTTP/2 ─► Transfer ─► Receiver of the group
//! ```
//!
//! Each direction of a pair of nodes has one connection for the calls of all groups, so that heartbeats of many groups
//! share packets. Every connection begins with a proof (`proof.rs`); before it, nothing is said and little is spent
//! (`listen.rs`). Nothing here is retried: that is for the callers, who know whether a request may run twice.

mod backoff;
mod budget;
mod config;
mod dial;
mod door;
mod exchange;
mod info;
mod link;
mod listen;
mod metrics;
mod peers;
mod proof;
mod shared;
mod tls;
mod transfer;

#[cfg(test)]
mod tests;

pub use config::{PeerConfig, PeerLimits, PeerSecret, PeerTls};
pub use info::{InfoSource, PeerInfo};
pub use metrics::{Count, PeerMetrics};
pub use peers::{IdentifyError, PeerError, Peers};
pub use shared::ForwardHandler;
pub use tls::{PeerTlsError, check_tls};
