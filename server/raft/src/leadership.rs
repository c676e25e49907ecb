//! Tells the handler when this node leads, and when it no longer does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boltq_core::Term;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::ReadPolicy;

use crate::group::{GroupHandler, Inner};
use crate::standing::Standing;

/// For the entries that are on their way; after it, it is looked at again whether this node leads.
const APPLIED_WITHIN: Duration = Duration::from_millis(250);

impl<H: GroupHandler> Inner<H> {
    pub(crate) async fn watch_leadership(self: Arc<Self>) {
        let mut metrics = self.raft.server_metrics();
        let mut standing = self.progress.standing.watch();
        let mut leading = None;
        let mut leader = None;
        loop {
            let (state, current, term) = {
                let metrics = metrics.borrow_watched();
                (metrics.state, metrics.current_leader, Term(metrics.vote.leader_id.term))
            };
            if current != leader {
                leader = current;
                self.progress.leader_changes.fetch_add(1, Ordering::Relaxed);
            }
            let fit = standing.see() == Standing::Fit;
            let leads = (state == ServerState::Leader && fit).then_some(term);
            if leads != leading && leading.is_some() {
                leading = None;
                self.handler.leadership(None);
                self.progress.leading.set(false);
            }
            if !fit {
                // After that no claim is made any more, and of those that were none is on its way to the log.
                self.proposer.suspend();
            } else if leads.is_none() {
                // openraft refuses what it is given.
                self.proposer.resume();
            }
            if let Some(term) = leads.filter(|_| leading.is_none())
                && self.confirm_leadership(term).await
            {
                leading = leads;
                crate::runtime::spawn(self.clone().finish_change(term));
            }
            if leads != leading {
                continue;
            }
            let ended = tokio::select! {
                biased;
                changed = metrics.changed() => changed.is_err(),
                // Its other end is held by this group.
                _ = standing.changed() => false,
            };
            if ended {
                if leading.is_some() {
                    self.handler.leadership(None);
                }
                self.progress.ended.notify_one();
                return;
            }
        }
    }

    /// Leading means that everything committed before is applied; only then may the plane hand anything out. If this node leads
    /// the same term as before, that includes what it had on its way when it stopped to lead.
    async fn confirm_leadership(&self, term: Term) -> bool {
        let outcome = match self.raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
            Ok(_) => {
                let last = self.raft.metrics().borrow_watched().last_log_index;
                let applied = self.raft.wait(Some(APPLIED_WITHIN));
                let applied = applied.applied_index_at_least(last, "own entries").await;
                applied.map(drop).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match outcome {
            Ok(()) => {
                self.proposer.resume();
                self.handler.leadership(Some(term));
                self.progress.leading.set(true);
                true
            }
            Err(error) => {
                tracing::debug!(group = %self.config.group, %error, "leadership not confirmed yet");
                tokio::time::sleep(Duration::from_millis(1)).await;
                false
            }
        }
    }
}
