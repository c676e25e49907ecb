//! Connections must not take the file handles that the log needs.

use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::{Server, ServerOptions, http};
use serde_json::json;

fn small_files() -> ServerOptions {
    ServerOptions::disk()
        .set("storage.wal_file_bytes", 65_536)
        .set("storage.sync", "never")
}

/// It said "disk full" instead, for as long as the connections stayed.
#[test]
fn idle_connections_do_not_keep_the_log_from_opening_files() {
    let server = Server::start(&small_files().open_files_max(128, 128));
    assert!(
        server.log().contains("more than the limit of file handles allows"),
        "{}",
        server.log()
    );
    let mut client = BinaryClient::connect(server.messaging());
    client.publish("q", &json!("first"));
    let idle: Vec<TcpStream> = (0..200)
        .filter_map(|_| TcpStream::connect(server.messaging()).ok())
        .collect();
    // Some twenty files of the log.
    for number in 0..1_000 {
        client.publish("q", &json!(format!("{number}{}", "x".repeat(1_000))));
        let taken = client.consume("q").expect("what was published");
        client.ack(&taken.id).ok();
    }
    assert_eq!(http::get(server.admin(), "/readyz").expect("an answer").status, 200);
    drop(idle);
    let log = server.log();
    assert!(!log.contains("Too many open files"), "{log}");
}

#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    let server = Server::start(&small_files().open_files_max(64, 512));
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.stat().pid())).expect("a running process");
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("a limit");
    assert_eq!(files.split_whitespace().nth(3), Some("512"), "{files}");
    let clients: Vec<BinaryClient> = (0..200)
        .map(|_| {
            let mut client = BinaryClient::connect(server.messaging());
            client.set_timeout(Duration::from_secs(20));
            client.publish("q", &json!(1));
            client
        })
        .collect();
    drop(clients);
}
