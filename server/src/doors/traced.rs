//! In which trace a call is.

use http::HeaderMap;

use crate::service::Queues;
use crate::telemetry::trace::{TRACEPARENT, TRACESTATE, TraceContext};

/// What a client says with its call; nothing is looked at if nobody is told of traces.
pub(super) fn context(queues: &Queues, headers: &HeaderMap) -> Option<TraceContext> {
    if !queues.is_traced() {
        return None;
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    TraceContext::read(text(TRACEPARENT)?, text(TRACESTATE))
}
