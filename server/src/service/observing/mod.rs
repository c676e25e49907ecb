//! What is measured of publishes, deliveries and settlements, and what is told of them in traces.
//!
//! Clocks are read once for a call of many messages, and figures are gathered there before they are added to those that all
//! share. Without a tracer, a trace costs a look at nothing.
//!
//! A message that has a trace context of its own keeps it: its publisher made it, and consumers look for it. One that has none
//! gets that of the span of its publish, so that what consumers do with it belongs to the same trace.
//!
//! - `publishes`: the spans of publishes, and what messages carry.
//! - `deliveries`: those of deliveries and settlements.

mod deliveries;
mod publishes;

use boltq_core::MessageId;
use boltq_core::histogram::{Distribution, Histogram, LATENCY, WORK};
use boltq_queue::Claim;
use tokio::time::Instant;

pub(super) use self::deliveries::Deliveries;
use self::publishes::{Carried, PublishSpans};
use super::error::ServiceError;
use super::queue::{Delivery, Queues};
use crate::clock;
use crate::telemetry::Via;
use crate::telemetry::trace::{TRACEPARENT, TRACESTATE, TraceContext, TraceCounts, Tracer, Value};

/// Nanoseconds of a millisecond, in which leases are counted.
const MILLI: u64 = 1_000_000;

/// How long things took on this node since its start.
#[derive(Debug)]
pub(super) struct Timings {
    publishes: [Histogram; Via::ALL.len()],
    waits: Histogram,
    holds: Histogram,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            publishes: std::array::from_fn(|_| Histogram::new(&LATENCY)),
            waits: Histogram::new(&LATENCY),
            holds: Histogram::new(&WORK),
        }
    }
}

/// What [`Queues::timings`] tells.
#[derive(Debug, Clone)]
pub struct QueueTimings {
    /// Publishes from when they were received until their answer that they are safe, by door.
    pub publishes: Vec<(Via, Distribution)>,
    /// Messages from when they were published, or due, until they were first handed to a consumer.
    pub waits: Distribution,
    /// Messages from when a consumer got them until it settled them.
    pub holds: Distribution,
    /// Syncs of the device.
    pub syncs: Distribution,
}

/// A publish that is watched from when it was received until it is answered.
#[derive(Debug)]
pub(super) struct Publishing {
    begun: Instant,
    via: Via,
    /// Only with a tracer.
    spans: Option<Box<PublishSpans>>,
}

impl Publishing {
    /// It was safe when it was answered: it counts among those by which a broker is judged.
    pub(super) fn stored(mut self, queues: &Queues, id: Option<MessageId>) {
        queues.inner.timings.publishes[self.via as usize].record_time(self.begun.elapsed());
        if let Some(spans) = self.spans.take() {
            spans.end(queues, id, None);
        }
    }

    /// It was answered in another way.
    pub(super) fn answered(mut self, queues: &Queues, outcome: Result<(), &ServiceError>) {
        if let Some(spans) = self.spans.take() {
            spans.end(queues, None, outcome.err());
        }
    }

    /// Says in which trace the call is that brings the messages.
    pub(super) fn called_in(&mut self, context: Option<TraceContext>) {
        if let Some(spans) = &mut self.spans {
            spans.called_in(context);
        }
    }

    /// What is to be added to the headers of the message that comes next.
    pub(super) fn carry<'h>(
        &mut self,
        destination: &str,
        headers: impl Iterator<Item = (&'h str, &'h str)>,
    ) -> Option<Carried<'_>> {
        self.spans.as_mut()?.carry(destination, headers)
    }
}

impl Queues {
    /// The same queues for a door.
    #[must_use]
    pub fn via(&self, via: Via) -> Self {
        Self { via, ..self.clone() }
    }

    /// How long things took on this node since its start.
    #[must_use]
    pub fn timings(&self) -> QueueTimings {
        let timings = &self.inner.timings;
        let publishes = Via::ALL.into_iter().zip(&timings.publishes);
        QueueTimings {
            publishes: publishes.map(|(via, times)| (via, times.get())).collect(),
            waits: timings.waits.get(),
            holds: timings.holds.get(),
            syncs: self.inner.log.syncs(),
        }
    }

    /// What became of spans, if there are any.
    #[must_use]
    pub fn trace_counts(&self) -> Option<&TraceCounts> {
        self.inner.tracer.as_ref().map(|tracer| &**tracer.counts())
    }

    /// Whether calls have to say in which trace they are.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.inner.tracer.is_some()
    }

    /// The time of day, for spans.
    fn unix_ns(&self) -> u64 {
        (self.inner.plane.sources().clock)().unix_ns()
    }

    /// Begins to watch a publish.
    pub(super) fn publishing(&self, received: clock::Instant) -> Publishing {
        let spans = |tracer: &Tracer| Box::new(PublishSpans::new(tracer.clone(), received.unix_ns()));
        Publishing {
            begun: Instant::now(),
            via: self.via,
            spans: self.inner.tracer.as_ref().map(spans),
        }
    }

    /// Counts how long messages have waited that are delivered at `now`.
    pub(super) fn count_waits(&self, deliveries: &[Delivery], now: clock::Instant) {
        let waits = &self.inner.timings.waits;
        let mut tally = waits.tally();
        // A message that comes again has been somewhere else meanwhile.
        for delivery in deliveries.iter().filter(|delivery| delivery.attempts == 0) {
            let record = &delivery.record;
            let due_ns = record.due.map_or(0, |due| due.0.saturating_mul(MILLI));
            tally.add(now.unix_ns().saturating_sub(record.published_ns.max(due_ns)));
        }
        waits.record_all(&tally);
    }

    /// Counts how long consumers have held messages that they settle.
    pub(super) fn count_holds(&self, claims: &[Claim]) {
        let holds = &self.inner.timings.holds;
        let mut tally = holds.tally();
        for held_ms in claims.iter().filter_map(|claim| claim.held_ms) {
            tally.add(held_ms.saturating_mul(MILLI));
        }
        holds.record_all(&tally);
    }
}

fn message_id(id: MessageId) -> (&'static str, Value) {
    ("messaging.message.id", Value::Text(id.to_string()))
}

/// The trace context among headers, as it is written there.
fn written<'h>(headers: impl Iterator<Item = (&'h str, &'h str)>) -> Option<(&'h str, Option<&'h str>)> {
    let (mut parent, mut state) = (None, None);
    for (key, value) in headers {
        match key {
            TRACEPARENT => parent = Some(value),
            TRACESTATE => state = Some(value),
            _ => {}
        }
    }
    Some((parent?, state))
}
