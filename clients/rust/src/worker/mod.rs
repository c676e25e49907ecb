//! Workers: a handler for each message of a queue, and everything around it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::{Delivery, Error, Queue, Result, SubscribeOptions, Subscription};

const LEASE_DEFAULT: Duration = Duration::from_secs(30);
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_TOTAL_DEFAULT: Duration = Duration::from_secs(600);
const STOP_DEFAULT: Duration = Duration::from_secs(30);

/// Why a handler did not do its work: what becomes of the message then. Any error can be turned into one (`?`), and the message is
/// delivered again after a pause that the server chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    why: String,
    what: Then,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Retry,
    RetryAfter(Duration),
    DeadLetter,
}

impl Failed {
    /// It is delivered again after a pause that the server chooses.
    #[must_use]
    pub fn new(why: impl fmt::Display) -> Self {
        Self {
            why: why.to_string(),
            what: Then::Retry,
        }
    }

    /// It is delivered again after this time, up to 24 h.
    #[must_use]
    pub fn retry_after(delay: Duration, why: impl fmt::Display) -> Self {
        Self {
            why: why.to_string(),
            what: Then::RetryAfter(delay),
        }
    }

    /// It goes to the dead letters: there is no use in trying again.
    #[must_use]
    pub fn dead_letter(why: impl fmt::Display) -> Self {
        Self {
            why: why.to_string(),
            what: Then::DeadLetter,
        }
    }

    /// What went wrong.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }
}

// For `?`. It is no error itself, or this would be its own conversion.
impl<E: std::error::Error> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

/// Calls of the application when a handler has failed.
type OnFailure = Arc<dyn Fn(&Delivery, &Failed) + Send + Sync>;

/// A [`Worker`] in the making; see [`Queue::worker`].
#[derive(Clone)]
pub struct WorkerBuilder {
    queue: Queue,
    settings: Settings,
}

#[derive(Clone)]
struct Settings {
    concurrency: u32,
    lease: Duration,
    lease_total: Duration,
    stop_within: Duration,
    on_failure: Option<OnFailure>,
}

impl WorkerBuilder {
    pub(crate) fn new(queue: Queue) -> Self {
        let settings = Settings {
            concurrency: 16,
            lease: LEASE_DEFAULT,
            lease_total: LEASE_TOTAL_DEFAULT,
            stop_within: STOP_DEFAULT,
            on_failure: None,
        };
        Self { queue, settings }
    }

    /// Handlers that run at a time, and so the messages that this worker holds. 16 by default.
    #[must_use]
    pub fn concurrency(mut self, handlers: u32) -> Self {
        self.settings.concurrency = handlers.clamp(1, 100_000);
        self
    }

    /// Length of a lease, 1 s to 12 h; 30 s by default. While a handler runs, it is extended when half of it is over: it is the time after which others
    /// get the messages of a worker that is gone without a word.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease.max(LEASE_MIN);
        self
    }

    /// How long a handler may hold a message in all; 10 minutes by default. After that the lease is not extended any more: a handler that hangs
    /// does not keep a message for ever.
    #[must_use]
    pub fn lease_total(mut self, total: Duration) -> Self {
        self.settings.lease_total = total;
        self
    }

    /// How long [`Worker::stop`] waits for handlers; 30 s by default. Those that run on are dropped, and their messages given back.
    #[must_use]
    pub fn stop_within(mut self, time: Duration) -> Self {
        self.settings.stop_within = time;
        self
    }

    /// Is called when a handler has failed or panicked, for a log for example.
    #[must_use]
    pub fn on_failure(mut self, call: impl Fn(&Delivery, &Failed) + Send + Sync + 'static) -> Self {
        self.settings.on_failure = Some(Arc::new(call));
        self
    }

    /// Starts. When `handler` succeeds, the message is acknowledged; when it fails or panics, it is given back.
    ///
    /// A message can come more than once, as always: after a failure, after a lease that ended, and after a change of leaders.
    pub fn start<H, F, E>(self, handler: H) -> Worker
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = std::result::Result<(), E>> + Send + 'static,
        E: Into<Failed> + Send + 'static,
    {
        let (stop, stopped) = watch::channel(false);
        let counts = Arc::new(Counts::default());
        let subscription = self.queue.subscribe_patiently(SubscribeOptions {
            max_in_flight: self.settings.concurrency,
            max_batch: 0,
            lease: Some(self.settings.lease),
        });
        let running = Running {
            settings: self.settings,
            counts: counts.clone(),
            handlers: JoinSet::new(),
        };
        let handler = Arc::new(handler);
        let handle = move |delivery| {
            let handler = handler.clone();
            async move { handler(delivery).await.map_err(Into::into) }
        };
        Worker {
            stop,
            counts,
            task: Some(tokio::spawn(running.run(subscription, stopped, handle))),
        }
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("queue", &self.queue.name())
            .field("concurrency", &self.settings.concurrency)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Counts {
    succeeded: AtomicU64,
    failed: AtomicU64,
    not_settled: AtomicU64,
}

/// What a worker has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Handlers that have succeeded.
    pub succeeded: u64,
    /// Handlers that have failed or panicked.
    pub failed: u64,
    /// Messages that could not be settled then, for example because their lease had ended. They come again.
    pub not_settled: u64,
}

/// Handles messages until it is stopped. Dropping it stops it at once: handlers are dropped, and their messages given back.
#[derive(Debug)]
pub struct Worker {
    stop: watch::Sender<bool>,
    counts: Arc<Counts>,
    task: Option<JoinHandle<Result<()>>>,
}

impl Worker {
    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        WorkerStats {
            succeeded: self.counts.succeeded.load(Ordering::Relaxed),
            failed: self.counts.failed.load(Ordering::Relaxed),
            not_settled: self.counts.not_settled.load(Ordering::Relaxed),
        }
    }

    /// Whether it has ended by itself; [`Worker::ended`] says why.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Takes no more messages, waits for the handlers that run, and gives back what is not done.
    ///
    /// # Errors
    /// As [`Worker::ended`].
    pub async fn stop(mut self) -> Result<()> {
        // It fails only if the worker has ended.
        let _ = self.stop.send(true);
        self.ended().await
    }

    /// Waits until the worker ends by itself. Nothing is lost if this is given up, so that a program can wait for this and for the
    /// moment when it has to stop.
    ///
    /// # Errors
    /// The subscription has ended with a failure that is final, such as `QUEUE_DELETED` or a key that is no longer valid; see
    /// [`Error`].
    pub async fn ended(&mut self) -> Result<()> {
        let Some(task) = &mut self.task else {
            return Ok(());
        };
        let ended = task.await.unwrap_or(Err(Error::Closed));
        self.task = None;
        ended
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

struct Running {
    settings: Settings,
    counts: Arc<Counts>,
    handlers: JoinSet<()>,
}

impl Running {
    async fn run<H, F>(
        mut self,
        mut subscription: Subscription,
        mut stopped: watch::Receiver<bool>,
        handle: H,
    ) -> Result<()>
    where
        H: Fn(Delivery) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = std::result::Result<(), Failed>> + Send + 'static,
    {
        let full = self.settings.concurrency as usize;
        let outcome = loop {
            tokio::select! {
                // An error means that the worker was dropped, which ends this task too.
                _ = stopped.wait_for(|stop| *stop) => break Ok(()),
                Some(_) = self.handlers.join_next() => {}
                next = subscription.next(), if self.handlers.len() < full => match next {
                    Some(Ok(delivery)) => {
                        let job = Job { delivery, settings: self.settings.clone(), counts: self.counts.clone() };
                        self.handlers.spawn(job.run(handle.clone()));
                    }
                    Some(Err(error)) => break Err(error),
                    None => break Ok(()),
                },
            }
        };
        // The subscription stays open meanwhile: with it the leases of what is being worked on would end.
        let done = async { while self.handlers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(self.settings.stop_within, done).await;
        self.handlers.shutdown().await;
        drop(subscription);
        outcome
    }
}

/// One message and its handler.
struct Job {
    delivery: Delivery,
    settings: Settings,
    counts: Arc<Counts>,
}

impl Job {
    async fn run<H, F>(self, handle: H)
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = std::result::Result<(), Failed>> + Send + 'static,
    {
        // A task of its own, whose panic is a failure like others.
        let delivery = self.delivery.clone();
        let mut handling = JoinSet::new();
        handling.spawn(async move { handle(delivery).await });
        let outcome = tokio::select! {
            outcome = handling.join_next() => match outcome {
                Some(Ok(outcome)) => outcome,
                Some(Err(error)) => Err(Failed::new(format!("the handler panicked: {error}"))),
                None => Ok(()),
            },
            never = self.extend() => match never {},
        };
        self.settle(outcome).await;
    }

    /// Extends the lease for as long as it may be.
    async fn extend(&self) -> std::convert::Infallible {
        let lease = self.settings.lease;
        let end = Instant::now() + self.settings.lease_total;
        loop {
            tokio::time::sleep(lease / 2).await;
            let left = end.saturating_duration_since(Instant::now());
            // A lease of the server has one second at least.
            let lost =
                left < LEASE_MIN || matches!(self.delivery.extend(lease.min(left)).await, Err(Error::NotSettled(_)));
            if lost {
                std::future::pending::<()>().await;
            }
        }
    }

    async fn settle(&self, outcome: std::result::Result<(), Failed>) {
        let settled = match &outcome {
            Ok(()) => {
                self.counts.succeeded.fetch_add(1, Ordering::Relaxed);
                self.delivery.ack().await
            }
            Err(failed) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                if let Some(call) = &self.settings.on_failure {
                    call(&self.delivery, failed);
                }
                match failed.what {
                    Then::Retry => self.delivery.nack().await,
                    Then::RetryAfter(delay) => self.delivery.nack_after(delay).await,
                    Then::DeadLetter => self.delivery.dead_letter().await,
                }
            }
        };
        if settled.is_err() {
            self.counts.not_settled.fetch_add(1, Ordering::Relaxed);
        }
    }
}
