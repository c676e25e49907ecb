//! Opening a group: from its log to a member that takes part, and the tasks that go with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::GroupId;
use boltq_log::GroupLog;
use openraft::impls::BasicNode;
use openraft::{Config, SnapshotPolicy};
use parking_lot::Mutex;

use super::{Group, GroupHandler, Inner, Progress, Raft};
use crate::config::GroupConfig;
use crate::error::GroupError;
use crate::in_sync::{self, InSync};
use crate::network::Network;
use crate::proposer::Proposer;
use crate::runtime;
use crate::snapshot::Installing;
use crate::standing::Quiet;
use crate::store::{LogStore, MachineStore};
use crate::transport::Transport;

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
                transport: Arc::new(Quiet::new(transport.clone(), progress.standing.watch())),
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
}

impl<H: GroupHandler> Inner<H> {
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
