//! The spans of publishes, and the trace contexts that messages get from them.

use boltq_core::MessageId;

use super::{message_id, written};
use crate::service::error::ServiceError;
use crate::service::queue::Queues;
use crate::telemetry::trace::{Operation, Span, TRACEPARENT, TRACESTATE, TraceContext, Tracer, Value};

/// The spans of messages that are published together: one for each that has a context of its own, and one for neighbours
/// without, which go to the same place.
#[derive(Debug)]
pub(super) struct PublishSpans {
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
pub(in crate::service) struct Carried<'a> {
    parent: &'a str,
    state: Option<&'a str>,
}

impl<'a> Carried<'a> {
    /// The headers of the message with those that it gets.
    pub(in crate::service) fn with<'h: 'a>(
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
    pub(super) fn new(tracer: Tracer, received_ns: u64) -> Self {
        Self {
            tracer,
            received_ns,
            caller: None,
            own: Vec::new(),
            shared: Vec::new(),
        }
    }

    /// The call that brings the messages is part of a trace.
    pub(super) fn called_in(&mut self, caller: Option<TraceContext>) {
        self.caller = caller;
    }

    /// What is to be added to the headers of the message that comes next.
    pub(super) fn carry<'h>(
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

    /// The publish was answered.
    pub(super) fn end(self, queues: &Queues, id: Option<MessageId>, error: Option<&ServiceError>) {
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
