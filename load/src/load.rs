//! A load that runs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::driver::{Driver, LoadError};
use crate::figures::{Counts, Shared, Waits};
use crate::plan::Plan;
use crate::report::{Measured, Report};
use crate::timetable::{self, Timetable};
use crate::workers::{Pace, Publishing, consume};

/// How long the answers to what was sent last may take.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Publishers and consumers at work. They end when this is dropped.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    publishers: JoinSet<Result<(), LoadError>>,
    consumers: JoinSet<Result<(), LoadError>>,
    publish_waits: Vec<Arc<Waits>>,
    delivery_waits: Vec<Arc<Waits>>,
    payload_bytes: usize,
    consumed: bool,
    measured_since: Instant,
    counted_before: Counts,
}

impl Load {
    /// Opens all connections, the consumers' first, and then starts the load. What is counted counts from here, or from
    /// [`Load::measure`].
    ///
    /// # Errors
    /// A connection cannot be opened.
    pub async fn start(driver: &impl Driver, plan: &Plan) -> Result<Self, LoadError> {
        let shared = Arc::new(Shared::new(plan.publishers));
        let (publish_waits, delivery_waits) = (waits(plan.publishers)?, waits(plan.consumers)?);

        let mut consumers = JoinSet::new();
        let batch = u32::try_from(plan.batch.messages).unwrap_or(u32::MAX);
        for waits in &delivery_waits {
            let consumer = driver.consumer(&plan.batch.queue, plan.in_flight, batch).await?;
            consumers.spawn(consume(consumer, Arc::clone(&shared), Arc::clone(waits)));
        }
        let mut connected = Vec::with_capacity(plan.publishers);
        for _ in 0..plan.publishers {
            connected.push(driver.publisher(&plan.batch).await?);
        }

        let measured_since = Instant::now();
        let mut paces = paces(plan, &shared)?.into_iter();
        let mut publishers = JoinSet::new();
        for (number, (publisher, waits)) in connected.into_iter().zip(&publish_waits).enumerate() {
            let Some(pace) = paces.next() else { break };
            let publishing = Publishing {
                shared: Arc::clone(&shared),
                waits: Arc::clone(waits),
                number,
                pace,
                messages: plan.batch.messages as u64,
                outstanding: plan.outstanding,
                consumed: plan.consumers > 0,
                unanswered: VecDeque::with_capacity(plan.outstanding),
            };
            publishers.spawn(publishing.run(publisher));
        }
        Ok(Self {
            shared,
            publishers,
            consumers,
            publish_waits,
            delivery_waits,
            payload_bytes: plan.batch.payload_bytes,
            consumed: plan.consumers > 0,
            measured_since,
            counted_before: Counts::default(),
        })
    }

    /// Forgets what was counted and measured until now: the warm-up is over.
    pub fn measure(&mut self) {
        let all = self.publish_waits.iter().chain(&self.delivery_waits);
        all.for_each(|waits| waits.forget());
        self.shared.forget_reasons();
        self.counted_before = self.shared.counts();
        self.measured_since = Instant::now();
    }

    /// Totals since the start, the warm-up included.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Waits for ever, unless a worker fails.
    pub async fn failed(&mut self) -> LoadError {
        loop {
            let ended = tokio::select! {
                Some(ended) = self.publishers.join_next() => ended,
                Some(ended) = self.consumers.join_next() => ended,
                else => std::future::pending().await,
            };
            if let Err(error) = flatten(ended) {
                return error;
            }
        }
    }

    /// What was measured until now.
    ///
    /// # Errors
    /// The histograms have no room, which needs more messages than there are.
    pub fn report(&self) -> Result<Report, LoadError> {
        let Counts {
            published,
            delivered,
            settled,
            failed,
        } = self.shared.counts();
        let before = self.counted_before;
        Report::of(&Measured {
            elapsed: self.measured_since.elapsed(),
            counts: Counts {
                published: published - before.published,
                delivered: delivered - before.delivered,
                settled: settled - before.settled,
                failed: failed - before.failed,
            },
            payload_bytes: self.payload_bytes,
            consumed: self.consumed,
            publish_waits: &self.publish_waits,
            delivery_waits: &self.delivery_waits,
            reasons: self.shared.reasons(),
        })
    }

    /// Sends nothing more, waits up to 5 s for the answers to what was sent, and ends everything. What was delivered and is not
    /// settled by then goes back to its queue.
    pub async fn stop(mut self) {
        self.shared.stop();
        let last_answers = async { while self.publishers.join_next().await.is_some() {} };
        // Who has no answer by then gets none; the report says what was answered.
        let _ = timeout(LAST_ANSWERS, last_answers).await;
        self.publishers.shutdown().await;
        self.consumers.shutdown().await;
    }
}

impl Drop for Load {
    /// The thread of a timetable looks at this.
    fn drop(&mut self) {
        self.shared.stop();
    }
}

fn waits(workers: usize) -> Result<Vec<Arc<Waits>>, LoadError> {
    (0..workers).map(|_| Waits::new().map(Arc::new)).collect()
}

/// One for each publisher; their time begins now.
fn paces(plan: &Plan, shared: &Arc<Shared>) -> Result<Vec<Pace>, LoadError> {
    let Some(messages_per_second) = plan.rate else {
        let backlog = plan.backlog.filter(|_| plan.consumers > 0);
        return Ok((0..plan.publishers).map(|_| Pace::Closed { backlog }).collect());
    };
    let batches_per_second = messages_per_second / plan.batch.messages as f64;
    let timetables = Timetable::all(Instant::now(), plan.publishers, batches_per_second);
    timetable::ring(timetables.clone(), Arc::clone(shared))?;
    Ok(timetables.into_iter().map(Pace::Open).collect())
}

fn flatten(ended: Result<Result<(), LoadError>, JoinError>) -> Result<(), LoadError> {
    ended?
}
