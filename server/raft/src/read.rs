//! Reads that must be current, on any node of a group.
//!
//! What a node has applied may be old: it lags, or it is cut off from a majority that goes on without it. Before a read that
//! must be current the node asks the leader for its **read index**: the leader makes sure that it still leads, by a round of
//! heartbeats that a majority answers, and says up to which entry everything was committed when it was asked. The node then
//! waits until it has applied that much. No clock is trusted, and nothing is written.

use std::time::Duration;

use boltq_core::{LogIndex, NodeId};
use openraft::error::{LinearizableReadError, RaftError};
use openraft::raft::ReadPolicy;

use crate::error::ReadError;
use crate::group::{Group, GroupHandler, Raft};
use crate::wire::{self, ReadIndex, Request};

/// For the leader to answer once; then it is looked for again, as it may be another one.
const ATTEMPT_MAX: Duration = Duration::from_secs(1);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

impl<H: GroupHandler> Group<H> {
    /// Returns when this node has applied everything that was committed when it was called: what is read afterwards has every
    /// command in it that was answered before.
    ///
    /// # Errors
    /// That could not be made sure within `within`; see [`ReadError`].
    pub async fn catch_up(&self, within: Duration) -> Result<(), ReadError> {
        let mut missed = ReadError::NoLeader;
        let caught_up = async {
            loop {
                match self.read_index().await {
                    Ok(index) => {
                        missed = ReadError::Behind { wanted: index };
                        return self.have_applied(index).await;
                    }
                    Err(ReadError::Stopped) => return Err(ReadError::Stopped),
                    Err(error) => missed = error,
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let caught_up = tokio::time::timeout(within, caught_up).await;
        caught_up.unwrap_or(Err(missed))
    }

    /// Asks the leader, be it this node, for its read index.
    async fn read_index(&self) -> Result<LogIndex, ReadError> {
        let leader = self.status().leader.ok_or(ReadError::NoLeader)?;
        let answer = if leader == self.node() {
            own_read_index(self.raft().clone()).await
        } else {
            self.ask(leader).await?
        };
        match answer {
            ReadIndex::Is(index) => Ok(index),
            ReadIndex::NotLeader => Err(ReadError::NoLeader),
            ReadIndex::NoMajority => Err(ReadError::NoMajority),
            ReadIndex::Stopped if leader == self.node() => Err(ReadError::Stopped),
            ReadIndex::Stopped => Err(ReadError::NoLeader),
        }
    }

    async fn ask(&self, leader: NodeId) -> Result<ReadIndex, ReadError> {
        let member = self.members().into_iter().find(|member| member.peer.node == leader);
        let peer = member.ok_or(ReadError::NoLeader)?.peer;
        let transport = self.transport().ok_or(ReadError::Stopped)?;
        let asked = transport.call(&peer, self.id(), Request::ReadIndex.encode(), ATTEMPT_MAX);
        let answer = asked.await.map_err(|error| ReadError::NotReached(error.to_string()))?;
        wire::decode_read_index_answer(&answer).map_err(|error| ReadError::NotReached(error.to_string()))
    }

    async fn have_applied(&self, index: LogIndex) -> Result<(), ReadError> {
        let wait = self.raft().wait(None);
        let applied = wait.applied_index_at_least(Some(index.0), "read index").await;
        applied.map(|_| ()).map_err(|_| ReadError::Stopped)
    }
}

/// The read index, if this node leads and a majority says so.
pub(crate) async fn own_read_index<H: GroupHandler>(raft: Raft<H>) -> ReadIndex {
    match raft.get_read_linearizer(ReadPolicy::ReadIndex).await {
        Ok(read) => ReadIndex::Is(LogIndex(read.read_log_id().index())),
        Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(_))) => ReadIndex::NotLeader,
        Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => ReadIndex::NoMajority,
        Err(RaftError::Fatal(_)) => ReadIndex::Stopped,
    }
}
