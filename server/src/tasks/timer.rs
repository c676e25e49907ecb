//! What becomes due: delayed messages, ends of backoffs, ends of leases.
//!
//! Sleeps until the plane's next moment, or until an earlier one has come up; so an idle node wakes nobody, and a message
//! is late by the granularity of the clock only.

use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::plane::QueuePlane;
use crate::service::{Queues, ServiceError};

/// Leases that are failed with one entry at most.
const TIMED_OUT_MAX: usize = 1_000;
/// Longest sleep, so that a clock that is set back or forward is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Runs until it is dropped.
pub(crate) async fn run_timer(queues: Queues, plane: Arc<QueuePlane>) {
    loop {
        let now = clock::now();
        let mut timed_out = Vec::new();
        let next = plane.tick(now, &mut timed_out, TIMED_OUT_MAX);
        if !timed_out.is_empty() {
            let messages = timed_out.len();
            if let Err(error) = queues.fail_timed_out(timed_out).await {
                report(&error, messages);
            }
            continue;
        }
        let sleep = next.map_or(SLEEP_MAX, |next| {
            Duration::from_millis(next.since(clock::now())).min(SLEEP_MAX)
        });
        tokio::select! {
            () = tokio::time::sleep(sleep) => {}
            () = plane.earlier() => {}
        }
    }
}

fn report(error: &ServiceError, messages: usize) {
    // The messages are available again; the attempt is not counted, as nobody could store it.
    tracing::warn!(%error, messages, "ended leases could not be counted as failed attempts");
}
