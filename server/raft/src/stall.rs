//! A leader whose device hangs gives leadership away.
//!
//! Heartbeats do not touch the device. So a leader that cannot write any more would be followed for ever, by nodes that could
//! do better. It hands leadership over, if its part of openraft still does anything; and then it is silent, as if it had
//! died, until the device answers: openraft may wait for a write of its own, and then nothing but silence helps.

use std::sync::Arc;
use std::time::Duration;

use boltq_core::{GroupId, NodeId};
use bytes::Bytes;
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::BoxStream;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use tokio::sync::watch;

use crate::group::{Group, GroupHandler, Inner};
use crate::transport::{Peer, Transport, TransportError};

/// How often the device is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How long the others may take to follow another leader before this one is silent.
const HAND_OVER: Duration = Duration::from_secs(1);

impl<H: GroupHandler> Inner<H> {
    pub(crate) async fn watch_device(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let stalled = self.log.stalled();
            if stalled >= self.config.stall_max {
                self.step_down(stalled).await;
            } else if self.progress.silent.send_replace(false) {
                tracing::info!(group = %self.config.group, "the device answers again");
            }
        }
    }

    async fn step_down(self: &Arc<Self>, stalled: Duration) {
        if !self.leads_others() || *self.progress.silent.borrow() {
            return;
        }
        let seconds = stalled.as_secs();
        tracing::warn!(group = %self.config.group, seconds, "the device does not answer; leadership goes to another node");
        let group = Group::from(self.clone());
        if let Some(heir) = group.heir() {
            // Not waited for: openraft may be waiting for the device.
            tokio::spawn(async move { group.hand_over(heir).await });
        }
        tokio::time::sleep(HAND_OVER).await;
        if self.leads_others() {
            self.progress.silent.send_replace(true);
        }
    }

    /// Whether this node leads, as far as it knows, and there is somebody who could do it instead.
    fn leads_others(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.state == ServerState::Leader && metrics.membership_config.membership().voter_ids().count() > 1
    }
}

impl<H: GroupHandler> Group<H> {
    /// The voter that has the most, of those that answer.
    fn heir(&self) -> Option<NodeId> {
        let own = self.node();
        let members = self.members().into_iter();
        let others = members.filter(|member| member.voter && member.answers && member.peer.node != own);
        others
            .max_by_key(|member| member.matched)
            .map(|member| member.peer.node)
    }
}

/// A transport that can be silenced.
pub(crate) struct Quiet {
    transport: Arc<dyn Transport>,
    silent: watch::Receiver<bool>,
}

impl Quiet {
    pub(crate) fn new(transport: Arc<dyn Transport>, silent: watch::Receiver<bool>) -> Self {
        Self { transport, silent }
    }

    fn refuse(&self, to: &Peer) -> Option<TransportError> {
        self.silent.borrow().then(|| TransportError::Unreachable {
            peer: to.clone(),
            why: "the device of this node does not answer, and so it says nothing".to_owned(),
        })
    }
}

impl Transport for Quiet {
    fn call(
        &self,
        to: &Peer,
        group: GroupId,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        match self.refuse(to) {
            Some(error) => Box::pin(ready(Err(error))),
            None => self.transport.call(to, group, request, within),
        }
    }

    fn send(
        &self,
        to: &Peer,
        group: GroupId,
        chunks: BoxStream<'static, Result<Bytes, String>>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        match self.refuse(to) {
            Some(error) => Box::pin(ready(Err(error))),
            None => self.transport.send(to, group, chunks, within),
        }
    }
}
