//! W3C trace context: which trace something belongs to, as it is written in metadata and headers.
//!
//! `traceparent` is `00-<trace id>-<span id>-<flags>` in lower-case hexadecimal digits. `tracestate` belongs to others and is
//! passed on as it came.

use std::fmt;
use std::sync::Arc;

/// Name of the header, and of the metadata, that names the trace.
pub const TRACEPARENT: &str = "traceparent";
/// Name of the one that others may put something into.
pub const TRACESTATE: &str = "tracestate";

/// Longer ones are not passed on; the standard asks for this much.
const STATE_BYTES_MAX: usize = 512;
/// Of version 00, and of what later versions begin with.
const PARENT_BYTES: usize = 55;
/// The trace is recorded.
const SAMPLED: u8 = 1;

/// A place in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// Never zero.
    pub trace: u128,
    /// Never zero.
    pub span: u64,
    flags: u8,
    /// What others have put there.
    pub state: Option<Arc<str>>,
}

impl TraceContext {
    /// The beginning of a trace that is recorded.
    pub(super) fn root(trace: u128, span: u64) -> Self {
        Self {
            trace,
            span,
            flags: SAMPLED,
            state: None,
        }
    }

    /// What a `traceparent` and a `tracestate` say. Nothing if the first is no such thing: the trace ends there then. Of a
    /// version that is not known yet, what all versions have is read.
    #[must_use]
    pub fn read(parent: &str, state: Option<&str>) -> Option<Self> {
        let text = parent.as_bytes();
        let version = u8::try_from(digits(text.get(..2)?)?).ok()?;
        let whole = match version {
            0xff => false,
            0 => text.len() == PARENT_BYTES,
            _ => text.get(PARENT_BYTES).is_none_or(|next| *next == b'-'),
        };
        let dashes = [2, 35, 52].iter().all(|at| text.get(*at) == Some(&b'-'));
        if !whole || !dashes {
            return None;
        }
        let trace = digits(text.get(3..35)?)?;
        let span = u64::try_from(digits(text.get(36..52)?)?).ok()?;
        let flags = u8::try_from(digits(text.get(53..PARENT_BYTES)?)?).ok()?;
        let state = state.filter(|state| {
            let printed = state.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            !state.is_empty() && state.len() <= STATE_BYTES_MAX && printed
        });
        (trace != 0 && span != 0).then(|| Self {
            trace,
            span,
            flags,
            state: state.map(Arc::from),
        })
    }

    /// Whether who began the trace wants it to be recorded.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Another span of the same trace.
    pub(super) fn with_span(&self, span: u64) -> Self {
        Self { span, ..self.clone() }
    }

    /// For OTLP.
    pub(super) fn flags(&self) -> u32 {
        u32::from(self.flags)
    }
}

/// The `traceparent`. Flags that are not known are passed on as zeros, as the standard asks.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, flags, .. } = self;
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", flags & SAMPLED)
    }
}

/// A number in lower-case hexadecimal digits and nothing else.
fn digits(text: &[u8]) -> Option<u128> {
    text.iter().try_fold(0, |number: u128, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn what_is_read_is_written_the_same_again() {
        let context = TraceContext::read(PARENT, Some("a=1,b=2")).unwrap();
        assert_eq!(context.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.span, 0x00f0_67aa_0ba9_02b7);
        assert!(context.is_sampled());
        assert_eq!(context.state.as_deref(), Some("a=1,b=2"));
        assert_eq!(context.to_string(), PARENT);
        assert_eq!(context.with_span(9).trace, context.trace);
        let unsampled = TraceContext::read(&PARENT.replace("-01", "-00"), None).unwrap();
        assert!(!unsampled.is_sampled());
    }

    #[test]
    fn later_versions_are_read_as_far_as_they_are_known() {
        for later in ["01", "fe"] {
            let parent = PARENT.replacen("00", later, 1);
            let known = TraceContext::read(PARENT, None);
            assert_eq!(TraceContext::read(&parent, None), known);
            assert_eq!(TraceContext::read(&format!("{parent}-more"), None), known);
            assert_eq!(TraceContext::read(&format!("{parent}more"), None), None);
        }
        assert!(
            TraceContext::read(&PARENT.replace("-01", "-fb"), None).is_some_and(|context| {
                // Only the flag that is known.
                context.is_sampled() && context.to_string() == PARENT
            })
        );
    }

    #[test]
    fn other_text_is_no_context() {
        let zero_trace = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        let zero_span = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16));
        for wrong in [
            "",
            "00",
            &PARENT[..54],
            &format!("{PARENT}-"),
            &PARENT.to_uppercase(),
            &PARENT.replacen("00-", "ff-", 1),
            &PARENT.replace('-', "_"),
            &PARENT.replace("4bf9", "4bg9"),
            &zero_trace,
            &zero_span,
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0\u{e9}",
        ] {
            assert_eq!(TraceContext::read(wrong, None), None, "{wrong}");
        }
    }

    #[test]
    fn a_state_that_cannot_be_passed_on_is_left_out() {
        for state in [String::new(), "x".repeat(513), "a=\n".to_owned(), "\u{e9}".to_owned()] {
            let context = TraceContext::read(PARENT, Some(&state)).unwrap();
            assert_eq!(context.state, None, "{state:?}");
        }
        let longest = "x".repeat(512);
        let context = TraceContext::read(PARENT, Some(&longest)).unwrap();
        assert_eq!(context.state.as_deref(), Some(longest.as_str()));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(parent in ".*", state in ".*") {
            if let Some(context) = TraceContext::read(&parent, Some(&state)) {
                let again = TraceContext::read(&context.to_string(), context.state.as_deref()).unwrap();
                prop_assert_eq!((again.trace, again.span), (context.trace, context.span));
            }
        }

        #[test]
        fn every_context_is_read(trace in 1u128.., span in 1u64.., flags: u8) {
            let context = TraceContext::read(&format!("00-{trace:032x}-{span:016x}-{flags:02x}"), None).unwrap();
            prop_assert_eq!((context.trace, context.span), (trace, span));
            prop_assert_eq!(context.is_sampled(), flags & 1 == 1);
        }
    }
}
