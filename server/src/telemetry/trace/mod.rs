//! Traces: what happens to a message between publisher and consumer, told to a collector over OTLP.
//!
//! - `context`: which trace something belongs to, as others write it.
//! - `tracer`: what is recorded, and the queue of spans that wait.
//! - `otlp`: the messages of the protocol.
//! - `export`: the task that hands spans to the collector.
//!
//! Where no collector is configured there is no [`Tracer`], and nothing of this costs more than to see that. What is recorded of
//! messages, and by whom, is in `service::observing`.

mod context;
mod export;
mod otlp;
mod span;
mod tracer;

pub use context::{TRACEPARENT, TRACESTATE, TraceContext};
pub use export::Exporter;
pub use span::{Operation, Span, Value};
pub use tracer::{TraceCounts, Tracer};
