//! The Raft log and the vote of a group.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};

use boltq_core::LogIndex;
use boltq_log::GroupLog;
use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use tokio::sync::oneshot;

use super::invalid_data;
use crate::encoding::{read_vote, to_entry, to_entry_id, to_log_id, to_raft_entry, write_vote};
use crate::types::{LogId, RaftEntry, TypeConfig, Vote};

/// Bytes of entries that one read returns at most: what replication sends in one request, and what one round of applying
/// holds in memory.
const READ_BYTES_MAX: u64 = 4 << 20;

#[derive(Clone)]
pub(crate) struct LogStore {
    log: GroupLog,
}

impl LogStore {
    pub(crate) fn new(log: GroupLog) -> Self {
        Self { log }
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

    /// Runs an operation of the log and waits until it is durable.
    async fn durable(&self, start: impl FnOnce(&GroupLog, boltq_log::Completion)) -> Result<(), io::Error> {
        let (done, finished) = oneshot::channel();
        start(
            &self.log,
            Box::new(move |result| {
                // openraft stopped waiting: it is being shut down.
                let _ = done.send(result);
            }),
        );
        match finished.await {
            Ok(result) => result.map_err(io::Error::other),
            Err(_) => Err(io::Error::other("the log was closed")),
        }
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
        let entries = entries.into_iter().map(to_entry).collect();
        // Not awaited: the next append may come while this one is being synced.
        self.log.append(
            entries,
            Box::new(move |result| callback.io_completed(result.map_err(io::Error::other))),
        );
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let last = last.map(|id| to_entry_id(&id).index);
        self.durable(|log, done| log.truncate_after(last, done)).await
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        self.log.purge(to_entry_id(&upto));
        Ok(())
    }
}
