//! Errors of the binary protocol that it takes another door, or very much, to bring about.

use boltq_proto::queue::v1::{CreateQueueRequest, PublishRequest, QueueSettings};
use boltq_tests::harness::binary::{BinaryClient, command, frame, status};
use boltq_tests::harness::grpc::{connect, message};
use boltq_tests::harness::{Server, ServerOptions};
use serde_json::json;

/// Base64 needs a third more.
#[tokio::test]
async fn a_message_that_does_not_fit_into_a_frame_is_named() {
    let server = Server::start(&ServerOptions::memory().set("queue.max_retry", -1));
    let request = PublishRequest {
        queue: "q".to_owned(),
        message: Some(message(vec![0xff; 3_500_000])),
    };
    connect(server.messaging()).await.publish(request).await.unwrap();
    let mut client = BinaryClient::connect(server.messaging());
    client.publish("q", &json!("behind it"));
    let error = client.call(command::CONSUME, r#"{"topic":"q"}"#).error();
    assert!(
        error.starts_with("message ")
            && error.ends_with("does not fit into a frame of this protocol; consume it over gRPC"),
        "{error}"
    );
    assert_eq!(client.consume("q").unwrap().payload(), "behind it");
    assert_eq!(
        client.stats()["DeadLetters"],
        json!({"q_dead_letter": 1}),
        "it counts as failed"
    );
}

#[tokio::test]
async fn publishes_to_full_queues_are_refused() {
    let server = Server::start(&ServerOptions::memory());
    let settings = QueueSettings {
        max_length: Some(1),
        ..QueueSettings::default()
    };
    let request = CreateQueueRequest {
        queue: "q".to_owned(),
        settings: Some(settings),
    };
    connect(server.messaging()).await.create_queue(request).await.unwrap();
    let mut client = BinaryClient::connect(server.messaging());
    client.publish("q", &json!(1));
    let error = client.call(command::PUBLISH, r#"{"topic":"q","payload":2}"#).error();
    assert!(
        error.starts_with(r#"queue "q" is full (max_length is 1): not stored; "#),
        "{error}"
    );
    client
        .call(command::EXCHANGE_DECLARE, r#"{"name":"e","type":"fanout"}"#)
        .ok();
    client.call(command::BIND_QUEUE, r#"{"exchange":"e","queue":"q"}"#).ok();
    let error = client
        .call(command::PUBLISH_EXCHANGE, r#"{"exchange":"e","payload":3}"#)
        .error();
    assert!(
        error.starts_with("all 1 queues that the message was routed to are full: not stored; "),
        "{error}"
    );
    assert_eq!(client.stats()["Queues"], json!({"q": 1}));
}

#[test]
fn statistics_of_very_many_queues_are_refused() {
    const QUEUES: usize = 22_000;
    let server = Server::start(&ServerOptions::memory());
    let mut client = BinaryClient::connect(server.messaging());
    let name = |number: usize| format!("{number:0>200}");
    for numbers in (0..QUEUES).collect::<Vec<_>>().chunks(1_000) {
        let body = |number: &usize| json!({"topic": name(*number)}).to_string();
        let asked: Vec<u8> = numbers
            .iter()
            .flat_map(|number| frame(command::CONSUME, body(number).as_bytes()))
            .collect();
        client.send_bytes(&asked).unwrap();
        for _ in numbers {
            assert_eq!(client.receive().unwrap().status, status::EMPTY);
        }
    }
    let error = client.call(command::STATS, "").error();
    assert_eq!(
        error,
        "the statistics do not fit into a frame; ask the admin port for /stats"
    );
    client.call(command::PING, "").ok();
}
