//! What other nodes want from a group.

use std::sync::Arc;
use std::time::Instant;

use boltq_core::DecodeError;
use boltq_log::{GroupLog, Space};
use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt};
use openraft::Snapshot;
use openraft::raft::AppendEntriesResponse;

use crate::encoding::{read_stored_membership, to_log_id};
use crate::group::{Group, GroupHandler, Raft};
use crate::read::own_read_index;
use crate::runtime::blocking;
use crate::snapshot::{Installing, Receiving, SnapshotData};
use crate::transport::Receiver;
use crate::types::SnapshotMeta;
use crate::wire::{self, Request};

impl<H: GroupHandler> Receiver for Group<H> {
    fn receive(&self, request: Bytes) -> BoxFuture<'static, Result<Bytes, String>> {
        let (group, raft, heard) = (self.clone(), self.raft().clone(), self.heard());
        Box::pin(async move {
            let bytes = request.len();
            match Request::decode(&request).map_err(|error| unreadable(&error))? {
                Request::Append(request) => {
                    let _coming = group.let_entries_in(request.entries.len(), bytes).await?;
                    let answer = raft.append_entries(request).await.map_err(|error| error.to_string())?;
                    if !matches!(answer, AppendEntriesResponse::HigherVote(_)) {
                        heard();
                    }
                    Ok(wire::encode_append_answer(&answer))
                }
                Request::Vote(request) => {
                    let answer = raft.vote(request).await.map_err(|error| error.to_string())?;
                    Ok(wire::encode_vote_answer(&answer))
                }
                Request::PreVote(request) => {
                    let answer = raft.pre_vote(request).await.map_err(|error| error.to_string())?;
                    Ok(wire::encode_vote_answer(&answer))
                }
                Request::Transfer(request) => {
                    let answer = raft.handle_transfer_leader(request).await;
                    let answer = answer.map_err(|error| error.to_string())?;
                    Ok(wire::encode_transfer_answer(&answer))
                }
                Request::ReadIndex => Ok(wire::encode_read_index_answer(own_read_index::<H>(raft).await)),
                Request::Room => Ok(wire::encode_room_answer(group.log().space() == Space::Ample)),
                Request::Feed(node) => {
                    group.feed(node).await?;
                    Ok(wire::encode_feed_answer())
                }
            }
        })
    }

    fn receive_chunks(
        &self,
        chunks: BoxStream<'static, Result<Bytes, String>>,
    ) -> BoxFuture<'static, Result<Bytes, String>> {
        let (raft, log, installing) = (self.raft().clone(), self.log().clone(), self.installing());
        let (progress, begun) = (self.progress(), Instant::now());
        let counting = progress.clone();
        let chunks = chunks.inspect_ok(move |chunk| counting.metrics.installed.bytes(chunk.len()));
        Box::pin(async move {
            let installed = install(raft, log, installing, chunks.boxed()).await;
            progress.metrics.installed.ended(installed.is_ok(), begun.elapsed());
            installed
        })
    }
}

/// Keeps the log only as long as it writes to it: a group that stops meanwhile gives it back.
async fn install<H: GroupHandler>(
    raft: Raft<H>,
    log: GroupLog,
    installing: Arc<Installing>,
    chunks: BoxStream<'static, Result<Bytes, String>>,
) -> Result<Bytes, String> {
    let receiving = receive_snapshot(log, chunks).await?;
    let vote = receiving.vote();
    let received = receiving.end(installing.begin())?;
    let membership = read_stored_membership(received.membership()).map_err(|error| unreadable(&error))?;
    let meta = SnapshotMeta {
        last_log_id: Some(to_log_id(received.applied)),
        last_membership: membership,
    };
    let snapshot = Snapshot {
        meta,
        snapshot: SnapshotData::Received(Box::new(received)),
    };
    let answer = raft.install_full_snapshot(vote, snapshot).await;
    let answer = answer.map_err(|error| error.to_string())?;
    Ok(wire::encode_snapshot_answer(&answer.vote))
}

/// Takes chunks as they come; the device is written on a thread that may block.
async fn receive_snapshot(
    log: GroupLog,
    mut chunks: BoxStream<'static, Result<Bytes, String>>,
) -> Result<Receiving, String> {
    let head = chunks.next().await.ok_or("a snapshot without a head")??;
    let mut receiving = Receiving::begin(&log, &head)?;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        let added = blocking(move || receiving.add(&chunk).map(|()| receiving)).await;
        receiving = added.map_err(|error| error.to_string())??;
    }
    Ok(receiving)
}

fn unreadable(error: &DecodeError) -> String {
    format!("the request cannot be read: {error}")
}
