//! Starting with half a configuration, and stopping while clients wait.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use boltq_tests::harness::binary::{BinaryClient, command};
use boltq_tests::harness::{Directory, Server, ServerOptions, eventually, server_binary};
use serde_json::json;

use super::calls::{Calls, PATIENCE};

#[test]
fn a_section_with_one_key_leaves_the_others_at_their_defaults() {
    let directory = Directory::new();
    let config = directory.path().join("config.json");
    let ports = json!({"http_port": 0, "tcp_port": 0});
    let text = json!({"queue": {"max_retry": -1}, "cache": {"max_keys": 7}, "server": ports}).to_string();
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(server_binary());
    command.args(["check-config", "--config"]).arg(&config);
    let output = command.current_dir(directory.path()).env_clear().output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = String::from_utf8(output.stdout).unwrap();
    for wanted in [
        "queue.max_retry = -1  (",
        "queue.ack_timeout = \"30s\"  (default)",
        "queue.retry_backoff = \"100ms\"  (default)",
        "cache.max_keys = 7  (",
        "cache.enabled = true  (default)",
        "cache.cleanup_sec = 10  (default)",
        "storage.mode = \"memory\"  (default)",
    ] {
        let found = shown.lines().any(|line| line.starts_with(wanted));
        assert!(found, "{wanted} in\n{shown}");
    }
}

/// A connection to the admin port on which something was asked.
fn asked(server: &Server, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.admin()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Reads until `end` has come.
fn read_until(stream: &mut TcpStream, end: &str) {
    let (mut seen, mut byte) = (Vec::new(), [0]);
    while !seen.ends_with(end.as_bytes()) {
        stream.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
}

#[test]
fn a_stop_waits_for_nobody_who_only_waits_and_ends_streams_in_good_order() {
    let mut server = Server::start(&ServerOptions::disk().set("server.shutdown_grace", "1m"));
    let mut events = asked(&server, "GET /subscribe?topic=t&id=s HTTP/1.1\r\nhost: a\r\n\r\n");
    read_until(&mut events, "\r\n\r\n");
    let mut idle = asked(&server, "GET /stats HTTP/1.1\r\nhost: a\r\n\r\n");
    read_until(&mut idle, "}");
    let silent = TcpStream::connect(server.messaging()).unwrap();
    let mut subscriber = BinaryClient::connect(server.messaging());
    subscriber.subscribe("t", "live", false);
    subscriber.subscribe("t", "durable", true);
    let mut publisher = BinaryClient::connect(server.messaging());
    publisher.ask(command::PUBLISH_TOPIC, &json!({"topic": "t", "payload": "last"}));
    assert_eq!(publisher.stats()["Topics"], json!({"t": 3}));

    server.signal(rustix::process::Signal::TERM);
    // Well before what it grants to requests that are under way.
    let status = eventually(Duration::from_secs(30), "it stops", || server.exited());
    assert_eq!(status.code(), Some(0), "{status}");
    let mut rest = String::new();
    events.read_to_string(&mut rest).unwrap();
    assert!(
        rest.contains("\"payload\":\"last\"") && rest.ends_with("\r\n0\r\n\r\n"),
        "{rest:?}"
    );
    let mut pushes = 0;
    while let Ok(frame) = subscriber.receive() {
        assert_eq!(frame.ok()["payload"], "last");
        pushes += 1;
    }
    assert_eq!(pushes, 2);
    drop((silent, idle));
}
