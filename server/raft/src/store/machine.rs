//! The state machine of a group as openraft drives it, and its checkpoints.
//!
//! A checkpoint is taken between two applies, so that its state and the places of its records are of the same moment; it
//! is encoded and written while applying goes on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use boltq_core::DecodeError;
use boltq_log::{Capture, CheckpointError, EntryId, GroupLog};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::EntryPayload;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};

use super::invalid_data;
use crate::encoding::{read_stored_membership, to_entry_id, to_log_id, write_stored_membership};
use crate::entry::Commands;
use crate::group::{Captured, GroupHandler, Progress};
use crate::runtime::blocking;
use crate::snapshot::{Received, SnapshotData};
use crate::types::{EntryData, LogId, Outcomes, RaftEntry, SnapshotMeta, StoredMembership, TypeConfig};

type Snapshot = openraft::alias::SnapshotOf<TypeConfig, SnapshotData>;

/// Log between two checkpoints, in multiples of the state.
const LOG_PER_STATE: u64 = 4;

pub(crate) struct MachineStore<H> {
    handler: Arc<H>,
    log: GroupLog,
    progress: Arc<Progress>,
    applied: Option<LogId>,
    membership: StoredMembership,
    /// The last entry that a checkpoint was taken of.
    checkpointed: u64,
}

impl<H: GroupHandler> MachineStore<H> {
    /// Starts from the newest checkpoint, if there is one.
    pub(crate) fn open(handler: Arc<H>, log: GroupLog, progress: Arc<Progress>) -> Result<Self, DecodeError> {
        let mut store = Self {
            handler,
            log,
            progress,
            applied: None,
            membership: StoredMembership::default(),
            checkpointed: 0,
        };
        if let Some(checkpoint) = store.log.checkpoint() {
            store.membership = read_stored_membership(&checkpoint.meta)?;
            store.handler.restore(&checkpoint.state)?;
            store.applied = Some(to_log_id(checkpoint.applied));
            store.checkpointed = checkpoint.applied.index.0;
            store.progress.is_saved(&checkpoint.state);
        }
        let applied = store.applied.map(|applied| applied.index());
        if let Some(purged) = store.log.raft_state().purged
            && applied.is_none_or(|applied| applied < purged.index.0)
        {
            return Err(DecodeError::Invalid {
                what: "checkpoint",
                why: "it is missing: entries were given up that no checkpoint makes up for",
            });
        }
        Ok(store)
    }

    /// Log between two checkpoints. Not less than a few times what a checkpoint takes, so that those of a large state are a small
    /// part of what is written; and as a start replays this much, it takes a few times as long as to read the state.
    fn checkpoint_interval_bytes(&self) -> u64 {
        let state_bytes = self.progress.state_bytes.load(Ordering::Relaxed);
        let by_state = state_bytes.saturating_mul(LOG_PER_STATE);
        self.progress.checkpoint_interval_bytes.max(by_state)
    }

    /// State, membership and places of this moment; nothing if nothing was applied yet.
    pub(crate) fn take(&mut self) -> Option<Taken> {
        let applied = to_entry_id(&self.applied?);
        self.checkpointed = applied.index.0;
        Some(Taken {
            log: self.log.clone(),
            progress: self.progress.clone(),
            applied,
            membership: self.membership.clone(),
            state: self.handler.capture(),
            capture: self.log.capture(),
        })
    }

    /// Replaces everything by the snapshot of another node, first in the log, then in memory.
    async fn take_over(&mut self, meta: &SnapshotMeta, received: Received) -> Result<(), io::Error> {
        let state = received.state.clone();
        let committed = blocking(move || received.commit()).await;
        committed.map_err(io::Error::other)?.map_err(io::Error::other)?;
        self.handler.restore(&state).map_err(invalid_data)?;
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.checkpointed = self.applied.map_or(0, |applied| applied.index());
        self.progress.is_saved(&state);
        tracing::info!(applied = ?self.applied.map(|id| id.index()), "took over the state of another node");
        Ok(())
    }

    fn apply_one(&mut self, entry: RaftEntry) -> Result<Outcomes, io::Error> {
        let outcomes = match entry.payload {
            EntryPayload::Blank => Outcomes(None),
            EntryPayload::Normal(EntryData { data, .. }) => {
                let commands = Commands::read(&data).map_err(invalid_data)?;
                let id = to_entry_id(&entry.log_id);
                let outcomes = self.handler.apply(id, commands).map_err(io::Error::other)?;
                Outcomes(Some(Box::new(outcomes)))
            }
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
                Outcomes(None)
            }
        };
        self.applied = Some(entry.log_id);
        self.progress.applied_entries.fetch_add(1, Ordering::Relaxed);
        Ok(outcomes)
    }
}

impl<H: GroupHandler> RaftStateMachine<TypeConfig> for MachineStore<H> {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = CheckpointBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + Send,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let index = entry.log_id.index();
            let outcomes = self.apply_one(entry).inspect_err(|error| {
                tracing::error!(index, %error, "entry cannot be applied; the group stops");
            })?;
            if let Some(responder) = responder {
                responder.send(outcomes);
            }
        }
        let entries = self
            .applied
            .map_or(0, |applied| applied.index())
            .saturating_sub(self.checkpointed);
        if entries >= self.progress.checkpoint_interval_entries
            || self.log.bytes_since_checkpoint() >= self.checkpoint_interval_bytes()
        {
            self.progress.checkpoint_due.notify_one();
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<CheckpointBuilder> {
        if force {
            return Some(self.get_snapshot_builder().await);
        }
        // Without a checkpoint there is nothing to build from yet; openraft asks again.
        self.log.checkpoint().is_some().then(|| CheckpointBuilder {
            log: self.log.clone(),
            taken: None,
        })
    }

    async fn get_snapshot_builder(&mut self) -> CheckpointBuilder {
        CheckpointBuilder {
            log: self.log.clone(),
            taken: self.take(),
        }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, data: SnapshotData) -> Result<(), io::Error> {
        match data {
            // It was restored when the group was opened.
            SnapshotData::Own => Ok(()),
            SnapshotData::Received(received) => self.take_over(meta, *received).await,
        }
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        current(&self.log)
    }
}

fn current(log: &GroupLog) -> Result<Option<Snapshot>, io::Error> {
    let Some(checkpoint) = log.checkpoint() else {
        return Ok(None);
    };
    let meta = SnapshotMeta {
        last_log_id: Some(to_log_id(checkpoint.applied)),
        last_membership: read_stored_membership(&checkpoint.meta).map_err(invalid_data)?,
    };
    Ok(Some(Snapshot {
        meta,
        snapshot: SnapshotData::Own,
    }))
}

/// Hands openraft the newest checkpoint that is durable. It writes none unless openraft insists: a checkpoint that fails for
/// want of room has to be tried again later, while openraft would take a failing build as the end of the group.
pub(crate) struct CheckpointBuilder {
    log: GroupLog,
    taken: Option<Taken>,
}

impl RaftSnapshotBuilder<TypeConfig> for CheckpointBuilder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        if let Some(taken) = self.taken.take() {
            let written = blocking(move || taken.write()).await;
            written.map_err(io::Error::other)?.map_err(io::Error::other)?;
        }
        current(&self.log)?.ok_or_else(|| io::Error::other("no checkpoint was written yet"))
    }
}

/// A checkpoint that is still to be written.
pub(crate) struct Taken {
    log: GroupLog,
    progress: Arc<Progress>,
    applied: EntryId,
    membership: StoredMembership,
    state: Captured,
    capture: Capture,
}

impl Taken {
    /// Encodes, writes and syncs it. Blocks.
    pub(crate) fn write(self) -> Result<(), CheckpointError> {
        let meta = write_stored_membership(&self.membership);
        let state = Bytes::from((self.state)());
        self.progress.is_saved(&state);
        self.log.write_checkpoint(self.capture, self.applied, &meta, state)
    }
}
