//! What can change while the server runs.

use std::collections::BTreeMap;
use std::fmt;

use super::keys::ALL;
use super::kind::Given;
use super::layers::Settings;

/// Keys that SIGHUP applies. All others need a restart. The tests compare this with `docs/configuration.md`.
pub const RELOADABLE: [&str; 11] = [
    "log.level",
    "security.api_key",
    "security.auth_failures_per_minute",
    "security.keys",
    "server.auth_attempts_max",
    "server.auth_timeout",
    "server.max_frame_bytes_before_auth",
    "server.tls.ca_file",
    "server.tls.cert_file",
    "server.tls.client_auth",
    "server.tls.key_file",
];

/// Values by key, as they are written. Some are secret, so that its `Debug` shows none.
#[derive(Clone, Default)]
pub struct Values(BTreeMap<&'static str, Given>);

impl Values {
    pub(super) fn of(settings: &Settings) -> Self {
        Self(ALL.iter().map(|key| (key.name(), settings.given(*key))).collect())
    }

    /// Keys whose values are others in `new`.
    #[must_use]
    pub fn changed(&self, new: &Self) -> Vec<&'static str> {
        let differs = |key: &&str| self.0.get(*key) != new.0.get(*key);
        new.0.keys().copied().filter(differs).collect()
    }

    /// Takes over the value of a key.
    pub fn take(&mut self, key: &'static str, new: &Self) {
        if let Some(value) = new.0.get(key) {
            self.0.insert(key, value.clone());
        }
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Values({} keys)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: &str = include_str!("../../../docs/configuration.md");

    #[test]
    fn the_reference_lists_what_can_change_while_the_server_runs() {
        let written: Vec<_> = REFERENCE
            .lines()
            .skip_while(|line| !line.starts_with("| applied on SIGHUP |"))
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.split('`').nth(1).unwrap_or_default())
            .collect();
        assert_eq!(written, RELOADABLE);
    }

    #[test]
    fn every_key_of_the_list_exists() {
        for name in RELOADABLE {
            assert!(ALL.iter().any(|key| key.name() == name), "{name}");
        }
    }
}
