//! Log lines on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, fmt};

use crate::config::{LogConfig, LogFormat};

/// Sends what is logged from now on to standard error. Standard output belongs to results.
///
/// # Errors
/// The process logs already.
pub fn start_logging(config: &LogConfig) -> Result<(), TryInitError> {
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match config.format {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    };
    tracing_subscriber::registry()
        .with(config.level.targets())
        .with(lines)
        .try_init()
}
