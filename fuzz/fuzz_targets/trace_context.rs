//! `traceparent` and `tracestate` of messages and calls, with a line break between them.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "parts of it are for spans")]
#[path = "../../server/src/telemetry/trace/context.rs"]
mod context;

use context::TraceContext;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (parent, state) = match text.split_once('\n') {
        Some((parent, state)) => (parent, Some(state)),
        None => (text, None),
    };
    let Some(context) = TraceContext::read(parent, state) else { return };
    assert!(context.trace != 0 && context.span != 0);
    // What is passed on is read by others as it was meant.
    let written = context.to_string();
    let again = TraceContext::read(&written, context.state.as_deref()).expect("what was written");
    assert_eq!((again.trace, again.span, again.is_sampled()), (context.trace, context.span, context.is_sampled()));
    assert_eq!((again.to_string(), &again.state), (written, &context.state));
});
