//! A group on this node: takes part in it, tells its handler of leadership, and stops.

mod opening;
mod progress;
mod status;

use std::sync::Arc;
use std::time::Duration;

use boltq_core::{DecodeError, GroupId, NodeId, Term};
use boltq_log::{EntryId, GroupLog};
use openraft::async_runtime::WatchReceiver;
use openraft::{Instant as _, RaftMetrics, ServerState};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use self::progress::Progress;
pub use self::status::{GroupStatus, Role};
use crate::beat;
use crate::config::GroupConfig;
use crate::entry::Commands;
use crate::error::ApplyError;
use crate::in_sync::InSync;
use crate::metrics::GroupFigures;
use crate::proposer::Proposer;
use crate::snapshot::Installing;
use crate::store::MachineStore;
use crate::transport::Transport;
use crate::types::TypeConfig;

/// How often the group is looked at for having failed. Callers learn it at once from their proposals.
const FAILURE_POLL: Duration = Duration::from_millis(100);
const ENDED: &str = "openraft ended by itself; what it said is in the log";
/// How long stopping waits for openraft.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// Writes the state of a moment down, see [`GroupHandler::capture`].
pub type Captured = Box<dyn FnOnce() -> Vec<u8> + Send + Sync>;

/// What a plane does with the entries of its group. Calls come one at a time, from one task.
pub trait GroupHandler: Send + Sync + 'static {
    /// The answer to one command.
    type Outcome: Send + Sync + 'static;

    /// Applies the commands of an entry, gives one outcome for each, and tells the log where records are.
    ///
    /// # Errors
    /// The entry cannot be understood or placed. The group stops.
    fn apply(&self, entry: EntryId, commands: Commands<'_>) -> Result<Vec<Self::Outcome>, ApplyError>;

    /// Takes the part that belongs to the first `items` items out of the outcome of a command that was joined from several,
    /// see [`crate::Proposal::allow_joining`].
    fn share(outcome: &mut Self::Outcome, items: u32) -> Self::Outcome;

    /// The state after the last entry that was applied. Nothing is applied meanwhile, so this takes what it needs, quickly; what
    /// it returns writes it down, and is called where that may take long, while applying goes on.
    fn capture(&self) -> Captured;

    /// Replaces the state by that of a snapshot.
    ///
    /// # Errors
    /// The snapshot is damaged or of an unknown version.
    fn restore(&self, state: &[u8]) -> Result<(), DecodeError>;

    /// This node leads from now on in this term, with everything applied that was committed before, or it no longer does.
    /// Between two terms it is told that it does not lead, even if it leads both.
    fn leadership(&self, leading: Option<Term>);
}

pub(crate) type Raft<H> = openraft::Raft<TypeConfig, MachineStore<H>>;

/// Handle of a group; clones are cheap and share it.
pub struct Group<H: GroupHandler> {
    pub(crate) inner: Arc<Inner<H>>,
}

pub(crate) struct Inner<H: GroupHandler> {
    pub(crate) config: GroupConfig,
    pub(crate) raft: Raft<H>,
    pub(crate) log: GroupLog,
    /// Until the group stops: a transport may hold its receivers, of which this is one.
    transport: Mutex<Option<Arc<dyn Transport>>>,
    installing: Arc<Installing>,
    pub(crate) handler: Arc<H>,
    pub(crate) proposer: Proposer<H::Outcome>,
    /// None: a majority will do.
    pub(crate) in_sync: Option<Arc<InSync>>,
    pub(crate) progress: Arc<Progress>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl<H: GroupHandler> Clone for Group<H> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<H: GroupHandler> From<Arc<Inner<H>>> for Group<H> {
    fn from(inner: Arc<Inner<H>>) -> Self {
        Self { inner }
    }
}

impl<H: GroupHandler> Group<H> {
    /// What the group has counted since its start.
    #[must_use]
    pub fn figures(&self) -> GroupFigures {
        self.inner.progress.metrics.get()
    }

    pub(crate) fn progress(&self) -> Arc<Progress> {
        self.inner.progress.clone()
    }

    pub(crate) fn raft(&self) -> &Raft<H> {
        &self.inner.raft
    }

    /// Nothing once the group stops.
    pub(crate) fn transport(&self) -> Option<Arc<dyn Transport>> {
        self.inner.transport.lock().clone()
    }

    pub(crate) fn node(&self) -> NodeId {
        self.inner.config.node
    }

    pub(crate) fn installing(&self) -> Arc<Installing> {
        self.inner.installing.clone()
    }

    pub(crate) fn raft_metrics(&self) -> RaftMetrics<TypeConfig> {
        self.inner.raft.metrics().borrow_watched().clone()
    }

    /// A leader hears from a node that is there more often than this.
    pub(crate) fn silence_max(&self) -> Duration {
        self.inner.silence_max()
    }

    /// This node has heard from the leader now.
    pub(crate) fn heard(&self) -> impl FnOnce() + Send + 'static {
        let progress = self.inner.progress.clone();
        move || *progress.heard.lock() = Instant::now()
    }

    /// The log of the group on this node.
    #[must_use]
    pub fn log(&self) -> &GroupLog {
        &self.inner.log
    }

    /// The group.
    #[must_use]
    pub fn id(&self) -> GroupId {
        self.inner.config.group
    }

    /// Hands leadership to another voter, if this node leads. This node stops to lead, and the other one takes it when it has
    /// everything. Should it not, this node leads again after a while.
    ///
    /// Nothing happens if that node does not vote: a leader that is alone would wait for it for ever.
    pub async fn hand_over(&self, to: NodeId) {
        if !self.votes(to) {
            return;
        }
        self.inner.retire().await;
        // It may have lost its vote meanwhile. Then this node leads on, when it finds that nobody took over.
        if !self.votes(to) {
            return;
        }
        if let Err(error) = self.inner.raft.trigger().transfer_leader(to.0).await {
            tracing::debug!(group = %self.id(), %error, "not handed over: the group stopped");
        }
    }

    /// Returns when the group has stopped by itself, with the reason.
    pub async fn failed(&self) -> String {
        let metrics = self.inner.raft.metrics();
        loop {
            if let Err(error) = &metrics.borrow_watched().running_state {
                return error.to_string();
            }
            // A follower that has nothing to write would not come upon it: a snapshot is refused before openraft knows of it.
            if let Some(failure) = self.inner.log.failure() {
                return failure.to_string();
            }
            tokio::select! {
                biased;
                // Not by waiting for a change: the metrics change with every entry.
                () = beat::sleep(FAILURE_POLL) => {}
                () = self.inner.progress.ended.notified() => {
                    let state = &metrics.borrow_watched().running_state;
                    return state.as_ref().err().map_or_else(|| ENDED.to_owned(), ToString::to_string);
                }
            }
        }
    }

    /// Writes a checkpoint now, so that the next start has nothing to replay. A failure is logged; the log has everything.
    pub async fn checkpoint(&self) {
        self.inner.checkpoint().await;
    }

    /// Refuses new proposals, tells waiting callers, and stops.
    pub async fn shutdown(&self) {
        self.inner.proposer.close();
        if let Some(in_sync) = &self.inner.in_sync {
            in_sync.close();
        }
        self.inner.transport.lock().take();
        if let Ok(Err(error)) = tokio::time::timeout(SHUTDOWN_MAX, self.inner.raft.shutdown()).await {
            tracing::warn!(group = %self.inner.config.group, %error, "openraft did not stop cleanly");
        }
        let tasks = std::mem::take(&mut *self.inner.tasks.lock());
        for task in tasks {
            task.abort();
            // Either it ended or it was aborted; both are what is wanted.
            let _ = task.await;
        }
    }
}

impl<H: GroupHandler> Inner<H> {
    /// What is older says nothing of now.
    fn silence_max(&self) -> Duration {
        self.config.election.1 * 2
    }

    /// Whether there is nobody else who votes.
    pub(crate) fn is_alone(&self, metrics: &RaftMetrics<TypeConfig>) -> bool {
        metrics.membership_config.membership().voter_ids().count() <= 1
    }

    /// Whether this node hears from the leader, or, if it leads, from a majority.
    pub(crate) fn hears(&self, metrics: &RaftMetrics<TypeConfig>) -> bool {
        let silence_max = self.silence_max();
        if metrics.state != ServerState::Leader {
            return self.progress.heard.lock().elapsed() < silence_max;
        }
        let heard = metrics.last_quorum_acked.as_deref();
        self.is_alone(metrics) || heard.is_some_and(|heard| heard.elapsed() < silence_max)
    }
}
