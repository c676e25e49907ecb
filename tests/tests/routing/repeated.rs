//! Publishes to topics and exchanges that are repeated with the same key: the message once, and the answer of the first publish.

use std::time::Duration;

use boltq_proto::exchange::v1::exchange_service_client::ExchangeServiceClient;
use boltq_proto::exchange::v1::{PublishRequest as Route, PublishResponse as Routed};
use boltq_proto::topic::v1::topic_service_client::TopicServiceClient;
use boltq_proto::topic::v1::{PublishRequest, PublishResponse, PublishStreamRequest};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::binary::{BinaryClient, command, frame};
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, channel, connect, message, reason};
use boltq_tests::harness::{Server, ServerOptions, http};
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::exchanges::ExchangeCalls;
use super::topics_grpc::{TopicClient, next, publish, subscription};

pub(crate) fn keyed(payload: &str, key: &str) -> Message {
    Message {
        idempotency_key: key.to_owned(),
        ..message(payload.to_owned())
    }
}

/// All that speaks to a server.
pub(crate) struct Clients {
    pub(crate) topics: TopicClient,
    pub(crate) exchanges: ExchangeServiceClient<Channel>,
    pub(crate) queues: QueueClient,
}

impl Clients {
    pub(crate) async fn connect(address: std::net::SocketAddr) -> Self {
        Self {
            topics: TopicServiceClient::new(channel(address).await.unwrap()),
            exchanges: ExchangeServiceClient::new(channel(address).await.unwrap()),
            queues: connect(address).await,
        }
    }

    pub(crate) async fn tell(&mut self, topic: &str, message: Message) -> Result<PublishResponse, Status> {
        let request = PublishRequest {
            topic: topic.to_owned(),
            message: Some(message),
        };
        self.topics.publish(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn route(&mut self, (exchange, key): (&str, &str), message: Message) -> Result<Routed, Status> {
        let request = Route {
            exchange: exchange.to_owned(),
            routing_key: key.to_owned(),
            message: Some(message),
        };
        self.exchanges.publish(request).await.map(tonic::Response::into_inner)
    }
}

async fn started(options: &ServerOptions) -> (Server, Clients, BinaryClient) {
    let server = Server::start(options);
    let clients = Clients::connect(server.messaging()).await;
    let binary = BinaryClient::connect(server.messaging());
    (server, clients, binary)
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn post(server: &Server, path: &str, body: &Value) -> Value {
    let answer = http::request(server.admin(), "POST", path, &[], body.to_string().as_bytes()).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn a_topic_tells_a_message_once_whatever_door_it_comes_through() {
    let (server, mut clients, mut binary) = started(&ServerOptions::memory()).await;
    let subscribe = |id, durable| subscription("t", id, durable);
    let mut live = clients
        .topics
        .subscribe(subscribe("", false))
        .await
        .unwrap()
        .into_inner();
    let mut durable = clients
        .topics
        .subscribe(subscribe("s", true))
        .await
        .unwrap()
        .into_inner();
    let first = clients.tell("t", keyed("\"first\"", "k")).await.unwrap();
    assert_eq!(first.durable_subscriptions, 1);
    // Who comes later does not change what was answered.
    let late = clients.topics.subscribe(subscribe("late", true)).await.unwrap();
    assert_eq!(clients.tell("t", keyed("2", "k")).await.unwrap(), first);
    let body = json!({"topic": "t", "payload": 3, "idempotency_key": "k"});
    assert_eq!(
        binary.ask(command::PUBLISH_TOPIC, body.clone())["id"],
        hex(&first.message_id)
    );
    assert_eq!(post(&server, "/publish/topic", &body)["id"], hex(&first.message_id));
    // Another key, another topic: another message.
    let other = clients.tell("t", keyed("\"last\"", "other")).await.unwrap();
    assert_eq!(other.durable_subscriptions, 2);
    assert_ne!(
        clients.tell("u", keyed("4", "k")).await.unwrap().message_id,
        first.message_id
    );
    for stream in [&mut live, &mut durable] {
        let payloads: Vec<_> = next(stream, 2).await.into_iter().map(|told| told.payload).collect();
        assert_eq!(payloads, [&b"\"first\""[..], b"\"last\""]);
    }
    let payloads: Vec<_> = next(&mut late.into_inner(), 1)
        .await
        .into_iter()
        .map(|told| told.payload)
        .collect();
    assert_eq!(payloads, [&b"\"last\""[..]]);
    let metrics = http::get(server.admin(), "/metrics").unwrap();
    assert!(
        metrics.text().contains("boltq_publishes_repeated_total 3\n"),
        "{}",
        metrics.text()
    );
}

#[tokio::test]
async fn an_exchange_routes_a_message_once_whatever_door_it_comes_through() {
    let (server, mut clients, mut binary) = started(&ServerOptions::memory()).await;
    binary.declare("e", "topic");
    binary.bind("e", "one", "a.#");
    binary.bind("e", "two", "a.b");
    let first = clients.route(("e", "a.b"), keyed("1", "k")).await.unwrap();
    assert_eq!(first.routed, 2);
    binary.bind("e", "three", "#");
    assert_eq!(clients.route(("e", "a.b"), keyed("2", "k")).await.unwrap(), first);
    let body = json!({"exchange": "e", "routing_key": "a.b", "payload": 3, "idempotency_key": "k"});
    let reply = binary.ask(command::PUBLISH_EXCHANGE, body.clone());
    assert_eq!(reply, json!({"id": hex(&first.message_id), "topic": "", "routed": 2}));
    let reply = post(&server, "/exchange/publish", &body);
    assert_eq!(
        reply,
        json!({"status": "published", "id": hex(&first.message_id), "routed": 2})
    );
    assert_eq!(clients.queues.look("one").await.ready, 1);
    assert_eq!(clients.queues.look("three").await.ready, 0);
}

#[tokio::test]
async fn a_key_belongs_to_what_the_message_is_addressed_to() {
    let (_server, mut clients, mut binary) = started(&ServerOptions::memory()).await;
    binary.declare("x", "fanout");
    binary.bind("x", "x", "");
    let queue = clients.queues.put("x", keyed("1", "k")).await;
    let topic = clients.tell("x", keyed("2", "k")).await.unwrap().message_id;
    let exchange = clients.route(("x", ""), keyed("3", "k")).await.unwrap().message_id;
    let other_key = clients.route(("x", "x"), keyed("4", "k")).await.unwrap().message_id;
    let default = clients.route(("", "x"), keyed("5", "k")).await.unwrap().message_id;
    let all = [&queue, &topic, &exchange, &other_key, &default];
    for (at, id) in all.iter().enumerate() {
        assert!(!all[..at].contains(id), "{at} was taken for another one");
    }
    assert_eq!(clients.queues.put("x", keyed("6", "k")).await, queue);
    assert_eq!(clients.tell("x", keyed("7", "k")).await.unwrap().message_id, topic);
    assert_eq!(
        clients.route(("", "x"), keyed("8", "k")).await.unwrap().message_id,
        default
    );
    // One to the queue, two through the exchange, one through the default one.
    assert_eq!(clients.queues.look("x").await.ready, 4);
}

#[tokio::test]
async fn what_nobody_got_is_not_remembered() {
    let (_server, mut clients, mut binary) = started(&ServerOptions::memory()).await;
    let missing = clients.route(("e", "a"), keyed("1", "k")).await.unwrap_err();
    assert_eq!(reason(&missing), "EXCHANGE_NOT_FOUND");
    binary.declare("e", "direct");
    assert_eq!(clients.route(("e", "a"), keyed("2", "k")).await.unwrap().routed, 0);
    binary.bind("e", "q", "a");
    let first = clients.route(("e", "a"), keyed("3", "k")).await.unwrap();
    assert_eq!(first.routed, 1);
    assert_eq!(clients.route(("e", "a"), keyed("4", "k")).await.unwrap(), first);
    // With the exchange its keys are forgotten.
    binary.ask(command::EXCHANGE_DELETE, json!({"name": "e"}));
    binary.declare("e", "direct");
    binary.bind("e", "q", "a");
    assert_ne!(clients.route(("e", "a"), keyed("5", "k")).await.unwrap(), first);
    assert_eq!(clients.queues.look("q").await.ready, 2);
}

#[tokio::test]
async fn in_a_stream_messages_with_and_without_keys_keep_their_order_and_ids() {
    let (_server, mut clients, _binary) = started(&ServerOptions::memory()).await;
    let mut live = clients
        .topics
        .subscribe(subscription("t", "", false))
        .await
        .unwrap()
        .into_inner();
    let batch = || PublishStreamRequest {
        topic: "t".to_owned(),
        messages: vec![
            message("a"),
            keyed("b", "k1"),
            keyed("c", "k2"),
            message("d"),
            keyed("b again", "k1"),
        ],
    };
    let requests = tokio_stream::iter([batch(), batch()]);
    let mut answers = clients.topics.publish_stream(requests).await.unwrap().into_inner();
    let first = answers.message().await.unwrap().unwrap().message_ids;
    let second = answers.message().await.unwrap().unwrap().message_ids;
    assert_eq!((first.len(), &first[1]), (5, &first[4]));
    assert_eq!((&second[1], &second[2], &second[4]), (&first[1], &first[2], &first[1]));
    clients.topics.publish(publish("t", "end")).await.unwrap();
    let payloads: Vec<_> = next(&mut live, 7).await.into_iter().map(|told| told.payload).collect();
    assert_eq!(payloads, [&b"a"[..], b"b", b"c", b"d", b"a", b"d", b"end"]);
}

#[tokio::test]
async fn pipelined_publishes_over_the_binary_protocol_know_their_keys() {
    let (server, mut clients, mut binary) = started(&ServerOptions::memory()).await;
    binary.declare("e", "fanout");
    binary.bind("e", "q", "");
    let route = |key| json!({"exchange": "e", "payload": 1, "idempotency_key": key}).to_string();
    let tell = |key| json!({"topic": "e", "payload": 1, "idempotency_key": key}).to_string();
    for key in ["a", "b", "a"] {
        binary.send(command::PUBLISH_EXCHANGE, route(key).as_bytes()).unwrap();
        binary.send(command::PUBLISH_TOPIC, tell(key).as_bytes()).unwrap();
    }
    let ids: Vec<_> = (0..6).map(|_| binary.receive().unwrap().ok()["id"].clone()).collect();
    assert_eq!((&ids[4], &ids[5]), (&ids[0], &ids[1]));
    assert!(ids[0] != ids[1] && ids[0] != ids[2] && ids[1] != ids[3]);
    assert_eq!(clients.queues.look("q").await.ready, 2);
    let metrics = http::get(server.admin(), "/metrics").unwrap();
    assert!(metrics.text().contains("boltq_publishes_repeated_total 2\n"));
}

#[tokio::test]
async fn a_killed_server_remembers() {
    let (mut server, mut clients, mut binary) = started(&ServerOptions::disk()).await;
    binary.declare("e", "fanout");
    binary.bind("e", "q", "");
    let routed = clients.route(("e", ""), keyed("1", "k")).await.unwrap();
    let told = clients.tell("t", keyed("1", "k")).await.unwrap();
    let taken = clients.queues.take("q", 1).await;
    assert_eq!(clients.queues.done(&taken).await, 1);
    for stop in [Server::kill, |server: &mut Server| {
        // Then the snapshot has it too, and not only the log.
        server.terminate();
    }] {
        stop(&mut server);
        server.restart();
        let mut clients = Clients::connect(server.messaging()).await;
        assert_eq!(clients.route(("e", ""), keyed("2", "k")).await.unwrap(), routed);
        assert_eq!(clients.tell("t", keyed("2", "k")).await.unwrap(), told);
        assert_eq!(clients.queues.look("q").await.ready, 0);
    }
}

#[tokio::test]
async fn a_key_is_forgotten_when_its_time_is_over() {
    let options = ServerOptions::memory().set("queue.dedup_ttl", "1s");
    let (_server, mut clients, _binary) = started(&options).await;
    let first = clients.tell("t", keyed("1", "k")).await.unwrap();
    let forgotten = async {
        while clients.tell("t", keyed("1", "k")).await.unwrap() == first {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), forgotten).await.unwrap();
}

#[tokio::test]
async fn keys_of_topics_and_exchanges_are_limited_and_counted_with_those_of_queues() {
    let options = ServerOptions::memory().set("queue.dedup_max_keys", 2);
    let (_server, mut clients, mut binary) = started(&options).await;
    clients.queues.put("q", keyed("1", "a")).await;
    clients.tell("t", keyed("1", "a")).await.unwrap();
    for refused in [
        clients.tell("t", keyed("1", "b")).await.unwrap_err(),
        clients.route(("", "q"), keyed("1", "b")).await.unwrap_err(),
    ] {
        assert_eq!(
            (refused.code(), reason(&refused)),
            (Code::ResourceExhausted, "IDEMPOTENCY_KEYS_FULL".to_owned())
        );
    }
    clients.tell("t", message("without a key")).await.unwrap();
    let long = keyed("1", &"k".repeat(201));
    let refused = clients.tell("t", long.clone()).await.unwrap_err();
    assert!(refused.message().contains("idempotency_key has 201 bytes"), "{refused}");
    let refused = clients.route(("", "q"), long.clone()).await.unwrap_err();
    assert!(refused.message().contains("idempotency_key has 201 bytes"), "{refused}");
    let body = json!({"exchange": "", "routing_key": "q", "idempotency_key": long.idempotency_key});
    let refused = binary.refused(command::PUBLISH_EXCHANGE, body);
    assert!(refused.contains("idempotency_key has 201 bytes"), "{refused}");
}

#[tokio::test]
async fn when_no_more_keys_are_remembered_only_messages_with_a_new_one_are_refused() {
    let options = ServerOptions::memory().set("queue.dedup_max_keys", 2);
    let (_server, mut clients, mut binary) = started(&options).await;
    binary.declare("e", "fanout");
    binary.bind("e", "q", "");
    let mut live = clients
        .topics
        .subscribe(subscription("t", "", false))
        .await
        .unwrap()
        .into_inner();
    let told = clients.tell("t", keyed("1", "known")).await.unwrap().message_id;
    let routed = clients.route(("e", ""), keyed("1", "known")).await.unwrap().message_id;

    let request = PublishStreamRequest {
        topic: "t".to_owned(),
        messages: vec![
            message("2"),
            keyed("refused", "new"),
            keyed("again", "known"),
            message("3"),
        ],
    };
    let answers = clients.topics.publish_stream(tokio_stream::iter([request])).await;
    let answer = answers.unwrap().into_inner().message().await.unwrap().unwrap();
    let stored: Vec<_> = answer.message_ids.iter().map(|id| !id.is_empty()).collect();
    assert_eq!(stored, [true, false, true, true]);
    assert_eq!(answer.message_ids[2], told, "it is known and needs no room");
    let failures = answer.failures.iter();
    let failures: Vec<_> = failures
        .map(|failure| (failure.index, failure.reason.as_str(), failure.retriable))
        .collect();
    assert_eq!(failures, [(1, "IDEMPOTENCY_KEYS_FULL", true)]);

    let route = |key: &str| json!({"exchange": "e", "payload": 4, "idempotency_key": key}).to_string();
    let tell = |key: &str| json!({"topic": "t", "payload": 4, "idempotency_key": key}).to_string();
    let keys = ["", "new", "known"];
    let frames = keys.map(|key| {
        let route = frame(command::PUBLISH_EXCHANGE, route(key).as_bytes());
        [route, frame(command::PUBLISH_TOPIC, tell(key).as_bytes())].concat()
    });
    binary.send_bytes(&frames.concat()).unwrap();
    let answers: Vec<_> = (0..2 * keys.len()).map(|_| binary.receive().unwrap()).collect();
    for stored in &answers[..2] {
        assert!(stored.ok()["id"].is_string());
    }
    for refused in &answers[2..4] {
        let text = refused.error();
        assert!(text.contains("queue.dedup_max_keys"), "{text}");
    }
    assert_eq!(
        (&answers[4].ok()["id"], &answers[5].ok()["id"]),
        (&json!(hex(&routed)), &json!(hex(&told)))
    );
    assert_eq!(clients.queues.look("q").await.ready, 2);
    let payloads: Vec<_> = next(&mut live, 4).await.into_iter().map(|told| told.payload).collect();
    assert_eq!(payloads, [&b"1"[..], b"2", b"3", b"4"]);
}
