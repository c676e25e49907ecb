//! What keeps a node that Raft has elected from leading.
//!
//! A leader without a majority would go on handing out what others have by now from its successor, and let everybody else
//! wait in vain. So it stops to lead as soon as it has heard of too few for so long that there can be another one.
//!
//! A leader whose device hangs can write nothing, but its heartbeats do not touch the device: it would be followed for ever, by
//! nodes that could do better. It hands leadership over, if its part of openraft still does anything; and then it is silent,
//! as if it had died, until the device answers: openraft may wait for a write of its own, and then nothing but silence helps.
//! The same if what it has to write waits for room on a full device (before that, see `crate::room`).

use std::sync::Arc;
use std::time::Duration;

use boltq_core::GroupId;
use bytes::Bytes;
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::BoxStream;
use openraft::Instant as _;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::ReadPolicy;
use tokio::time::Instant;

use crate::beat;
use crate::group::{Group, GroupHandler, Inner};
use crate::transport::{Peer, Transport, TransportError};
use crate::watched::Watching;

/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How long the others may take to follow another leader before this one is silent.
const HAND_OVER: Duration = Duration::from_secs(1);
/// How long openraft may wait for room in the log.
const ROOM_MAX: Duration = Duration::from_secs(2);
/// How long the others may take to say that this node still leads.
const ASK: Duration = Duration::from_secs(1);

/// Whether a node can lead, if it is elected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It can.
    Fit,
    /// It hears from no majority.
    CutOff,
    /// It has handed leadership to another one, since when.
    Retiring(Instant),
    /// Its device takes nothing, and so it says nothing.
    Silent,
}

impl<H: GroupHandler> Inner<H> {
    pub(crate) async fn watch_standing(self: Arc<Self>) {
        let mut heard = true;
        loop {
            beat::sleep(LOOK).await;
            let heard_before = heard;
            heard = !self.leads_others() || self.hears(&self.raft.metrics().borrow_watched());
            let stalled = self.log.stalled();
            if stalled >= self.config.stall_max {
                self.step_down("the device does not answer").await;
            } else if self.waits_for_room() {
                self.step_down("what this node has to write waits for room").await;
            } else if heard {
                if !self.is_retiring() {
                    self.stand(Standing::Fit);
                }
            } else if !heard_before {
                // Not at once: one that was just elected has not heard from anybody yet.
                self.stand(Standing::CutOff);
            }
        }
    }

    fn stand(&self, standing: Standing) {
        let before = self.progress.standing.get();
        if before == standing {
            return;
        }
        self.progress.standing.set(standing);
        let group = self.config.group;
        match (before, standing) {
            (_, Standing::CutOff) => {
                tracing::warn!(%group, "no majority answers; this node does not lead until one does");
            }
            (_, Standing::Silent) => {
                tracing::warn!(%group, "the device takes nothing; this node says nothing until it does");
            }
            (Standing::Silent, Standing::Fit) => tracing::info!(%group, "the device takes writes again"),
            (Standing::CutOff, Standing::Fit) => {
                tracing::info!(%group, "a majority answers again, or another node leads");
            }
            (_, Standing::Retiring(_) | Standing::Fit) => {}
        }
    }

    /// For long enough to have somebody else lead.
    fn waits_for_room(&self) -> bool {
        let since = *self.progress.waits_for_room.lock();
        since.is_some_and(|since| since.elapsed() >= ROOM_MAX)
    }

    /// It still leads, as the other node has not taken over yet.
    fn is_retiring(&self) -> bool {
        self.leads_others()
            && matches!(self.progress.standing.get(), Standing::Retiring(since) if since.elapsed() < HAND_OVER)
    }

    /// Stops to lead before another node is asked to: that one does not wait until what this one knows of the others is old.
    pub(crate) async fn retire(&self) {
        if self.progress.standing.get() == Standing::Fit && self.leads_others() {
            self.stand(Standing::Retiring(Instant::now()));
            let mut leading = self.progress.leading.watch();
            // It takes no longer than what is under way in the handler.
            let _ = tokio::time::timeout(HAND_OVER, leading.until(|leading| !leading)).await;
        }
    }

    async fn step_down(self: &Arc<Self>, why: &str) {
        if !self.leads_others() || self.progress.standing.get() == Standing::Silent {
            return;
        }
        tracing::warn!(group = %self.config.group, why, "leadership goes to another node");
        let group = Group::from(self.clone());
        // Not waited for: openraft may be waiting for the device.
        crate::runtime::spawn(async move {
            if let Some(heir) = group.heir().await {
                group.hand_over(heir).await;
            }
        });
        tokio::time::sleep(HAND_OVER).await;
        if self.leads_others() {
            self.stand(Standing::Silent);
        }
    }

    /// Whether this node leads, as far as it knows, and there is somebody who could do it instead.
    pub(crate) fn leads_others(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.state == ServerState::Leader && metrics.membership_config.membership().voter_ids().count() > 1
    }
}

impl<H: GroupHandler> Group<H> {
    /// Whether this node leads, and it is certain that no other one does: a majority has answered it within the time that
    /// followers wait at least before they follow somebody else. A node that was paused finds out here. One that votes no more
    /// is never certain: openraft has another one take over soon, which does not wait.
    #[must_use]
    pub fn holds_lease(&self) -> bool {
        let inner = &self.inner;
        let metrics = inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        let fit = metrics.state == ServerState::Leader && inner.progress.standing.get() == Standing::Fit;
        let acked = || metrics.last_quorum_acked.as_deref();
        let votes = || {
            let mut voters = metrics.membership_config.membership().voter_ids();
            voters.any(|voter| voter == metrics.id)
        };
        fit && votes()
            && (inner.is_alone(&metrics) || acked().is_some_and(|acked| acked.elapsed() < inner.config.election.1))
    }

    /// Returns when this node finds out, from now on, that no majority answers it any more: what it has on its way is confirmed
    /// later, or never.
    pub async fn cut_off(&self) {
        let mut standing = self.inner.progress.standing.watch();
        while standing.changed().await {
            if standing.see() == Standing::CutOff {
                return;
            }
        }
        // The group is gone, and tells its callers.
        std::future::pending::<()>().await;
    }

    /// As [`Group::holds_lease`]; if that is not certain, asks the others.
    pub async fn confirm_lease(&self) -> bool {
        if self.holds_lease() {
            return true;
        }
        let fit = self.inner.progress.standing.get() == Standing::Fit;
        let asking = self.inner.raft.ensure_linearizable(ReadPolicy::ReadIndex);
        fit && matches!(tokio::time::timeout(ASK, asking).await, Ok(Ok(_)))
    }
}

/// A transport that says nothing while the node is to be silent.
pub(crate) struct Quiet {
    transport: Arc<dyn Transport>,
    standing: Watching<Standing>,
}

impl Quiet {
    pub(crate) fn new(transport: Arc<dyn Transport>, standing: Watching<Standing>) -> Self {
        Self { transport, standing }
    }

    fn refuse(&self, to: &Peer) -> Option<TransportError> {
        let silent = self.standing.get() == Standing::Silent;
        silent.then(|| TransportError::Unreachable {
            peer: to.clone(),
            why: "the device of this node takes nothing, and so it says nothing".to_owned(),
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
