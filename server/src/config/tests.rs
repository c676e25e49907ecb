//! The layers together: what an operator writes, and what comes of it.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::*;

mod cluster;
mod files;
mod security;

/// The example of the published documentation, with its two `server` sections.
const PUBLISHED_EXAMPLE: &str = r#"{
  "server": {"http_port": 9090, "tcp_port": 9091, "host": "0.0.0.0"},
  "storage": {"mode": "disk", "data_dir": "./data", "compaction_threshold": 104857600},
  "queue": {"max_retry": 5, "ack_timeout": "30s", "capacity": 1048576},
  "security": {"api_key": ""},
  "server": {"tls": {"enabled": false, "cert_file": "", "key_file": ""}},
  "cluster": {
    "enabled": false, "node_id": "node1", "raft_addr": "0.0.0.0:9100", "raft_dir": "./data/raft",
    "bootstrap": false, "seeds": [], "non_voter": false, "snapshot_threshold": 8192
  }
}"#;

struct Written {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn written(text: &str) -> Written {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("boltq.json");
    std::fs::write(&path, text).unwrap();
    Written { _dir: dir, path }
}

fn load_with(file: &str, environment: &[(&str, &str)], flags: Flags) -> Result<Loaded, ConfigError> {
    let written = written(file);
    let flags = Flags {
        config: Some(written.path.clone()),
        ..flags
    };
    let environment = environment
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    load(&flags, environment)
}

fn file(text: &str) -> Result<Config, ConfigError> {
    load_with(text, &[], Flags::default()).map(|loaded| loaded.config)
}

fn environment(variables: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
    load_with("{}", variables, Flags::default())
}

fn refusal(text: &str) -> String {
    file(text).unwrap_err().to_string()
}

#[test]
fn without_anything_the_defaults_rule() {
    let config = load(&Flags::default(), []).unwrap().config;
    assert_eq!(
        (
            config.server.host.as_str(),
            config.server.http_port,
            config.server.tcp_port
        ),
        ("0.0.0.0", 9090, 9091)
    );
    assert_eq!(
        (config.storage.mode, config.storage.sync),
        (StorageMode::Memory, StorageSync::Always)
    );
    assert_eq!(
        (config.queue.retries_max, config.queue.ack_timeout),
        (5, Duration::from_secs(30))
    );
    assert_eq!(config.performance.worker_threads, None);
    assert!(!config.security.api_key.required());
    assert_eq!(config.log.format, LogFormat::Text);
}

#[test]
fn the_published_example_loads() {
    let config = file(PUBLISHED_EXAMPLE).unwrap();
    assert_eq!(config.storage.mode, StorageMode::Disk);
    assert_eq!(config.storage.compaction_threshold_bytes, 104_857_600);
}

#[test]
fn the_default_file_loads() {
    let config = file(include_str!("../../../configs/default.json")).unwrap();
    assert_eq!(config.storage.mode, StorageMode::Disk);
    assert_eq!(config.storage.data_dir, PathBuf::from("./data"));
}

#[test]
fn the_environment_wins_over_the_file_and_flags_over_both() {
    let text = r#"{"server":{"tcp_port":1001,"http_port":1002},"storage":{"data_dir":"file"}}"#;
    let variables = [
        ("BOLTQ_TCP_PORT", "2001"),
        ("BOLTQ_DATA_DIR", "environment"),
        ("BOLTQ_STORAGE_MODE", "disk"),
    ];
    let flags = Flags {
        tcp_port: Some("3001".to_owned()),
        storage_mode: Some("memory".to_owned()),
        ..Flags::default()
    };
    let loaded = load_with(text, &variables, flags).unwrap();
    let config = loaded.config;
    assert_eq!((config.server.http_port, config.server.tcp_port), (1002, 3001));
    assert_eq!(config.storage.data_dir, PathBuf::from("environment"));
    assert_eq!(config.storage.mode, StorageMode::Memory);
    for line in [
        "server.tcp_port = \"3001\"  (--tcp-port)",
        "storage.data_dir = \"environment\"  (BOLTQ_DATA_DIR)",
        "queue.max_retry = 5  (default)",
    ] {
        assert!(
            loaded.in_effect.lines().any(|found| found == line),
            "{line}\n{}",
            loaded.in_effect
        );
    }
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let loaded = load_with(
        r#"{"security":{"api_key":"s3cret"}}"#,
        &[("BOLTQ_API_KEY", "")],
        Flags::default(),
    )
    .unwrap();
    assert!(loaded.config.security.api_key.accepts(b"s3cret"));
    assert!(!loaded.config.security.api_key.accepts(b""));
}

#[test]
fn the_api_key_is_never_shown() {
    let loaded = environment(&[("BOLTQ_API_KEY", "s3cret")]).unwrap();
    assert!(loaded.in_effect.contains("security.api_key = (set)  (BOLTQ_API_KEY)"));
    assert!(!loaded.in_effect.contains("s3cret"));
    assert!(!format!("{:?}", loaded.config).contains("s3cret"));
    let error = refusal(r#"{"security":{"api_key":12345}}"#);
    assert!(error.starts_with("security.api_key = (set) (from "), "{error}");
    let error = environment(&[("BOLTQ_REPLICATION_SECRET", "s3cret")]).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("messaging.replication.secret = (set) (from "),
        "{error}"
    );
}

#[test]
fn a_variable_that_is_no_text_is_refused_and_not_altered() {
    use std::os::unix::ffi::OsStringExt;
    let variable = |name: &str| (OsString::from(name), OsString::from_vec(b"s3cret\xff".to_vec()));
    for name in ["BOLTQ_API_KEY", "BOLTQ_CLUSTER_SECRET", "BOLTQ_DATA_DIR"] {
        let error = load(&Flags::default(), [variable(name)]).unwrap_err().to_string();
        assert!(error.contains(name) && !error.contains("s3cret"), "{error}");
    }
    // Those of others are nobody's business.
    assert!(load(&Flags::default(), [variable("PATH")]).unwrap().warnings.is_empty());
}

#[test]
fn an_api_key_that_no_header_can_carry_is_refused_wherever_it_is_written() {
    let error = environment(&[("BOLTQ_API_KEY", "s3cr\u{e9}t")])
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("security.api_key = (set) (from BOLTQ_API_KEY): allowed is ASCII"),
        "{error}"
    );
    assert!(refusal(r#"{"security":{"api_key":"s3cret\n"}}"#).contains("allowed is ASCII"));
}

#[test]
fn an_api_key_that_is_empty_is_shown_as_empty() {
    let loaded = load_with(r#"{"security":{"api_key":""}}"#, &[], Flags::default()).unwrap();
    let line = loaded
        .in_effect
        .lines()
        .find(|line| line.starts_with("security.api_key"));
    assert!(
        line.is_some_and(|line| line.starts_with(r#"security.api_key = ""  ("#)),
        "{line:?}"
    );
}

#[test]
fn no_retries_the_default_and_a_number_of_them_can_be_had() {
    for (given, retries) in [(-1, 0), (0, 5), (1, 1), (1_000, 1_000)] {
        let config = file(&format!(r#"{{"queue":{{"max_retry":{given}}}}}"#)).unwrap();
        assert_eq!(config.queue.retries_max, retries, "{given}");
    }
}

#[test]
fn durations_are_text_or_nanoseconds() {
    let config = file(r#"{"queue":{"ack_timeout":45000000000,"retry_backoff":"0s"}}"#).unwrap();
    assert_eq!(
        (config.queue.ack_timeout, config.queue.retry_backoff),
        (Duration::from_secs(45), Duration::ZERO)
    );
}

#[test]
fn threads_are_counted_by_cores_unless_said() {
    let config = file(r#"{"performance":{"worker_pool":3}}"#).unwrap();
    assert_eq!(config.performance.worker_threads, NonZeroUsize::new(3));
}

#[test]
fn null_and_an_empty_section_leave_the_defaults() {
    let config = file(r#"{"server":{"tcp_port":null},"queue":null,"storage":{}}"#).unwrap();
    assert_eq!(config.server.tcp_port, 9091);
}

#[test]
fn unknown_keys_are_refused_with_the_closest_known_one() {
    for (text, key, meant) in [
        (
            r#"{"queue":{"max_retries":5}}"#,
            "unknown key queue.max_retries",
            "; did you mean queue.max_retry?",
        ),
        (
            r#"{"server":{"tcpport":1}}"#,
            "unknown key server.tcpport",
            "; did you mean server.tcp_port?",
        ),
        (
            r#"{"cluster":{"seed":[]}}"#,
            "unknown key cluster.seed",
            "; did you mean cluster.seeds?",
        ),
        (
            r#"{"storage":{"zebra":1}}"#,
            "unknown key storage.zebra",
            "; docs/configuration.md lists all keys",
        ),
        (
            r#"{"sorage":{"mode":"disk"}}"#,
            "unknown key sorage",
            "; docs/configuration.md lists all keys",
        ),
    ] {
        let error = refusal(text);
        assert!(error.contains(key) && error.ends_with(meant), "{error}");
    }
}

#[test]
fn a_wrong_value_is_refused_with_what_is_allowed() {
    for (text, wanted) in [
        (r#"{"server":{"tcp_port":65536}}"#, "server.tcp_port = 65536 (from "),
        (r#"{"server":{"tcp_port":65536}}"#, "allowed is 0 to 65535"),
        (r#"{"server":{"tcp_port":"9091"}}"#, r#"server.tcp_port = "9091""#),
        (r#"{"queue":{"ack_timeout":"30"}}"#, "allowed is 10ms to 168h"),
        (r#"{"queue":{"max_retry":{"a":1}}}"#, r#"queue.max_retry = {"a":1}"#),
        (r#"{"storage":{"mode":"disc"}}"#, "allowed is `memory`, `disk`"),
        (r#"{"log":{"level":"loud"}}"#, r#"log.level = "loud""#),
        (r#"{"storage":{"data_dir":""}}"#, r#"storage.data_dir = """#),
        (r#"{"queue":5}"#, "queue has to be an object with keys in it, but is 5"),
        ("[]", "the file has to be an object with keys in it, but is []"),
        (
            "{",
            "not a valid configuration: EOF while parsing an object at line 1 column 1",
        ),
        (
            r#"{"queue":{"max_retry":1},"queue":{"max_retry":2}}"#,
            "queue.max_retry is given twice",
        ),
    ] {
        let error = refusal(text);
        assert!(error.contains(wanted), "{error}");
    }
    let error = environment(&[("BOLTQ_HTTP_PORT", "tcp://10.0.0.1:9090")])
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        r#"server.http_port = "tcp://10.0.0.1:9090" (from BOLTQ_HTTP_PORT): allowed is 0 to 65535"#
    );
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    let error = refusal(r#"{"server":{"tcp_port":9090}}"#);
    assert_eq!(
        error,
        "server.http_port = 9090 contradicts server.tcp_port = 9090: the ports have to differ"
    );
    let error = refusal(r#"{"queue":{"retry_backoff":"2s","retry_backoff_max":"1s"}}"#);
    assert!(
        error.starts_with("queue.retry_backoff = 2s contradicts queue.retry_backoff_max = 1s"),
        "{error}"
    );
    assert!(file(r#"{"server":{"tcp_port":0,"http_port":0}}"#).is_ok());
}

#[test]
fn a_feature_that_is_missing_cannot_be_switched_on() {
    for (text, wanted) in [
        (r#"{"server":{"grpc_port":9092}}"#, "server.grpc_port = 9092 (from "),
        (r#"{"server":{"grpc_port":9092}}"#, "a gRPC port of its own"),
        (
            r#"{"messaging":{"gateway":{"path":"/x"}}}"#,
            "remove the key, or set messaging.gateway.enabled to false",
        ),
        (r#"{"queue":{"capacity":10}}"#, "set it to 1048576"),
        (
            r#"{"messaging":{"gateway":{"enabled":true}}}"#,
            "the gateway is not available in this version",
        ),
        (
            r#"{"messaging":{"chat":{"membership_url":"x"}}}"#,
            "chat is not available in this version",
        ),
    ] {
        let error = refusal(text);
        assert!(error.contains(wanted), "{error}");
    }
    for variable in [("BOLTQ_GATEWAY_ENABLED", "1"), ("BOLTQ_RAFT_DIR", "/raft")] {
        let error = environment(&[variable]).unwrap_err().to_string();
        assert!(error.contains(&format!("(from {})", variable.0)), "{error}");
    }
}

#[test]
fn a_feature_that_is_missing_may_be_switched_off() {
    let off = r#"{"server":{"grpc_port":0},"cache":{"enabled":false,"max_keys":7},"cluster":{"rebalance":false},
        "messaging":{"stream":{"enabled":false,"dir":"x"},"gateway":{"enabled":false,"path":"/x"},"presence":{"ttl":"90s"},"identity":{"policy":null}}}"#;
    assert!(file(off).is_ok());
    assert!(environment(&[("BOLTQ_CACHE_ENABLED", "off"), ("BOLTQ_CACHE_MAX_KEYS", "7")]).is_ok());
    assert!(environment(&[("BOLTQ_QUEUE_PLANE", "0"), ("BOLTQ_REPLICATION_FACTOR", "3")]).is_ok());
}

#[test]
fn variables_that_look_like_typing_mistakes_are_pointed_out() {
    let loaded = environment(&[
        ("BOLTQ_TCP_PROT", "1"),
        ("BOLTQ_ADDR", "localhost:9091"),
        ("BOLTQ_PORT_9091_TCP", "tcp://10.0.0.1:9091"),
        ("PATH", "/bin"),
    ]);
    let warnings = loaded.unwrap().warnings;
    assert_eq!(
        warnings,
        [
            "the variable BOLTQ_TCP_PROT is unknown and has no effect; did you mean BOLTQ_TCP_PORT?",
            "the variable BOLTQ_PORT_9091_TCP is unknown and has no effect",
        ]
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let flags = Flags {
        config: Some("/nowhere/boltq.json".into()),
        ..Flags::default()
    };
    let error = load(&flags, []).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read the configuration /nowhere/boltq.json: "),
        "{error}"
    );
}

#[test]
fn the_collector_of_traces_is_named_as_everywhere_and_others_of_its_variables_are_none_of_ours() {
    let loaded = environment(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317/"),
        ("OTEL_SERVICE_NAME", "shop"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
    ])
    .unwrap();
    let telemetry = loaded.config.telemetry;
    assert_eq!(telemetry.collector.unwrap().url, "http://collector:4317");
    assert_eq!(telemetry.service_name, "shop");
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    assert!(
        loaded
            .in_effect
            .contains(r#"telemetry.service_name = "shop"  (OTEL_SERVICE_NAME)"#)
    );
    assert!(environment(&[]).unwrap().config.telemetry.collector.is_none());
    let error = environment(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4317")]);
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("telemetry.otlp.endpoint = "), "{error}");
    assert!(error.contains("allowed is `http://host:port`"), "{error}");
}
