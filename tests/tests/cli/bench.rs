//! `boltq bench`.

use boltq_tests::harness::grpc::{QueueCalls, connect, message};
use boltq_tests::harness::{Server, ServerOptions};
use serde_json::Value;

use super::boltq;

const SHORT: [&str; 6] = ["bench", "-output", "json", "-warm-up", "100ms", "-duration=500ms"];

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[tokio::test]
async fn what_is_published_is_delivered_and_acknowledged_and_nothing_is_left() {
    let server = Server::start(&ServerOptions::memory());
    let args = ["-publishers", "2", "-consumers", "3", "-size", "100", "-batch", "20"];
    let report = boltq(server.messaging(), &[&SHORT[..], &args].concat()).json();
    assert!(number(&report["published"]["messages"]) > 0, "{report}");
    assert!(number(&report["settled"]) > 0, "{report}");
    assert!(
        report["delivered"]["latency_us"]["p50"].as_f64() > Some(0.0),
        "{report}"
    );
    assert_eq!(report["failed"], 0);
    let list = boltq(server.messaging(), &["queue", "list", "-output", "json"]).stdout;
    assert_eq!(list, "", "a queue is left");
    // And so it can be measured again.
    boltq(server.messaging(), &[&SHORT[..], &args].concat()).json();
}

#[tokio::test]
async fn a_queue_with_messages_is_left_alone_unless_it_is_forced() {
    let server = Server::start(&ServerOptions::memory());
    let mut queues = connect(server.messaging()).await;
    queues.put("jobs", message("precious")).await;
    let args = [&SHORT[..], &["-queue", "jobs", "-consumers", "0", "-batch", "10"]].concat();
    let refused = boltq(server.messaging(), &args);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("messages 1, consumers 0"), "{refused:?}");
    assert_eq!(queues.look("jobs").await.ready, 1);
    let report = boltq(server.messaging(), &[&args[..], &["-force"]].concat()).json();
    // Those of the warm-up come on top.
    assert!(queues.look("jobs").await.ready > number(&report["published"]["messages"]));
}

#[tokio::test]
async fn messages_that_nobody_consumed_are_removed_or_kept() {
    let server = Server::start(&ServerOptions::memory());
    let mut queues = connect(server.messaging()).await;
    let args = [&SHORT[..], &["-queue", "kept", "-consumers", "0"]].concat();
    let report = boltq(server.messaging(), &[&args[..], &["-keep"]].concat()).json();
    assert_eq!(report["delivered"], Value::Null);
    assert!(queues.look("kept").await.ready >= number(&report["published"]["messages"]));
    let args = [&SHORT[..], &["-queue", "removed", "-consumers", "0"]].concat();
    boltq(server.messaging(), &args).json();
    let list = boltq(
        server.messaging(),
        &["queue", "list", "-prefix", "removed", "-o", "json"],
    )
    .stdout;
    assert_eq!(list, "", "a queue is left");
    boltq(server.messaging(), &["queue", "create", "there", "-max-retry", "7"]);
    let args = [&SHORT[..], &["-queue", "there", "-consumers", "0"]].concat();
    boltq(server.messaging(), &args).json();
    assert_eq!(queues.look("there").await.ready, 0);
}

#[tokio::test]
async fn a_rate_is_not_exceeded() {
    let server = Server::start(&ServerOptions::memory());
    let report = boltq(
        server.messaging(),
        &[&SHORT[..], &["-rate", "200", "-publishers", "2"]].concat(),
    )
    .json();
    let published = number(&report["published"]["messages"]);
    let seconds = report["seconds"].as_f64().unwrap();
    // What was due in the warm-up and was late counts too.
    let most = 200.0 * (seconds + 0.1) + 2.0;
    assert!(published > 0 && published as f64 <= most, "{report}");
    // Single messages, unless something else is asked for.
    assert_eq!(report["published"]["bytes"], published * 256);
}
