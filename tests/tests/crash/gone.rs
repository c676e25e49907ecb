//! A data directory that is taken away from under the running server.
//!
//! The system lets it write into the files as before, and what it acknowledged would be gone with the process. So it ends, as
//! for a device that is broken, and says why.

use std::path::Path;
use std::time::Duration;

use boltq_tests::harness::binary::{BinaryClient, command, status};
use boltq_tests::harness::{Cluster, Server, ServerOptions, eventually};
use serde_json::json;

const ENDS_WITHIN: Duration = Duration::from_secs(30);

fn remove(data: &Path) {
    std::fs::remove_dir_all(data).unwrap();
}

fn replace(data: &Path) {
    std::fs::rename(data, data.with_extension("old")).unwrap();
    std::fs::create_dir(data).unwrap();
}

fn assert_ended(mut server: Server) {
    let status = eventually(ENDS_WITHIN, "the server ends", || server.exited());
    assert_eq!(status.code(), Some(1));
    let log = server.log();
    assert!(
        log.contains("the data directory was removed or replaced") && !log.contains("panicked"),
        "{log}"
    );
}

#[test]
fn nothing_is_acknowledged_any_more_and_the_server_ends_and_says_why() {
    for take_away in [remove, replace] {
        let server = Server::start(&ServerOptions::disk());
        let mut client = BinaryClient::connect(server.messaging());
        client.publish("q", &json!(1));
        take_away(&server.directory().data());
        let body = json!({"topic": "q", "payload": 2}).to_string();
        // Refused, or the connection ends.
        if let Ok(reply) = client.try_call(command::PUBLISH, &body) {
            reply.error();
        }
        assert_ended(server);
    }
}

#[test]
fn a_server_that_nobody_writes_to_notices_it_too() {
    for sync in ["always", "never"] {
        let server = Server::start(&ServerOptions::disk().set("storage.sync", sync));
        BinaryClient::connect(server.messaging()).publish("q", &json!(1));
        remove(&server.directory().data());
        assert_ended(server);
    }
}

/// What a cluster acknowledged is on the other nodes.
#[test]
fn a_cluster_goes_on_without_a_node_whose_directory_was_removed() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    BinaryClient::connect(cluster.node(leader).messaging()).publish("q", &json!(1));
    remove(&cluster.node(leader).data());
    eventually(ENDS_WITHIN, "the node says why it ends", || {
        let log = cluster.node(leader).log();
        log.contains("the data directory was removed or replaced").then_some(())
    });
    eventually(ENDS_WITHIN, "the node ends", || {
        cluster.node(leader).status().is_none().then_some(())
    });
    cluster.kill(leader);
    let next = cluster.leader();
    assert_ne!(next, leader);
    // It may be elected, and not yet know up to where it can answer.
    let taken = eventually(ENDS_WITHIN, "what was acknowledged", || {
        let mut client = BinaryClient::connect(cluster.node(next).messaging());
        let reply = client.call(command::CONSUME, r#"{"topic":"q"}"#);
        (reply.status == status::OK).then(|| reply.json())
    });
    assert_eq!(taken["payload"], 1);
}
