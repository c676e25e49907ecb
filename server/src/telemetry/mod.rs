//! What the server tells about itself: log lines and numbers.

mod exposition;
mod filter;
mod logging;
mod metrics;
mod process;

pub use exposition::Exposition;
pub use filter::{FilterError, LogFilter};
pub use logging::start_logging;
pub use metrics::{Counter, DoorMetrics, Gauge};
pub use process::ProcessFigures;
