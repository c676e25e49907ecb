//! How much patience there is with who has not shown a key.

use std::time::Duration;

use crate::config::Config;

/// Bounds for clients that are not known yet. They can change while the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessPolicy {
    /// Body of a frame of the binary protocol, before it.
    pub frame_bytes_before_auth_max: usize,
    /// Failed attempts after which a connection of the binary protocol is closed.
    pub auth_attempts_max: u32,
    /// A connection that was let into nothing for so long is closed.
    pub auth_timeout: Duration,
    /// Failed attempts of an address; 0: any number.
    pub auth_failures_per_minute: u32,
}

impl From<&Config> for AccessPolicy {
    fn from(config: &Config) -> Self {
        Self {
            frame_bytes_before_auth_max: config.server.frame_bytes_before_auth_max,
            auth_attempts_max: config.server.auth_attempts_max,
            auth_timeout: config.server.auth_timeout,
            auth_failures_per_minute: config.security.auth_failures_per_minute,
        }
    }
}
