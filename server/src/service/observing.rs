//! What is measured of publishes, deliveries and settlements, and what is told of them in traces.
//!
//! Clocks are read once for a call of many messages, and figures are gathered there before they are added to those that all
//! share. Without a tracer, a trace costs a look at nothing.
//!
//! A message that has a trace context of its own keeps it: its publisher made it, and consumers look for it. One that has none
//! gets that of the span of its publish, so that what consumers do with it belongs to the same trace.

use std::collections::BTreeMap;
use std::sync::Arc;

use boltq_core::histogram::{Distribution, Histogram, LATENCY, WORK};
use boltq_core::{MessageId, Record};
use boltq_queue::{Claim, Place, QueueId};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::error::ServiceError;
use super::queue::{Delivery, Queues};
use crate::clock;
use crate::telemetry::Via;
use crate::telemetry::trace::{Operation, Span, TRACEPARENT, TRACESTATE, TraceContext, TraceCounts, Tracer, Value};

/// Deliveries whose settlement is told of in their trace. Those that came first are given up.
const DELIVERIES_MAX: usize = 65_536;
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
            spans.caller = context;
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

/// The spans of messages that are published together: one for each that has a context of its own, and one for neighbours
/// without, which go to the same place.
#[derive(Debug)]
struct PublishSpans {
    tracer: Tracer,
    received_ns: u64,
    /// Of the call.
    caller: Option<TraceContext>,
    own: Vec<Span>,
    shared: Vec<Shared>,
}

/// What messages without a context have in common.
#[derive(Debug)]
struct Shared {
    destination: String,
    messages: i64,
    /// None: the trace is not recorded.
    span: Option<Span>,
    /// What they carry from then on, if anything.
    carried: Option<(String, TraceContext)>,
}

/// The trace context that a message gets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Carried<'a> {
    parent: &'a str,
    state: Option<&'a str>,
}

impl<'a> Carried<'a> {
    /// The headers of the message with those that it gets.
    pub(super) fn with<'h: 'a>(
        self,
        headers: impl Iterator<Item = (&'h str, &'h str)>,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let state = self.state.map(|state| (TRACESTATE, state));
        #[allow(clippy::map_identity, reason = "those of the message may live longer")]
        let own = headers.map(|(key, value)| (key, value));
        own.chain([(TRACEPARENT, self.parent)]).chain(state)
    }
}

impl PublishSpans {
    fn carry<'h>(
        &mut self,
        destination: &str,
        headers: impl Iterator<Item = (&'h str, &'h str)>,
    ) -> Option<Carried<'_>> {
        if let Some((parent, state)) = written(headers) {
            let context = TraceContext::read(parent, state)?;
            let span = self
                .tracer
                .child(Operation::Publish, destination, &context, self.received_ns);
            self.own.extend(span);
            return None;
        }
        if self.shared.last().is_none_or(|last| last.destination != destination) {
            let shared = self.share(destination);
            self.shared.push(shared);
        }
        let last = self.shared.last_mut()?;
        last.messages += 1;
        let (parent, context) = last.carried.as_ref()?;
        Some(Carried {
            parent,
            state: context.state.as_deref(),
        })
    }

    fn share(&self, destination: &str) -> Shared {
        let (operation, start_ns) = (Operation::Publish, self.received_ns);
        let span = match &self.caller {
            Some(caller) => self.tracer.child(operation, destination, caller, start_ns),
            None => self.tracer.root(operation, destination, start_ns),
        };
        // That a caller's trace is not recorded is passed on, too.
        let context = span.as_ref().map(|span| &span.context).or(self.caller.as_ref());
        Shared {
            destination: destination.to_owned(),
            messages: 0,
            carried: context.map(|context| (context.to_string(), context.clone())),
            span,
        }
    }

    fn end(self, queues: &Queues, id: Option<MessageId>, error: Option<&ServiceError>) {
        let end_ns = queues.unix_ns();
        let shared = self.shared.into_iter().filter_map(|shared| {
            let mut span = shared.span?;
            let count = Value::Number(shared.messages);
            span.attributes.push(("messaging.batch.message_count", count));
            Some(span)
        });
        let mut spans: Vec<Span> = self.own.into_iter().chain(shared).collect();
        if let (Some(id), [span]) = (id, spans.as_mut_slice()) {
            span.attributes.push(message_id(id));
        }
        for mut span in spans {
            span.error = error.map(|error| (error.reason().to_owned(), error.to_string()));
            self.tracer.end(span, end_ns);
        }
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

fn context_of(record: &Record) -> Option<TraceContext> {
    let (parent, state) = written(record.headers())?;
    TraceContext::read(parent, state)
}

/// What was delivered and is recorded, until it is settled.
#[derive(Debug, Default)]
pub(super) struct Deliveries(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    /// With the number of the delivery.
    by_place: BTreeMap<Place, (u64, TraceContext, Arc<str>)>,
    in_order: BTreeMap<u64, Place>,
    next: u64,
}

impl Deliveries {
    fn remember(&self, place: Place, context: TraceContext, queue: Arc<str>) {
        let remembered = &mut *self.0.lock();
        let number = remembered.next;
        remembered.next += 1;
        if let Some((before, ..)) = remembered.by_place.insert(place, (number, context, queue)) {
            remembered.in_order.remove(&before);
        }
        remembered.in_order.insert(number, place);
        if remembered.by_place.len() > DELIVERIES_MAX
            && let Some((_, first)) = remembered.in_order.pop_first()
        {
            remembered.by_place.remove(&first);
        }
    }

    fn take(&self, place: Place) -> Option<(TraceContext, Arc<str>)> {
        let remembered = &mut *self.0.lock();
        let (number, context, queue) = remembered.by_place.remove(&place)?;
        remembered.in_order.remove(&number);
        Some((context, queue))
    }
}

/// Settlements that are on their way, as their traces tell.
pub(super) struct Settling {
    tracer: Tracer,
    spans: Vec<Span>,
}

impl Settling {
    /// They came to their end; with the sentence that says why they did not come to a good one.
    pub(super) fn end(self, queues: &Queues, error: Option<&ServiceError>) {
        let end_ns = queues.unix_ns();
        for mut span in self.spans {
            span.error = error.map(|error| (error.reason().to_owned(), error.to_string()));
            self.tracer.end(span, end_ns);
        }
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
        let spans = |tracer: &Tracer| {
            Box::new(PublishSpans {
                tracer: tracer.clone(),
                received_ns: received.unix_ns(),
                caller: None,
                own: Vec::new(),
                shared: Vec::new(),
            })
        };
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

    /// When a look for messages begins, if anybody wants to know.
    pub(super) fn look_begins(&self) -> Option<u64> {
        self.inner.tracer.as_ref().map(|_| self.unix_ns())
    }

    /// Tells of deliveries in the traces of their messages.
    pub(super) fn trace_deliveries(&self, queue: QueueId, deliveries: &[Delivery], begun_ns: u64) {
        let Some(tracer) = &self.inner.tracer else { return };
        let contexts = deliveries.iter().filter_map(|delivery| {
            let context = context_of(&delivery.record).filter(TraceContext::is_sampled);
            Some((delivery, context?))
        });
        let mut contexts = contexts.peekable();
        if contexts.peek().is_none() {
            return;
        }
        let name = self
            .inner
            .plane
            .with(|plane| plane.queue_name(queue).map(Arc::<str>::from));
        let (Some(name), end_ns) = (name, self.unix_ns()) else {
            return;
        };
        for (delivery, context) in contexts {
            let Some(mut span) = tracer.child(Operation::Deliver, &name, &context, begun_ns) else {
                continue;
            };
            span.attributes.push(message_id(delivery.id));
            let attempt = Value::Number(i64::from(delivery.attempts) + 1);
            span.attributes.push(("boltq.delivery.attempt", attempt));
            span.links.push(context);
            let place = delivery.token.place;
            self.inner
                .deliveries
                .remember(place, span.context.clone(), name.clone());
            tracer.end(span, end_ns);
        }
    }

    /// Begins to tell of settlements in the traces of their messages.
    pub(super) fn trace_settling<'c>(
        &self,
        how: &'static str,
        claims: impl Iterator<Item = &'c Claim>,
    ) -> Option<Settling> {
        let tracer = self.inner.tracer.as_ref()?;
        let start_ns = self.unix_ns();
        let spans = claims.filter_map(|claim| {
            let (delivery, queue) = self.inner.deliveries.take(claim.place)?;
            let mut span = tracer.child(Operation::Settle, &queue, &delivery, start_ns)?;
            let outcome = Value::Text(how.to_owned());
            span.attributes.push(("boltq.settlement", outcome));
            Some(span)
        });
        let spans: Vec<_> = spans.collect();
        (!spans.is_empty()).then(|| Settling {
            tracer: tracer.clone(),
            spans,
        })
    }
}

#[cfg(test)]
mod tests {
    use boltq_core::{Seq, StreamId};

    use super::*;

    fn place(seq: u64) -> Place {
        Place {
            stream: StreamId(16),
            seq: Seq(seq),
        }
    }

    fn context(span: u64) -> TraceContext {
        TraceContext::read(&format!("00-{:032x}-{span:016x}-01", 7), None).unwrap()
    }

    #[test]
    fn deliveries_are_remembered_until_they_are_settled_or_too_many() {
        let deliveries = Deliveries::default();
        let queue: Arc<str> = "q".into();
        deliveries.remember(place(1), context(1), queue.clone());
        deliveries.remember(place(1), context(2), queue.clone());
        let (again, _) = deliveries.take(place(1)).unwrap();
        assert_eq!(again.span, 2, "the last delivery counts");
        assert!(deliveries.take(place(1)).is_none());
        let max = DELIVERIES_MAX as u64;
        for seq in 1..=max + 2 {
            deliveries.remember(place(seq), context(seq), queue.clone());
        }
        assert!(deliveries.take(place(2)).is_none());
        assert!(deliveries.take(place(3)).is_some());
        assert!(deliveries.take(place(max + 2)).is_some());
        let remembered = deliveries.0.lock();
        assert_eq!(remembered.by_place.len(), remembered.in_order.len());
    }
}
