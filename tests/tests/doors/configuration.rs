//! What the server does with its configuration file, as a process.

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
