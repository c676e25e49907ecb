//! Log lines on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry, fmt};

use super::filter::LogFilter;
use crate::config::{LogConfig, LogFormat};

/// Changes what is logged. Clones are cheap.
#[derive(Debug, Clone)]
pub struct LogHandle(Handle<Targets, Registry>);

impl LogHandle {
    /// From now on this is logged.
    pub fn set_level(&self, level: &LogFilter) {
        // It fails only when nothing is logged any more.
        let _ = self.0.reload(level.targets());
    }
}

/// Sends what is logged from now on to standard error. Standard output belongs to results.
///
/// # Errors
/// The process logs already.
pub fn start_logging(config: &LogConfig) -> Result<LogHandle, TryInitError> {
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match config.format {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    };
    let (filter, handle) = reload::Layer::new(config.level.targets());
    tracing_subscriber::registry().with(filter).with(lines).try_init()?;
    Ok(LogHandle(handle))
}
