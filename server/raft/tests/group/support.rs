//! A state machine for tests.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use boltq_core::{DecodeError, Term};
use boltq_log::EntryId;
use boltq_raft::{ApplyError, Commands, GroupHandler, Proposal};
use bytes::BufMut;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Adds up numbers; the outcome is the sum so far. A zero cannot be applied.
#[derive(Default)]
pub(crate) struct Adder {
    pub(crate) sum: Mutex<u64>,
    /// Bytes that its state has beside the sum.
    pub(crate) padding: AtomicUsize,
    leading: AtomicBool,
    changed: Notify,
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

    fn snapshot(&self) -> Vec<u8> {
        let mut state = self.sum.lock().to_le_bytes().to_vec();
        state.resize(state.len() + self.padding.load(Ordering::Relaxed), 0);
        state
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
