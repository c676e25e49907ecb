//! The configuration as the rest of the server sees it: checked, typed, without a way to be wrong.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::api_key::ApiKey;
use super::cluster::ClusterConfig;
use super::error::ConfigError;
use super::keys as key;
use super::layers::Settings;
use super::messaging::MessagingConfig;
use super::parse::{AllowedOrigin, Collector};
use super::tls::ServerTls;
use super::{access_keys, duration, kind::Integer};
use crate::access::KeyEntry;
use crate::ack_level::AckLevel;
use crate::telemetry::LogFilter;

/// All of it.
#[derive(Debug, Clone)]
pub struct Config {
    /// Ports and connections.
    pub server: ServerConfig,
    /// Where messages are kept.
    pub storage: StorageConfig,
    /// What happens to messages.
    pub queue: QueueConfig,
    /// Values under keys.
    pub cache: CacheConfig,
    /// What publishers may ask for.
    pub publish: PublishConfig,
    /// Threads.
    pub performance: PerformanceConfig,
    /// Who may come in.
    pub security: SecurityConfig,
    /// Other nodes.
    pub cluster: ClusterConfig,
    /// Topics that are read by position.
    pub messaging: MessagingConfig,
    /// What is counted for whom.
    pub metrics: MetricsConfig,
    /// Who is told of traces.
    pub telemetry: TelemetryConfig,
    /// What is logged.
    pub log: LogConfig,
}

/// Section `server`.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Address or name that both ports are opened on.
    pub host: String,
    /// Admin port; 0 takes a free one.
    pub http_port: u16,
    /// Messaging port; 0 takes a free one.
    pub tcp_port: u16,
    /// Connections, for each port.
    pub connections_max: usize,
    /// Body of a frame before authentication.
    pub frame_bytes_before_auth_max: usize,
    /// For requests that are not whole or not answered yet.
    pub request_bytes_max: usize,
    /// The same for each connection.
    pub connection_request_bytes_max: usize,
    /// Without progress of a message that has begun.
    pub request_stall_timeout: Duration,
    /// Failed AUTH frames per connection.
    pub auth_attempts_max: u32,
    /// After which a connection that was let into nothing is closed, if a key is wanted.
    pub auth_timeout: Duration,
    /// After which a connection that takes no bytes is closed.
    pub idle_write_timeout: Duration,
    /// For requests in progress when the server stops.
    pub shutdown_grace: Duration,
    /// Whether connections of the binary protocol are passed on to the leader.
    pub tcp_forward: bool,
    /// Whose pages may read the answers of the admin port.
    pub cors: AllowedOrigins,
    /// On both ports; `None`: not encrypted.
    pub tls: Option<ServerTls>,
}

/// Section `server.cors`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedOrigins {
    /// Those of any origin.
    Any,
    /// Those of these, as browsers send them; it may be none.
    These(Vec<String>),
}

/// Section `storage`.
#[derive(Debug, Clone)]
pub struct StorageConfig {
    /// Memory or disk.
    pub mode: StorageMode,
    /// For `StorageMode::Disk`.
    pub data_dir: PathBuf,
    /// For `StorageMode::Disk`.
    pub sync: StorageSync,
    /// Bytes of all files from which on they are rewritten.
    pub compaction_threshold_bytes: u64,
    /// Size of a file of the write-ahead log.
    pub wal_file_bytes: u64,
    /// Memory for recent messages.
    pub cache_bytes: u64,
}

/// Where messages are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageMode {
    /// In the process; nothing survives it.
    Memory,
    /// In files.
    Disk,
}

impl StorageMode {
    /// As it is written in the configuration and shown in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }
}

/// When written data is forced to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageSync {
    /// Before a request is answered.
    Always,
    /// Every so often.
    Interval(Duration),
    /// When the system likes.
    Never,
}

/// `storage.sync` alone, without its interval.
#[derive(Debug, Clone, Copy)]
pub(super) enum SyncPolicy {
    Always,
    Interval,
    Never,
}

/// Section `queue`.
#[derive(Debug, Clone)]
pub struct QueueConfig {
    /// Deliveries after the first; 0 is none.
    pub retries_max: u32,
    /// Length of a lease.
    pub ack_timeout: Duration,
    /// Before the second delivery; doubles with each failure. Zero: no wait.
    pub retry_backoff: Duration,
    /// Upper bound of the wait.
    pub retry_backoff_max: Duration,
    /// How long the key of a publish is remembered.
    pub dedup_ttl: Duration,
    /// Keys that are remembered at a time.
    pub dedup_max_keys: usize,
    /// After which a durable subscription that nobody uses is removed; zero: never.
    pub durable_expiry: Duration,
}

/// Section `cache`.
#[derive(Debug, Clone)]
pub struct CacheConfig {
    /// Whether there is one.
    pub enabled: bool,
    /// Keys at most; 0: any number.
    pub keys_max: u64,
    /// For values of which nothing is said, in milliseconds; 0: for ever.
    pub default_ttl_ms: u64,
    /// Between removals of what is over.
    pub cleanup: Duration,
}

/// Section `publish`.
#[derive(Debug, Clone)]
pub struct PublishConfig {
    /// The least that a publisher may ask to wait for.
    pub min_ack_level: AckLevel,
}

/// Section `performance`.
#[derive(Debug, Clone)]
pub struct PerformanceConfig {
    /// Threads that serve requests; `None`: as many as there are cores.
    pub worker_threads: Option<NonZeroUsize>,
}

/// Section `security`.
#[derive(Debug, Clone)]
pub struct SecurityConfig {
    /// What administrators show.
    pub api_key: ApiKey,
    /// Keys with roles.
    pub keys: Vec<KeyEntry>,
    /// Wrong keys of an address; 0: any number.
    pub auth_failures_per_minute: u32,
}

/// Section `metrics`.
#[derive(Debug, Clone)]
pub struct MetricsConfig {
    /// Queues with figures of their own.
    pub queues_max: usize,
}

/// Section `telemetry`.
#[derive(Debug, Clone)]
pub struct TelemetryConfig {
    /// What this server is called.
    pub service_name: String,
    /// None: there are no traces.
    pub collector: Option<Collector>,
    /// Part of the traces that begin here.
    pub sample_ratio: f64,
}

/// Section `log`.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// What is logged.
    pub level: LogFilter,
    /// How it is written.
    pub format: LogFormat,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object per line.
    Json,
}

impl Config {
    pub(super) fn check(settings: &Settings) -> Result<Self, ConfigError> {
        let server = ServerConfig::check(settings)?;
        Ok(Self {
            cluster: ClusterConfig::check(settings, &server)?,
            server,
            storage: StorageConfig::check(settings)?,
            queue: QueueConfig::check(settings)?,
            cache: CacheConfig {
                enabled: settings.get(&key::CACHE_ENABLED)?,
                keys_max: number(settings, &key::CACHE_MAX_KEYS)?,
                default_ttl_ms: number(settings, &key::CACHE_DEFAULT_TTL_MS)?,
                cleanup: Duration::from_secs(number(settings, &key::CACHE_CLEANUP_SEC)?),
            },
            publish: PublishConfig {
                min_ack_level: settings.get(&key::PUBLISH_MIN_ACK_LEVEL)?,
            },
            performance: PerformanceConfig {
                worker_threads: NonZeroUsize::new(number(settings, &key::PERFORMANCE_WORKER_POOL)?),
            },
            security: SecurityConfig {
                api_key: settings.get(&key::SECURITY_API_KEY)?,
                keys: access_keys::entries(settings)?,
                auth_failures_per_minute: number(settings, &key::SECURITY_AUTH_FAILURES_PER_MINUTE)?,
            },
            messaging: MessagingConfig::check(settings)?,
            metrics: MetricsConfig {
                queues_max: number(settings, &key::METRICS_QUEUES_MAX)?,
            },
            telemetry: TelemetryConfig {
                service_name: settings.get(&key::TELEMETRY_SERVICE_NAME)?,
                collector: settings.get(&key::TELEMETRY_OTLP_ENDPOINT)?,
                sample_ratio: settings.get(&key::TELEMETRY_OTLP_SAMPLE_RATIO)?,
            },
            log: LogConfig {
                level: settings.get(&key::LOG_LEVEL)?,
                format: settings.get(&key::LOG_FORMAT)?,
            },
        })
    }
}

impl SecurityConfig {
    /// What is allowed and looks like a mistake.
    pub(super) fn warnings(&self, clustered: bool) -> Option<String> {
        (clustered && !self.api_key.required() && !self.keys.is_empty()).then(|| {
            "security.keys without security.api_key: a node that joins shows security.api_key to its seeds, and has none"
                .to_owned()
        })
    }
}

impl ServerConfig {
    fn check(settings: &Settings) -> Result<Self, ConfigError> {
        let server = Self {
            host: settings.get(&key::SERVER_HOST)?,
            http_port: number(settings, &key::SERVER_HTTP_PORT)?,
            tcp_port: number(settings, &key::SERVER_TCP_PORT)?,
            connections_max: number(settings, &key::SERVER_MAX_CONNECTIONS)?,
            frame_bytes_before_auth_max: number(settings, &key::SERVER_MAX_FRAME_BYTES_BEFORE_AUTH)?,
            request_bytes_max: number(settings, &key::SERVER_MAX_REQUEST_BYTES)?,
            connection_request_bytes_max: number(settings, &key::SERVER_MAX_REQUEST_BYTES_PER_CONNECTION)?,
            request_stall_timeout: settings.get(&key::SERVER_REQUEST_STALL_TIMEOUT)?,
            auth_attempts_max: number(settings, &key::SERVER_AUTH_ATTEMPTS_MAX)?,
            auth_timeout: settings.get(&key::SERVER_AUTH_TIMEOUT)?,
            idle_write_timeout: settings.get(&key::SERVER_IDLE_WRITE_TIMEOUT)?,
            shutdown_grace: settings.get(&key::SERVER_SHUTDOWN_GRACE)?,
            tcp_forward: settings.get(&key::SERVER_TCP_FORWARD)?,
            cors: AllowedOrigins::of(settings.get(&key::SERVER_CORS_ALLOWED_ORIGINS)?),
            tls: ServerTls::check(settings, settings.get(&key::CLUSTER_ENABLED)?)?,
        };
        if server.http_port == server.tcp_port && server.http_port != 0 {
            return Err(ConfigError::Contradiction {
                key: key::SERVER_HTTP_PORT.name,
                value: server.http_port.to_string(),
                other: key::SERVER_TCP_PORT.name,
                other_value: server.tcp_port.to_string(),
                rule: "the ports have to differ",
            });
        }
        if server.connection_request_bytes_max > server.request_bytes_max {
            return Err(ConfigError::Contradiction {
                key: key::SERVER_MAX_REQUEST_BYTES_PER_CONNECTION.name,
                value: server.connection_request_bytes_max.to_string(),
                other: key::SERVER_MAX_REQUEST_BYTES.name,
                other_value: server.request_bytes_max.to_string(),
                rule: "one connection cannot have more than all together",
            });
        }
        Ok(server)
    }
}

impl AllowedOrigins {
    fn of(listed: Vec<AllowedOrigin>) -> Self {
        let these = listed.into_iter().map(|AllowedOrigin(origin)| origin);
        these.collect::<Option<_>>().map_or(Self::Any, Self::These)
    }
}

impl StorageConfig {
    fn check(settings: &Settings) -> Result<Self, ConfigError> {
        let interval = settings.get(&key::STORAGE_SYNC_INTERVAL)?;
        Ok(Self {
            mode: settings.get(&key::STORAGE_MODE)?,
            data_dir: settings.get(&key::STORAGE_DATA_DIR)?,
            sync: match settings.get(&key::STORAGE_SYNC)? {
                SyncPolicy::Always => StorageSync::Always,
                SyncPolicy::Interval => StorageSync::Interval(interval),
                SyncPolicy::Never => StorageSync::Never,
            },
            compaction_threshold_bytes: number(settings, &key::STORAGE_COMPACTION_THRESHOLD)?,
            wal_file_bytes: number(settings, &key::STORAGE_WAL_FILE_BYTES)?,
            cache_bytes: number(settings, &key::STORAGE_CACHE_BYTES)?,
        })
    }
}

impl QueueConfig {
    fn check(settings: &Settings) -> Result<Self, ConfigError> {
        let retries = match settings.get(&key::QUEUE_MAX_RETRY)? {
            0 => key::QUEUE_MAX_RETRY.kind.default,
            other => other.max(0),
        };
        let queue = Self {
            retries_max: u32::try_from(retries).unwrap_or(u32::MAX),
            ack_timeout: settings.get(&key::QUEUE_ACK_TIMEOUT)?,
            retry_backoff: settings.get(&key::QUEUE_RETRY_BACKOFF)?,
            retry_backoff_max: settings.get(&key::QUEUE_RETRY_BACKOFF_MAX)?,
            dedup_ttl: settings.get(&key::QUEUE_DEDUP_TTL)?,
            dedup_max_keys: usize::try_from(settings.get(&key::QUEUE_DEDUP_MAX_KEYS)?).unwrap_or(usize::MAX),
            durable_expiry: settings.get(&key::QUEUE_DURABLE_EXPIRY)?,
        };
        if queue.retry_backoff > queue.retry_backoff_max {
            return Err(ConfigError::Contradiction {
                key: key::QUEUE_RETRY_BACKOFF.name,
                value: duration::format(queue.retry_backoff),
                other: key::QUEUE_RETRY_BACKOFF_MAX.name,
                other_value: duration::format(queue.retry_backoff_max),
                rule: "the first wait cannot be longer than the longest",
            });
        }
        Ok(queue)
    }
}

/// A number in the type that is wanted. The range of the key lies within it; should it ever not, the value is refused
/// rather than cut.
pub(super) fn number<N: TryFrom<i64>>(settings: &Settings, key: &'static key::Key<Integer>) -> Result<N, ConfigError> {
    let value = settings.get(key)?;
    N::try_from(value).map_err(|_| settings.refusal(key))
}
