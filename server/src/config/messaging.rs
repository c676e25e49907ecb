//! Section `messaging`: the plane of topics that are read by position.

use std::path::PathBuf;
use std::time::Duration;

use super::checked::number;
use super::error::ConfigError;
use super::keys as key;
use super::layers::Settings;

/// Section `messaging.stream`. Unless `enabled`, the rest means nothing.
#[derive(Debug, Clone)]
pub struct MessagingConfig {
    /// Whether there is the plane.
    pub enabled: bool,
    /// Where its log is; `None`: `messaging` in the data directory.
    pub dir: Option<PathBuf>,
    /// Groups that carry it, each with a leader of its own.
    pub groups: u16,
    /// Partitions of a topic that says nothing itself.
    pub default_partitions: u32,
    /// Of records of such a topic; zero: for ever.
    pub retention_age: Duration,
    /// Of a partition of such a topic; 0: any number.
    pub retention_bytes: u64,
    /// Between two looks for records that are not to be kept.
    pub maintenance_interval: Duration,
    /// For keys of appends.
    pub dedup_ttl: Duration,
    /// Keys of appends, for each group.
    pub dedup_keys_max: u32,
    /// Positions of readers, for each group.
    pub cursors_max: u32,
}

impl MessagingConfig {
    pub(super) fn check(settings: &Settings) -> Result<Self, ConfigError> {
        Ok(Self {
            enabled: settings.get(&key::STREAM_ENABLED)?,
            dir: settings.get(&key::STREAM_DIR)?,
            groups: number(settings, &key::STREAM_GROUPS)?,
            default_partitions: number(settings, &key::STREAM_DEFAULT_PARTITIONS)?,
            retention_age: settings.get(&key::STREAM_RETENTION_AGE)?,
            retention_bytes: number(settings, &key::STREAM_RETENTION_BYTES)?,
            maintenance_interval: settings.get(&key::STREAM_MAINTENANCE_INTERVAL)?,
            dedup_ttl: settings.get(&key::STREAM_DEDUP_TTL)?,
            dedup_keys_max: number(settings, &key::STREAM_DEDUP_MAX_KEYS)?,
            cursors_max: number(settings, &key::STREAM_CURSORS_MAX)?,
        })
    }
}
