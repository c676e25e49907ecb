//! What a group counts, and what its tasks tell each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::standing::Standing;
use crate::starving::Intake;
use crate::watched::Watched;

/// What happened in a group so far.
pub(crate) struct Progress {
    pub(crate) applied_entries: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) leader_changes: AtomicU64,
    pub(crate) checkpoint_interval_bytes: u64,
    pub(crate) checkpoint_interval_entries: u64,
    /// Of the state in the newest checkpoint.
    pub(crate) state_bytes: AtomicU64,
    /// The leader was heard last.
    pub(crate) heard: Mutex<Instant>,
    /// openraft ended, be it that it was stopped.
    pub(crate) ended: Notify,
    pub(crate) checkpoint_due: Notify,
    /// Entries are kept that a checkpoint covers, as openraft did not know of it in time.
    pub(crate) keeps_covered: AtomicBool,
    pub(crate) metrics: Metrics,
    pub(crate) intake: Arc<Intake>,
    /// See [`Group::too_few_have_room`].
    pub(crate) too_few_have_room: AtomicBool,
    /// Held while a member that asked for a snapshot is sent one.
    pub(crate) feeding: tokio::sync::Mutex<()>,
    /// openraft waits since then for the log to have room.
    pub(crate) waits_for_room: Mutex<Option<Instant>>,
    /// What keeps this node from leading.
    pub(crate) standing: Watched<Standing>,
    /// Whether the handler was told that this node leads.
    pub(crate) leading: Watched<bool>,
}

impl Progress {
    pub(crate) fn new(checkpoint_interval_bytes: u64, checkpoint_interval_entries: u64) -> Self {
        Self {
            applied_entries: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            leader_changes: AtomicU64::new(0),
            checkpoint_interval_bytes,
            checkpoint_interval_entries,
            state_bytes: AtomicU64::new(0),
            heard: Mutex::new(Instant::now()),
            ended: Notify::new(),
            checkpoint_due: Notify::new(),
            keeps_covered: AtomicBool::new(false),
            metrics: Metrics::default(),
            intake: Arc::default(),
            too_few_have_room: AtomicBool::new(false),
            feeding: tokio::sync::Mutex::default(),
            waits_for_room: Mutex::default(),
            standing: Watched::new(Standing::Fit),
            leading: Watched::new(false),
        }
    }

    /// This is the state of the newest checkpoint.
    pub(crate) fn is_saved(&self, state: &[u8]) {
        self.state_bytes.store(state.len() as u64, Ordering::Relaxed);
    }
}
