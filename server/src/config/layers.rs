//! Gathering values from the file, the environment and the flags, and knowing where each came from.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::checked::Config;
use super::comments;
use super::document::Node;
use super::error::{ConfigError, Origin};
use super::flags::Flags;
use super::keys::{self, ALL, AnyKey, Key, OUTSIDE_FILES};
use super::kind::{Given, Kind};
use super::reload::{RELOADABLE, Values};
use super::unavailable::{self, FEATURES, Feature, OTHER_VARIABLES};

/// A checked configuration and what should be said about it.
#[derive(Debug)]
pub struct Loaded {
    /// What the server runs with.
    pub config: Config,
    /// Sentences for the log: things that are allowed but look like mistakes.
    pub warnings: Vec<String>,
    /// What is in effect and what it does, with the origin of each value; for people. Secrets are not in it.
    pub in_effect: String,
    /// The same by key, to see later what has changed.
    pub values: Values,
}

/// Reads the file named by the flags, then the environment, then the flags; later values win. An empty variable counts
/// as not set.
///
/// # Errors
/// See [`ConfigError`]: one sentence that says what to change.
pub fn load(flags: &Flags, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Loaded, ConfigError> {
    let mut settings = Settings::default();
    if let Some(path) = &flags.config {
        settings.add_file(path)?;
    }
    let mut warnings = settings.add_environment(environment)?;
    settings.add_flags(flags);
    settings.refuse_unavailable()?;
    let config = Config::check(&settings)?;
    warnings.extend(config.cluster.warnings(config.storage.mode));
    warnings.extend(config.security.warnings(config.cluster.enabled));
    Ok(Loaded {
        config,
        warnings,
        in_effect: settings.in_effect(),
        values: Values::of(&settings),
    })
}

/// What was given, by the full name of the key.
#[derive(Debug, Default)]
pub(super) struct Settings(BTreeMap<&'static str, (Given, Origin)>);

impl Settings {
    /// The value of a key, or its default.
    pub(super) fn get<K: Kind>(&self, key: &'static Key<K>) -> Result<K::Value, ConfigError>
    where
        Key<K>: AnyKey,
    {
        let default = Given::Json(key.kind.default_json());
        let given = self.0.get(key.name).map_or(&default, |(given, _)| given);
        key.kind.read(given).ok_or_else(|| self.refusal(key))
    }

    /// The error for a value that cannot be used.
    pub(super) fn refusal(&self, key: &'static dyn AnyKey) -> ConfigError {
        let origin = self.0.get(key.name()).map(|(_, origin)| origin.clone());
        ConfigError::Value {
            key: key.name(),
            value: self.shown(key),
            origin: origin.unwrap_or(Origin::Flag("default")),
            allowed: key.allowed(),
        }
    }

    /// The error for two values that do not go together.
    pub(super) fn contradiction(
        &self,
        key: &'static dyn AnyKey,
        other: &'static dyn AnyKey,
        rule: &'static str,
    ) -> ConfigError {
        ConfigError::Contradiction {
            key: key.name(),
            value: self.shown(key),
            other: other.name(),
            other_value: self.shown(other),
            rule,
        }
    }

    /// Whether a value was written.
    pub(super) fn has(&self, key: &'static dyn AnyKey) -> bool {
        self.0.contains_key(key.name())
    }

    /// The value that is in effect, as it is written.
    pub(super) fn given(&self, key: &dyn AnyKey) -> Given {
        let given = self.0.get(key.name()).map(|(given, _)| given.clone());
        given.unwrap_or_else(|| Given::Json(key.default_json()))
    }

    /// The value that is in effect, for people.
    fn shown(&self, key: &dyn AnyKey) -> String {
        match self.0.get(key.name()) {
            Some((given, _)) if key.secret() => given.masked(),
            Some((given, _)) => given.to_string(),
            None => key.default_json().to_string(),
        }
    }

    fn add_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        let root = serde_json::from_str(&comments::blank(&text)).map_err(|source| ConfigError::Json {
            path: path.to_owned(),
            source,
        })?;
        self.add_node(path, "", root)
    }

    /// Adds what is below `name`; the root of the file has no name.
    fn add_node(&mut self, path: &Path, name: &str, node: Node) -> Result<(), ConfigError> {
        if let Some(known) = known_names().find(|known| *known == name) {
            let value = node.into_value();
            if !value.is_null() {
                let origin = Origin::File(path.to_owned());
                self.0.insert(known, (Given::Json(value), origin));
            }
            return Ok(());
        }
        let below = if name.is_empty() {
            String::new()
        } else {
            format!("{name}.")
        };
        if !known_names().any(|known| known.starts_with(&below)) {
            return Err(ConfigError::UnknownKey {
                path: path.to_owned(),
                key: name.to_owned(),
                suggestion: closest(name, known_names()),
            });
        }
        match node {
            Node::Section(members) => members
                .into_iter()
                .try_for_each(|(member, node)| self.add_node(path, &format!("{below}{member}"), node)),
            Node::Value(value) if value.is_null() && !name.is_empty() => Ok(()),
            Node::Value(value) => Err(ConfigError::NotASection {
                path: path.to_owned(),
                section: if name.is_empty() { "the file" } else { name }.to_owned(),
                value: value.to_string(),
            }),
        }
    }

    /// Returns what should be said about variables that look like ours.
    fn add_environment(
        &mut self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Vec<String>, ConfigError> {
        let mut warnings = Vec::new();
        for (variable, value) in environment {
            // All of ours are text.
            let variable = variable.to_string_lossy();
            if value.is_empty() {
                continue;
            }
            if let Some((key, name)) = variables().find(|(_, name)| *name == variable) {
                let text = value.into_string();
                let text = text.map_err(|_| ConfigError::NotText { variable: name })?;
                self.0.insert(key, (Given::Text(text), Origin::Environment(name)));
            } else if variable.starts_with("BOLTQ_") && !OTHER_VARIABLES.contains(&&*variable) {
                let known = variables().map(|(_, name)| name);
                let meant = closest(&variable, known).map_or(String::new(), |name| format!("; did you mean {name}?"));
                warnings.push(format!("the variable {variable} is unknown and has no effect{meant}"));
            }
        }
        Ok(warnings)
    }

    fn add_flags(&mut self, flags: &Flags) {
        let given = [
            (keys::SERVER_HTTP_PORT.name, "--http-port", &flags.http_port),
            (keys::SERVER_TCP_PORT.name, "--tcp-port", &flags.tcp_port),
            (keys::STORAGE_DATA_DIR.name, "--data-dir", &flags.data_dir),
            (keys::STORAGE_MODE.name, "--storage-mode", &flags.storage_mode),
            (keys::JOIN_FLAG.name, "--join", &flags.join),
        ];
        for (key, flag, value) in given {
            if let Some(value) = value {
                self.0.insert(key, (Given::Text(value.clone()), Origin::Flag(flag)));
            }
        }
    }

    /// Whether a feature's own switch was written, and is off.
    fn switched_off(&self, feature: &Feature) -> bool {
        let given = feature.switch.and_then(|switch| self.0.get(switch));
        given.is_some_and(|(given, _)| given.boolean() == Some(false))
    }

    fn refuse_unavailable(&self) -> Result<(), ConfigError> {
        for feature in FEATURES.iter().filter(|feature| !self.switched_off(feature)) {
            for key in feature.keys {
                let Some((given, origin)) = self.0.get(key.0) else {
                    continue;
                };
                if !Feature::is_off(*key, given) {
                    return Err(ConfigError::Unavailable {
                        key: key.0,
                        value: if unavailable::SECRETS.contains(&key.0) {
                            given.masked()
                        } else {
                            given.to_string()
                        },
                        origin: origin.clone(),
                        feature: feature.name,
                        remedy: feature.remedy(*key),
                    });
                }
            }
        }
        Ok(())
    }

    fn in_effect(&self) -> String {
        let mut text = String::new();
        let others = OUTSIDE_FILES.iter().filter(|key| self.has(**key));
        for key in ALL.iter().chain(others) {
            let value = self.shown(*key);
            let given = self.0.get(key.name());
            let origin = given.map_or("default".to_owned(), |(_, origin)| origin.to_string());
            let reload = if RELOADABLE.contains(&key.name()) {
                " SIGHUP applies it."
            } else {
                ""
            };
            // Writing to a String does not fail.
            let _ = writeln!(text, "# {}{reload}\n{} = {value}  ({origin})", key.about(), key.name());
        }
        text
    }
}

/// All keys that a file may have.
fn known_names() -> impl Iterator<Item = &'static str> {
    let later = FEATURES.iter().flat_map(|feature| feature.keys).map(|key| key.0);
    ALL.iter().map(|key| key.name()).chain(later)
}

/// All keys that have a variable, and its name.
fn variables() -> impl Iterator<Item = (&'static str, &'static str)> {
    let now = ALL.iter().chain(OUTSIDE_FILES);
    let now = now.filter_map(|key| key.environment().map(|name| (key.name(), name)));
    let keys = FEATURES.iter().flat_map(|feature| feature.keys);
    let later = keys.filter_map(|key: &unavailable::Key| key.2.map(|name| (key.0, name)));
    now.chain(later)
}

/// The known name that a typing mistake could have started from.
fn closest(name: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    // A third of the letters wrong is another word.
    let limit = (name.chars().count() / 3).max(1);
    known
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .min()
        .filter(|(distance, _)| *distance <= limit)
        .map(|(_, candidate)| candidate)
}
