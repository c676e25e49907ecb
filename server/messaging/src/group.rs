//! A stream group on this node: its state behind a lock, its log, and who waits for its records.
//!
//! The lock is held for the work of one entry or one look, never over I/O and never over an await. Records are placed in the
//! log before it is released, so whoever sees a record can read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use boltq_core::{Applied, DecodeError, StateMachine, Term};
use boltq_log::{EntryId, GroupLog};
use boltq_raft::{ApplyError, Captured, Commands, GroupHandler};
use boltq_stream::command::subject;
use boltq_stream::{Machine, Outcome};
use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::readers::Readers;

/// See the module.
pub struct StreamGroup {
    machine: RwLock<Machine>,
    log: GroupLog,
    pub(crate) readers: Arc<Readers>,
    leading: AtomicBool,
    leadership: Notify,
    /// Random bits that senders of messages cannot guess.
    random: fn() -> u64,
}

impl StreamGroup {
    /// An empty one over a log; the group restores it.
    #[must_use]
    pub fn new(log: GroupLog, random: fn() -> u64) -> Self {
        let mut machine = Machine::default();
        machine.scatter(random());
        Self {
            machine: RwLock::new(machine),
            log,
            readers: Arc::default(),
            leading: AtomicBool::new(false),
            leadership: Notify::new(),
            random,
        }
    }

    /// Looks at the state, briefly: nothing is applied meanwhile.
    pub fn look<R>(&self, look: impl FnOnce(&Machine) -> R) -> R {
        look(&self.machine.read())
    }

    /// The log of the group.
    #[must_use]
    pub fn log(&self) -> &GroupLog {
        &self.log
    }

    /// Whether this node leads the group.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.leading.load(Ordering::Acquire)
    }

    /// Returns when this node leads the group.
    pub async fn led(&self) {
        loop {
            let changed = self.leadership.notified();
            if self.is_leading() {
                return;
            }
            changed.await;
        }
    }
}

impl GroupHandler for StreamGroup {
    type Outcome = Outcome;

    fn apply(&self, entry: EntryId, commands: Commands<'_>) -> Result<Vec<Outcome>, ApplyError> {
        let time = commands.time();
        let mut applied = Applied::default();
        let (mut outcomes, mut subjects) = (Vec::new(), Vec::new());
        let mut machine = self.machine.write();
        for command in commands {
            let command = command?;
            outcomes.push(machine.apply(time, command.bytes, command.offset, &mut applied)?);
            subjects.extend(subject(command.bytes));
        }
        self.log
            .place(entry.index, &applied.storage)
            .map_err(|error| ApplyError::Place(error.to_string()))?;
        drop(machine);
        self.readers.wake(&subjects);
        Ok(outcomes)
    }

    /// Commands of streams are not joined.
    fn share(outcome: &mut Outcome, _items: u32) -> Outcome {
        outcome.clone()
    }

    fn capture(&self) -> Captured {
        let state = self.machine.read().snapshot();
        Box::new(move || state)
    }

    fn restore(&self, state: &[u8]) -> Result<(), DecodeError> {
        let mut machine = Machine::restore(state)?;
        machine.scatter((self.random)());
        *self.machine.write() = machine;
        self.readers.wake_all();
        Ok(())
    }

    fn leadership(&self, leading: Option<Term>) {
        self.leading.store(leading.is_some(), Ordering::Release);
        self.leadership.notify_waiters();
    }
}
