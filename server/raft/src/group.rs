//! A group on this node: opens it, takes proposals, tells its handler of leadership.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use boltq_core::{DecodeError, GroupId, LogIndex, NodeId, Term};
use boltq_log::{EntryId, GroupLog};
use openraft::async_runtime::WatchReceiver;
use openraft::impls::BasicNode;
use openraft::{Config, Instant as _, RaftMetrics, ServerState, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::beat;
use crate::config::GroupConfig;
use crate::entry::Commands;
use crate::error::{ApplyError, GroupError};
use crate::in_sync::{self, InSync};
use crate::metrics::{GroupFigures, Metrics};
use crate::network::Network;
use crate::proposer::Proposer;
use crate::runtime;
use crate::snapshot::Installing;
use crate::standing::{Quiet, Standing};
use crate::starving::Intake;
use crate::store::{LogStore, MachineStore};
use crate::transport::Transport;
use crate::types::TypeConfig;

/// How often the group is looked at for having failed. Callers learn it at once from their proposals.
const FAILURE_POLL: Duration = Duration::from_millis(100);
const ENDED: &str = "openraft ended by itself; what it said is in the log";
/// How long stopping waits for openraft.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

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

    /// The state after the last entry that was applied.
    fn snapshot(&self) -> Vec<u8>;

    /// Replaces the state by that of a snapshot.
    ///
    /// # Errors
    /// The snapshot is damaged or of an unknown version.
    fn restore(&self, state: &[u8]) -> Result<(), DecodeError>;

    /// This node leads from now on in this term, with everything applied that was committed before, or it no longer does.
    /// Between two terms it is told that it does not lead, even if it leads both.
    fn leadership(&self, leading: Option<Term>);
}

/// What happened in a group so far.
pub(crate) struct Progress {
    pub(crate) applied_entries: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) leader_changes: AtomicU64,
    pub(crate) checkpoint_interval_bytes: u64,
    pub(crate) checkpoint_interval_entries: u64,
    /// The leader was heard last.
    pub(crate) heard: Mutex<Instant>,
    /// openraft ended, be it that it was stopped.
    pub(crate) ended: Notify,
    pub(crate) checkpoint_due: Notify,
    pub(crate) metrics: Metrics,
    pub(crate) intake: Arc<Intake>,
    /// See [`Group::too_few_have_room`].
    pub(crate) too_few_have_room: AtomicBool,
    /// Held while a member that asked for a snapshot is sent one.
    pub(crate) feeding: tokio::sync::Mutex<()>,
    /// openraft waits since then for the log to have room.
    pub(crate) waits_for_room: Mutex<Option<Instant>>,
    /// What keeps this node from leading.
    pub(crate) standing: watch::Sender<Standing>,
    /// Whether the handler was told that this node leads.
    pub(crate) leading: watch::Sender<bool>,
}

impl Progress {
    pub(crate) fn new(checkpoint_interval_bytes: u64, checkpoint_interval_entries: u64) -> Self {
        Self {
            applied_entries: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            leader_changes: AtomicU64::new(0),
            checkpoint_interval_bytes,
            checkpoint_interval_entries,
            heard: Mutex::new(Instant::now()),
            ended: Notify::new(),
            checkpoint_due: Notify::new(),
            metrics: Metrics::default(),
            intake: Arc::default(),
            too_few_have_room: AtomicBool::new(false),
            feeding: tokio::sync::Mutex::default(),
            waits_for_room: Mutex::default(),
            standing: watch::Sender::new(Standing::Fit),
            leading: watch::Sender::new(false),
        }
    }
}

/// What a node is in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It leads.
    Leader,
    /// It votes.
    Follower,
    /// It stands for election.
    Candidate,
    /// It gets everything and does not vote.
    Learner,
    /// The group has stopped.
    Stopped,
}

impl From<ServerState> for Role {
    fn from(state: ServerState) -> Self {
        match state {
            ServerState::Leader => Self::Leader,
            ServerState::Follower => Self::Follower,
            ServerState::Candidate => Self::Candidate,
            ServerState::Learner => Self::Learner,
            ServerState::Shutdown => Self::Stopped,
        }
    }
}

/// A group at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStatus {
    /// What this node is in it.
    pub role: Role,
    /// Who leads, as far as this node knows: nobody, if it has heard nothing for the longest election timeout, twice over.
    pub leader: Option<NodeId>,
    /// Whether it is this node.
    pub leading: bool,
    /// The term.
    pub term: Term,
    /// The last entry of the log.
    pub last: Option<LogIndex>,
    /// The last entry that was applied.
    pub applied: Option<LogIndex>,
    /// Entries applied since the start.
    pub applied_entries: u64,
    /// Checkpoints written since the start.
    pub checkpoints: u64,
    /// How often the leader changed since the start.
    pub leader_changes: u64,
    /// Why the group stopped, if it did.
    pub failed: Option<String>,
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
    /// Opens a group from its log. What comes for it from other nodes has to be given to it, see [`crate::Receiver`].
    ///
    /// # Errors
    /// The checkpoint or the log cannot be read.
    pub async fn open(
        config: GroupConfig,
        log: GroupLog,
        handler: Arc<H>,
        transport: Arc<dyn Transport>,
    ) -> Result<Self, GroupError> {
        let progress = Arc::new(Progress::new(
            config.checkpoint_interval_bytes,
            config.checkpoint_interval_entries,
        ));
        let machine = MachineStore::open(handler.clone(), log.clone(), progress.clone()).map_err(|source| {
            GroupError::Checkpoint {
                group: config.group,
                source,
            }
        })?;
        let raft_config = raft_config(&config)?;
        let installing = Arc::new(Installing::default());
        let raft = Raft::new(
            config.node.0,
            Arc::new(raft_config),
            Network {
                transport: Arc::new(Quiet::new(transport.clone(), progress.standing.subscribe())),
                group: config.group,
                node: config.node,
                log: log.clone(),
                progress: progress.clone(),
            },
            LogStore::new(log.clone(), installing.clone(), progress.clone()),
            machine,
        )
        .await
        .map_err(|error| raft_error(config.group, &error))?;
        let proposer = Proposer::new(config.proposal_bytes_max, H::share, config.clock, progress.clone());
        let inner = Arc::new(Inner {
            in_sync: InSync::new(config.min_in_sync),
            config,
            raft,
            log,
            transport: Mutex::new(Some(transport)),
            installing,
            handler,
            proposer,
            progress,
            tasks: Mutex::new(Vec::new()),
        });
        inner.start().await?;
        Ok(Self { inner })
    }

    /// What the group is doing.
    #[must_use]
    pub fn status(&self) -> GroupStatus {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        let progress = &self.inner.progress;
        GroupStatus {
            role: metrics.state.into(),
            leader: metrics
                .current_leader
                .map(NodeId)
                .filter(|_| self.inner.hears(&metrics)),
            leading: metrics.state == ServerState::Leader && *progress.standing.borrow() == Standing::Fit,
            term: Term(metrics.current_term),
            last: metrics.last_log_index.map(LogIndex),
            applied: metrics.last_applied.as_ref().map(|id| LogIndex(id.index())),
            applied_entries: progress.applied_entries.load(Ordering::Relaxed),
            checkpoints: progress.checkpoints.load(Ordering::Relaxed),
            leader_changes: progress.leader_changes.load(Ordering::Relaxed),
            failed: metrics.running_state.as_ref().err().map(ToString::to_string),
        }
    }

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

    async fn start(self: &Arc<Self>) -> Result<(), GroupError> {
        let group = self.config.group;
        let known = self
            .raft
            .is_initialized()
            .await
            .map_err(|error| raft_error(group, &error))?;
        if !known && self.config.found {
            let node = BasicNode {
                addr: self.config.address.clone(),
            };
            let members = BTreeMap::from([(self.config.node.0, node)]);
            self.raft
                .initialize(members)
                .await
                .map_err(|error| raft_error(group, &error))?;
        }
        let voters: Vec<u64> = self.raft.voter_ids().collect();
        if voters == [self.config.node.0] && !self.raft.is_leader() {
            // Nobody else can be leader, so there is nothing to wait for.
            self.raft
                .trigger()
                .elect(false)
                .await
                .map_err(|error| raft_error(group, &error))?;
        }
        let proposer = self
            .proposer
            .clone()
            .run(self.raft.clone(), self.config.entry_bytes_max);
        let tasks = [
            runtime::spawn(proposer),
            runtime::spawn(self.clone().watch_leadership()),
            runtime::spawn(self.clone().watch_standing()),
            runtime::spawn(self.clone().watch_room()),
            runtime::spawn(self.clone().watch_starving()),
            runtime::spawn(self.clone().take_checkpoints()),
        ];
        self.tasks.lock().extend(tasks);
        if let Some(in_sync) = &self.in_sync {
            let group = Group { inner: self.clone() };
            self.tasks
                .lock()
                .push(runtime::spawn(in_sync::watch(in_sync.clone(), group)));
        }
        Ok(())
    }
}

fn raft_config(config: &GroupConfig) -> Result<Config, GroupError> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let raft_config = Config {
        cluster_name: format!("boltq-{}", config.group),
        heartbeat_interval: millis(config.heartbeat),
        election_timeout_min: millis(config.election.0),
        election_timeout_max: millis(config.election.1),
        enable_pre_vote: Some(true),
        // A leader without a majority falls silent for every other one of these: its heartbeats would keep those that it
        // still reaches from voting for another one. No shorter time is allowed.
        quorum_loss_probe_interval: Some(millis(config.election.1 * 2)),
        // A node that was away would have to be told of every entry that it has not applied yet before it may lead.
        enable_leader_restore: Some(false),
        // A follower may have lost what it confirmed, by a power loss if syncs are not waited for, or because its data was set
        // back. The others have it; without this the leader would panic.
        allow_log_reversion: Some(true),
        // By bytes of log instead, see `take_checkpoints` and `give_up_entries`.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        // Stages of the last entries, which nothing here shows.
        log_stage_capacity: Some(1),
        ..Config::default()
    };
    raft_config.validate().map_err(|error| raft_error(config.group, &error))
}

fn raft_error(group: GroupId, error: &dyn std::fmt::Display) -> GroupError {
    GroupError::Raft {
        group,
        what: error.to_string(),
    }
}
