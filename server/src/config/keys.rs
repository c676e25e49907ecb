//! Every key of this version. `docs/configuration.md` and `configs/default.json` are checked against this table.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::api_key::ApiKey;
use super::checked::{LogFormat, StorageMode, SyncPolicy};
use super::kind::{Choice, Integer, Kind, Parsed, Time};
use crate::telemetry::LogFilter;

/// One key.
pub(super) struct Key<K> {
    pub(super) name: &'static str,
    pub(super) environment: Option<&'static str>,
    pub(super) kind: K,
    /// What it does, for the reference.
    pub(super) about: &'static str,
}

/// A key, whatever its kind.
pub(super) trait AnyKey: Sync {
    fn name(&self) -> &'static str;
    fn environment(&self) -> Option<&'static str>;
    fn default_json(&self) -> Value;
    fn allowed(&self) -> String;
    fn about(&self) -> &'static str;
}

impl<K: Kind + Sync> AnyKey for Key<K> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn environment(&self) -> Option<&'static str> {
        self.environment
    }

    fn default_json(&self) -> Value {
        self.kind.default_json()
    }

    fn allowed(&self) -> String {
        self.kind.allowed()
    }

    fn about(&self) -> &'static str {
        self.about
    }
}

/// Declares the keys and the list of them in one go, so that none can be missing in the list.
macro_rules! keys {
    ($($id:ident: $kind:ty = $name:literal, $environment:expr, $value:expr, $about:literal;)*) => {
        $(pub(super) static $id: Key<$kind> = Key {
            name: $name, environment: $environment, kind: $value, about: $about,
        };)*
        /// All of them, in the order of the reference.
        pub(super) static ALL: &[&dyn AnyKey] = &[$(&$id),*];
    };
}

const fn integer(default: i64, min: i64, max: i64, unit: &'static str) -> Integer {
    Integer {
        default,
        min,
        max,
        unit,
    }
}

const fn time(default: Duration, min: Duration, max: Duration) -> Time {
    Time { default, min, max }
}

const fn text<T>(default: &'static str, parse: fn(&str) -> Option<T>, allowed: &'static str) -> Parsed<T> {
    Parsed {
        default,
        parse,
        allowed,
    }
}

const fn choice<T>(among: &'static [(&'static str, T)]) -> Choice<T> {
    Choice { among }
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

const KIB: i64 = 1 << 10;
const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
const TIB: i64 = 1 << 40;
const HOUR: Duration = seconds(3_600);

fn not_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn path(text: &str) -> Option<PathBuf> {
    not_empty(text).map(PathBuf::from)
}

fn api_key(text: &str) -> Option<ApiKey> {
    Some(ApiKey::new(text))
}

fn filter(text: &str) -> Option<LogFilter> {
    text.parse().ok()
}

keys! {
    SERVER_HOST: Parsed<String> = "server.host", None,
        text("0.0.0.0", not_empty, "an address or name of this machine"),
        "Address that all ports are opened on.";
    SERVER_HTTP_PORT: Integer = "server.http_port", Some("BOLTQ_HTTP_PORT"),
        integer(9090, 0, 65_535, ""),
        "Admin port: health, statistics, metrics. 0 takes a free one, which the log names.";
    SERVER_TCP_PORT: Integer = "server.tcp_port", Some("BOLTQ_TCP_PORT"),
        integer(9091, 0, 65_535, ""),
        "Messaging port: gRPC, gRPC-Web and the binary protocol. 0 takes a free one, which the log names.";
    SERVER_MAX_CONNECTIONS: Integer = "server.max_connections", None,
        integer(10_000, 1, 1_000_000, ""),
        "Open connections, for each port. One more is closed at once.";
    SERVER_MAX_FRAME_BYTES_BEFORE_AUTH: Integer = "server.max_frame_bytes_before_auth", None,
        integer(64 * KIB, 64, 4 * MIB, "bytes"),
        "Longest body of a frame of the binary protocol before AUTH has succeeded, if there is an API key.";
    SERVER_AUTH_ATTEMPTS_MAX: Integer = "server.auth_attempts_max", None,
        integer(10, 1, 1_000, ""),
        "Failed AUTH frames after which a connection is closed.";
    SERVER_IDLE_WRITE_TIMEOUT: Time = "server.idle_write_timeout", None,
        time(seconds(30), ms(100), HOUR),
        "A connection of the binary protocol that accepts no bytes for so long is closed.";
    SERVER_SHUTDOWN_GRACE: Time = "server.shutdown_grace", None,
        time(seconds(10), ms(0), seconds(300)),
        "Longest wait for requests in progress when the server stops.";
    STORAGE_MODE: Choice<StorageMode> = "storage.mode", Some("BOLTQ_STORAGE_MODE"),
        choice(&[("memory", StorageMode::Memory), ("disk", StorageMode::Disk)]),
        "`memory`: nothing survives the process. `disk`: what was acknowledged survives.";
    STORAGE_DATA_DIR: Parsed<PathBuf> = "storage.data_dir", Some("BOLTQ_DATA_DIR"),
        text("./data", path, "a directory, created when missing"),
        "Where `disk` keeps its files. One server at a time.";
    STORAGE_SYNC: Choice<SyncPolicy> = "storage.sync", Some("BOLTQ_STORAGE_SYNC"),
        choice(&[("always", SyncPolicy::Always), ("interval", SyncPolicy::Interval), ("never", SyncPolicy::Never)]),
        "When written data is forced to the device: `always` before a request is answered, `interval` every \
         `storage.sync_interval`, `never` when the system likes. All three survive the end of the process; only \
         `always` survives a loss of power whole.";
    STORAGE_SYNC_INTERVAL: Time = "storage.sync_interval", None,
        time(ms(100), ms(1), seconds(60)),
        "For `storage.sync` = `interval`: what a loss of power can take.";
    STORAGE_COMPACTION_THRESHOLD: Integer = "storage.compaction_threshold", Some("BOLTQ_STORAGE_COMPACTION_THRESHOLD"),
        integer(100 * MIB, 64 * KIB, 1_024 * TIB, "bytes"),
        "Size of all files from which on those that are mostly acknowledged are rewritten.";
    STORAGE_WAL_FILE_BYTES: Integer = "storage.wal_file_bytes", None,
        integer(22 * MIB, 64 * KIB, GIB, "bytes"),
        "Size of a file of the write-ahead log.";
    STORAGE_CACHE_BYTES: Integer = "storage.cache_bytes", None,
        integer(8 * MIB, 0, TIB, "bytes"),
        "Memory for recently written and read messages.";
    QUEUE_MAX_RETRY: Integer = "queue.max_retry", None,
        integer(5, -1, 1_000, ""),
        "Deliveries after the first before a message becomes a dead letter. -1: none, the first failure is the last. \
         0 means the default.";
    QUEUE_ACK_TIMEOUT: Time = "queue.ack_timeout", None,
        time(seconds(30), ms(10), seconds(168 * 3_600)),
        "How long a delivered message is leased; after that it counts as failed.";
    QUEUE_RETRY_BACKOFF: Time = "queue.retry_backoff", None,
        time(ms(100), ms(0), HOUR),
        "Wait before the second delivery; doubles with each failure. 0 switches waiting off.";
    QUEUE_RETRY_BACKOFF_MAX: Time = "queue.retry_backoff_max", None,
        time(seconds(30), ms(0), seconds(24 * 3_600)),
        "Longest wait between deliveries.";
    PERFORMANCE_WORKER_POOL: Integer = "performance.worker_pool", None,
        integer(0, 0, 1_024, "threads"),
        "Threads that serve requests. 0: as many as the machine has cores.";
    SECURITY_API_KEY: Parsed<ApiKey> = "security.api_key", Some("BOLTQ_API_KEY"),
        text("", api_key, "any text"),
        "Key that clients show on every door. Empty: all doors are open.";
    LOG_LEVEL: Parsed<LogFilter> = "log.level", Some("BOLTQ_LOG"),
        text("info", filter, "`off`, `error`, `warn`, `info`, `debug`, `trace`, `module=level`; several with commas"),
        "What is logged.";
    LOG_FORMAT: Choice<LogFormat> = "log.format", Some("BOLTQ_LOG_FORMAT"),
        choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]),
        "How it is written, to standard error.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const REFERENCE: &str = include_str!("../../../docs/configuration.md");
    const DEFAULT_FILE: &str = include_str!("../../../configs/default.json");

    fn row(key: &dyn AnyKey) -> String {
        let environment = key.environment().map_or(String::new(), |name| format!("`{name}`"));
        format!(
            "| `{}` | `{}` | {} | {environment} | {} |",
            key.name(),
            key.default_json(),
            key.allowed(),
            key.about(),
        )
    }

    #[test]
    fn the_reference_lists_exactly_these_keys() {
        let written: Vec<_> = REFERENCE
            .lines()
            .skip_while(|line| !line.starts_with("| key | default |"))
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .collect();
        let wanted: Vec<_> = ALL.iter().map(|key| row(*key)).collect();
        let whole = wanted.join("\n");
        assert_eq!(
            written, wanted,
            "the table in docs/configuration.md has to be:\n{whole}\n"
        );
    }

    #[test]
    fn the_default_file_has_every_key_at_its_default_and_stores_on_disk() {
        let file: BTreeMap<String, BTreeMap<String, Value>> = serde_json::from_str(DEFAULT_FILE).unwrap();
        let mut written: Vec<_> = file
            .iter()
            .flat_map(|(section, keys)| {
                keys.iter()
                    .map(move |(key, value)| (format!("{section}.{key}"), value.clone()))
            })
            .collect();
        let mut wanted: Vec<_> = ALL
            .iter()
            .map(|key| match key.name() {
                "storage.mode" => (key.name().to_owned(), "disk".into()),
                name => (name.to_owned(), key.default_json()),
            })
            .collect();
        written.sort_by(|a, b| a.0.cmp(&b.0));
        wanted.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(written, wanted);
    }

    #[test]
    fn names_and_variables_are_unique() {
        let mut names: Vec<_> = ALL.iter().map(|key| key.name()).collect();
        let mut variables: Vec<_> = ALL.iter().filter_map(|key| key.environment()).collect();
        for list in [&mut names, &mut variables] {
            let count = list.len();
            list.sort_unstable();
            list.dedup();
            assert_eq!(list.len(), count);
        }
    }
}
