//! What may happen to a connection at any time, and seldom does.
//!
//! A wait for a signal that all connections share takes the lock of that signal each time it is polled, and who selects between
//! that and the next request polls it for each request. Here it is polled when it was woken, and else a flag is looked at that
//! no other connection touches.

use std::future::Future;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

/// One such event. A set of one future, because it polls what was woken and nothing else.
pub(crate) struct Seldom<F>(FuturesUnordered<F>);

impl<F: Future> Seldom<F> {
    /// Waits for this.
    pub(crate) fn new(event: F) -> Self {
        Self(FuturesUnordered::from_iter([event]))
    }

    /// Ready once, when it has happened; never again after that.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        match self.0.poll_next_unpin(context) {
            Poll::Ready(Some(output)) => Poll::Ready(output),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// As [`Seldom::poll`]; may be given up and called again.
    pub(crate) async fn happened(&mut self) -> F::Output {
        std::future::poll_fn(|context| self.poll(context)).await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use tokio::sync::Notify;

    use super::Seldom;

    #[tokio::test]
    async fn an_event_is_polled_when_it_was_woken_and_not_each_time_that_somebody_asks() {
        let (bell, polls) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let (there, counting) = (bell.clone(), polls.clone());
        let mut event = Seldom::new(async move {
            let mut rung = pin!(there.notified());
            std::future::poll_fn(|context| {
                counting.fetch_add(1, Ordering::Relaxed);
                rung.as_mut().poll(context)
            })
            .await;
        });
        for _ in 0..10 {
            let mut asked = event.happened().boxed_local();
            assert!(futures_util::poll!(&mut asked).is_pending());
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        let ringing = tokio::spawn(async move { bell.notify_waiters() });
        event.happened().await;
        ringing.await.expect("it rang");
        assert_eq!(polls.load(Ordering::Relaxed), 2);
        assert!(event.happened().now_or_never().is_none());
    }
}
