//! What becomes due: delayed messages, ends of backoffs, ends of leases; and what is over.
//!
//! Sleeps until the plane's next moment, or until an earlier one has come up; so an idle node wakes nobody, and a message
//! is late by the granularity of the clock only.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use boltq_queue::Claim;

use crate::plane::QueuePlane;
use crate::service::{Queues, ServiceError};

/// Leases that are failed together at most.
const TIMED_OUT_MAX: usize = 1_000;
/// Longest sleep, so that a clock that is set back or forward is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// While ended leases are being stored, what is due is looked for this often: large messages that become dead letters take
/// their time, and the others should not be late for it.
const STORING_POLL: Duration = Duration::from_millis(5);

/// Runs until it is dropped. One for each plane.
pub async fn run_timer(queues: Queues, plane: Arc<QueuePlane>) {
    tokio::join!(keep_time(&queues, &plane), queues.expire_in_time(), queues.sweep());
}

async fn keep_time(queues: &Queues, plane: &QueuePlane) {
    loop {
        let now = plane.now();
        let mut timed_out = Vec::new();
        let next = plane.tick(now, &mut timed_out, TIMED_OUT_MAX);
        if !timed_out.is_empty() {
            fail(queues, plane, timed_out).await;
            continue;
        }
        let sleep = next.map_or(SLEEP_MAX, |next| {
            Duration::from_millis(next.since(plane.now())).min(SLEEP_MAX)
        });
        tokio::select! {
            biased;
            () = tokio::time::sleep(sleep) => {}
            () = plane.earlier() => {}
        }
    }
}

/// Counts failed attempts, and lets time pass meanwhile.
async fn fail(queues: &Queues, plane: &QueuePlane, timed_out: Vec<Claim>) {
    let mut failing = pin!(queues.fail_timed_out(timed_out));
    let failed = loop {
        tokio::select! {
            biased;
            failed = &mut failing => break failed,
            () = tokio::time::sleep(STORING_POLL) => {
                let now = plane.now();
                plane.with(|plane| plane.wake_due(now, TIMED_OUT_MAX));
            }
        }
    };
    if let Err((error, messages)) = failed {
        report(&error, messages);
    }
}

fn report(error: &ServiceError, messages: usize) {
    // The messages are available again; the attempt is not counted, as nobody could store it.
    tracing::warn!(%error, messages, "ended leases could not be counted as failed attempts");
}
