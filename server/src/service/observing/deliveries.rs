//! The spans of deliveries and settlements.

use std::collections::BTreeMap;
use std::sync::Arc;

use boltq_core::Record;
use boltq_queue::{Claim, Place, QueueId};
use parking_lot::Mutex;

use super::{message_id, written};
use crate::service::error::ServiceError;
use crate::service::queue::{Delivery, Queues};
use crate::telemetry::trace::{Operation, Span, TraceContext, Tracer, Value};

/// Deliveries whose settlement is told of in their trace. Those that came first are given up.
const DELIVERIES_MAX: usize = 65_536;

/// What was delivered and is recorded, until it is settled.
#[derive(Debug, Default)]
pub(in crate::service) struct Deliveries(Mutex<Remembered>);

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
pub(in crate::service) struct Settling {
    tracer: Tracer,
    spans: Vec<Span>,
}

impl Settling {
    /// They came to their end; with the sentence that says why they did not come to a good one.
    pub(in crate::service) fn end(self, queues: &Queues, error: Option<&ServiceError>) {
        let end_ns = queues.unix_ns();
        for mut span in self.spans {
            span.error = error.map(|error| (error.reason().to_owned(), error.to_string()));
            self.tracer.end(span, end_ns);
        }
    }
}

impl Queues {
    /// When a look for messages begins, if anybody wants to know.
    pub(in crate::service) fn look_begins(&self) -> Option<u64> {
        self.inner.tracer.as_ref().map(|_| self.unix_ns())
    }

    /// Tells of deliveries in the traces of their messages.
    pub(in crate::service) fn trace_deliveries(&self, queue: QueueId, deliveries: &[Delivery], begun_ns: u64) {
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
    pub(in crate::service) fn trace_settling<'c>(
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

fn context_of(record: &Record) -> Option<TraceContext> {
    let (parent, state) = written(record.headers())?;
    TraceContext::read(parent, state)
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
