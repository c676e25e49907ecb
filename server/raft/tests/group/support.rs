//! A state machine for tests.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use boltq_core::{DecodeError, Term};
use boltq_log::EntryId;
use boltq_raft::{ApplyError, Captured, Commands, GroupHandler, Proposal};
use bytes::BufMut;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Adds up numbers; the outcome is the sum so far. A zero cannot be applied.
#[derive(Default)]
pub(crate) struct Adder {
    pub(crate) sum: Mutex<u64>,
    /// Bytes that its state has beside the sum.
    pub(crate) padding: AtomicUsize,
    /// How often its state was captured.
    pub(crate) captures: AtomicUsize,
    /// What the next capture waits for before it is encoded.
    pub(crate) before_encoding: Gate,
    /// What the next entry waits for before it is applied, on a thread of the runtime.
    pub(crate) before_applying: Gate,
    leading: AtomicBool,
    changed: Notify,
}

/// Whoever comes to it next waits until the other end is dropped.
#[derive(Default)]
pub(crate) struct Gate(Mutex<Option<Receiver<()>>>);

impl Gate {
    /// Shuts it until what is returned is dropped.
    pub(crate) fn shut(&self) -> Sender<()> {
        let (sender, receiver) = mpsc::channel();
        *self.0.lock() = Some(receiver);
        sender
    }

    /// Whether somebody has come to it since it was shut.
    pub(crate) fn was_reached(&self) -> bool {
        self.0.lock().is_none()
    }

    /// Comes to it; what is returned waits.
    fn reach(&self) -> impl FnOnce() + Send + Sync + 'static {
        let shut = self.0.lock().take().map(Mutex::new);
        move || {
            if let Some(shut) = shut {
                shut.into_inner().recv().unwrap_err();
            }
        }
    }
}

impl Adder {
    pub(crate) fn leads(&self) -> bool {
        self.leading.load(Ordering::Acquire)
    }

    pub(crate) async fn led(&self) {
        while !self.leading.load(Ordering::Acquire) {
            tokio::time::timeout(Duration::from_millis(10), self.changed.notified())
                .await
                .ok();
        }
    }
}

impl GroupHandler for Adder {
    type Outcome = u64;

    fn apply(&self, _entry: EntryId, commands: Commands<'_>) -> Result<Vec<u64>, ApplyError> {
        self.before_applying.reach()();
        let mut sum = self.sum.lock();
        let mut outcomes = Vec::new();
        for command in commands {
            let bytes = command?.bytes;
            if bytes.len() == 4 {
                // The outcome is the sum before, from which the shares go on.
                outcomes.push(*sum);
                *sum += u64::from(u32::from_le_bytes(bytes.try_into().unwrap()));
                continue;
            }
            let number = u64::from_le_bytes(bytes.try_into().unwrap());
            if number == 0 {
                return Err(DecodeError::Invalid {
                    what: "number",
                    why: "zero",
                }
                .into());
            }
            *sum += number;
            outcomes.push(*sum);
        }
        Ok(outcomes)
    }

    /// Of a command `count, number`, which adds the number `count` times: the sum after the first `items`.
    fn share(outcome: &mut u64, items: u32) -> u64 {
        *outcome += u64::from(items);
        *outcome
    }

    fn capture(&self) -> Captured {
        let mut state = self.sum.lock().to_le_bytes().to_vec();
        state.resize(state.len() + self.padding.load(Ordering::Relaxed), 0);
        self.captures.fetch_add(1, Ordering::Relaxed);
        let wait = self.before_encoding.reach();
        Box::new(move || {
            wait();
            state
        })
    }

    fn restore(&self, state: &[u8]) -> Result<(), DecodeError> {
        *self.sum.lock() = u64::from_le_bytes(state[..8].try_into().unwrap());
        self.padding.store(state.len() - 8, Ordering::Relaxed);
        Ok(())
    }

    fn leadership(&self, leading: Option<Term>) {
        self.leading.store(leading.is_some(), Ordering::Release);
        self.changed.notify_waiters();
    }
}

pub(crate) fn add(numbers: &[u64]) -> Proposal {
    let mut proposal = Proposal::new();
    for number in numbers {
        proposal.begin().put_u64_le(*number);
    }
    proposal
}
