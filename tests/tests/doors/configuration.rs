//! What the server does with its configuration file, as a process.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::{Directory, Server, ServerOptions, StartError};
use serde_json::{Value, json};

fn refused(key: &str, value: impl Into<Value>) -> StartError {
    let options = ServerOptions::memory().set(key, value);
    Server::start_in(&options, Arc::new(Directory::new())).expect_err(key)
}

/// Weakness C14: what has no effect was read and ignored, unknown keys too.
#[test]
fn unknown_keys_stop_the_start_and_name_the_key_that_may_be_meant() {
    let error = refused("queue.max_retries", 3);
    assert_eq!(error.status.expect("it ends by itself").code(), Some(2));
    assert!(
        error.log.contains("queue.max_retries") && error.log.contains("queue.max_retry?"),
        "{}",
        error.log
    );
}

#[test]
fn values_out_of_range_stop_the_start_and_are_named() {
    for (key, value) in [
        ("storage.mode", json!("disc")),
        ("queue.ack_timeout", json!("soon")),
        ("queue.max_retry", json!("five")),
        ("storage.sync", json!(true)),
        ("cluster.enabled", json!("yes")),
    ] {
        let error = refused(key, value);
        assert_eq!(error.status.expect("it ends by itself").code(), Some(2), "{key}");
        assert!(error.log.contains(key), "{}", error.log);
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let directory = Directory::new();
    let config = directory.path().join("config.json");
    let options = ServerOptions::memory()
        .set("server.tcp_port", port)
        .set("server.http_port", 0);
    std::fs::write(&config, options.to_json()).unwrap();
    let output = std::process::Command::new(boltq_tests::harness::server_binary())
        .args([Path::new("-config"), &config])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains(&port.to_string()) && !log.contains("panicked"), "{log}");
}

/// The example that existing deployments were started with: two sections `server`, and a cluster that is off.
#[test]
fn the_configuration_of_an_existing_deployment_starts() {
    let options = ServerOptions::from_json(
        r#"{"server":{"http_port":9090,"tcp_port":9091,"host":"127.0.0.1"},
            "storage":{"mode":"disk","data_dir":"./data","compaction_threshold":104857600},
            "queue":{"max_retry":5,"ack_timeout":"30s","capacity":1048576},
            "security":{"api_key":""},
            "cluster":{"enabled":false,"node_id":"node1","raft_addr":"0.0.0.0:9100","raft_dir":"./data/raft",
                       "bootstrap":false,"seeds":[],"non_voter":false,"snapshot_threshold":8192}}"#,
    );
    let options = options.set("server.tls", json!({"enabled": false, "cert_file": "", "key_file": ""}));
    let server = Server::start(&options);
    BinaryClient::connect(server.messaging()).publish("q", &json!(1));
}

struct Checked {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// `boltq-server check-config` with these settings, and with nothing of ours in the environment but `environment`.
fn check_config(options: &ServerOptions, environment: &[(&str, &OsStr)]) -> Checked {
    let directory = Directory::new();
    let config = directory.path().join("config.json");
    std::fs::write(&config, options.to_json()).unwrap();
    let mut command = std::process::Command::new(boltq_tests::harness::server_binary());
    command.args([OsStr::new("check-config"), OsStr::new("--config"), config.as_os_str()]);
    let output = command
        .env_clear()
        .envs(environment.iter().copied())
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(!directory.path().join("data").exists(), "it only looks");
    Checked {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn free_ports() -> ServerOptions {
    ServerOptions::disk()
        .set("server.http_port", 0)
        .set("server.tcp_port", 0)
}

#[test]
fn check_config_says_what_would_be_in_effect_and_leaves_nothing_behind() {
    let checked = check_config(&free_ports(), &[]);
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""));
    assert!(
        checked.stdout.contains("storage.mode = \"disk\"  ("),
        "{}",
        checked.stdout
    );
}

#[test]
fn check_config_refuses_what_this_machine_cannot_do() {
    let cluster = |options: ServerOptions| {
        options
            .set("cluster.enabled", true)
            .set("cluster.bootstrap", true)
            .set("cluster.secret", "0123456789abcdef")
    };
    for (options, named) in [
        (free_ports().set("server.host", "nowhere.invalid"), "server.host"),
        (free_ports().set("server.host", "192.0.2.1"), "192.0.2.1"),
        (free_ports().set("storage.data_dir", "/dev/null/data"), "/dev/null"),
        (free_ports().set("server.tcp_port", 65_536), "server.tcp_port"),
        (
            free_ports()
                .set("server.tcp_port", 9_090)
                .set("server.http_port", 9_090),
            "the ports have to differ",
        ),
        (
            cluster(free_ports().set("server.tcp_port", 9_100)).set("cluster.raft_addr", "127.0.0.1:9100"),
            "the ports have to differ",
        ),
        (
            cluster(free_ports()).set("cluster.raft_addr", "nowhere.invalid:0"),
            "cluster.raft_addr",
        ),
        (
            cluster(free_ports().set("cluster.tls.cert_file", "/nowhere/cert"))
                .set("cluster.tls.key_file", "/nowhere/key")
                .set("cluster.tls.ca_file", "/nowhere/ca"),
            "/nowhere/",
        ),
    ] {
        let checked = check_config(&options, &[]);
        assert_eq!(checked.code, Some(2), "{named}: {}", checked.stderr);
        assert!(checked.stderr.contains(named), "{named}: {}", checked.stderr);
    }
    // Who is asked for admission may not be there yet.
    let options = cluster(free_ports())
        .set("cluster.raft_addr", "127.0.0.1:0")
        .set("cluster.seeds", json!(["nowhere.invalid:9090"]));
    let checked = check_config(&options, &[]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(
        checked
            .stderr
            .starts_with("warning: the seed \"nowhere.invalid:9090\" has no address now: "),
        "{}",
        checked.stderr
    );
}

#[test]
fn variables_that_would_not_be_read_as_they_were_meant_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    for value in [&b"s3cret\xff"[..], "s3cr\u{e9}t".as_bytes(), b"s3cret\n"] {
        let checked = check_config(&free_ports(), &[("BOLTQ_API_KEY", OsStr::from_bytes(value))]);
        assert_eq!((checked.code, checked.stdout.as_str()), (Some(2), ""));
        assert!(
            checked.stderr.contains("BOLTQ_API_KEY") && !checked.stderr.contains("s3cr"),
            "{}",
            checked.stderr
        );
    }
}
