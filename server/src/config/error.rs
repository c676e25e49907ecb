//! Why the start was refused.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In the JSON file.
    File(PathBuf),
    /// In a variable of the environment.
    Environment(&'static str),
    /// On the command line.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// Everything that can be wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is not there, not readable or not text.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A variable of ours holds something that is no text.
    #[error("the variable {variable} is not UTF-8; nothing else can be read as it was meant")]
    NotText {
        /// Its name.
        variable: &'static str,
    },
    /// The file is no JSON, or gives a value twice.
    #[error("{}: not a valid configuration: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Why, with line and column.
        source: serde_json::Error,
    },
    /// A section is no object.
    #[error("{}: {section} has to be an object with keys in it, but is {value}", path.display())]
    NotASection {
        /// The file.
        path: PathBuf,
        /// `the file`, or the name of the section.
        section: String,
        /// What stands there.
        value: String,
    },
    /// No key has this name.
    #[error("{}: unknown key {key}{}", path.display(), hint(suggestion.as_deref()))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The name.
        key: String,
        /// The known key that is closest to it.
        suggestion: Option<&'static str>,
    },
    /// A key of a feature that this version does not have, with a value that switches it on.
    #[error("{key} = {value} (from {origin}): {feature} is not available in this version; {remedy}")]
    Unavailable {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// Where it was written.
        origin: Origin,
        /// What is missing.
        feature: &'static str,
        /// What to write instead.
        remedy: String,
    },
    /// A value of the wrong type or out of range.
    #[error("{key} = {value} (from {origin}): allowed is {allowed}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// Where it was written.
        origin: Origin,
        /// What may be written.
        allowed: String,
    },
    /// One of a list of objects that cannot be used.
    #[error("{key}, entry {}: {why}", index + 1)]
    Entry {
        /// The key.
        key: &'static str,
        /// Which, counted from 0.
        index: usize,
        /// What is wrong, and what to write.
        why: String,
    },
    /// Two values that contradict each other.
    #[error("{key} = {value} contradicts {other} = {other_value}: {rule}")]
    Contradiction {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// The other key.
        other: &'static str,
        /// Its value.
        other_value: String,
        /// What has to hold.
        rule: &'static str,
    },
}

fn hint(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(
        || "; docs/configuration.md lists all keys".to_owned(),
        |name| format!("; did you mean {name}?"),
    )
}
