//! Other commands.

use std::process::Command;

use boltq_tests::harness::grpc::{QueueCalls, connect, message};
use boltq_tests::harness::{Server, ServerOptions, cli_binary};
use serde_json::Value;

use super::{boltq, run};

#[tokio::test]
async fn a_lease_has_more_time_as_long_as_it_is_held() {
    let server = Server::start(&ServerOptions::memory());
    connect(server.messaging()).await.put("films", message("f")).await;
    let taken = boltq(server.messaging(), &["consume", "-topic", "films", "-output", "json"]).json();
    let token = taken["delivery_token"].as_str().unwrap();
    let extend = ["extend", "-token", token, "-lease", "10m"];
    assert_eq!(boltq(server.messaging(), &extend).stdout, "extended 1 lease\n");
    boltq(
        server.messaging(),
        &["ack", "-id", taken["message_id"].as_str().unwrap()],
    );
    let refused = boltq(server.messaging(), &extend);
    assert_eq!(
        (refused.code, refused.stdout.as_str()),
        (Some(1), "extended 0 leases\n")
    );
    let why = format!("error: lease {token} not extended: ");
    assert!(refused.stderr.starts_with(&why), "{refused:?}");
}

#[tokio::test]
async fn top_shows_what_is_there() {
    let server = Server::start(&ServerOptions::memory());
    let mut queues = connect(server.messaging()).await;
    queues.put("a\u{202e}", message("x")).await;
    queues.put("b", message("x")).await;
    queues.put("b", message("x")).await;
    queues.take("b", 1).await;
    let frame = boltq(server.messaging(), &["top", "-once", "-interval", "100ms"]).stdout;
    assert!(frame.is_ascii(), "{frame:?}");
    let rows: Vec<Vec<&str>> = frame
        .lines()
        .skip(5)
        .map(|line| line.split_whitespace().collect())
        .collect();
    let expected = [
        vec!["2", "0", "1", "1", "0", "0", "0", "b"],
        vec!["1", "0", "1", "0", "0", "0", "0", "a\\u{202e}"],
    ];
    assert_eq!(rows, expected, "{frame}");
    let json = boltq(
        server.messaging(),
        &["top", "-once", "-interval", "100ms", "-o", "json"],
    )
    .json();
    assert_eq!(
        (&json["ready"], &json["leased"], &json["cluster"]),
        (&2.into(), &1.into(), &Value::Null)
    );
}

#[test]
fn the_admin_port_and_a_wrong_key_are_named() {
    let server = Server::start(&ServerOptions::memory().set("security.api_key", "right"));
    let ran = boltq(server.admin(), &["stats"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("admin port"), "{ran:?}");
    let with_key = |key: &str| {
        let mut command = Command::new(cli_binary());
        command.args(["queue", "list"]).env_clear().env("BOLTQ_API_KEY", key);
        run(command.env("BOLTQ_ADDR", server.messaging().to_string()))
    };
    assert_eq!(with_key("right").code, Some(0));
    let wrong = with_key("wrong");
    assert!(
        wrong
            .stderr
            .contains("BOLTQ_API_KEY is set, and is no key of this server"),
        "{wrong:?}"
    );
    let missing = boltq(server.messaging(), &["queue", "list"]);
    assert!(
        missing.stderr.contains("set BOLTQ_API_KEY to the key of the server"),
        "{missing:?}"
    );
}
