//! Timers of all groups that ring together.
//!
//! openraft looks at the time of each group 25 times a second with the heartbeats that are the default, and each group does so
//! at an instant of its own. An idle node with nine groups woke 225 times a second for that, and a thread that is woken and
//! put to sleep again costs far more than what it does in between. So these deadlines are moved to the next beat of a clock
//! that all groups of the process share: one wake-up serves all of them, and their heartbeats to another node leave together.
//!
//! Only for what is looked at again and again. Sleeps and timeouts that somebody waits for are exact.

use std::fmt;
use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use openraft::impls::TokioRuntime;
use openraft::{AsyncRuntime, Instant as _, OptionalSend};
use tokio::time::{Instant, Sleep};

/// Between two beats, and so the most that a deadline is moved. Half of what openraft waits between two looks at its time by
/// default.
const BEAT: Duration = Duration::from_millis(20);

/// Sleeps for about `duration`, until the next beat.
pub(crate) fn sleep(duration: Duration) -> Sleep {
    // There the beat would depend on when the simulation began.
    #[cfg(feature = "sim")]
    if crate::sim::is_simulated() {
        return tokio::time::sleep(duration);
    }
    tokio::time::sleep_until(on_beat(Instant::now() + duration))
}

fn on_beat(deadline: Instant) -> Instant {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let first = *FIRST.get_or_init(Instant::now);
    let since = deadline.saturating_duration_since(first);
    let late = Duration::from_nanos(nanos(since) % nanos(BEAT));
    if late.is_zero() {
        deadline
    } else {
        deadline + (BEAT - late)
    }
}

/// 585 years fit.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// tokio, but deadlines are on the beat. openraft has them for its ticks, and for the end of a leadership without a majority.
pub(crate) struct BeatRuntime(TokioRuntime);

impl fmt::Debug for BeatRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl AsyncRuntime for BeatRuntime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = <TokioRuntime as AsyncRuntime>::ThreadLocalRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        // The instants of openraft do not show what is in them.
        sleep(deadline - Self::Instant::now())
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: Self::Instant, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        TokioRuntime::thread_rng()
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F: Future<Output = T>, T>(&mut self, future: F) -> T {
        self.0.block_on(future)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sleeps_side_by_side_wakes_together_and_never_early() {
        let mut woken = Vec::new();
        for after in [1, 7, 19] {
            let deadline = Instant::now() + Duration::from_millis(100 + after);
            let at = on_beat(deadline);
            assert!(
                at >= deadline && at < deadline + BEAT,
                "{after}: {at:?} for {deadline:?}"
            );
            woken.push(at);
        }
        assert!(woken[2] - woken[0] <= BEAT, "{woken:?}");
        let together = on_beat(woken[0] - Duration::from_millis(1));
        assert_eq!(together, woken[0]);
        assert_eq!(on_beat(woken[0]), woken[0]);
    }
}
