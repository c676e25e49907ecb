//! Waiting for a condition, never for a time.

use std::future::Future;
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_millis(5);
/// What one step can add to the time waited. Virtual machines are stopped for a minute now and then; a deadline is about
/// the server, so time in which nothing ran does not count.
const STEP_COUNTED_MAX: Duration = Duration::from_millis(500);

/// Asks again and again until there is an answer.
///
/// # Panics
/// When there is none within `deadline`.
#[track_caller]
pub fn eventually<T>(deadline: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let mut waited = Duration::ZERO;
    loop {
        let step = Instant::now();
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(waited < deadline, "not within {deadline:?}: {what}");
        std::thread::sleep(STEP);
        waited += step.elapsed().min(STEP_COUNTED_MAX);
    }
}

/// As [`eventually`], for questions that are asked over the network.
///
/// # Panics
/// When there is no answer within `deadline`.
pub async fn eventually_async<T, F: Future<Output = Option<T>>>(
    deadline: Duration,
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let mut waited = Duration::ZERO;
    loop {
        let step = Instant::now();
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(waited < deadline, "not within {deadline:?}: {what}");
        tokio::time::sleep(STEP).await;
        waited += step.elapsed().min(STEP_COUNTED_MAX);
    }
}

/// The result of `work`.
///
/// # Panics
/// When it takes longer than `deadline`.
pub async fn within<T>(deadline: Duration, what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(deadline, work).await {
        Ok(result) => result,
        Err(_) => panic!("not within {deadline:?}: {what}"),
    }
}
