//! When a group writes a checkpoint, and which entries it gives up then.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boltq_log::Space;
use futures_util::FutureExt;
use openraft::RaftMetrics;
use openraft::async_runtime::WatchReceiver;
use openraft::error::Fatal;

use crate::group::{GroupHandler, Inner};
use crate::runtime::blocking;
use crate::types::TypeConfig;

/// How long a checkpoint that failed is left alone before the next attempt.
const CHECKPOINT_RETRY: Duration = Duration::from_secs(1);
/// Until it is looked whether there should be a checkpoint right after the start.
const FIRST_LOOK: Duration = Duration::from_millis(100);
/// For openraft to learn of a checkpoint.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(1);

impl<H: GroupHandler> Inner<H> {
    pub(crate) async fn take_checkpoints(self: Arc<Self>) {
        let (mut covered, mut looked) = (0, false);
        loop {
            tokio::select! {
                biased;
                () = self.progress.checkpoint_due.notified() => {}
                () = tokio::time::sleep(if looked { CHECKPOINT_RETRY } else { FIRST_LOOK }) => {
                    if self.progress.keeps_covered.load(Ordering::Relaxed) {
                        self.try_to_give_up_entries().await;
                    }
                    let applied = self.progress.applied_entries.load(Ordering::Relaxed);
                    // After a start that may be one of many, none of which lasted until a checkpoint was due.
                    let many_files = applied > 0 && !looked && self.clone().lies_in_many_files().await;
                    looked |= applied > 0;
                    let holds_back = self.clone().holds_back_files().await;
                    // On a full device every file counts that a checkpoint makes up for.
                    if (self.log.space() == Space::Ample || applied == covered) && !many_files && !holds_back {
                        continue;
                    }
                    covered = applied;
                }
            }
            if self.checkpoint().await {
                // What was applied while it was written has counted from the one before, and said that one is due. If one is,
                // the next entry says so again.
                let _ = self.progress.checkpoint_due.notified().now_or_never();
            } else {
                tokio::time::sleep(CHECKPOINT_RETRY).await;
                self.progress.checkpoint_due.notify_one();
            }
        }
    }

    /// Not on a thread that others need: who appends may hold the entries until the device answers.
    async fn lies_in_many_files(self: Arc<Self>) -> bool {
        let looking = blocking(move || self.log.lies_in_many_files());
        looking.await.unwrap_or(false)
    }

    /// Whether entries of this group are in the way of files that others have filled since. A group that is quiet never gets to
    /// a checkpoint that is due, and would keep the whole log by a few bytes.
    async fn holds_back_files(self: Arc<Self>) -> bool {
        let far_bytes = self.far_bytes();
        if self.log.bytes_since_checkpoint() < far_bytes {
            return false;
        }
        let looking = blocking(move || self.log.last_far_behind(far_bytes).is_some());
        looking.await.unwrap_or(false)
    }

    /// Entries that lie so many bytes behind the end of the log, which all groups share, are not kept for members that were away.
    /// It is twice what one group may keep and write before its next checkpoint: one that writes half of the log loses nothing by it.
    fn far_bytes(&self) -> u64 {
        let own = self.config.checkpoint_interval_bytes;
        own.saturating_add(self.config.kept_entries_bytes).saturating_mul(2)
    }

    /// Whether it was written.
    pub(crate) async fn checkpoint(&self) -> bool {
        let group = self.config.group;
        let taken = match self
            .raft
            .with_state_machine(|machine| {
                let taken = machine.take();
                Box::pin(async move { taken })
            })
            .await
        {
            Ok(Some(taken)) => taken,
            Ok(None) => return true,
            Err(error) => {
                tracing::debug!(%group, %error, "no checkpoint: the group stopped");
                return false;
            }
        };
        match blocking(move || taken.write()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%group, %error, "checkpoint not written; it is tried again");
                return false;
            }
            Err(error) => {
                tracing::error!(%group, %error, "checkpoint task failed");
                return false;
            }
        }
        self.progress.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.try_to_give_up_entries().await;
        true
    }

    async fn try_to_give_up_entries(&self) {
        if let Err(error) = self.give_up_entries().await {
            tracing::debug!(group = %self.config.group, %error, "checkpoint not announced: the group stopped");
        }
    }

    /// openraft learns of the newest checkpoint, and gives up entries that it covers.
    async fn give_up_entries(&self) -> Result<(), Fatal<TypeConfig>> {
        self.raft.trigger().snapshot().await?;
        let Some(checkpoint) = self.log.checkpoint() else {
            return Ok(());
        };
        let index = checkpoint.applied.index;
        let announced = self.raft.wait(Some(ANNOUNCED_WITHIN));
        let knows =
            |metrics: &RaftMetrics<TypeConfig>| metrics.snapshot.as_ref().is_some_and(|last| last.index() >= index.0);
        let is_late = announced.metrics(knows, "checkpoint").await.is_err();
        // It is tried again then: the next checkpoint may never be due.
        self.progress.keeps_covered.store(is_late, Ordering::Relaxed);
        if is_late {
            return Ok(());
        }
        let alone = {
            let metrics = self.raft.server_metrics();
            let metrics = metrics.borrow_watched();
            metrics.membership_config.membership().nodes().count() <= 1
        };
        // On a full device they are in the way of what makes room. Members that lack them get a snapshot.
        let full = self.log.space() == Space::Full;
        let kept_bytes = if alone || full {
            0
        } else {
            self.config.kept_entries_bytes
        };
        let upto = self.log.before_last_bytes(kept_bytes);
        let upto = upto.max(self.log.last_far_behind(self.far_bytes()));
        match upto.map(|upto| upto.min(index)) {
            Some(upto) => self.raft.trigger().purge_log(upto.0).await,
            None => Ok(()),
        }
    }
}
