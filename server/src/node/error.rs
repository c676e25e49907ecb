//! Why a node did not start, or stopped.

use std::io;
use std::path::PathBuf;

use boltq_log::OpenError;
use boltq_raft::GroupError;

use super::LEAD_MAX;
use crate::identity::IdentityError;
use crate::peer::PeerError;
use crate::tls::TlsError;

/// Why a node did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A port cannot be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Host and port.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The data cannot be opened.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// The node does not know who it is.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The log of the messaging plane was written with another number of groups.
    #[error(
        "{}: the log was written with messaging.stream.groups = {written}, which is decided once, and not {wanted}; set it back, or \
         start on an empty directory",
        path.display()
    )]
    Groups {
        /// The directory of the log.
        path: PathBuf,
        /// What it was written with.
        written: u16,
        /// What is asked for.
        wanted: u16,
    },
    /// A node of a cluster has no log of the messaging plane, but data of the cluster.
    #[error(
        "{}: there is no log of the messaging plane, but this node has data of its cluster. Was that founded without \
         messaging.stream.enabled, it has to be switched off again; was the directory lost, start the node on an empty data \
         directory, so that it joins anew",
        path.display()
    )]
    NoMessagingLog {
        /// The directory of the log.
        path: PathBuf,
    },
    /// A group cannot be opened.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// Nobody leads the queue plane.
    #[error("the queue plane has no leader after {} s: its membership may name other nodes", LEAD_MAX.as_secs())]
    NoLeader,
    /// The port for other nodes.
    #[error(transparent)]
    Peers(#[from] PeerError),
    /// The data is that of a node that was alone, and this node is to join a cluster that has data of its own.
    #[error(
        "{}: the data of a node that was alone cannot be joined with that of a cluster; found the cluster with this node \
         (cluster.bootstrap), or start on an empty directory", path.display()
    )]
    DataOfItsOwn {
        /// The data directory.
        path: PathBuf,
    },
    /// It cannot be read whether this node was removed from its cluster.
    #[error("{}: {source}", path.display())]
    Departure {
        /// The data directory.
        path: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
    /// The collector of traces has no such address.
    #[error("telemetry.otlp.endpoint: {0}")]
    Collector(#[from] tonic::transport::Error),
    /// The protos were built wrongly.
    #[error("gRPC reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// A group stopped by itself. What was acknowledged is in the log.
    #[error("stopped by a failure of the storage: {0}")]
    Failed(String),
    /// A task that opens the log ended.
    #[error("start interrupted: {0}")]
    Interrupted(#[from] tokio::task::JoinError),
}
