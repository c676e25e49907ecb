//! Tells the handler when this node leads, and when it no longer does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boltq_core::Term;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::ReadPolicy;

use crate::group::{GroupHandler, Inner};

impl<H: GroupHandler> Inner<H> {
    pub(crate) async fn watch_leadership(self: Arc<Self>) {
        let mut metrics = self.raft.server_metrics();
        let mut silent = self.progress.silent.subscribe();
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
            let leads = (state == ServerState::Leader && !*silent.borrow_and_update()).then_some(term);
            if leads != leading && leading.is_some() {
                leading = None;
                self.handler.leadership(None);
            }
            if let Some(term) = leads.filter(|_| leading.is_none())
                && self.confirm_leadership(term).await
            {
                leading = leads;
            }
            if leads != leading {
                continue;
            }
            let ended = tokio::select! {
                changed = metrics.changed() => changed.is_err(),
                // Its other end is held by this group.
                _ = silent.changed() => false,
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

    /// Leading means that everything committed before is applied; only then may the plane hand anything out.
    async fn confirm_leadership(&self, term: Term) -> bool {
        match self.raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
            Ok(_) => {
                self.handler.leadership(Some(term));
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
