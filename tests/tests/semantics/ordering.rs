//! Messages with an ordering key: in order and one at a time, whatever door they come through.

use std::time::Duration;

use boltq_proto::exchange::v1::PublishRequest as ExchangePublishRequest;
use boltq_proto::exchange::v1::exchange_service_client::ExchangeServiceClient;
use boltq_proto::queue::v1::{
    NackRequest, PeekRequest, PublishRequest, PublishStreamRequest, RedriveDeadLettersRequest,
};
use boltq_proto::topic::v1::PublishRequest as TopicPublishRequest;
use boltq_proto::topic::v1::topic_service_client::TopicServiceClient;
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::binary::{BinaryClient, command};
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, channel, connect, duration, message, reason};
use boltq_tests::harness::{Server, ServerOptions, eventually_async, http};
use serde_json::json;
use tonic::{Code, Status};

fn keyed(payload: impl Into<bytes::Bytes>, key: &str) -> Message {
    Message {
        ordering_key: key.to_owned(),
        ..message(payload)
    }
}

async fn started(options: &ServerOptions) -> (Server, QueueClient) {
    let server = Server::start(options);
    let client = connect(server.messaging()).await;
    (server, client)
}

/// Payloads of what can be taken now, with the key of each.
async fn taken(client: &mut QueueClient, queue: &str) -> Vec<(String, String)> {
    let taken = client.take(queue, 99).await;
    let shown = taken.into_iter().map(|delivery| {
        let payload = String::from_utf8(delivery.payload.to_vec()).unwrap();
        (payload, delivery.ordering_key)
    });
    shown.collect()
}

fn pair(payload: &str, key: &str) -> (String, String) {
    (payload.to_owned(), key.to_owned())
}

#[tokio::test]
async fn messages_of_a_key_come_one_after_the_other_and_other_keys_go_on() {
    let (_server, mut client) = started(&ServerOptions::memory()).await;
    for (payload, key) in [("1", "ann"), ("2", "ann"), ("3", "bob"), ("4", ""), ("5", "ann")] {
        client.put("q", keyed(payload, key)).await;
    }
    let first = client.take("q", 1).await;
    assert_eq!((&first[0].payload[..], &*first[0].ordering_key), (&b"1"[..], "ann"));
    let mut others = taken(&mut client, "q").await;
    others.sort();
    assert_eq!(others, [pair("3", "bob"), pair("4", "")]);
    assert_eq!(client.look("q").await.ready, 2);
    assert_eq!(client.done(&first).await, 1);
    assert_eq!(taken(&mut client, "q").await, [pair("2", "ann")]);
    let peek = PeekRequest {
        queue: "q".to_owned(),
        max_messages: 9,
        ..PeekRequest::default()
    };
    assert!(client.peek(peek).await.unwrap().into_inner().deliveries.is_empty());
}

#[tokio::test]
async fn the_binary_protocol_takes_and_shows_keys() {
    let (server, mut grpc) = started(&ServerOptions::memory()).await;
    let mut binary = BinaryClient::connect(server.messaging());
    for payload in [1, 2] {
        binary.publish_with(&json!({"topic": "q", "payload": payload, "ordering_key": "ann \"x\""}));
    }
    let first = binary.consume("q").unwrap();
    assert_eq!(
        (first.payload(), &first.body["ordering_key"]),
        (&json!(1), &json!("ann \"x\""))
    );
    assert!(binary.consume("q").is_none());
    binary.ack(&first.id).ok();
    assert_eq!(taken(&mut grpc, "q").await, [pair("2", "ann \"x\"")]);
    binary.publish("other", &json!(3));
    assert_eq!(binary.consume("other").unwrap().body.get("ordering_key"), None);
}

async fn refused(client: &mut QueueClient, message: Message) -> Status {
    let request = PublishRequest {
        queue: "q".to_owned(),
        message: Some(message),
    };
    client.publish(request).await.unwrap_err()
}

#[tokio::test]
async fn what_contradicts_the_order_of_a_key_is_refused_by_name() {
    let (server, mut client) = started(&ServerOptions::memory()).await;
    let priority = Message {
        priority: 3,
        ..keyed("x", "k")
    };
    let delay = Message {
        delay: duration(Duration::from_secs(1)),
        ..keyed("x", "k")
    };
    let cases = [
        (priority, "ordering_key is set and priority is 3"),
        (delay, "ordering_key and delay are set"),
        (keyed("x", &"k".repeat(201)), "ordering_key: name has 201 bytes"),
        (keyed("x", "a\nb"), "ordering_key: name has a control character"),
    ];
    for (message, why) in cases {
        let status = refused(&mut client, message).await;
        assert_eq!(
            (status.code(), &*reason(&status)),
            (Code::InvalidArgument, "INVALID_ARGUMENT")
        );
        assert!(status.message().contains(why), "{status}");
    }
    let mut binary = BinaryClient::connect(server.messaging());
    let bodies = [
        (
            json!({"topic": "q", "payload": 1, "ordering_key": "k", "priority": 3}),
            "priority is 3",
        ),
        (
            json!({"topic": "q", "payload": 1, "ordering_key": "k", "delay": 1}),
            "delay are set",
        ),
    ];
    for (body, why) in bodies {
        let error = binary.call(command::PUBLISH, &body.to_string()).error();
        assert!(error.contains(why), "{error}");
    }
    let least = Message {
        priority: -1,
        ..keyed("x", &"k".repeat(200))
    };
    client.put("q", least).await;
    assert_eq!(client.look("q").await.ready, 1);
}

#[tokio::test]
async fn topics_and_exchanges_take_no_ordering_keys() {
    let (server, _) = started(&ServerOptions::memory()).await;
    let connection = channel(server.messaging()).await.unwrap();
    let exchange = ExchangePublishRequest {
        routing_key: "q".to_owned(),
        message: Some(keyed("x", "k")),
        ..ExchangePublishRequest::default()
    };
    let by_exchange = ExchangeServiceClient::new(connection.clone()).publish(exchange).await;
    let topic = TopicPublishRequest {
        topic: "t".to_owned(),
        message: Some(keyed("x", "k")),
    };
    let by_topic = TopicServiceClient::new(connection).publish(topic).await;
    let why = "ordering_key is set; only publishes to queues can have one";
    for status in [by_exchange.unwrap_err(), by_topic.unwrap_err()] {
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, why));
    }
    let mut binary = BinaryClient::connect(server.messaging());
    let to_topic = json!({"topic": "t", "payload": 1, "ordering_key": "k"}).to_string();
    let to_queue = json!({"routing_key": "q", "payload": 1, "ordering_key": "k"}).to_string();
    for (code, body) in [
        (command::PUBLISH_TOPIC, &to_topic),
        (command::PUBLISH_EXCHANGE, &to_queue),
    ] {
        assert_eq!(binary.call(code, body).error(), why);
    }
    for (path, body) in [("/publish/topic", &to_topic), ("/exchange/publish", &to_queue)] {
        let json = [("Content-Type", "application/json")];
        let answer = http::request(server.admin(), "POST", path, &json, body.as_bytes()).unwrap();
        assert_eq!((answer.status, answer.json()), (400, json!({"error": why})), "{path}");
    }
}

#[tokio::test]
async fn a_repeated_publish_keeps_its_key() {
    let (_server, mut client) = started(&ServerOptions::memory()).await;
    let repeatable = |payload: &'static str| Message {
        idempotency_key: payload.to_owned(),
        ..keyed(payload, "k")
    };
    for payload in ["a", "b", "a"] {
        client.put("q", repeatable(payload)).await;
    }
    let first = client.take("q", 9).await;
    assert_eq!((first.len(), &first[0].payload[..]), (1, &b"a"[..]));
    client.done(&first).await;
    assert_eq!(taken(&mut client, "q").await, [pair("b", "k")]);
}

#[tokio::test]
async fn what_has_expired_makes_way_for_the_next_of_its_key() {
    let (_server, mut client) = started(&ServerOptions::memory()).await;
    for payload in ["a", "b", "c"] {
        let short = Message {
            ttl: duration(Duration::from_millis(1)),
            ..keyed(payload, "k")
        };
        client.put("q", short).await;
    }
    client.put("q", keyed("lives", "k")).await;
    let next = || async {
        let mut client = client.clone();
        let next = taken(&mut client, "q").await;
        (!next.is_empty()).then_some(next)
    };
    let next = eventually_async(Duration::from_secs(30), "something lives", next).await;
    assert_eq!(next, [pair("lives", "k")]);
    assert_eq!(client.look("q").await.ready, 0);
}

#[tokio::test]
async fn what_waits_for_its_key_expires_while_somebody_has_the_key() {
    let (_server, mut client) = started(&ServerOptions::memory()).await;
    client.put("q", keyed("first", "k")).await;
    let first = client.take("q", 9).await;
    let short = Message {
        ttl: duration(Duration::from_millis(1)),
        ..keyed("short", "k")
    };
    client.put("q", short).await;
    client.put("q", keyed("last", "k")).await;
    let one_waits = || async {
        let found = client.clone().look("q").await;
        ((found.ready, found.leased) == (1, 1)).then_some(())
    };
    eventually_async(Duration::from_secs(30), "the short one is gone", one_waits).await;
    assert_eq!(client.done(&first).await, 1);
    assert_eq!(taken(&mut client, "q").await, [pair("last", "k")]);
}

#[tokio::test]
async fn a_message_that_fails_keeps_its_key_until_it_is_a_dead_letter_and_comes_back_behind_the_rest() {
    let options = ServerOptions::memory()
        .set("queue.max_retry", 1)
        .set("queue.retry_backoff", "1ms");
    let (_server, mut client) = started(&options).await;
    for payload in ["1", "2"] {
        client.put("q", keyed(payload, "k")).await;
    }
    for attempts in 0..2 {
        let failing = client.take_one("q").await;
        assert_eq!((&failing.payload[..], failing.attempts), (&b"1"[..], attempts));
        let request = NackRequest {
            delivery_tokens: vec![failing.delivery_token],
            ..NackRequest::default()
        };
        assert_eq!(client.nack(request).await.unwrap().into_inner().settled, 1);
    }
    let second = client.take_one("q").await;
    assert_eq!(&second.payload[..], b"2");
    let peek = PeekRequest {
        queue: "q_dead_letter".to_owned(),
        ..PeekRequest::default()
    };
    let dead = client.peek(peek).await.unwrap().into_inner().deliveries;
    assert_eq!((dead.len(), &*dead[0].ordering_key), (1, "k"));
    let redrive = RedriveDeadLettersRequest {
        queue: "q".to_owned(),
        ..RedriveDeadLettersRequest::default()
    };
    let mut answers = client.redrive_dead_letters(redrive).await.unwrap().into_inner();
    while answers.message().await.unwrap().is_some() {}
    assert!(client.take("q", 9).await.is_empty());
    assert_eq!(client.done(&[second]).await, 1);
    let back = client.take_one("q").await;
    assert_eq!(
        (&back.payload[..], &*back.ordering_key, back.attempts),
        (&b"1"[..], "k", 0)
    );
}

#[tokio::test]
async fn order_survives_a_kill_and_a_clean_stop() {
    let (mut server, mut client) = started(&ServerOptions::disk()).await;
    for number in 0..6 {
        client
            .put(
                "q",
                keyed(number.to_string(), if number % 2 == 0 { "even" } else { "odd" }),
            )
            .await;
    }
    let mut seen = Vec::new();
    for round in 0..3 {
        let both = client.take("q", 9).await;
        assert_eq!(both.len(), 2);
        seen.extend(both.iter().map(|delivery| delivery.payload.to_vec()));
        assert_eq!(client.done(&both).await, 2);
        match round {
            0 => server.kill(),
            1 => drop(server.terminate()),
            _ => break,
        }
        server.restart();
        client = connect(server.messaging()).await;
    }
    assert_eq!(seen, [b"0", b"1", b"2", b"3", b"4", b"5"]);
    assert!(client.take("q", 9).await.is_empty());
}

/// The server looks for each of them in several steps, and for many of them in one call.
#[tokio::test]
async fn what_was_delivered_before_a_kill_is_acknowledged_from_its_end_behind_thousands_of_keys() {
    const BATCH: u32 = 1_000;
    const BATCHES: u32 = 5;
    let (mut server, mut client) = started(&ServerOptions::disk()).await;
    let batch = |number: u32| PublishStreamRequest {
        queue: "q".to_owned(),
        messages: (0..BATCH).map(|n| keyed("x", &format!("{number} {n}"))).collect(),
        ..PublishStreamRequest::default()
    };
    let requests: Vec<_> = (0..BATCHES).map(batch).collect();
    let mut answers = client
        .publish_stream(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    while let Some(answer) = answers.message().await.unwrap() {
        assert!(answer.failures.is_empty(), "{:?}", answer.failures);
    }
    let mut deliveries = Vec::new();
    while deliveries.len() < (BATCHES * BATCH) as usize {
        deliveries.extend(client.take("q", BATCH).await);
    }
    server.kill();
    server.restart();
    let mut client = connect(server.messaging()).await;
    deliveries.reverse();
    for some in deliveries.chunks(BATCH as usize) {
        assert_eq!(client.done(some).await, BATCH);
    }
    let left = client.look("q").await;
    assert_eq!((left.ready, left.leased), (0, 0));
}
