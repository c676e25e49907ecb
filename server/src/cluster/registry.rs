//! The registry on this node: replicated state behind a lock, and who waits for its changes.

use std::sync::Arc;

use boltq_core::{Applied, DecodeError, NodeId, StateMachine, Term};
use boltq_log::EntryId;
use boltq_meta::{NodeInfo, Outcome, Registry};
use boltq_raft::{ApplyError, Captured, Commands, GroupHandler};
use parking_lot::RwLock;
use tokio::sync::watch;

/// The state of the group `meta`.
pub struct MetaPlane {
    registry: RwLock<Arc<Registry>>,
    /// The term in which this node leads the group.
    leading: watch::Sender<Option<Term>>,
    changes: watch::Sender<u64>,
}

impl MetaPlane {
    /// An empty registry; the group restores it.
    #[must_use]
    pub fn new() -> Self {
        Self {
            registry: RwLock::default(),
            leading: watch::Sender::new(None),
            changes: watch::Sender::new(0),
        }
    }

    /// The registry as it is now.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.registry.read().clone()
    }

    /// The node of this id, if it is registered.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Option<NodeInfo> {
        self.registry.read().node(node).cloned()
    }

    /// Whether this node leads the group.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.leading.borrow().is_some()
    }

    /// Changes whenever leadership of the group does.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Option<Term>> {
        self.leading.subscribe()
    }

    /// Changes whenever the registry does.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn set(&self, registry: Registry) {
        let changes = registry.changes();
        *self.registry.write() = Arc::new(registry);
        self.changes.send_replace(changes);
    }
}

impl Default for MetaPlane {
    fn default() -> Self {
        Self::new()
    }
}

impl GroupHandler for MetaPlane {
    type Outcome = Outcome;

    fn apply(&self, _entry: EntryId, commands: Commands<'_>) -> Result<Vec<Outcome>, ApplyError> {
        let time = commands.time();
        let mut registry = Registry::clone(&self.registry());
        let mut outcomes = Vec::new();
        for command in commands {
            let command = command?;
            outcomes.push(registry.apply(time, command.bytes, command.offset, &mut Applied::default())?);
        }
        self.set(registry);
        Ok(outcomes)
    }

    fn share(outcome: &mut Outcome, _items: u32) -> Outcome {
        outcome.clone()
    }

    fn capture(&self) -> Captured {
        let registry = self.registry();
        Box::new(move || registry.snapshot())
    }

    fn restore(&self, state: &[u8]) -> Result<(), DecodeError> {
        self.set(Registry::restore(state)?);
        Ok(())
    }

    fn leadership(&self, leading: Option<Term>) {
        self.leading.send_replace(leading);
        if let Some(term) = leading {
            tracing::info!(term = term.0, "this node leads the group of the cluster's registry");
        }
    }
}
