//! Packs what waits into entries.
//!
//! Callers leave their proposals in a queue. While no entry is on its way, the proposer takes everything that is there,
//! makes one entry of it and hands it to openraft: a lone proposal is never delayed. A second entry may be on its way while
//! the first is being synced, so that the log has work when the sync ends. Beyond that, what comes gathers, because entries
//! that follow each other too closely cost a sync each and nobody gets an answer sooner; only when there is enough for an
//! entry that is worth a sync of its own, it goes on its way behind the others.
//!
//! Admission is by bytes: a caller beyond the budget waits until outcomes have come back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use boltq_core::{LogIndex, Millis, NodeId};
use boltq_log::ENTRY_BYTES_MAX;
use openraft::errors::ClientWriteError;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use crate::early::{Aftermath, Early, Logged, Seat, Watcher};
use crate::entry::{Proposal, Share, pack};
use crate::error::ProposeError;
use crate::group::Progress;
use crate::types::{EntryData, Reply, WriteResult};

/// One entry is being synced, one is being applied, and one is ready to be written when the sync ends; more would only
/// make the entries smaller.
const ENTRIES_IN_FLIGHT_MAX: usize = 3;

/// Bytes from which on an entry does not wait for those before it. Writing this much takes about as long as a sync.
const PIPELINED_BYTES_MIN: usize = 64 << 10;

/// Granularity of the budget: a semaphore counts to 2^29 only, and a permit for each byte says no more than this.
const PERMIT_BYTES: usize = 256;

/// Bytes of one proposal. It has to fit into an entry: one that the log refuses ends the group, because openraft takes any
/// error of the log for a broken disk. Callers that move much do it in portions far below this.
const PROPOSAL_BYTES_MAX: usize = 64 << 20;

const _: () = assert!(
    PROPOSAL_BYTES_MAX < ENTRY_BYTES_MAX / 2,
    "an entry has room for the largest proposal"
);

type Raft<S> = openraft::Raft<crate::types::TypeConfig, S>;

/// A proposal that has room in the budget.
#[derive(Debug)]
pub struct Admitted {
    proposal: Proposal,
    room: OwnedSemaphorePermit,
}

/// What became of a proposal.
pub(crate) struct Decided<O> {
    /// One for each command.
    pub(crate) outcomes: Vec<O>,
    /// The entry that the commands are in.
    pub(crate) index: LogIndex,
}

struct Waiting<O> {
    proposal: Proposal,
    waiter: Waiter<O>,
}

/// Who is told the outcome. The room is given back then, and not when the caller gets to look at it: one that is held up
/// by its client would hold up everybody else.
struct Waiter<O> {
    listener: Listener<O>,
    _room: OwnedSemaphorePermit,
}

enum Listener<O> {
    Caller(oneshot::Sender<Result<Decided<O>, ProposeError>>),
    /// The caller does not wait for it.
    Watcher(Watcher<O>),
}

impl<O> Waiter<O> {
    fn tell(self, result: Result<Decided<O>, ProposeError>) {
        match self.listener {
            Listener::Caller(caller) => {
                // A caller that went away does not want its outcome.
                let _ = caller.send(result);
            }
            Listener::Watcher(watcher) => watcher.tell(result.map(|decided| decided.outcomes)),
        }
    }

    /// Where its caller waits for the entry to be in the log.
    fn seat(&self) -> Option<Arc<Seat>> {
        match &self.listener {
            Listener::Caller(_) => None,
            Listener::Watcher(watcher) => watcher.seat(),
        }
    }
}

/// In the order in which they came.
struct Queue<O> {
    proposals: VecDeque<Waiting<O>>,
    bytes: usize,
}

impl<O> Queue<O> {
    fn is_empty(&self) -> bool {
        self.proposals.is_empty()
    }

    fn push(&mut self, proposal: Waiting<O>) {
        self.bytes += proposal.proposal.len();
        self.proposals.push_back(proposal);
    }

    /// As many as fit, at least one.
    fn take(&mut self, bytes_max: usize) -> Vec<Waiting<O>> {
        let mut bytes = 0;
        let mut fitting = 0;
        for next in &self.proposals {
            if fitting > 0 && bytes + next.proposal.len() > bytes_max {
                break;
            }
            bytes += next.proposal.len();
            fitting += 1;
        }
        self.bytes -= bytes;
        self.proposals.drain(..fitting).collect()
    }

    fn clear(&mut self) {
        self.proposals.clear();
        self.bytes = 0;
    }
}

struct Shared<O> {
    waiting: Mutex<Queue<O>>,
    /// Told when something waits, an entry has come back, or the end has come.
    wake: Notify,
    in_flight: AtomicUsize,
    budget: Arc<Semaphore>,
    budget_permits: usize,
    closed: AtomicBool,
    /// Proposals are refused: this node may lead, but should not.
    suspended: AtomicBool,
    progress: Arc<Progress>,
}

/// Takes the part of the first items out of the outcome of a joined command.
type TakeShare<O> = fn(&mut O, u32) -> O;

pub(crate) struct Proposer<O> {
    shared: Arc<Shared<O>>,
    take_share: TakeShare<O>,
    clock: fn() -> Millis,
}

impl<O> Clone for Proposer<O> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            take_share: self.take_share,
            clock: self.clock,
        }
    }
}

impl<O: Send + Sync + 'static> Proposer<O> {
    pub(crate) fn new(
        proposal_bytes_max: usize,
        take_share: TakeShare<O>,
        clock: fn() -> Millis,
        progress: Arc<Progress>,
    ) -> Self {
        let budget_permits = (proposal_bytes_max / PERMIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Self {
            shared: Arc::new(Shared {
                waiting: Mutex::new(Queue {
                    proposals: VecDeque::new(),
                    bytes: 0,
                }),
                wake: Notify::new(),
                in_flight: AtomicUsize::new(0),
                budget: Arc::new(Semaphore::new(budget_permits)),
                budget_permits,
                closed: AtomicBool::new(false),
                suspended: AtomicBool::new(false),
                progress,
            }),
            take_share,
            clock,
        }
    }

    /// Waits for room in the budget. Refuses what would not fit into an entry.
    pub(crate) async fn admit(&self, mut proposal: Proposal) -> Result<Admitted, ProposeError> {
        proposal.end();
        let bytes = proposal.len();
        if bytes > PROPOSAL_BYTES_MAX {
            return Err(ProposeError::TooLarge {
                bytes,
                bytes_max: PROPOSAL_BYTES_MAX,
            });
        }
        let permits = (proposal.len() / PERMIT_BYTES + 1).min(self.shared.budget_permits);
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.shared.budget).acquire_many_owned(permits).await;
        let room = room.map_err(|_| ProposeError::Stopped)?;
        Ok(Admitted { proposal, room })
    }

    /// Waits for the outcomes of the commands, in order.
    pub(crate) async fn propose(&self, admitted: Admitted) -> Result<Decided<O>, ProposeError> {
        if admitted.proposal.is_empty() {
            return Ok(Decided {
                outcomes: Vec::new(),
                index: LogIndex(0),
            });
        }
        let (caller, outcome) = oneshot::channel();
        self.push(admitted, Listener::Caller(caller))?;
        outcome.await.unwrap_or(Err(ProposeError::Stopped))
    }

    /// Does not wait for the outcomes.
    pub(crate) async fn propose_early(
        &self,
        admitted: Admitted,
        early: Early,
        aftermath: Aftermath<O>,
    ) -> Result<(), ProposeError> {
        if admitted.proposal.is_empty() {
            return Ok(());
        }
        match early {
            Early::Accepted => self.push(admitted, Listener::Watcher(Watcher::answered(aftermath))),
            Early::Logged => {
                let (watcher, answer) = Watcher::waiting(aftermath);
                self.push(admitted, Listener::Watcher(watcher))?;
                answer.await.unwrap_or(Err(ProposeError::Stopped))
            }
        }
    }

    fn push(&self, admitted: Admitted, listener: Listener<O>) -> Result<(), ProposeError> {
        let Admitted { proposal, room } = admitted;
        {
            let mut waiting = self.shared.waiting.lock();
            if self.shared.closed.load(Ordering::Acquire) {
                return Err(ProposeError::Stopped);
            }
            if self.shared.suspended.load(Ordering::Acquire) {
                return Err(ProposeError::NotLeader { leader: None });
            }
            let waiter = Waiter { listener, _room: room };
            waiting.push(Waiting { proposal, waiter });
        }
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Bytes that were admitted and not answered; each proposal counts with what its own entry could add.
    pub(crate) fn unsettled_bytes(&self) -> usize {
        let taken = self
            .shared
            .budget_permits
            .saturating_sub(self.shared.budget.available_permits());
        taken.saturating_mul(PERMIT_BYTES)
    }

    /// Refuses what waits and what comes, until [`Proposer::resume`]. What is on its way stays there.
    pub(crate) fn suspend(&self) {
        let refused = {
            let mut waiting = self.shared.waiting.lock();
            self.shared.suspended.store(true, Ordering::Release);
            waiting.take(usize::MAX)
        };
        for waiting in refused {
            waiting.waiter.tell(Err(ProposeError::NotLeader { leader: None }));
        }
    }

    pub(crate) fn resume(&self) {
        self.shared.suspended.store(false, Ordering::Release);
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
        let entry_bytes_max = entry_bytes_max.min(PROPOSAL_BYTES_MAX);
        while !self.shared.closed.load(Ordering::Acquire) {
            match self.take(entry_bytes_max) {
                Some(batch) => self.submit(&raft, batch).await,
                None => self.shared.wake.notified().await,
            }
        }
    }

    /// What the next entry is to hold, if one should go on its way now.
    fn take(&self, entry_bytes_max: usize) -> Option<Vec<Waiting<O>>> {
        let in_flight = self.shared.in_flight.load(Ordering::Acquire);
        let bytes_min = match in_flight {
            0 | 1 => 0,
            ENTRIES_IN_FLIGHT_MAX.. => return None,
            _ => PIPELINED_BYTES_MIN.min(entry_bytes_max),
        };
        let mut waiting = self.shared.waiting.lock();
        if waiting.is_empty() || waiting.bytes < bytes_min {
            return None;
        }
        Some(waiting.take(entry_bytes_max))
    }

    async fn submit<S>(&self, raft: &Raft<S>, batch: Vec<Waiting<O>>)
    where
        S: openraft::storage::RaftStateMachine<crate::types::TypeConfig>,
    {
        let bytes = batch.iter().map(|waiting| waiting.proposal.len()).sum();
        let (data, shares) = pack((self.clock)(), batch.iter().map(|waiting| &waiting.proposal), bytes);
        let seats = batch.iter().filter_map(|waiting| waiting.waiter.seat());
        let logged = Logged::new(seats.collect());
        let waiters: Vec<_> = shares
            .into_iter()
            .zip(batch.into_iter().map(|waiting| waiting.waiter))
            .collect();
        let take_share = self.take_share;
        self.shared.in_flight.fetch_add(1, Ordering::AcqRel);
        self.shared.progress.metrics.entries.record(waiters.len() as u64);
        let flight = Flight(self.shared.clone());
        let begun = Instant::now();
        let reply = Reply::new(move |result: WriteResult| {
            if result.is_ok() {
                flight.0.progress.metrics.commits.record_time(begun.elapsed());
            }
            drop(flight);
            answer(result, waiters, take_share);
        });
        if let Err(error) = raft.write(EntryData { data, logged }).responder(reply).await {
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

fn answer<O: 'static>(result: WriteResult, mut waiters: Vec<(Share, Waiter<O>)>, take_share: TakeShare<O>) {
    let (outcomes, index) = match result {
        Ok(response) => {
            let index = LogIndex(response.log_id.index());
            let outcomes = response.data.0.and_then(|outcomes| outcomes.downcast::<Vec<O>>().ok());
            (outcomes, index)
        }
        Err(error) => {
            let error = match error {
                ClientWriteError::ForwardToLeader(to) => ProposeError::NotLeader {
                    leader: to.leader_id.map(NodeId),
                },
                ClientWriteError::LogEntryDiscarded(_)
                | ClientWriteError::ChangeMembershipError(_)
                | ClientWriteError::PreconditionFailed(_) => ProposeError::Stopped,
            };
            for (_, waiter) in waiters {
                waiter.tell(Err(error.clone()));
            }
            return;
        }
    };
    // Dropping the senders tells the callers that the outcome is unknown.
    let Some(outcomes) = outcomes else { return };
    if let [(Share::Commands(_), _)] = waiters.as_slice() {
        if let Some((_, waiter)) = waiters.pop() {
            waiter.tell(Ok(Decided {
                outcomes: *outcomes,
                index,
            }));
        }
        return;
    }
    let mut outcomes = outcomes.into_iter();
    let mut shared = None;
    for (share, waiter) in waiters {
        let own = match share {
            Share::Commands(count) => outcomes.by_ref().take(count).collect(),
            Share::Items { count, same } => {
                if !same {
                    shared = outcomes.next();
                }
                shared
                    .as_mut()
                    .map(|outcome| take_share(outcome, count))
                    .into_iter()
                    .collect()
            }
        };
        waiter.tell(Ok(Decided { outcomes: own, index }));
    }
}
