//! What the server tells about itself: log lines and numbers.

mod exposition;
mod filter;
mod logging;
mod metrics;

pub use exposition::Exposition;
pub use filter::{FilterError, LogFilter};
pub use logging::{LogHandle, start_logging};
pub use metrics::{Counter, DoorMetrics, Gauge};
