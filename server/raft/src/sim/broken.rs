//! Faults that are built in on purpose.

use boltq_core::LogIndex;
use boltq_log::{Entry, GroupLog};

use super::process::{Break, is_broken};

/// For [`Break::KeepsDivergentTail`]: what should have been cut off. In any other process, nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeptTail {
    last: Option<LogIndex>,
}

impl KeptTail {
    /// Whether the entries of the log are kept that are to be cut off.
    pub(crate) fn keep(&mut self, log: &GroupLog) -> bool {
        let keeps = is_broken(Break::KeepsDivergentTail);
        if keeps {
            self.last = log.raft_state().last.map(|last| last.index);
        }
        keeps
    }

    /// What is left to append: nothing where entries were kept.
    pub(crate) fn instead_of(&self, mut entries: Vec<Entry>) -> Vec<Entry> {
        entries.retain(|entry| self.last.is_none_or(|last| entry.id.index > last));
        entries
    }
}
