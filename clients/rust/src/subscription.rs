//! Subscriptions to queues.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};

use crate::intake::Intake;
use crate::net::Attempts;
use crate::{Client, Delivery, Result};

/// What a subscription asks for.
#[derive(Debug, Clone, Default)]
pub struct SubscribeOptions {
    /// Messages at most that are delivered and not settled, 1 to 100,000. 0 counts as 256.
    pub max_in_flight: u32,
    /// Messages in one response at most, 1 to 1,000. 0 counts as 128.
    pub max_batch: u32,
    /// Length of the leases, 1 s to 12 h. `None`: as the queue says.
    pub lease: Option<Duration>,
}

/// Messages of a queue as they come: a [`Stream`].
///
/// It connects when it is first polled, and again when the connection breaks; then what was delivered and not settled comes again, here
/// or elsewhere. It ends after a failure that is final, such as `QUEUE_DELETED`.
///
/// As long as nobody takes messages, no more are read: the server is held back, and memory is bounded by
/// [`ClientBuilder::window_bytes`](crate::ClientBuilder::window_bytes) and one response. Leases run meanwhile, so take
/// no more than can be worked on (`max_in_flight`).
///
/// When it is dropped, messages that were delivered and not settled are ready for others at once, without a failed attempt.
pub struct Subscription {
    deliveries: BoxStream<'static, Result<Delivery>>,
}

impl Subscription {
    pub(crate) fn new(client: Client, queue: String, options: SubscribeOptions) -> Self {
        let intake = Intake::new(client, queue, options, Attempts::new());
        Self {
            deliveries: intake.deliveries(),
        }
    }

    /// The next message; `None` after a failure.
    ///
    /// # Errors
    /// The subscription cannot go on.
    pub async fn next(&mut self) -> Option<Result<Delivery>> {
        self.deliveries.next().await
    }
}

impl Stream for Subscription {
    type Item = Result<Delivery>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.deliveries.poll_next_unpin(context)
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}
