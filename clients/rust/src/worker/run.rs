//! The loop of a worker: one task that owns the jobs, and a task for each handler that runs.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use super::jobs::{Afterwards, Due, Jobs};
use super::{Counts, Failed, Settings, Stopped, WorkerError};
use crate::intake::{Intake, Taken};
use crate::settler::Settlement;
use crate::{Delivery, Error, MessageId, Result};

/// The end of a handler.
type Ended = (MessageId, std::result::Result<(), Failed>);

/// A call that was handed over, and its answer.
enum Answered {
    Settled(Due, Result<()>),
    Extended {
        lease: Delivery,
        until: Instant,
        answer: Result<()>,
    },
    /// If it failed, the message is ready for others when the stream ends, or its lease.
    Released,
}

/// See the module.
pub(super) struct Running<H> {
    pub(super) settings: Settings,
    pub(super) counts: Arc<Counts>,
    pub(super) handle: H,
    pub(super) intake: Intake,
    jobs: Jobs,
    handlers: JoinSet<Ended>,
    /// To end each of them.
    running: HashMap<MessageId, AbortHandle>,
    calls: FuturesUnordered<BoxFuture<'static, Answered>>,
    /// Set when it is to end; then no handler begins.
    stopping: bool,
    /// Whether more can come.
    receiving: bool,
    /// Those whose settlement has failed since then.
    left: Vec<MessageId>,
}

impl<H, F> Running<H>
where
    H: Fn(Delivery) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = std::result::Result<(), Failed>> + Send + 'static,
{
    pub(super) fn new(settings: Settings, counts: Arc<Counts>, handle: H, intake: Intake) -> Self {
        Self {
            settings,
            counts,
            handle,
            intake,
            jobs: Jobs::default(),
            handlers: JoinSet::new(),
            running: HashMap::new(),
            calls: FuturesUnordered::new(),
            stopping: false,
            receiving: true,
            left: Vec::new(),
        }
    }

    /// Works until it is told to stop, or the subscription cannot go on.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<Stopped> {
        let every = self.settings.lease / 4;
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failure = None;
        let mut limit = pin!(sleep_until(Instant::now()));
        while !self.stopping || !self.handlers.is_empty() || !self.calls.is_empty() {
            let begins_to_stop = !self.stopping;
            tokio::select! {
                // An error means that the worker was dropped, which ends this task too.
                _ = stop.wait_for(|stop| *stop), if !self.stopping => self.stop(),
                () = &mut limit, if self.stopping => break,
                Some(ended) = self.handlers.join_next() => self.finished(ended),
                Some(answered) = self.calls.next() => self.answered(answered),
                taken = self.intake.next(), if self.wants_more() => match taken {
                    Some(Ok(taken)) => self.take(taken),
                    ended => {
                        if !self.stopping {
                            failure = ended.and_then(Result::err);
                        }
                        self.receiving = false;
                        self.jobs.stream_ended();
                        self.stop();
                    }
                },
                _ = ticks.tick() => self.keep_leases(),
            }
            if begins_to_stop && self.stopping {
                limit.as_mut().reset(Instant::now() + self.settings.stop_timeout);
            }
            self.begin();
        }
        self.handlers.shutdown().await;
        for (delivery, why) in self.jobs.take_remembered() {
            self.not_settled(&delivery, why);
        }
        self.left.extend(self.jobs.unsettled());
        match failure {
            Some(error) => Err(error),
            None => Ok(Stopped { not_settled: self.left }),
        }
        // With the intake its stream ends, and all leases that are left.
    }

    fn wants_more(&self) -> bool {
        self.receiving && (self.stopping || self.jobs.waiting_bytes() < self.settings.max_buffered_bytes)
    }

    fn stop(&mut self) {
        if !std::mem::replace(&mut self.stopping, true) {
            self.intake.stop();
            for delivery in self.jobs.take_waiting() {
                self.release(delivery);
            }
        }
    }

    fn release(&mut self, delivery: Delivery) {
        let call = async move {
            let _ = delivery.settle(Settlement::Release).await;
            Answered::Released
        };
        self.calls.push(call.boxed());
    }

    fn take(&mut self, taken: Taken) {
        match taken {
            Taken::Broken => self.jobs.stream_ended(),
            // It was on its way when the stream was told to stop.
            Taken::Delivery(delivery) if self.stopping && !self.jobs.knows(&delivery) => self.release(delivery),
            Taken::Delivery(delivery) => {
                if let Some(due) = self.jobs.add(delivery, Instant::now() + self.settings.lease) {
                    self.settle(due);
                }
            }
        }
    }

    /// Starts handlers as long as there are places and messages.
    fn begin(&mut self) {
        while !self.stopping && self.handlers.len() < self.settings.concurrency as usize {
            let Some(delivery) = self.jobs.begin(Instant::now()) else {
                return;
            };
            let handle = self.handle.clone();
            let id = delivery.id();
            let handler = self.handlers.spawn({
                let id = id.clone();
                async move {
                    let handling = AssertUnwindSafe(async move { handle(delivery).await });
                    let outcome = handling.catch_unwind().await;
                    (id, outcome.unwrap_or_else(|panic| Err(panicked(&*panic))))
                }
            });
            self.running.insert(id, handler);
        }
    }

    fn finished(&mut self, ended: std::result::Result<Ended, JoinError>) {
        // One that was dropped has told nothing.
        let Ok((id, outcome)) = ended else { return };
        self.running.remove(&id);
        let how = match &outcome {
            Ok(()) => Settlement::Ack,
            Err(failed) => failed.then(),
        };
        let Some(due) = self.jobs.finished(&id, how) else {
            return;
        };
        match outcome {
            Ok(()) => _ = self.counts.succeeded.fetch_add(1, Ordering::Relaxed),
            Err(failed) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                self.tell(&due.delivery, &WorkerError::Handler(failed));
            }
        }
        self.settle(due);
    }

    /// Drops a handler that has run for too long; its message has failed.
    fn give_up(&mut self, delivery: &Delivery) {
        if let Some(handler) = self.running.remove(&delivery.id()) {
            handler.abort();
        }
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        self.tell(delivery, &WorkerError::LeaseCeiling);
        let nack = Settlement::Nack { delay: None };
        if let Some(due) = self.jobs.finished(&delivery.id(), nack) {
            self.settle(due);
        }
    }

    /// Hands a settlement over. No handler waits for its answer.
    fn settle(&mut self, due: Due) {
        let call = async move {
            let answer = due.delivery.settle(due.how).await;
            Answered::Settled(due, answer)
        };
        self.calls.push(call.boxed());
    }

    fn answered(&mut self, answered: Answered) {
        match answered {
            Answered::Released => {}
            Answered::Settled(due, answer) => match self.jobs.settled(due, answer, Instant::now()) {
                Afterwards::Nothing => {}
                Afterwards::Again(due) => self.settle(due),
                Afterwards::NotSettled(delivery, why) => self.not_settled(&delivery, why),
            },
            Answered::Extended { lease, until, answer } => {
                if let Some(error) = self.jobs.extended(&lease, until, answer) {
                    self.tell(&lease, &WorkerError::LeaseLost(error));
                }
            }
        }
    }

    fn keep_leases(&mut self) {
        let (now, lease) = (Instant::now(), self.settings.lease);
        let leases = self.jobs.leases(now, now + lease / 2, self.settings.max_lease);
        for delivery in leases.over_ceiling {
            self.give_up(&delivery);
        }
        for (delivery, why) in leases.not_settled {
            self.not_settled(&delivery, why);
        }
        for delivery in leases.to_extend {
            let call = async move {
                let until = Instant::now() + lease;
                let answer = delivery.extend(lease).await;
                Answered::Extended {
                    lease: delivery,
                    until,
                    answer,
                }
            };
            self.calls.push(call.boxed());
        }
    }

    fn not_settled(&mut self, delivery: &Delivery, why: Error) {
        self.counts.not_settled.fetch_add(1, Ordering::Relaxed);
        if self.stopping {
            self.left.push(delivery.id());
        }
        self.tell(delivery, &WorkerError::NotSettled(why));
    }

    fn tell(&self, delivery: &Delivery, error: &WorkerError) {
        if let Some(call) = &self.settings.on_error {
            call(delivery, error);
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Failed {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Failed::new(format!("the handler panicked: {}", text.unwrap_or("without a text")))
}
