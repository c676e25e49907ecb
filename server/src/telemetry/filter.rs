//! Which log lines are written.

use std::str::FromStr;

use tracing_subscriber::filter::{LevelFilter, Targets};

/// Every crate of ours starts like this.
const OURS: &str = "boltq";
/// Warns of each heartbeat that does not arrive, several times a second and group while a node is down. The transport
/// says it once.
const REPETITIVE: &str = "openraft";

/// Levels by module, written as `info` or `info,boltq_raft=debug,h2=trace`.
///
/// A level alone is that of our own modules. Libraries are heard from `warn` on, and openraft from `error` on, unless they
/// are named: what they say at `debug` would bury what one is looking for.
#[derive(Debug, Clone)]
pub struct LogFilter(Targets);

/// The text is no filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} is neither a level (off, error, warn, info, debug, trace) nor module=level")]
pub struct FilterError {
    part: String,
}

impl LogFilter {
    pub(super) fn targets(&self) -> Targets {
        self.0.clone()
    }

    fn of_level(level: LevelFilter) -> Self {
        Self(
            Targets::new()
                .with_default(level.min(LevelFilter::WARN))
                .with_target(REPETITIVE, level.min(LevelFilter::ERROR))
                .with_target(OURS, level),
        )
    }
}

impl FromStr for LogFilter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut filter = Self::of_level(LevelFilter::INFO);
        let mut modules = Vec::new();
        for part in text.split(',').map(str::trim) {
            let error = || FilterError { part: part.to_owned() };
            match part.split_once('=') {
                None => filter = Self::of_level(level(part).ok_or_else(error)?),
                Some((module, word)) if !module.is_empty() => {
                    modules.push((module.to_owned(), level(word).ok_or_else(error)?));
                }
                Some(_) => return Err(error()),
            }
        }
        Ok(Self(filter.0.with_targets(modules)))
    }
}

/// Words only: the parser of the library also takes numbers, and the empty text for `error`.
fn level(word: &str) -> Option<LevelFilter> {
    match word {
        "off" => Some(LevelFilter::OFF),
        "error" => Some(LevelFilter::ERROR),
        "warn" => Some(LevelFilter::WARN),
        "info" => Some(LevelFilter::INFO),
        "debug" => Some(LevelFilter::DEBUG),
        "trace" => Some(LevelFilter::TRACE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    fn enables(filter: &str, target: &str, level: Level) -> bool {
        filter.parse::<LogFilter>().unwrap().0.would_enable(target, &level)
    }

    #[test]
    fn a_level_alone_is_for_our_modules_and_libraries_are_heard_from_warn_on() {
        assert!(enables("debug", "boltq_server::doors", Level::DEBUG));
        assert!(!enables("debug", "boltq_server::doors", Level::TRACE));
        assert!(!enables("debug", "h2::codec", Level::INFO));
        assert!(enables("debug", "h2::codec", Level::WARN));
        assert!(!enables("error", "h2::codec", Level::WARN));
        assert!(!enables("debug", "openraft::core::heartbeat::worker", Level::WARN));
        assert!(enables("debug", "openraft::core", Level::ERROR));
        assert!(!enables("off", "openraft::core", Level::ERROR));
    }

    #[test]
    fn a_named_module_has_its_own_level() {
        assert!(enables("warn,h2=trace,boltq_raft=debug", "h2::codec", Level::TRACE));
        assert!(enables("warn,h2=trace,boltq_raft=debug", "boltq_raft", Level::DEBUG));
        assert!(!enables("warn,h2=trace,boltq_raft=debug", "boltq_server", Level::INFO));
        assert!(enables("h2=off", "boltq_server", Level::INFO));
        assert!(enables("info,openraft=warn", "openraft::core", Level::WARN));
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "inof", "3", "INFO", "=info", "a=", "info,", "a=b=c"] {
            assert!(text.parse::<LogFilter>().is_err(), "{text}");
        }
    }
}
