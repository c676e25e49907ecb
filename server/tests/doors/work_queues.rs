//! Publishing, taking and settling over the binary protocol.

use serde_json::{Value, json};

use crate::harness::*;

#[tokio::test]
async fn a_message_comes_with_what_was_published() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let body = r#"{"topic":"thumbnails","payload":{"image":981},"headers":{"tenant":"acme"},"priority":4}"#;
    let (code, published) = client.ask(PUBLISH, body).await;
    assert_eq!((code, published.as_object().unwrap().len()), (OK, 2), "{published}");
    let (code, message) = client.consume("thumbnails").await;
    assert_eq!(code, OK);
    assert_eq!(id_of(&message), id_of(&published));
    assert_eq!(message["topic"], "thumbnails");
    assert_eq!(message["payload"], json!({"image": 981}));
    assert_eq!(message["headers"], json!({"tenant": "acme"}));
    assert_eq!(message["retry"], 0);
    assert!(message["timestamp"].is_u64());
    assert_eq!(message.get("subscriber_id"), None);
}

#[tokio::test]
async fn a_message_without_payload_is_null_and_has_no_headers() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.ask(PUBLISH, r#"{"topic":"q","headers":null}"#).await;
    let (_, message) = client.consume("q").await;
    assert_eq!(
        (message["payload"].clone(), message.get("headers")),
        (Value::Null, None)
    );
}

#[tokio::test]
async fn an_acknowledged_message_is_gone_and_cannot_be_settled_again() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let id = client.publish("q", &json!(1)).await;
    client.consume("q").await;
    assert_eq!(client.settle(ACK, &id).await, status("acked"));
    let gone = error(&format!("message {id} not found in pending"));
    assert_eq!(client.settle(ACK, &id).await, gone);
    assert_eq!(client.settle(NACK, &id).await, gone);
    assert_eq!(client.consume("q").await, (EMPTY, Value::Null));
}

#[tokio::test]
async fn a_failed_message_comes_again_and_at_last_becomes_a_dead_letter() {
    let server = Server::start_with(|config| config.queue.retries_max = 1).await;
    let mut client = server.client().await;
    let id = client.publish("q", &json!("poison")).await;
    for retry in 0..2 {
        let message = client.consume_soon("q").await;
        assert_eq!((&message["retry"], id_of(&message)), (&json!(retry), id.clone()));
        assert_eq!(client.settle(NACK, &id).await, status("nacked"));
    }
    let dead = client.consume_soon("q_dead_letter").await;
    assert_eq!((id_of(&dead), &dead["payload"]), (id, &json!("poison")));
    assert_eq!(client.consume("q").await, (EMPTY, Value::Null));
}

#[tokio::test]
async fn any_connection_may_settle() {
    let server = Server::start().await;
    let (mut one, mut other) = (server.client().await, server.client().await);
    let id = one.publish("q", &json!(1)).await;
    one.consume("q").await;
    assert_eq!(other.settle(ACK, &id).await, status("acked"));
}

#[tokio::test]
async fn what_a_connection_held_is_free_when_it_ends_and_no_attempt_is_counted() {
    let server = Server::start().await;
    let (mut gone, mut other) = (server.client().await, server.client().await);
    let id = gone.publish("q", &json!(1)).await;
    gone.consume("q").await;
    assert_eq!(other.consume("q").await, (EMPTY, Value::Null));
    drop(gone);
    let message = other.consume_soon("q").await;
    assert_eq!((id_of(&message), &message["retry"]), (id, &json!(0)));
}

#[tokio::test]
async fn prefetch_bounds_what_a_connection_holds() {
    let server = Server::start().await;
    let (mut client, mut other) = (server.client().await, server.client().await);
    for n in 0..5 {
        client.publish("q", &json!(n)).await;
    }
    assert_eq!(client.ask(PREFETCH, r#"{"count":2}"#).await, status("ok"));
    client.send(&frame(CONSUME, r#"{"topic":"q"}"#).repeat(3)).await;
    let (first, second) = (client.reply().await.1, client.reply().await.1);
    assert_eq!((&first["payload"], &second["payload"]), (&json!(0), &json!(1)));
    let limit = error("prefetch limit reached");
    assert_eq!(client.reply().await, limit);
    // It is looked at before the queue.
    assert_eq!(client.consume("none").await, limit);

    // What others hold does not count, whoever settles it.
    let foreign = id_of(&other.consume("q").await.1);
    assert_eq!(client.settle(ACK, &foreign).await, status("acked"));
    assert_eq!(client.consume("q").await, limit);

    assert_eq!(client.settle(ACK, &id_of(&first)).await, status("acked"));
    assert_eq!(client.consume("q").await.1["payload"], 3);
    assert_eq!(client.consume("q").await, limit);
    assert_eq!(client.ask(PREFETCH, r#"{"count":0}"#).await, status("ok"));
    assert_eq!(client.consume("q").await.1["payload"], 4);
    assert_eq!(client.consume("q").await, (EMPTY, Value::Null));
}

#[tokio::test]
async fn a_lease_that_times_out_makes_room_for_prefetch() {
    let server = Server::start_with(|config| config.queue.ack_timeout = std::time::Duration::from_millis(100)).await;
    let mut client = server.client().await;
    client.publish("q", &json!(1)).await;
    client.ask(PREFETCH, r#"{"count":1}"#).await;
    client.consume("q").await;
    assert_eq!(client.consume("q").await, error("prefetch limit reached"));
    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    let message = client.consume_soon("q").await;
    assert_eq!(message["retry"], 1);
}

#[tokio::test]
async fn in_confirm_mode_successful_publishes_are_numbered() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let (_, plain) = client.ask(PUBLISH, r#"{"topic":"q"}"#).await;
    assert_eq!((plain.get("seq_no"), plain.get("ack")), (None, None));
    for _ in 0..2 {
        assert_eq!(client.ask(CONFIRM_SELECT, "not JSON").await, status("ok"));
    }
    let mut requests = frame(PUBLISH, r#"{"topic":"q"}"#);
    requests.extend(frame(PUBLISH, r#"{"topic":""}"#));
    requests.extend(frame(PUBLISH, r#"{"topic":"q"}"#));
    client.send(&requests).await;
    let first = client.reply().await.1;
    assert_eq!((&first["seq_no"], &first["ack"]), (&json!(1), &json!(true)));
    assert_eq!(client.reply().await, error("topic is required"));
    let second = client.reply().await.1;
    assert_eq!((&second["seq_no"], &second["ack"]), (&json!(2), &json!(true)));
}

#[tokio::test]
async fn a_thousand_messages_for_several_queues_keep_their_ids_and_places() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let queue = |n: usize| ["a", "b", "c"][n % 3];
    let publishes: Vec<u8> = (0..3_000)
        .flat_map(|n| frame(PUBLISH, &json!({"topic": queue(n), "payload": n}).to_string()))
        .collect();
    let mut ids = Vec::new();
    client.send(&publishes).await;
    for n in 0..3_000 {
        let (code, reply) = client.reply().await;
        assert_eq!((code, &reply["topic"]), (OK, &json!(queue(n))));
        ids.push(id_of(&reply));
    }
    for (n, id) in ids.into_iter().enumerate() {
        let (_, message) = client.consume(queue(n)).await;
        assert_eq!((&message["payload"], id_of(&message)), (&json!(n), id));
    }
}
