//! Packs what waits into entries.
//!
//! Callers leave their proposals in a queue. The proposer takes everything that is there, makes one entry of it and
//! hands it to openraft, and goes on at once while fewer than [`ENTRIES_IN_FLIGHT_MAX`] entries are on their way. So a lone
//! proposal is never delayed, and under load an entry holds all that came while the ones before were being synced.
//!
//! Admission is by bytes: a caller beyond the budget waits until outcomes have come back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use boltq_core::{Millis, NodeId};
use openraft::errors::ClientWriteError;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};

use crate::entry::{Proposal, pack};
use crate::error::ProposeError;
use crate::types::{EntryData, Reply, WriteResult};

/// One entry is being synced, one is being applied, and one is ready to be written when the sync ends; more would only
/// make the entries smaller.
const ENTRIES_IN_FLIGHT_MAX: usize = 3;

/// Granularity of the budget: a semaphore counts to 2^29 only, and a permit for each byte says no more than this.
const PERMIT_BYTES: usize = 256;

type Raft<S> = openraft::Raft<crate::types::TypeConfig, S>;

struct Waiting<O> {
    proposal: Proposal,
    reply: oneshot::Sender<Result<Vec<O>, ProposeError>>,
}

struct Shared<O> {
    waiting: Mutex<VecDeque<Waiting<O>>>,
    /// Told when something waits, an entry has come back, or the end has come.
    wake: Notify,
    in_flight: AtomicUsize,
    budget: Semaphore,
    budget_permits: usize,
    closed: AtomicBool,
}

pub(crate) struct Proposer<O> {
    shared: Arc<Shared<O>>,
}

impl<O> Clone for Proposer<O> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<O: Send + Sync + 'static> Proposer<O> {
    pub(crate) fn new(proposal_bytes_max: usize) -> Self {
        let budget_permits = (proposal_bytes_max / PERMIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Self {
            shared: Arc::new(Shared {
                waiting: Mutex::new(VecDeque::new()),
                wake: Notify::new(),
                in_flight: AtomicUsize::new(0),
                budget: Semaphore::new(budget_permits),
                budget_permits,
                closed: AtomicBool::new(false),
            }),
        }
    }

    /// Waits for room in the budget, then for the outcomes of the commands, in order.
    pub(crate) async fn propose(&self, mut proposal: Proposal) -> Result<Vec<O>, ProposeError> {
        proposal.end();
        if proposal.is_empty() {
            return Ok(Vec::new());
        }
        let permits = (proposal.len() / PERMIT_BYTES + 1).min(self.shared.budget_permits);
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        let admitted = self.shared.budget.acquire_many(permits).await.map_err(|_| ProposeError::Stopped)?;
        let (reply, outcome) = oneshot::channel();
        {
            let mut waiting = self.shared.waiting.lock();
            if self.shared.closed.load(Ordering::Acquire) {
                return Err(ProposeError::Stopped);
            }
            waiting.push_back(Waiting { proposal, reply });
        }
        self.shared.wake.notify_one();
        let result = outcome.await.unwrap_or(Err(ProposeError::Stopped));
        drop(admitted);
        result
    }

    /// Bytes that may still be proposed without waiting.
    pub(crate) fn room_bytes(&self) -> usize {
        self.shared.budget.available_permits().saturating_mul(PERMIT_BYTES)
    }

    /// Ends [`Proposer::run`]; whoever still waits is told that the group stopped.
    pub(crate) fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.budget.close();
        self.shared.waiting.lock().clear();
        self.shared.wake.notify_one();
    }

    /// Packs and submits until closed.
    pub(crate) async fn run<S>(self, raft: Raft<S>, entry_bytes_max: usize)
    where
        S: openraft::storage::RaftStateMachine<crate::types::TypeConfig>,
    {
        while !self.shared.closed.load(Ordering::Acquire) {
            let batch = if self.shared.in_flight.load(Ordering::Acquire) < ENTRIES_IN_FLIGHT_MAX {
                self.take(entry_bytes_max)
            } else {
                Vec::new()
            };
            if batch.is_empty() {
                self.shared.wake.notified().await;
                continue;
            }
            self.submit(&raft, batch).await;
        }
    }

    fn take(&self, entry_bytes_max: usize) -> Vec<Waiting<O>> {
        let mut waiting = self.shared.waiting.lock();
        let mut bytes = 0;
        let fitting = waiting
            .iter()
            .take_while(|next| {
                let first = bytes == 0;
                bytes += next.proposal.len();
                first || bytes <= entry_bytes_max
            })
            .count();
        waiting.drain(..fitting).collect()
    }

    async fn submit<S>(&self, raft: &Raft<S>, batch: Vec<Waiting<O>>)
    where
        S: openraft::storage::RaftStateMachine<crate::types::TypeConfig>,
    {
        let bytes = batch.iter().map(|waiting| waiting.proposal.len()).sum();
        let data = pack(now(), batch.iter().map(|waiting| &waiting.proposal), bytes);
        let waiters: Vec<_> = batch.into_iter().map(|w| (w.proposal.commands(), w.reply)).collect();
        self.shared.in_flight.fetch_add(1, Ordering::AcqRel);
        let flight = Flight(self.shared.clone());
        let reply = Reply::new(move |result: WriteResult| {
            drop(flight);
            answer(result, waiters);
        });
        if let Err(error) = raft.write(EntryData(data)).responder(reply).await {
            // The reply was dropped with the request, so the callers know already.
            tracing::warn!(%error, "proposal not accepted");
        }
    }
}

/// An entry on its way; gone when its outcome is known or never will be.
struct Flight<O>(Arc<Shared<O>>);

impl<O> Drop for Flight<O> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.0.wake.notify_one();
    }
}

type Waiter<O> = (usize, oneshot::Sender<Result<Vec<O>, ProposeError>>);

fn answer<O: 'static>(result: WriteResult, mut waiters: Vec<Waiter<O>>) {
    let outcomes = match result {
        Ok(response) => response.data.0.and_then(|outcomes| outcomes.downcast::<Vec<O>>().ok()),
        Err(error) => {
            let error = match error {
                ClientWriteError::ForwardToLeader(to) => {
                    ProposeError::NotLeader { leader: to.leader_id.map(NodeId) }
                }
                ClientWriteError::LogEntryDiscarded(_)
                | ClientWriteError::ChangeMembershipError(_)
                | ClientWriteError::PreconditionFailed(_) => ProposeError::Stopped,
            };
            for (_, reply) in waiters {
                // A caller that went away does not want its outcome.
                let _ = reply.send(Err(error.clone()));
            }
            return;
        }
    };
    // Dropping the senders tells the callers that the outcome is unknown.
    let Some(outcomes) = outcomes else { return };
    if waiters.len() == 1 {
        if let Some((_, reply)) = waiters.pop() {
            let _ = reply.send(Ok(*outcomes));
        }
        return;
    }
    let mut outcomes = outcomes.into_iter();
    for (count, reply) in waiters {
        let _ = reply.send(Ok(outcomes.by_ref().take(count).collect()));
    }
}

/// The leader's clock, which goes into entries: state machines have none.
fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
