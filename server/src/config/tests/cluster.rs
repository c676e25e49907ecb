//! Section `cluster`: what becomes of addresses, seeds and roles, and what is refused.

use super::*;
use crate::ack_level::AckLevel;

const SECRET: &str = "0123456789abcdef";

fn cluster(text: &str) -> ClusterConfig {
    file(text).unwrap().cluster
}

/// A file that switches clustering on and has `more` in its section.
fn enabled(more: &str) -> String {
    format!(r#"{{"cluster":{{"enabled":true,"secret":"{SECRET}"{more}}}}}"#)
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[test]
fn clustering_is_off_and_its_times_are_the_documented_ones() {
    let cluster = cluster("{}");
    assert!(!cluster.enabled && !cluster.bootstrap && !cluster.non_voter && !cluster.leave_on_shutdown);
    assert_eq!(cluster.heartbeat, Duration::from_millis(200));
    assert_eq!(
        (cluster.election_timeout_min, cluster.election_timeout_max),
        (Duration::from_millis(400), Duration::from_millis(700))
    );
    assert_eq!(cluster.proposal_timeout, Duration::from_secs(5));
    assert_eq!((cluster.snapshot_threshold_entries, cluster.stream_groups), (8_192, 0));
    assert_eq!((cluster.tls, cluster.secret.expose()), (None, None));
}

#[test]
fn every_key_of_the_section_arrives() {
    let text = enabled(
        r#","node_id":"n1","raft_addr":"[fd00::1]:9101","advertise_host":"[fd00::2]","seeds":["a:1","[::1]:2"],
           "non_voter":true,"leave_on_shutdown":true,"heartbeat":"100ms","election_timeout":"1400ms",
           "snapshot_threshold":7,"proposal_timeout":"2s","stream_groups":8,
           "tls":{"cert_file":"c","key_file":"k","ca_file":"a"}"#,
    );
    let cluster = cluster(&text);
    assert!(cluster.enabled && cluster.non_voter && cluster.leave_on_shutdown && !cluster.bootstrap);
    assert_eq!(cluster.node_id, "n1");
    assert_eq!((cluster.raft_host.as_str(), cluster.raft_port), ("fd00::1", 9_101));
    assert_eq!(cluster.advertise_host, "fd00::2");
    assert_eq!(cluster.advertised(9_090), "[fd00::2]:9090");
    assert_eq!(cluster.seeds, ["a:1", "[::1]:2"]);
    assert_eq!(cluster.secret.expose(), Some(SECRET));
    assert_eq!(cluster.heartbeat, Duration::from_millis(100));
    assert_eq!(cluster.election_timeout_min, Duration::from_millis(800));
    assert_eq!(cluster.election_timeout_max, Duration::from_millis(1_400));
    assert_eq!((cluster.snapshot_threshold_entries, cluster.stream_groups), (7, 8));
    assert_eq!(cluster.proposal_timeout, Duration::from_secs(2));
    let tls = ClusterTls {
        cert_file: "c".into(),
        key_file: "k".into(),
        ca_file: "a".into(),
    };
    assert_eq!(cluster.tls, Some(tls));
}

#[test]
fn every_variable_of_the_section_arrives() {
    let loaded = environment(&[
        ("BOLTQ_CLUSTER_ENABLED", "1"),
        ("BOLTQ_NODE_ID", "n2"),
        ("BOLTQ_RAFT_ADDR", "10.0.0.2:9100"),
        ("BOLTQ_SEEDS", "10.0.0.1:9090, 10.0.0.3:9090"),
        ("BOLTQ_NON_VOTER", "true"),
        ("BOLTQ_CLUSTER_SECRET", SECRET),
        ("BOLTQ_TCP_FORWARD", "true"),
    ]);
    let loaded = loaded.unwrap();
    assert_eq!(
        loaded.warnings.len(),
        1,
        "only that memory forgets: {:?}",
        loaded.warnings
    );
    let cluster = loaded.config.cluster;
    assert!(cluster.enabled && cluster.non_voter && loaded.config.server.tcp_forward);
    assert_eq!(cluster.node_id, "n2");
    assert_eq!(cluster.advertised(cluster.raft_port), "10.0.0.2:9100");
    assert_eq!(cluster.seeds, ["10.0.0.1:9090", "10.0.0.3:9090"]);
    assert_eq!(cluster.secret.expose(), Some(SECRET));
    let founder = environment(&[("BOLTQ_CLUSTER_ENABLED", "true"), ("BOLTQ_BOOTSTRAP", "true")]);
    assert!(founder.unwrap().config.cluster.bootstrap);
}

#[test]
fn a_node_without_a_name_has_that_of_its_host() {
    assert_eq!(cluster(&enabled("")).node_id, host_name());
    assert_eq!(cluster(&enabled(r#","node_id":"""#)).node_id, host_name());
}

#[test]
fn others_dial_the_first_host_that_is_no_wildcard() {
    for (server, raft, advertised, dialled) in [
        ("10.0.0.1", "10.0.0.2:9100", "n1", "n1".to_owned()),
        ("10.0.0.1", "10.0.0.2:9100", "", "10.0.0.2".to_owned()),
        ("10.0.0.1", "0.0.0.0:9100", "", "10.0.0.1".to_owned()),
        ("10.0.0.1", "[::]:9100", "", "10.0.0.1".to_owned()),
        ("0.0.0.0", "0.0.0.0:9100", "", host_name()),
        ("::", "[::]:9100", "", host_name()),
    ] {
        let text = format!(
            r#"{{"server":{{"host":"{server}"}},
                "cluster":{{"enabled":true,"raft_addr":"{raft}","advertise_host":"{advertised}"}}}}"#
        );
        assert_eq!(cluster(&text).advertise_host, dialled, "{text}");
    }
}

#[test]
fn seeds_come_from_the_flag_then_the_variable_then_the_list_and_each_once() {
    let flags = Flags {
        join: Some("c:1,b:1".to_owned()),
        ..Flags::default()
    };
    let text = enabled(r#","seeds":["a:1","b:1","d:1"]"#);
    let loaded = load_with(&text, &[("BOLTQ_JOIN_ADDR", "b:1,e:1")], flags).unwrap();
    assert_eq!(loaded.config.cluster.seeds, ["c:1", "b:1", "e:1", "a:1", "d:1"]);
    for line in [
        r#"cluster.seeds = ["a:1","b:1","d:1"]  "#,
        r#"BOLTQ_JOIN_ADDR = "b:1,e:1"  (BOLTQ_JOIN_ADDR)"#,
        r#"--join = "c:1,b:1"  (--join)"#,
    ] {
        let found = loaded.in_effect.lines().any(|found| found.starts_with(line));
        assert!(found, "{line}\n{}", loaded.in_effect);
    }
    let replaced = load_with(&text, &[("BOLTQ_SEEDS", "z:1")], Flags::default()).unwrap();
    assert_eq!(replaced.config.cluster.seeds, ["z:1"]);
}

#[test]
fn a_seed_that_is_no_address_is_refused_where_it_was_written() {
    let flags = Flags {
        join: Some("a".to_owned()),
        ..Flags::default()
    };
    let error = load_with("{}", &[], flags).unwrap_err().to_string();
    assert_eq!(
        error,
        r#"--join = "a" (from --join): allowed is `host:port` of admin ports; several with commas"#
    );
    let error = environment(&[("BOLTQ_JOIN_ADDR", "a:1,b")]).unwrap_err().to_string();
    assert!(error.contains("(from BOLTQ_JOIN_ADDR)"), "{error}");
    let error = refusal(r#"{"cluster":{"seeds":["a:9090","http://b:9090"]}}"#);
    assert!(
        error.starts_with(r#"cluster.seeds = ["a:9090","http://b:9090"] (from "#),
        "{error}"
    );
}

#[test]
fn one_manifest_makes_one_founder() {
    for (node, bootstrap, founds) in [("n1", "false", true), ("n2", "false", false), ("n2", "true", false)] {
        let loaded = environment(&[
            ("BOLTQ_CLUSTER_ENABLED", "true"),
            ("BOLTQ_NODE_ID", node),
            ("BOLTQ_BOOTSTRAP", bootstrap),
            ("BOLTQ_BOOTSTRAP_NODE_ID", "n1"),
        ]);
        assert_eq!(loaded.unwrap().config.cluster.bootstrap, founds, "{node}");
    }
}

#[test]
fn what_cannot_work_in_a_cluster_is_refused() {
    for (more, wanted) in [
        (
            r#","bootstrap":true,"non_voter":true"#,
            "cluster.bootstrap = true contradicts cluster.non_voter = true: a node that founds a cluster has a vote",
        ),
        (
            r#","raft_addr":"127.0.0.1:9091""#,
            r#"cluster.raft_addr = "127.0.0.1:9091" contradicts server.tcp_port = 9091: the ports have to differ"#,
        ),
        (
            r#","raft_addr":"127.0.0.1:9090""#,
            r#"cluster.raft_addr = "127.0.0.1:9090" contradicts server.http_port = 9090: the ports have to differ"#,
        ),
        (
            r#","heartbeat":"250ms""#,
            "cluster.election_timeout = 700ms contradicts cluster.heartbeat = 250ms: it has to be at least three \
             heartbeats long",
        ),
        (
            r#","tls":{"cert_file":"c","ca_file":"a"}"#,
            r#"cluster.tls.cert_file = "c" contradicts cluster.tls.key_file = "": TLS between nodes needs all three"#,
        ),
        (
            r#","tls":{"ca_file":"a"}"#,
            r#"cluster.tls.ca_file = "a" contradicts cluster.tls.cert_file = """#,
        ),
        (
            r#","raft_addr":"9100""#,
            "allowed is `host:port`; an IPv6 address in brackets",
        ),
        (r#","advertise_host":"0.0.0.0""#, "no wildcard"),
        (r#","node_id":"a\u0000b""#, "allowed is up to 200 bytes of UTF-8"),
        (r#","stream_groups":-1"#, "allowed is 0 to 64 groups"),
    ] {
        let error = refusal(&enabled(more));
        assert!(error.contains(wanted), "{error}");
    }
    let error = environment(&[
        ("BOLTQ_CLUSTER_ENABLED", "true"),
        ("BOLTQ_NODE_ID", "n1"),
        ("BOLTQ_NON_VOTER", "true"),
        ("BOLTQ_BOOTSTRAP_NODE_ID", "n1"),
    ]);
    let error = error.unwrap_err().to_string();
    assert!(
        error.starts_with(r#"BOLTQ_BOOTSTRAP_NODE_ID = "n1" contradicts"#),
        "{error}"
    );
}

#[test]
fn what_only_a_cluster_cannot_do_is_allowed_without_one() {
    assert!(file(r#"{"cluster":{"bootstrap":true,"non_voter":true}}"#).is_ok());
    assert!(file(r#"{"server":{"tcp_port":9100}}"#).is_ok());
    assert!(file(&enabled(r#","raft_addr":"127.0.0.1:0""#)).is_ok());
    let free = r#"{"server":{"tcp_port":0},"cluster":{"enabled":true,"raft_addr":"127.0.0.1:0"}}"#;
    assert!(file(free).is_ok());
}

#[test]
fn the_secret_is_never_shown_not_even_when_it_is_refused() {
    let loaded = environment(&[("BOLTQ_CLUSTER_SECRET", SECRET)]).unwrap();
    let line = "cluster.secret = (set)  (BOLTQ_CLUSTER_SECRET)";
    assert!(loaded.in_effect.contains(line), "{}", loaded.in_effect);
    assert!(!loaded.in_effect.contains(SECRET) && !format!("{loaded:?}").contains(SECRET));
    let error = environment(&[("BOLTQ_CLUSTER_SECRET", "tooshort")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cluster.secret = (set) (from BOLTQ_CLUSTER_SECRET): allowed is at least 16 bytes, or none"
    );
    let error = refusal(r#"{"cluster":{"secret":1234567890123456}}"#);
    assert!(!error.contains("1234"), "{error}");
}

#[test]
fn what_may_surprise_is_said() {
    const FORGETS: &str = "storage.mode is memory: ";
    const ALONE: &str = "neither cluster.bootstrap nor a seed is given: ";
    const OPEN: &str = "neither cluster.secret nor cluster.tls is given: ";
    const OFF: &str = "cluster.enabled is false: ";
    let disk = |cluster: &str| format!(r#"{{"storage":{{"mode":"disk"}},"cluster":{{{cluster}}}}}"#);
    let tls = r#""tls":{"cert_file":"c","key_file":"k","ca_file":"a"}"#;
    for (text, wanted) in [
        (
            r#"{"cluster":{"enabled":true}}"#.to_owned(),
            &[FORGETS, ALONE, OPEN][..],
        ),
        (disk(r#""enabled":true,"bootstrap":true"#), &[OPEN]),
        (
            disk(&format!(r#""enabled":true,"seeds":["a:1"],"secret":"{SECRET}""#)),
            &[],
        ),
        (disk(&format!(r#""enabled":true,"bootstrap":true,{tls}"#)), &[]),
        (disk(""), &[]),
        (disk(r#""seeds":["a:1"]"#), &[OFF]),
        (disk(r#""bootstrap":true"#), &[OFF]),
    ] {
        let warnings = load_with(&text, &[], Flags::default()).unwrap().warnings;
        let as_wanted = warnings.len() == wanted.len() && warnings.iter().zip(wanted).all(|(w, s)| w.starts_with(s));
        assert!(as_wanted, "{text}: {warnings:?}");
    }
}

#[test]
fn keys_of_other_clusters_may_stay_at_their_defaults_only() {
    let defaults = r#","raft_dir":"./data/raft","peers":[],"meta_raft_addr":"","queue_plane":false,"rebalance":false,
        "replication_factor":3,"max_concurrent_moves":4,"session_timeout_seconds":15"#;
    assert!(file(&enabled(defaults)).is_ok());
    for (more, wanted) in [
        (
            r#","raft_dir":"/raft""#,
            "a directory for Raft alone (everything is under storage.data_dir) is not available in this version; remove \
             the key, or set it to \"./data/raft\"",
        ),
        (r#","peers":["a:9100"]"#, "use cluster.seeds"),
        (r#","meta_raft_addr":"a:9101""#, "all groups share cluster.raft_addr"),
        (r#","queue_plane":true"#, "in a cluster they are"),
        (r#","replication_factor":5"#, "every voter has all"),
        (r#","session_timeout_seconds":16"#, "cluster.election_timeout"),
    ] {
        let error = refusal(&enabled(more));
        assert!(error.contains(wanted), "{error}");
    }
    assert!(file(r#"{"cluster":{"enabled":false,"raft_dir":"/raft","replication_factor":5}}"#).is_ok());
}

#[test]
fn a_publisher_may_ask_for_less_than_a_majority_only_if_that_is_written() {
    let level = |text: &str| file(text).map(|config| config.publish.min_ack_level);
    assert_eq!(level("{}").unwrap(), AckLevel::Quorum);
    for wanted in [AckLevel::None, AckLevel::Leader, AckLevel::Quorum] {
        let text = format!(r#"{{"publish":{{"min_ack_level":"{wanted}"}}}}"#);
        assert_eq!(level(&text).unwrap(), wanted);
    }
    for wrong in [r#""ALL""#, r#""quorum""#, r#""""#, "1", "[]"] {
        let error = refusal(&format!(r#"{{"publish":{{"min_ack_level":{wrong}}}}}"#));
        assert!(error.contains("publish.min_ack_level"), "{error}");
        assert!(error.contains("`QUORUM`, `LEADER`, `NONE`"), "{error}");
    }
}

#[test]
fn more_than_a_majority_is_a_number_of_voters() {
    let voters = |more: &str| file(&enabled(more)).map(|config| config.cluster.min_in_sync);
    assert_eq!(voters("").unwrap(), 0);
    assert_eq!(voters(r#","min_in_sync":3"#).unwrap(), 3);
    for wrong in ["-1", "65", "1.5", r#""3""#, "true"] {
        let error = refusal(&enabled(&format!(r#","min_in_sync":{wrong}"#)));
        assert!(
            error.contains("cluster.min_in_sync") && error.contains("0 to 64 voters"),
            "{error}"
        );
    }
}
