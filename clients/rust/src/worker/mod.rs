//! Workers: a handler for each message of a queue, and everything around it.
//!
//! A worker has one task, which owns the [`jobs`] and makes all decisions ([`run`]), and one for each handler that runs. The place of a
//! handler is free as soon as it has ended: what is settled is handed over, and its answer comes to the worker and not to the handler.

mod failed;
mod jobs;
mod run;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use failed::{Failed, WorkerError};

use crate::{Delivery, Error, MessageId, Queue, Result, SubscribeOptions};
use run::Running;

/// Of handlers, and of messages in flight, as the server has it.
const IN_FLIGHT_MAX: u32 = 100_000;
const CONCURRENCY_DEFAULT: u32 = 16;
const BUFFERED_BYTES_DEFAULT: usize = 16 << 20;
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_secs(12 * 3_600);
const MAX_LEASE_DEFAULT: Duration = Duration::from_secs(600);
const STOP_DEFAULT: Duration = Duration::from_secs(30);

/// Calls of the application when something went wrong with a message.
type OnError = Arc<dyn Fn(&Delivery, &WorkerError) + Send + Sync>;

/// A [`Worker`] in the making; see [`Queue::worker`].
#[derive(Clone)]
pub struct WorkerBuilder {
    queue: Queue,
    settings: Settings,
}

#[derive(Clone)]
struct Settings {
    concurrency: u32,
    /// `None`: as many as handlers.
    prefetch: Option<u32>,
    max_buffered_bytes: usize,
    lease: Duration,
    max_lease: Duration,
    stop_timeout: Duration,
    on_error: Option<OnError>,
}

impl WorkerBuilder {
    pub(crate) fn new(queue: Queue) -> Self {
        let settings = Settings {
            concurrency: CONCURRENCY_DEFAULT,
            prefetch: None,
            max_buffered_bytes: BUFFERED_BYTES_DEFAULT,
            lease: LEASE_DEFAULT,
            max_lease: MAX_LEASE_DEFAULT,
            stop_timeout: STOP_DEFAULT,
            on_error: None,
        };
        Self { queue, settings }
    }

    /// Handlers that run at a time, 1 to 100,000. 16 by default.
    #[must_use]
    pub fn concurrency(mut self, handlers: u32) -> Self {
        self.settings.concurrency = handlers.clamp(1, IN_FLIGHT_MAX);
        self
    }

    /// Messages that may wait here for a handler, so that no handler waits for the network; others do not get them. As many as
    /// [`concurrency`](Self::concurrency) by default. Both together are 100,000 at most.
    ///
    /// The server counts what is not settled: so many and `concurrency` are in flight, those included whose settlement is on its way.
    #[must_use]
    pub fn prefetch(mut self, messages: u32) -> Self {
        self.settings.prefetch = Some(messages);
        self
    }

    /// Bytes that those may have which wait for a handler: while they have more, nothing is read. 16 MiB by default. One response of the
    /// server, up to 4 MiB, may go over it.
    #[must_use]
    pub fn max_buffered_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_buffered_bytes = bytes.max(1);
        self
    }

    /// Length of a lease, 1 s to 12 h; 30 s by default. It is extended when half of it is over, while the message waits for a handler and while
    /// that runs: it is the time after which others get the messages of a worker that is gone without a word.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease.clamp(LEASE_MIN, LEASE_MAX);
        self
    }

    /// How long a handler may hold a message in all; 10 minutes by default. After that the handler is dropped, and its message has failed: one that
    /// hangs does not keep a message for ever.
    #[must_use]
    pub fn max_lease(mut self, total: Duration) -> Self {
        self.settings.max_lease = total;
        self
    }

    /// How long [`Worker::stop`] waits for handlers, and for the answers to settlements; 30 s by default. Handlers that run on are
    /// dropped, and their messages given back.
    #[must_use]
    pub fn stop_timeout(mut self, time: Duration) -> Self {
        self.settings.stop_timeout = time;
        self
    }

    /// Is called when a handler has failed or panicked, a handler was dropped because it ran too long, a lease was lost, or a message was not settled. It must
    /// not block: the worker waits for it.
    #[must_use]
    pub fn on_error(mut self, call: impl Fn(&Delivery, &WorkerError) + Send + Sync + 'static) -> Self {
        self.settings.on_error = Some(Arc::new(call));
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
        let intake = self.queue.intake(SubscribeOptions {
            max_in_flight: self.settings.in_flight(),
            max_batch: 0,
            lease: Some(self.settings.lease),
        });
        let handler = Arc::new(handler);
        let handle = move |delivery| {
            let handler = handler.clone();
            async move { handler(delivery).await.map_err(Into::into) }
        };
        let running = Running::new(self.settings, counts.clone(), handle, intake);
        Worker {
            stop,
            counts,
            task: Some(tokio::spawn(running.run(stopped))),
        }
    }
}

impl Settings {
    /// Messages that are not settled at most.
    fn in_flight(&self) -> u32 {
        let prefetch = self.prefetch.unwrap_or(self.concurrency);
        self.concurrency.saturating_add(prefetch).min(IN_FLIGHT_MAX)
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

/// What a worker that was stopped leaves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// Messages whose handlers were dropped because they ran on, or whose settlement failed since the stop or had no answer in time. They
    /// come again, unless they were settled all the same.
    pub not_settled: Vec<MessageId>,
}

/// Handles messages until it is stopped. Dropping it stops it at once: handlers are dropped, and their messages given back.
#[derive(Debug)]
pub struct Worker {
    stop: watch::Sender<bool>,
    counts: Arc<Counts>,
    task: Option<JoinHandle<Result<Stopped>>>,
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

    /// Takes no more messages, and gives back at once those that wait for a handler, without a failed attempt. Waits for the handlers that
    /// run, and for the settlements that are on their way, up to [`WorkerBuilder::stop_timeout`]. Says what is not settled then, which
    /// is given back, too.
    ///
    /// # Errors
    /// As [`Worker::ended`].
    pub async fn stop(mut self) -> Result<Stopped> {
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
    pub async fn ended(&mut self) -> Result<Stopped> {
        let Some(task) = &mut self.task else {
            return Ok(Stopped::default());
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
