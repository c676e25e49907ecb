//! What may happen to a connection at any time, and seldom does.
//!
//! A wait for a signal that all connections share takes the lock of that signal each time it is polled, and who selects between
//! that and the next request polls it for each request. Here it is polled when it was woken, and else a flag is looked at that
//! no other connection touches.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

/// One such event.
///
/// A set of futures of `futures_util` does the same; it takes a tenth of a microsecond to say that nothing was woken, which is
/// more than the polls that it saves.
pub(crate) struct Seldom<F> {
    /// Until it has happened.
    event: Option<Pin<Box<F>>>,
    bell: Arc<Bell>,
    /// Whom the bell wakes.
    waits: Waker,
}

/// What the event wakes.
struct Bell {
    rung: AtomicBool,
    waits: Mutex<Waker>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.waits.lock().wake_by_ref();
    }
}

impl<F: Future> Seldom<F> {
    /// Waits for this.
    pub(crate) fn new(event: F) -> Self {
        let nobody = Waker::noop().clone();
        let bell = Bell {
            // So that it is polled once.
            rung: AtomicBool::new(true),
            waits: Mutex::new(nobody.clone()),
        };
        Self {
            event: Some(Box::pin(event)),
            bell: Arc::new(bell),
            waits: nobody,
        }
    }

    /// Ready once, when it has happened; never again after that.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        if !self.waits.will_wake(context.waker()) {
            self.waits.clone_from(context.waker());
            // Before the look at the bell: whoever rings it after that look finds whom to wake.
            self.bell.waits.lock().clone_from(context.waker());
        }
        // The look costs nothing, the exchange sees what came before whichever ring it takes away.
        if !self.bell.rung.load(Ordering::Relaxed) || !self.bell.rung.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let Some(event) = &mut self.event else {
            return Poll::Pending;
        };
        let waker = Waker::from(self.bell.clone());
        let polled = event.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            self.event = None;
        }
        polled
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
