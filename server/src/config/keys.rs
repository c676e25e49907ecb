//! Every key of this version. `docs/configuration.md` and `configs/default.json` are checked against this table.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::access_keys::Entries;
use super::api_key::ApiKey;
use super::checked::{LogFormat, StorageMode, SyncPolicy};
use super::kind::{Choice, Integer, Kind, List, Parsed, Ratio, Secret, Switch, Time};
use super::parse::{self, AllowedOrigin, Collector, Listen};
use super::queue_bounds;
use super::secret::ClusterSecret;
use super::tls::ClientAuth;
use crate::ack_level::AckLevel;
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
    /// Whether its value must not be shown.
    fn secret(&self) -> bool;
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

    fn secret(&self) -> bool {
        K::SECRET
    }
}

/// Declares keys and a list of them in one go, so that none can be missing in the list.
macro_rules! keys {
    ($(#[$about_list:meta])* $list:ident: $($id:ident: $kind:ty = $name:literal, $environment:expr, $value:expr, $about:literal;)*) => {
        $(pub(super) static $id: Key<$kind> = Key {
            name: $name, environment: $environment, kind: $value, about: $about,
        };)*
        $(#[$about_list])*
        pub(super) static $list: &[&dyn AnyKey] = &[$(&$id),*];
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

const fn time_within(default: Duration, bounds_ms: &RangeInclusive<u64>) -> Time {
    time(default, ms(*bounds_ms.start()), ms(*bounds_ms.end()))
}

const fn text<T>(default: &'static str, parse: fn(&str) -> Option<T>, allowed: &'static str) -> Parsed<T> {
    Parsed {
        default,
        parse,
        allowed,
    }
}

const fn switch(default: bool) -> Switch {
    Switch { default }
}

const fn ratio(default: f64) -> Ratio {
    Ratio { default }
}

const fn secret<T>(parse: fn(&str) -> Option<T>, allowed: &'static str) -> Secret<T> {
    Secret { parse, allowed }
}

const fn list<T>(parse: fn(&str) -> Option<T>, allowed: &'static str) -> List<T> {
    list_of(&[], parse, allowed)
}

const fn list_of<T>(default: &'static [&'static str], parse: fn(&str) -> Option<T>, allowed: &'static str) -> List<T> {
    List {
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

/// What a key for seeds takes.
const SEEDS: &str = "`host:port` of admin ports";
const SEEDS_WITH_COMMAS: &str = "`host:port` of admin ports; several with commas";

keys! {
    /// All that a file may have, in the order of the reference.
    ALL:
    SERVER_HOST: Parsed<String> = "server.host", None,
        text("0.0.0.0", parse::not_empty, "an address or name of this machine"),
        "Address that the messaging and the admin port are opened on.";
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
    SERVER_MAX_REQUEST_BYTES: Integer = "server.max_request_bytes", None,
        integer(256 * MIB, 16 * MIB, TIB, "bytes"),
        "Memory for requests that are not whole or not answered yet, of all connections; what would take more is refused. \
         As much again for answers with messages that are not read yet; what would take more waits.";
    SERVER_MAX_REQUEST_BYTES_PER_CONNECTION: Integer = "server.max_request_bytes_per_connection", None,
        integer(80 * MIB, 8 * MIB, TIB, "bytes"),
        "The same for each connection. The default is 16 of the largest messages at a time, and 1,024 small requests.";
    SERVER_REQUEST_STALL_TIMEOUT: Time = "server.request_stall_timeout", None,
        time(seconds(30), ms(100), HOUR),
        "A message that has begun to arrive is given up when it has neither gained 64 KiB nor become whole for so long.";
    SERVER_AUTH_ATTEMPTS_MAX: Integer = "server.auth_attempts_max", None,
        integer(10, 1, 1_000, ""),
        "Failed AUTH frames after which a connection is closed.";
    SERVER_AUTH_TIMEOUT: Time = "server.auth_timeout", None,
        time(seconds(30), ms(100), HOUR),
        "If a key is wanted: a connection is closed that has not shown a right one for so long, nor asked for the health of the server.";
    SERVER_IDLE_WRITE_TIMEOUT: Time = "server.idle_write_timeout", None,
        time(seconds(30), ms(100), HOUR),
        "A connection of the binary protocol or of the admin port that accepts no bytes for so long is closed, unless they are \
         events, and one of gRPC that reads no answer for so long while others wait for room.";
    SERVER_SHUTDOWN_GRACE: Time = "server.shutdown_grace", None,
        time(seconds(10), ms(0), seconds(300)),
        "Longest wait for requests in progress when the server stops.";
    SERVER_TCP_FORWARD: Switch = "server.tcp_forward", Some("BOLTQ_TCP_FORWARD"),
        switch(false),
        "On a node of a cluster that does not lead: `true` passes new connections of the binary protocol on to the leader, \
         `false` answers NOT_LEADER. gRPC calls are always passed on.";
    SERVER_CORS_ALLOWED_ORIGINS: List<AllowedOrigin> = "server.cors.allowed_origins", None,
        list_of(&["*"], parse::allowed_origin, "`*`, or origins as browsers send them, such as `https://console.example:8443`"),
        "Origins whose pages may read the answers of the admin port. `*`: any. An empty list: none.";
    SERVER_TLS_ENABLED: Switch = "server.tls.enabled", Some("BOLTQ_TLS_ENABLED"),
        switch(false),
        "TLS on the messaging and the admin port; nothing else is spoken there then.";
    SERVER_TLS_CERT_FILE: Parsed<Option<PathBuf>> = "server.tls.cert_file", None,
        text("", parse::optional_path, "a file in PEM"),
        "Certificate of this server, followed by those between it and its authority.";
    SERVER_TLS_KEY_FILE: Parsed<Option<PathBuf>> = "server.tls.key_file", None,
        text("", parse::optional_path, "a file in PEM"),
        "Private key of that certificate.";
    SERVER_TLS_CA_FILE: Parsed<Option<PathBuf>> = "server.tls.ca_file", None,
        text("", parse::optional_path, "a file in PEM"),
        "Certificates of the authorities by which clients are believed (`server.tls.client_auth`), and other nodes when requests are passed on to them.";
    SERVER_TLS_CLIENT_AUTH: Choice<ClientAuth> = "server.tls.client_auth", None,
        choice(&[("none", ClientAuth::None), ("optional", ClientAuth::Optional), ("required", ClientAuth::Required)]),
        "Certificates of clients: `none` asks for none, `optional` refuses wrong ones, `required` refuses who has none too.";
    STORAGE_MODE: Choice<StorageMode> = "storage.mode", Some("BOLTQ_STORAGE_MODE"),
        choice(&[("memory", StorageMode::Memory), ("disk", StorageMode::Disk)]),
        "`memory`: nothing survives the process. `disk`: what was acknowledged survives.";
    STORAGE_DATA_DIR: Parsed<PathBuf> = "storage.data_dir", Some("BOLTQ_DATA_DIR"),
        text("./data", parse::path, "a directory, created when missing"),
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
        integer(5, -1, queue_bounds::MAX_RETRY.end().cast_signed(), ""),
        "Deliveries after the first before a message becomes a dead letter. -1: none, the first failure is the last. \
         0 means the default.";
    QUEUE_ACK_TIMEOUT: Time = "queue.ack_timeout", None,
        time_within(seconds(30), &queue_bounds::ACK_TIMEOUT_MS),
        "How long a delivered message is leased; after that it counts as failed.";
    QUEUE_RETRY_BACKOFF: Time = "queue.retry_backoff", None,
        time_within(ms(100), &queue_bounds::RETRY_BACKOFF_MS),
        "Wait before the second delivery; doubles with each failure. 0 switches waiting off.";
    QUEUE_RETRY_BACKOFF_MAX: Time = "queue.retry_backoff_max", None,
        time_within(seconds(30), &queue_bounds::RETRY_BACKOFF_MAX_MS),
        "Longest wait between deliveries.";
    QUEUE_DEDUP_TTL: Time = "queue.dedup_ttl", None,
        time_within(seconds(600), &queue_bounds::DEDUP_TTL_MS),
        "How long the idempotency key of a publish is remembered: so long it can be repeated without a second message.";
    QUEUE_DEDUP_MAX_KEYS: Integer = "queue.dedup_max_keys", None,
        integer(1_000_000, 1, 1_000_000_000, ""),
        "Idempotency keys that are remembered at a time; each takes about 200 bytes of memory. What would be one more is refused.";
    QUEUE_DURABLE_EXPIRY: Time = "queue.durable_expiry", None,
        time(seconds(0), ms(0), seconds(10 * 365 * 24 * 3_600)),
        "How long nobody may be attached to a durable subscription before it is removed with its backlog. 0: it is kept until it is deleted.";
    CACHE_ENABLED: Switch = "cache.enabled", Some("BOLTQ_CACHE_ENABLED"),
        switch(true),
        "Whether there is a key-value cache.";
    CACHE_MAX_KEYS: Integer = "cache.max_keys", Some("BOLTQ_CACHE_MAX_KEYS"),
        integer(0, 0, 1_000_000_000, "keys"),
        "More than that, and the one that was used longest ago makes room. 0: any number.";
    CACHE_DEFAULT_TTL_MS: Integer = "cache.default_ttl_ms", None,
        integer(0, 0, 100 * 365 * 24 * 3_600_000, "milliseconds"),
        "How long a value lives of which nothing is said. 0: for ever.";
    CACHE_CLEANUP_SEC: Integer = "cache.cleanup_sec", None,
        integer(10, 1, 3_600, "seconds"),
        "How often values whose time is over are removed. They are not seen before either.";
    PUBLISH_MIN_ACK_LEVEL: Choice<AckLevel> = "publish.min_ack_level", None,
        choice(&[("QUORUM", AckLevel::Quorum), ("LEADER", AckLevel::Leader), ("NONE", AckLevel::None)]),
        "The least that a publisher may ask to wait for. A publish stream that asks for less is refused.";
    PERFORMANCE_WORKER_POOL: Integer = "performance.worker_pool", None,
        integer(0, 0, 1_024, "threads"),
        "Threads that serve requests. 0: as many as the machine has cores.";
    SECURITY_API_KEY: Secret<ApiKey> = "security.api_key", Some("BOLTQ_API_KEY"),
        secret(parse::api_key, "ASCII characters from the space to `~`, no space at either end"),
        "Key that clients show on every door. Empty: all doors are open.";
    SECURITY_KEYS: Entries = "security.keys", None,
        Entries,
        "Keys with roles, each as the hash of a random key: [security.md](security.md#keys).";
    SECURITY_AUTH_FAILURES_PER_MINUTE: Integer = "security.auth_failures_per_minute", None,
        integer(60, 0, 1_000_000, ""),
        "Wrong keys of an address, of IPv6 the first 64 bits, in a minute; after that nothing that it shows is looked at for a while. 0: any number.";
    CLUSTER_ENABLED: Switch = "cluster.enabled", Some("BOLTQ_CLUSTER_ENABLED"),
        switch(false),
        "`true`: this node is one of several that keep the same data. `false`: the rest of this section has no effect.";
    CLUSTER_NODE_ID: Parsed<Option<String>> = "cluster.node_id", Some("BOLTQ_NODE_ID"),
        text("", parse::node_name, "up to 200 bytes of UTF-8 without control characters"),
        "Name of this node, unique in the cluster. Empty: the host name.";
    CLUSTER_RAFT_ADDR: Parsed<Listen> = "cluster.raft_addr", Some("BOLTQ_RAFT_ADDR"),
        text("0.0.0.0:9100", parse::listen, "`host:port`; an IPv6 address in brackets"),
        "Address and port that are opened for the other nodes. Port 0 takes a free one.";
    CLUSTER_ADVERTISE_HOST: Parsed<Option<String>> = "cluster.advertise_host", None,
        text("", parse::advertised, "an address or name that other machines can dial; no wildcard"),
        "What other nodes and clients dial to reach any port of this node. Empty: the host of `cluster.raft_addr`; if \
         that is a wildcard, `server.host`; if that is one too, the host name.";
    CLUSTER_BOOTSTRAP: Switch = "cluster.bootstrap", Some("BOLTQ_BOOTSTRAP"),
        switch(false),
        "Whether this node founds the cluster. For exactly one node; without effect once it has state.";
    CLUSTER_SEEDS: List<String> = "cluster.seeds", Some("BOLTQ_SEEDS"),
        list(parse::seed, SEEDS),
        "Nodes that a new node asks to be let in, one after the other, until one does.";
    CLUSTER_NON_VOTER: Switch = "cluster.non_voter", Some("BOLTQ_NON_VOTER"),
        switch(false),
        "`true`: a read replica, which never votes and does not count for the majority.";
    CLUSTER_LEAVE_ON_SHUTDOWN: Switch = "cluster.leave_on_shutdown", None,
        switch(false),
        "Whether this node leaves the cluster when it is stopped. A restart is no departure.";
    CLUSTER_SECRET: Secret<ClusterSecret> = "cluster.secret", Some("BOLTQ_CLUSTER_SECRET"),
        secret(parse::cluster_secret, "at least 16 bytes, or none"),
        "What nodes prove to each other that they belong together with; the same on all. It is never sent.";
    CLUSTER_TLS_CERT_FILE: Parsed<Option<PathBuf>> = "cluster.tls.cert_file", None,
        text("", parse::optional_path, "a file in PEM"),
        "Certificate of this node for mutual TLS between nodes. Empty, as the next two: no TLS there.";
    CLUSTER_TLS_KEY_FILE: Parsed<Option<PathBuf>> = "cluster.tls.key_file", None,
        text("", parse::optional_path, "a file in PEM"),
        "Private key of that certificate.";
    CLUSTER_TLS_CA_FILE: Parsed<Option<PathBuf>> = "cluster.tls.ca_file", None,
        text("", parse::optional_path, "a file in PEM"),
        "Certificates of the authorities whose nodes are let in.";
    CLUSTER_HEARTBEAT: Time = "cluster.heartbeat", None,
        time(ms(200), ms(10), seconds(20)),
        "How often followers hear from their leader.";
    CLUSTER_ELECTION_TIMEOUT: Time = "cluster.election_timeout", None,
        time(ms(700), ms(30), seconds(60)),
        "Silence of a leader after which a node stands for election, once a random time between 4/7 of this and all of it \
         has passed as well.";
    CLUSTER_SNAPSHOT_THRESHOLD: Integer = "cluster.snapshot_threshold", None,
        integer(8_192, 1, 1_000_000_000, "entries"),
        "Entries of a group between two checkpoints. Many bytes ask for one earlier.";
    CLUSTER_PROPOSAL_TIMEOUT: Time = "cluster.proposal_timeout", None,
        time(seconds(5), ms(100), seconds(300)),
        "Longest wait for a majority. After it the outcome of a request is unknown.";
    CLUSTER_MIN_IN_SYNC: Integer = "cluster.min_in_sync", None,
        integer(0, 0, 64, "voters"),
        "Voters that have a message before its publish is answered with QUORUM, the leader included. Up to the majority it \
         changes nothing. With fewer voters that answer, publishes are refused.";
    CLUSTER_STREAM_GROUPS: Integer = "cluster.stream_groups", None,
        integer(0, 0, 64, "groups"),
        "Groups, each with a leader of its own, beside those of the cluster itself and of the queues.";
    STREAM_ENABLED: Switch = "messaging.stream.enabled", Some("BOLTQ_STREAM_ENABLED"),
        switch(false),
        "Whether there are topics that are read by position (`boltq.stream.v1`). In a cluster, all nodes have the same; it cannot be \
         switched on in one that was founded without.";
    STREAM_DIR: Parsed<Option<PathBuf>> = "messaging.stream.dir", Some("BOLTQ_STREAM_DIR"),
        text("", parse::optional_path, "a directory, created when missing"),
        "Where the log of these topics is, if `storage.mode` is `disk`; it may be on another disk. Empty: `messaging` in \
         `storage.data_dir`.";
    STREAM_GROUPS: Integer = "messaging.stream.groups", None,
        integer(8, 1, 64, "groups"),
        "Groups that the partitions of all topics are spread over, each with a leader of its own. Decided once, for all nodes.";
    STREAM_DEFAULT_PARTITIONS: Integer = "messaging.stream.default_partitions", None,
        integer(16, 1, 65_536, "partitions"),
        "Partitions of a topic that is created by its first record, or that says nothing itself.";
    STREAM_RETENTION_AGE: Time = "messaging.stream.retention_age", Some("BOLTQ_STREAM_RETENTION_AGE"),
        time(Duration::ZERO, Duration::ZERO, seconds(3_153_600_000)),
        "How long records of such a topic are kept. 0s: for ever.";
    STREAM_RETENTION_BYTES: Integer = "messaging.stream.retention_bytes", None,
        integer(0, 0, i64::MAX, "bytes"),
        "Bytes of records that each partition of such a topic keeps. 0: any number.";
    STREAM_MAINTENANCE_INTERVAL: Time = "messaging.stream.maintenance_interval", None,
        time(seconds(30), ms(100), HOUR),
        "How often records are looked for that are not to be kept.";
    STREAM_DEDUP_TTL: Time = "messaging.stream.dedup_ttl", None,
        time(seconds(86_400), seconds(1), seconds(31_536_000)),
        "How long the idempotency keys of appends are remembered.";
    STREAM_DEDUP_MAX_KEYS: Integer = "messaging.stream.dedup_max_keys", None,
        integer(1_000_000, 1, 1_000_000_000, "keys"),
        "Idempotency keys of appends that each group remembers, 58 bytes of memory each. Appends with one more are refused.";
    STREAM_CURSORS_MAX: Integer = "messaging.stream.cursors_max", None,
        integer(10_000_000, 1, 1_000_000_000, "cursors"),
        "Positions of readers that each group keeps, about 100 bytes of memory each. One more is refused.";
    METRICS_QUEUES_MAX: Integer = "metrics.queues_max", None,
        integer(200, 0, 1_000, "queues"),
        "Queues that have metrics of their own: those with the most messages and the most to do. All others have them together.";
    TELEMETRY_SERVICE_NAME: Parsed<String> = "telemetry.service_name", Some("OTEL_SERVICE_NAME"),
        text("boltq", parse::not_empty, "text that is not empty"),
        "What this server is called in traces.";
    TELEMETRY_OTLP_ENDPOINT: Parsed<Option<Collector>> = "telemetry.otlp.endpoint", Some("OTEL_EXPORTER_OTLP_ENDPOINT"),
        text("", parse::collector, "`http://host:port`, where a collector takes OTLP over gRPC"),
        "Where traces go. Empty: there are none.";
    TELEMETRY_OTLP_SAMPLE_RATIO: Ratio = "telemetry.otlp.sample_ratio", None,
        ratio(1.0),
        "Part of the traces that is recorded, of those that begin here. What a client has begun is recorded if the client wants it.";
    LOG_LEVEL: Parsed<LogFilter> = "log.level", Some("BOLTQ_LOG"),
        text("info", parse::filter, "`off`, `error`, `warn`, `info`, `debug`, `trace`, `module=level`; several with commas"),
        "What is logged.";
    LOG_FORMAT: Choice<LogFormat> = "log.format", Some("BOLTQ_LOG_FORMAT"),
        choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]),
        "How it is written, to standard error.";
}

keys! {
    /// What only a variable or a flag can say, because it is about one start or the same for all nodes.
    OUTSIDE_FILES:
    BOOTSTRAP_NODE_ID: Parsed<Option<String>> = "BOLTQ_BOOTSTRAP_NODE_ID", Some("BOLTQ_BOOTSTRAP_NODE_ID"),
        text("", parse::node_name, "the id of a node"),
        "Sets `cluster.bootstrap` on the node with this id and clears it on all others, so that one manifest does for all.";
    JOIN_VARIABLE: List<String> = "BOLTQ_JOIN_ADDR", Some("BOLTQ_JOIN_ADDR"),
        list(parse::seed, SEEDS_WITH_COMMAS),
        "Seeds that are asked before those of `cluster.seeds`.";
    JOIN_FLAG: List<String> = "--join", None,
        list(parse::seed, SEEDS_WITH_COMMAS),
        "Seeds that are asked before all others.";
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn row_outside_files(key: &dyn AnyKey) -> String {
        format!("| `{}` | {} | {} |", key.name(), key.allowed(), key.about())
    }

    #[test]
    fn the_reference_lists_exactly_these_keys() {
        compare("| key | default |", ALL.iter().map(|key| row(*key)));
        compare(
            "| variable or flag |",
            OUTSIDE_FILES.iter().map(|key| row_outside_files(*key)),
        );
    }

    fn compare(head: &str, wanted: impl Iterator<Item = String>) {
        let written: Vec<_> = REFERENCE
            .lines()
            .skip_while(|line| !line.starts_with(head))
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .collect();
        let wanted: Vec<_> = wanted.collect();
        let whole = wanted.join("\n");
        assert_eq!(
            written, wanted,
            "the table in docs/configuration.md has to be:\n{whole}\n"
        );
    }

    #[test]
    fn the_default_file_has_every_key_at_its_default_and_stores_on_disk() {
        let mut written = Vec::new();
        flatten("", serde_json::from_str(DEFAULT_FILE).unwrap(), &mut written);
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

    fn flatten(name: &str, value: Value, keys: &mut Vec<(String, Value)>) {
        let Value::Object(members) = value else {
            keys.push((name.to_owned(), value));
            return;
        };
        for (member, value) in members {
            let dot = if name.is_empty() { "" } else { "." };
            flatten(&format!("{name}{dot}{member}"), value, keys);
        }
    }

    #[test]
    fn names_and_variables_are_unique() {
        let both = || ALL.iter().chain(OUTSIDE_FILES);
        let mut names: Vec<_> = both().map(|key| key.name()).collect();
        let mut variables: Vec<_> = both().filter_map(|key| key.environment()).collect();
        for list in [&mut names, &mut variables] {
            let count = list.len();
            list.sort_unstable();
            list.dedup();
            assert_eq!(list.len(), count);
        }
    }
}
