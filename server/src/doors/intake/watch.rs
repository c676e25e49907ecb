//! Progress: who is waited for and does not come.
//!
//! A message that has begun has to gain `PROGRESS_BYTES`, or to be whole, within the stall timeout. A drip of single
//! bytes is therefore no progress. One task looks at all that is waited for, a few times within the timeout, so that
//! bytes that arrive cost no look at the clock and no timer. What has stood still for too long is told so; if it does not
//! go away then, because nobody reads it (its client does not read the answers, say), its connection is closed.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Context;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use slab::Slab;
use tracing::warn;

use super::budget::{Connection, Refusal};
use crate::telemetry::DoorMetrics;

/// What counts as progress of a message that is not whole yet.
const PROGRESS_BYTES_LOG2: u32 = 16;
/// Looks within the timeout. What is given up has stood still for the timeout and at most one look more.
const LOOKS: u32 = 4;
/// Looks after which the connection of something that was given up and is still there is closed.
const LOOKS_UNTIL_EVICTION: u32 = LOOKS + 2;

/// How far a sequence of messages has come: changes with each message and with each `PROGRESS_BYTES` of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::doors) struct Progress(u64);

impl Progress {
    /// While nothing is waited for.
    const NONE: u64 = 0;

    /// `whole` messages have come, and so many bytes of the next.
    pub(in crate::doors) fn new(whole: u64, bytes: usize) -> Self {
        // No message that is read on has 2^32 bytes, so that the sum is different for each place.
        let steps = (bytes as u64) >> PROGRESS_BYTES_LOG2;
        Self((whole << 16).wrapping_add(steps).saturating_add(1))
    }
}

/// Everything that is waited for.
#[derive(Debug)]
pub(super) struct Watch {
    stall_timeout: Duration,
    states: Mutex<Slab<Weak<State>>>,
}

#[derive(Debug)]
struct State {
    connection: Arc<Connection>,
    progress: AtomicU64,
    given_up: AtomicBool,
    waker: AtomicWaker,
    /// Of the last look.
    seen: AtomicU64,
    /// Looks since then that saw the same.
    quiet: AtomicU32,
}

/// A place among what is waited for, until it is dropped.
#[derive(Debug)]
pub(super) struct Watched {
    state: Arc<State>,
    key: usize,
}

impl Watched {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        let state = Arc::new(State {
            connection: connection.clone(),
            progress: AtomicU64::new(Progress::NONE),
            given_up: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            seen: AtomicU64::new(Progress::NONE),
            quiet: AtomicU32::new(0),
        });
        let key = connection.intake.watch.states.lock().insert(Arc::downgrade(&state));
        Self { state, key }
    }

    pub(super) fn waits(&self, progress: Progress, context: &mut Context<'_>) -> Result<(), Refusal> {
        self.state.progress.store(progress.0, Ordering::Relaxed);
        self.state.waker.register(context.waker());
        if self.state.given_up.load(Ordering::Acquire) {
            let after = self.state.connection.intake.watch.stall_timeout;
            return Err(Refusal::Stalled { after });
        }
        Ok(())
    }

    pub(super) fn waits_no_more(&self) {
        self.state.progress.store(Progress::NONE, Ordering::Relaxed);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.state.connection.intake.watch.states.lock().remove(self.key);
    }
}

impl Watch {
    pub(super) fn new(stall_timeout: Duration) -> Self {
        Self {
            stall_timeout,
            states: Mutex::new(Slab::new()),
        }
    }

    pub(super) async fn run(&self, metrics: &DoorMetrics) {
        loop {
            tokio::time::sleep(self.stall_timeout / LOOKS).await;
            self.look(metrics);
        }
    }

    fn look(&self, metrics: &DoorMetrics) {
        // Whatever wakes or drops something may come back here, so that the lock is free by then.
        let states: Vec<_> = self
            .states
            .lock()
            .iter()
            .filter_map(|(_, state)| state.upgrade())
            .collect();
        for state in states {
            match state.look() {
                LOOKS => {
                    metrics.requests_stalled.increment();
                    state.given_up.store(true, Ordering::Release);
                    state.waker.wake();
                }
                LOOKS_UNTIL_EVICTION => {
                    warn!("closing a connection: a request makes no progress, and nothing ends it");
                    state.connection.evict();
                }
                _ => {}
            }
        }
        self.shrink();
    }

    /// Places of a crowd that is gone.
    fn shrink(&self) {
        let mut states = self.states.lock();
        if states.capacity() > 4 * states.len() + 1_024 {
            states.shrink_to_fit();
        }
    }
}

impl State {
    /// Returns how many looks in a row saw no progress.
    fn look(&self) -> u32 {
        let progress = self.progress.load(Ordering::Relaxed);
        if progress == Progress::NONE || progress != self.seen.swap(progress, Ordering::Relaxed) {
            self.quiet.store(0, Ordering::Relaxed);
            return 0;
        }
        self.quiet.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::super::budget::tests::intake;
    use super::*;

    struct Waiting {
        account: super::super::Account,
        intake: Arc<super::super::Intake>,
        connection: Arc<Connection>,
    }

    impl Waiting {
        fn new() -> Self {
            let intake = intake(100, 100, Duration::from_secs(30));
            let connection = intake.connection();
            Self {
                account: connection.account(),
                intake,
                connection,
            }
        }

        fn waits(&mut self, whole: u64, bytes: usize) -> Result<(), Refusal> {
            let mut context = Context::from_waker(Waker::noop());
            self.account.waits(Progress::new(whole, bytes), &mut context)
        }

        fn look(&self) {
            self.intake.watch.look(&DoorMetrics::default());
        }

        fn is_evicted(&self) -> bool {
            let evicted = std::pin::pin!(self.connection.evicted());
            evicted.poll(&mut Context::from_waker(Waker::noop())).is_ready()
        }
    }

    #[test]
    fn single_bytes_are_no_progress() {
        let mut waiting = Waiting::new();
        for byte in 0..=LOOKS as usize {
            waiting.waits(0, byte).unwrap();
            waiting.look();
        }
        let after = Duration::from_secs(30);
        assert_eq!(waiting.waits(0, 10), Err(Refusal::Stalled { after }));
        assert!(!waiting.is_evicted());
        waiting.look();
        waiting.look();
        assert!(waiting.is_evicted());
    }

    #[test]
    fn messages_and_their_larger_parts_are_progress() {
        let mut waiting = Waiting::new();
        for look in 0..100 {
            waiting.waits(look, 0).unwrap();
            waiting.look();
        }
        for look in 0..64 {
            waiting.waits(100, (look as usize) << PROGRESS_BYTES_LOG2).unwrap();
            waiting.look();
        }
    }

    #[test]
    fn silence_between_messages_is_allowed() {
        let mut waiting = Waiting::new();
        waiting.waits(0, 1).unwrap();
        waiting.look();
        waiting.account.waits_no_more();
        (0..20).for_each(|_| waiting.look());
        waiting.waits(1, 1).unwrap();
    }

    #[test]
    fn what_is_gone_is_not_looked_at() {
        let waiting = &mut Waiting::new();
        waiting.waits(0, 1).unwrap();
        waiting.account = waiting.connection.account();
        assert!(waiting.intake.watch.states.lock().is_empty());
    }
}
