//! Durable subscriptions that nobody uses any more: `queue.durable_expiry`.

use std::time::Duration;

use crate::service::Queues;

/// How often it is looked for them at most, and at least.
const EVERY_MIN: Duration = Duration::from_millis(100);
const EVERY_MAX: Duration = Duration::from_secs(60);

/// Runs until it is dropped; at once if they are kept for ever.
pub(crate) async fn expire_subscriptions(queues: Queues, after: Duration) {
    if after.is_zero() {
        return;
    }
    let every = (after / 4).clamp(EVERY_MIN, EVERY_MAX);
    loop {
        tokio::time::sleep(every).await;
        queues.expire_subscriptions(after).await;
    }
}
