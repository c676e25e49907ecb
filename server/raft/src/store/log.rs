//! The Raft log and the vote of a group.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::{Duration, Instant};

use boltq_core::LogIndex;
use boltq_log::{AppendError, GroupLog};
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::{EntryPayload, OptionalSend};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::invalid_data;
use crate::early::Logged;
use crate::encoding::{read_vote, to_entry, to_entry_id, to_log_id, to_raft_entry, write_vote};
use crate::group::Progress;
use crate::snapshot::Installing;
use crate::types::{EntryData, LogId, RaftEntry, TypeConfig, Vote};

/// Bytes of entries that one read returns at most: what replication sends in one request, and what one round of applying
/// holds in memory.
const READ_BYTES_MAX: u64 = 1 << 20;

/// Between two attempts to write to a full device.
const ROOM_RETRY: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub(crate) struct LogStore {
    log: GroupLog,
    installing: Arc<Installing>,
    progress: Arc<Progress>,
    #[cfg(feature = "sim")]
    kept: crate::sim::KeptTail,
}

impl LogStore {
    pub(crate) fn new(log: GroupLog, installing: Arc<Installing>, progress: Arc<Progress>) -> Self {
        Self {
            log,
            installing,
            progress,
            #[cfg(feature = "sim")]
            kept: crate::sim::KeptTail::default(),
        }
    }

    fn read(&self, start: u64, end: u64, bytes_max: u64) -> Result<Vec<RaftEntry>, io::Error> {
        let entries = self
            .log
            .entries(LogIndex(start)..LogIndex(end), bytes_max)
            .map_err(io::Error::other)?;
        entries
            .into_iter()
            .map(|entry| to_raft_entry(entry).map_err(invalid_data))
            .collect()
    }

    /// Waits until the log reaches up to `first`. openraft appends what comes after a snapshot without waiting for the state
    /// machine to install it, and until then the log ends before.
    async fn reach(&self, first: LogIndex) {
        let reaches = |log: &GroupLog| {
            let state = log.raft_state();
            let last = state.last.or(state.purged).map_or(0, |last| last.index.0 + 1);
            first.0 <= last.max(1)
        };
        if !reaches(&self.log) {
            // If it does not after that either, the log says which entry is missing.
            self.installing.ended().await;
        }
    }

    /// Runs an operation of the log and waits until it is durable.
    async fn durable(&self, start: impl Fn(&GroupLog, boltq_log::Completion)) -> Result<(), io::Error> {
        loop {
            let (done, finished) = oneshot::channel();
            start(
                &self.log,
                Box::new(move |result| {
                    // openraft stopped waiting: it is being shut down.
                    let _ = done.send(result);
                }),
            );
            match finished.await {
                Ok(Err(error @ AppendError::OutOfSpace { .. })) => self.wait_for_room(&error).await,
                Ok(result) => {
                    self.has_room();
                    return result.map_err(io::Error::other);
                }
                Err(_) => return Err(io::Error::other("the log was closed")),
            }
        }
    }

    fn has_room(&self) {
        if self.progress.waits_for_room.lock().take().is_some() {
            tracing::info!(group = %self.log.id(), "the log has room again");
        }
    }

    /// A full device is no failure: what is to be written waits. To openraft it would be the end of the group.
    async fn wait_for_room(&self, error: &AppendError) {
        {
            let mut since = self.progress.waits_for_room.lock();
            if since.is_none() {
                *since = Some(tokio::time::Instant::now());
                tracing::warn!(group = %self.log.id(), %error, "the log waits for room; until there is, this group does nothing");
            }
        }
        tokio::time::sleep(ROOM_RETRY).await;
    }
}

/// What openraft wants to be told when entries are durable.
type Callback = Arc<Mutex<Option<IOFlushed<TypeConfig>>>>;

/// Tells openraft and those who wait for the entries, unless there was no room: that is known before the append returns, and
/// it can be tried again.
fn completion(
    callback: Callback,
    logged: Vec<Logged>,
    progress: Arc<Progress>,
) -> (Arc<Mutex<Option<AppendError>>>, boltq_log::Completion) {
    let refused = Arc::new(Mutex::new(None));
    let refusal = refused.clone();
    let begun = Instant::now();
    let completion = Box::new(move |result: Result<(), AppendError>| match result {
        Err(error @ AppendError::OutOfSpace { .. }) => *refusal.lock() = Some(error),
        result => {
            let done = result.is_ok();
            progress.metrics.appends.record_time(begun.elapsed());
            if let Some(callback) = callback.lock().take() {
                callback.io_completed(result.map_err(io::Error::other));
            }
            if done {
                logged.iter().for_each(Logged::tell);
            }
        }
    });
    (refused, completion)
}

/// Who waits for the entry to be in the log, if anybody does.
fn awaited(entry: &RaftEntry) -> Option<Logged> {
    match &entry.payload {
        EntryPayload::Normal(EntryData { logged, .. }) if logged.is_awaited() => Some(logged.clone()),
        _ => None,
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<RaftEntry>, io::Error> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        self.read(start, end, u64::MAX)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        self.log
            .raft_state()
            .vote
            .map(|vote| read_vote(&vote).map_err(invalid_data))
            .transpose()
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<RaftEntry>, io::Error> {
        self.read(start, end, READ_BYTES_MAX)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let state = self.log.raft_state();
        let last_purged_log_id = state.purged.map(to_log_id);
        let last_log_id = state.last.map(to_log_id).or(last_purged_log_id);
        Ok(LogState {
            last_purged_log_id,
            last_log_id,
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.durable(|log, done| log.save_vote(write_vote(vote), done)).await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut logged = Vec::new();
        let entries: Vec<_> = entries
            .into_iter()
            .inspect(|entry| logged.extend(awaited(entry)))
            .map(to_entry)
            .collect();
        #[cfg(feature = "sim")]
        let entries = self.kept.instead_of(entries);
        if let Some(first) = entries.first() {
            self.reach(first.id.index).await;
        }
        let callback = Arc::new(Mutex::new(Some(callback)));
        loop {
            // Not awaited: the next append may come while this one is being synced.
            let (refused, completion) = completion(callback.clone(), logged.clone(), self.progress.clone());
            self.log.append(entries.clone(), completion);
            let refusal = refused.lock().take();
            let Some(error) = refusal else {
                self.has_room();
                return Ok(());
            };
            self.wait_for_room(&error).await;
        }
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let last = last.map(|id| to_entry_id(&id).index);
        #[cfg(feature = "sim")]
        if self.kept.keep(&self.log) {
            return Ok(());
        }
        self.durable(|log, done| log.truncate_after(last, done)).await
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        self.log.purge(to_entry_id(&upto));
        Ok(())
    }
}
