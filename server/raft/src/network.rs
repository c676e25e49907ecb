//! openraft's side of the [`Transport`]: one client for each other node of a group.
//!
//! Appends are pipelined: the next one is sent without waiting for the answer to the one before, up to
//! [`APPENDS_IN_FLIGHT_MAX`]. Should they overtake each other on the way, the follower answers "conflict", and openraft
//! begins again from what is known to match.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use boltq_core::{DecodeError, GroupId, NodeId};
use boltq_log::GroupLog;
use bytes::Bytes;
use futures_util::future::{BoxFuture, ready};
use futures_util::{Stream, StreamExt, TryStreamExt};
use openraft::base::{BoxStream, OptionalSend};
use openraft::error::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::impls::BasicNode;
use openraft::network::{RPCOption, v2::RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{RPCTypes, RaftNetworkFactory};

use crate::group::Progress;
use crate::snapshot::{self, SnapshotData};
use crate::transport::{Peer, Transport, TransportError};
use crate::types::{LogId, TypeConfig, Vote};
use crate::wire::{self, Request};

/// Appends to one follower that may be unanswered. Each has up to a mebibyte or one entry, see `store::log`; this much fills a
/// link of a gigabyte per second with a round trip of some milliseconds.
const APPENDS_IN_FLIGHT_MAX: usize = 8;
/// A follower that takes nothing of a snapshot for so long is given up, until the next attempt.
pub(crate) const SNAPSHOT_PROGRESS_MAX: Duration = Duration::from_secs(10);

type RpcError = RPCError<TypeConfig>;

/// Makes the clients of a group.
pub(crate) struct Network {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) group: GroupId,
    pub(crate) node: NodeId,
    pub(crate) log: GroupLog,
    pub(crate) progress: Arc<Progress>,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Client;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Client {
        Client {
            transport: self.transport.clone(),
            group: self.group,
            node: self.node,
            log: self.log.clone(),
            progress: self.progress.clone(),
            peer: Peer {
                node: NodeId(target),
                address: node.addr.clone(),
            },
        }
    }
}

/// Talks to a group on another node.
#[derive(Clone)]
pub(crate) struct Client {
    transport: Arc<dyn Transport>,
    group: GroupId,
    node: NodeId,
    log: GroupLog,
    progress: Arc<Progress>,
    peer: Peer,
}

impl Client {
    fn call(&self, request: Request, within: Duration) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        self.transport.call(&self.peer, self.group, request.encode(), within)
    }

    async fn ask<T>(
        &self,
        request: Request,
        action: RPCTypes,
        option: &RPCOption,
        decode: fn(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<T, RpcError> {
        let within = option.soft_ttl();
        match self.call(request, within).await {
            Ok(answer) => decode(&answer).map_err(|error| unreadable(&error)),
            Err(error) => Err(self.rpc_error(&error, action, within)),
        }
    }

    fn rpc_error(&self, error: &TransportError, action: RPCTypes, timeout: Duration) -> RpcError {
        match error {
            TransportError::TimedOut { .. } => RPCError::Timeout(Timeout {
                action,
                id: self.node.0,
                target: self.peer.node.0,
                timeout,
            }),
            TransportError::Broken { .. } => RPCError::Network(NetworkError::from_string(error)),
            // openraft leaves these alone for a while.
            TransportError::Unreachable { .. } | TransportError::Refused { .. } => {
                RPCError::Unreachable(Unreachable::from_string(error))
            }
        }
    }
}

fn unreadable(error: &DecodeError) -> RpcError {
    RPCError::Network(NetworkError::from_string(format!("unreadable answer: {error}")))
}

/// The last entry that is at the follower when it has taken the whole request.
fn last_log_id(request: &AppendEntriesRequest<TypeConfig>) -> Option<LogId> {
    request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id)
}

type Appended = Result<StreamAppendResult<TypeConfig>, RpcError>;

impl RaftNetworkV2<TypeConfig> for Client {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RpcError> {
        let request = Request::Append(request);
        self.ask(request, RPCTypes::AppendEntries, &option, wire::decode_append_answer)
            .await
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Appended>, RpcError>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let client = self.clone();
        let answers = input.map(move |request| {
            let (client, within) = (client.clone(), option.soft_ttl());
            let (previous, last) = (request.prev_log_id, last_log_id(&request));
            // Sent here, in the order of the log.
            let call = client.call(Request::Append(request), within);
            async move {
                let answer = call
                    .await
                    .map_err(|error| client.rpc_error(&error, RPCTypes::AppendEntries, within));
                let answer =
                    answer.and_then(|answer| wire::decode_append_answer(&answer).map_err(|error| unreadable(&error)));
                let complete = matches!(answer, Ok(AppendEntriesResponse::Success));
                (answer.map(|answer| answer.into_stream_result(previous, last)), complete)
            }
        });
        // Whatever comes after an incomplete one is in vain.
        let answers = answers
            .buffered(APPENDS_IN_FLIGHT_MAX)
            .scan(true, |go_on, (answer, complete)| {
                ready(std::mem::replace(go_on, complete).then_some(answer))
            });
        let answers: BoxStream<'s, Appended> = Box::pin(answers);
        Box::pin(ready(Ok(answers)))
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let request = Request::Vote(request);
        self.ask(request, RPCTypes::Vote, &option, wire::decode_vote_answer)
            .await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let request = Request::PreVote(request);
        self.ask(request, RPCTypes::Vote, &option, wire::decode_vote_answer)
            .await
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcError> {
        let request = Request::Transfer(request);
        self.ask(request, RPCTypes::TransferLeader, &option, wire::decode_transfer_answer)
            .await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        _snapshot: openraft::alias::SnapshotOf<TypeConfig, SnapshotData>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let (progress, begun) = (self.progress.clone(), Instant::now());
        let chunks =
            snapshot::chunks(&self.log, vote).inspect_ok(move |chunk| progress.metrics.sent.bytes(chunk.len()));
        let sending = self
            .transport
            .send(&self.peer, self.group, chunks.boxed(), SNAPSHOT_PROGRESS_MAX);
        let sent = &self.progress.metrics.sent;
        let answer = tokio::select! {
            biased;
            closed = cancel => {
                sent.ended(false, begun.elapsed());
                return Err(closed.into());
            }
            answer = sending => answer,
        };
        sent.ended(answer.is_ok(), begun.elapsed());
        let answer =
            answer.map_err(|error| self.rpc_error(&error, RPCTypes::InstallSnapshot, SNAPSHOT_PROGRESS_MAX))?;
        let vote = wire::decode_snapshot_answer(&answer).map_err(|error| unreadable(&error))?;
        Ok(SnapshotResponse::new(vote))
    }
}

/// The transport of a node that has no peers. If a membership with other nodes is found on disk, they are unreachable, and
/// the group waits instead of pretending.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPeers;

impl NoPeers {
    fn unreachable(to: &Peer) -> TransportError {
        TransportError::Unreachable {
            peer: to.clone(),
            why: "clustering is not enabled on this node; set cluster.enabled to true".to_owned(),
        }
    }
}

impl Transport for NoPeers {
    fn call(
        &self,
        to: &Peer,
        _group: GroupId,
        _request: Bytes,
        _within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        Box::pin(ready(Err(Self::unreachable(to))))
    }

    fn send(
        &self,
        to: &Peer,
        _group: GroupId,
        _chunks: futures_util::stream::BoxStream<'static, Result<Bytes, String>>,
        _within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        Box::pin(ready(Err(Self::unreachable(to))))
    }
}
