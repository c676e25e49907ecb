//! Starting on a directory that is, or was, in use.

use std::path::Path;
use std::sync::Arc;

use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::{Directory, Server, ServerOptions};
use serde_json::json;

/// Weakness F1: the server did not start a second time. With the configuration that the repository ships.
#[test]
fn the_shipped_configuration_starts_again_and_again() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/default.json");
    let options = ServerOptions::from_json(&std::fs::read_to_string(&path).expect("the shipped configuration"));
    let mut server = Server::start(&options.set("server.host", "127.0.0.1"));
    for run in 0..3 {
        let mut client = BinaryClient::connect(server.messaging());
        assert_eq!(client.stats()["Queues"]["q"].as_u64().unwrap_or_default(), run);
        client.publish("q", &json!(run));
        if run == 1 {
            assert!(server.terminate().success());
        }
        server.restart();
    }
    assert!(
        server.directory().data().is_dir(),
        "the default data directory lies below the working directory"
    );
}

/// Weakness A19: nothing kept a second process from writing into the same files.
#[test]
fn a_second_process_on_one_data_directory_refuses_and_says_why() {
    let options = ServerOptions::disk();
    let first = Server::start(&options);
    let mut client = BinaryClient::connect(first.messaging());
    client.publish("q", &json!(1));
    let refused = Server::start_in(&options, Arc::clone(first.directory())).expect_err("a second server");
    let status = refused.status.expect("it ends by itself");
    assert!(!status.success());
    assert!(refused.log.contains("data"), "it names the directory: {}", refused.log);
    assert!(!refused.log.contains("panicked"), "{}", refused.log);
    client.publish("q", &json!(2));
    assert_eq!(client.stats()["Queues"]["q"], 2, "the first one is not disturbed");
}

#[test]
fn a_data_directory_that_cannot_be_made_is_named() {
    let directory = Arc::new(Directory::new());
    std::fs::write(directory.data(), "a file").unwrap();
    let refused = Server::start_in(&ServerOptions::disk(), directory).expect_err("a file is no directory");
    assert!(!refused.status.expect("it ends by itself").success());
    assert!(
        refused.log.contains("data") && !refused.log.contains("panicked"),
        "{}",
        refused.log
    );
}

#[test]
fn a_log_is_started_by_the_node_that_wrote_it_and_by_no_other() {
    let mut server = Server::start(&ServerOptions::disk());
    BinaryClient::connect(server.messaging()).publish("q", &json!(1));
    server.kill();
    let directory = Arc::clone(server.directory());
    let (identity, mark) = (directory.data().join("node-id"), directory.data().join("queue/node-id"));
    let own = std::fs::read(&identity).unwrap();
    let refused = |why: &str| {
        let refused = Server::start_in(&ServerOptions::disk(), Arc::clone(&directory)).expect_err(why);
        assert!(!refused.status.expect("it ends by itself").success());
        assert!(
            refused.log.contains(why) && !refused.log.contains("panicked"),
            "{}",
            refused.log
        );
    };
    std::fs::write(&identity, "00000000deadbeef\n").unwrap();
    refused("the node id is 00000000deadbeef, but the log beside it was written by node");
    std::fs::remove_file(&identity).unwrap();
    refused("the node id is missing, but there is a log beside it, written by node");
    // An earlier version did not say whose log it is.
    std::fs::remove_file(&mark).unwrap();
    refused("the node id is missing, but there is a log beside it");
    std::fs::write(&identity, &own).unwrap();
    server.restart();
    assert_eq!(BinaryClient::connect(server.messaging()).stats()["Queues"]["q"], 1);
    assert_eq!(std::fs::read(&mark).unwrap(), own);
}
