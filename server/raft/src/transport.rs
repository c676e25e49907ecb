//! What carries requests between nodes.
//!
//! Groups know nothing of connections: they hand bytes to a [`Transport`] and get bytes back. What is in them is
//! `crate::wire`. A transport may lose, delay, repeat and reorder requests; Raft is made for that.

use std::fmt;
use std::time::Duration;

use boltq_core::{GroupId, NodeId};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

/// A node, and where it says that other nodes reach it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// Its id.
    pub node: NodeId,
    /// Host and port; names are resolved for each connection, as addresses change.
    pub address: String,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {:016x} at {}", self.node.0, self.address)
    }
}

/// Why there is no answer. Whether the request was carried out is unknown, unless the variant says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// There is no connection, and none can be had. The request was not sent.
    #[error("{peer} cannot be reached: {why}")]
    Unreachable {
        /// Who.
        peer: Peer,
        /// Why.
        why: String,
    },
    /// No answer within the time that the caller gave.
    #[error("{peer} did not answer in time")]
    TimedOut {
        /// Who.
        peer: Peer,
    },
    /// The connection broke while the request was on its way.
    #[error("the connection to {peer} broke: {why}")]
    Broken {
        /// Who.
        peer: Peer,
        /// Why.
        why: String,
    },
    /// The other node does not carry out the request: it does not have the group, or cannot read what it got.
    #[error("{peer} refuses: {why}")]
    Refused {
        /// Who.
        peer: Peer,
        /// Why.
        why: String,
    },
}

/// Carries requests from the groups of this node to the same groups on other nodes. Calls do not block.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request, and waits at most `within` for its answer. Requests that one caller sends to one peer without
    /// waiting in between arrive in that order, as long as no connection breaks.
    fn call(
        &self,
        to: &Peer,
        group: GroupId,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>>;

    /// Sends a request that is too large for one message, in chunks, as fast as the other node takes them, and waits for the
    /// answer to the whole. Requests of [`Transport::call`] overtake it. `within` is the longest time without progress. An
    /// error in `chunks` ends the transfer; the other node then forgets what it got.
    fn send(
        &self,
        to: &Peer,
        group: GroupId,
        chunks: BoxStream<'static, Result<Bytes, String>>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>>;
}

/// What takes the requests that come from other nodes; there is one for each group.
pub trait Receiver: Send + Sync + 'static {
    /// Carries out a request that came by [`Transport::call`].
    ///
    /// # Errors
    /// In words for the log of the other node: the request cannot be read, or the group has stopped.
    fn receive(&self, request: Bytes) -> BoxFuture<'static, Result<Bytes, String>>;

    /// Carries out a request that came by [`Transport::send`].
    ///
    /// # Errors
    /// As for [`Receiver::receive`], or the transfer broke off.
    fn receive_chunks(
        &self,
        chunks: BoxStream<'static, Result<Bytes, String>>,
    ) -> BoxFuture<'static, Result<Bytes, String>>;
}
