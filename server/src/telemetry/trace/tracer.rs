//! Which operations are recorded, and where their spans go.
//!
//! Whoever has done something puts its span into a queue of bounded length and goes on. If the collector does not take them as
//! fast, or not at all, the queue is full, and spans are dropped and counted.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::context::TraceContext;
use super::span::{Operation, Span};
use crate::clock::random;
use crate::telemetry::Counter;

/// Spans that may wait for the collector. One has about 300 bytes.
pub(super) const WAITING_MAX: usize = 4_096;

/// What became of spans.
#[derive(Debug, Default)]
pub struct TraceCounts {
    /// The collector has them.
    pub exported: Counter,
    /// They were given up: too many waited, or the collector refused them.
    pub dropped: Counter,
}

/// Makes spans and hands them on; clones are cheap and share the queue.
#[derive(Debug, Clone)]
pub struct Tracer {
    spans: mpsc::Sender<Span>,
    /// A trace that begins here is recorded if the lower 63 bits of its id are below it.
    below: u64,
    counts: Arc<TraceCounts>,
}

impl Tracer {
    /// Records this part of the traces that begin here; from 0 to 1. What others have begun is recorded if they want it to be.
    pub(super) fn new(ratio: f64) -> (Self, mpsc::Receiver<Span>) {
        let (spans, receiver) = mpsc::channel(WAITING_MAX);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 2^63")]
        let below = (ratio.clamp(0.0, 1.0) * (1u64 << 63) as f64) as u64;
        let counts = Arc::default();
        (Self { spans, below, counts }, receiver)
    }

    /// What became of spans so far.
    #[must_use]
    pub fn counts(&self) -> &Arc<TraceCounts> {
        &self.counts
    }

    /// A span that begins a trace, if this one is to be recorded.
    #[must_use]
    pub fn root(&self, operation: Operation, destination: &str, start_ns: u64) -> Option<Span> {
        let low = random();
        if low & (u64::MAX >> 1) >= self.below {
            return None;
        }
        // Not zero, whatever chance gives.
        let trace = u128::from(random()) << 64 | u128::from(low.max(1));
        let context = TraceContext::root(trace, span_id());
        Some(span(operation, destination, context, None, start_ns))
    }

    /// A span within a trace, if that is recorded.
    #[must_use]
    pub fn child(&self, operation: Operation, destination: &str, parent: &TraceContext, start_ns: u64) -> Option<Span> {
        let context = parent.is_sampled().then(|| parent.with_span(span_id()))?;
        Some(span(operation, destination, context, Some(parent.span), start_ns))
    }

    /// Hands on a span whose end has come.
    pub fn end(&self, span: Span, end_ns: u64) {
        // A clock that was put back is no reason for a span that ends before it begins.
        let end_ns = end_ns.max(span.start_ns);
        if self.spans.try_send(Span { end_ns, ..span }).is_err() {
            self.counts.dropped.increment();
        }
    }
}

fn span(operation: Operation, destination: &str, context: TraceContext, parent: Option<u64>, start_ns: u64) -> Span {
    Span {
        operation,
        destination: destination.into(),
        context,
        parent,
        links: Vec::new(),
        start_ns,
        end_ns: start_ns,
        attributes: Vec::new(),
        error: None,
    }
}

fn span_id() -> u64 {
    random().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(tracer: &Tracer) -> usize {
        let root = |_: &i32| tracer.root(Operation::Publish, "q", 7).is_some();
        (0..1_000).filter(root).count()
    }

    #[test]
    fn a_part_of_the_traces_that_begin_here_is_recorded() {
        assert_eq!(roots(&Tracer::new(0.0).0), 0);
        assert_eq!(roots(&Tracer::new(1.0).0), 1_000);
        // The chance that it is otherwise is below one in a million millions.
        let some = roots(&Tracer::new(0.5).0);
        assert!((380..620).contains(&some), "{some}");
    }

    #[test]
    fn what_others_have_begun_is_recorded_if_they_want_it_to_be() {
        let (tracer, _spans) = Tracer::new(0.0);
        let sampled = TraceContext::root(5, 6);
        let span = tracer.child(Operation::Deliver, "q", &sampled, 7).unwrap();
        assert_eq!((span.context.trace, span.parent, span.start_ns), (5, Some(6), 7));
        assert_ne!(span.context.span, 6);
        let unsampled = TraceContext::read(&sampled.to_string().replace("-01", "-00"), None).unwrap();
        assert_eq!(tracer.child(Operation::Deliver, "q", &unsampled, 7), None);
    }

    #[tokio::test]
    async fn what_does_not_fit_is_dropped_and_counted() {
        let (tracer, mut spans) = Tracer::new(1.0);
        let span = tracer.root(Operation::Publish, "q", 7).unwrap();
        for _ in 0..WAITING_MAX + 3 {
            tracer.end(span.clone(), 6);
        }
        assert_eq!(tracer.counts().dropped.get(), 3);
        let first = spans.recv().await.unwrap();
        assert_eq!(
            (first.start_ns, first.end_ns),
            (7, 7),
            "it does not end before it begins"
        );
    }
}
