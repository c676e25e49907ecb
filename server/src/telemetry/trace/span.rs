//! What is told about one operation.

use std::sync::Arc;

use super::context::TraceContext;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Messages were taken from a publisher.
    Publish,
    /// A message was handed to a consumer.
    Deliver,
    /// What was delivered was acknowledged or failed.
    Settle,
}

impl Operation {
    /// As it is called in the name of the span.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Deliver => "deliver",
            Self::Settle => "settle",
        }
    }

    /// What the conventions for messaging call an operation of this kind.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Publish => "send",
            Self::Deliver => "receive",
            Self::Settle => "settle",
        }
    }
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A number.
    Number(i64),
}

/// One operation in a trace, from its start to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// What was done.
    pub operation: Operation,
    /// The queue, topic or exchange.
    pub destination: Arc<str>,
    /// The span itself.
    pub context: TraceContext,
    /// The span that it is part of.
    pub parent: Option<u64>,
    /// What it has to do with in other traces, or in its own.
    pub links: Vec<TraceContext>,
    /// Unix time in nanoseconds.
    pub start_ns: u64,
    /// Unix time in nanoseconds.
    pub end_ns: u64,
    /// What else is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed, if it did: a word, and a sentence.
    pub error: Option<(String, String)>,
}
