//! Idempotency keys that the client makes up, and a server that has no room for more of them.

use boltq::{Client, Code, ConsumeOptions, Error, Message, PublisherOptions, Queue};
use boltq_tests::harness::{Server, ServerOptions};

const KEYS_MAX: u32 = 5;

fn server() -> Server {
    Server::start(&ServerOptions::memory().set("queue.dedup_max_keys", KEYS_MAX))
}

fn client(server: &Server) -> Client {
    Client::builder()
        .address(server.messaging().to_string())
        .build()
        .expect("a client")
}

/// What the queue has, in the order in which it is delivered.
async fn payloads(queue: &Queue) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let options = ConsumeOptions {
            max_messages: 1_000,
            ..ConsumeOptions::default()
        };
        let deliveries = queue.consume(options).await.expect("consumed");
        if deliveries.is_empty() {
            return all;
        }
        let texts = deliveries.iter().map(|delivery| delivery.payload().to_vec());
        all.extend(texts.map(|text| String::from_utf8(text).expect("text")));
    }
}

fn numbers(to: usize) -> Vec<String> {
    (0..to).map(|number| number.to_string()).collect()
}

fn is_for_the_application(error: &Error) {
    assert_eq!(
        (error.code(), error.reason()),
        (Code::ResourceExhausted, Some("IDEMPOTENCY_KEYS_FULL"))
    );
    assert!(error.is_retriable() && !error.is_outcome_unknown(), "{error}");
}

#[tokio::test]
async fn a_publish_does_without_a_key_that_was_made_up_and_not_without_one_that_was_chosen() {
    let server = server();
    let queue = client(&server).queue("q");
    for number in numbers(20) {
        queue.publish(number).await.expect("published");
    }
    // Those who come later, and begin with keys.
    client(&server).queue("q").publish("20").await.expect("published");
    let chosen = Message::new("x").idempotency_key("order-17");
    is_for_the_application(&queue.publish(chosen).await.expect_err("no room for the key"));
    assert_eq!(payloads(&queue).await, numbers(21));
}

#[tokio::test]
async fn a_publisher_does_without_keys_that_were_made_up_and_keeps_the_order() {
    // More than one request has, so that others are on their way when the first one is answered.
    const MESSAGES: usize = 5_000;
    let server = server();
    let queue = client(&server).queue("q");
    let publisher = queue.publisher(PublisherOptions::default());
    let mut confirmations = Vec::new();
    for number in numbers(MESSAGES) {
        confirmations.push(publisher.publish(number).await.expect("room"));
    }
    for confirmation in confirmations {
        confirmation.await.expect("published");
    }
    let chosen = Message::new("x").idempotency_key("order-17");
    let refused = publisher.publish(chosen).await.expect("room").await;
    is_for_the_application(&refused.expect_err("no room for the key"));
    publisher.close().await;
    let stored = payloads(&queue).await;
    let wrong = stored.iter().zip(numbers(MESSAGES)).find(|(one, other)| *one != other);
    assert_eq!((stored.len(), wrong), (MESSAGES, None));
}

#[tokio::test]
async fn one_chosen_key_among_others_fails_alone() {
    let server = server();
    for number in 0..KEYS_MAX {
        let message = Message::new("x").idempotency_key(number.to_string());
        client(&server).queue("full").publish(message).await.expect("published");
    }
    let queue = client(&server).queue("q");
    let publisher = queue.publisher(PublisherOptions::default());
    let mut confirmations = Vec::new();
    for number in numbers(20) {
        let message = Message::new(number.clone());
        let message = match number.as_str() {
            "10" => message.idempotency_key("order-17"),
            _ => message,
        };
        confirmations.push(publisher.publish(message).await.expect("room"));
    }
    for (number, confirmation) in confirmations.into_iter().enumerate() {
        match confirmation.await {
            Ok(_) => assert_ne!(number, 10),
            Err(error) => {
                assert_eq!(number, 10, "{error}");
                is_for_the_application(&error);
            }
        }
    }
    let mut expected = numbers(20);
    expected.remove(10);
    assert_eq!(payloads(&queue).await, expected);

    // Messages without keys share a request with it now.
    let mut confirmations = Vec::new();
    for number in numbers(20) {
        confirmations.push(publisher.publish(number).await.expect("room"));
    }
    let chosen = Message::new("x").idempotency_key("order-17");
    let refused = publisher.publish(chosen).await.expect("room");
    for confirmation in confirmations {
        confirmation.await.expect("published");
    }
    is_for_the_application(&refused.await.expect_err("no room for the key"));
    assert_eq!(payloads(&queue).await, numbers(20));
}
