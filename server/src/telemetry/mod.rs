//! What the server tells about itself: log lines, numbers and traces.

mod exposition;
mod filter;
mod logging;
mod metrics;
pub mod trace;

pub use exposition::Exposition;
pub use filter::{FilterError, LogFilter};
pub use logging::{LogHandle, start_logging};
pub use metrics::{Counter, DoorMetrics, ForwardCounts, Gauge, Via};
