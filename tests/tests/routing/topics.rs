//! Topics on one node, over the binary protocol and HTTP.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use boltq_tests::harness::binary::{BinaryClient, Frame, command};
use boltq_tests::harness::{Server, ServerOptions, eventually, http};
use serde_json::{Value, json};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

fn connected() -> (Server, BinaryClient) {
    let server = Server::start(&ServerOptions::memory());
    let client = BinaryClient::connect(server.messaging());
    (server, client)
}

/// Calls that the tests of topics make.
pub(crate) trait TopicCalls {
    fn subscribe(&mut self, topic: &str, id: &str, durable: bool);
    fn tell(&mut self, topic: &str, payload: Value) -> String;
    fn pushed(&mut self) -> Value;
}

impl TopicCalls for BinaryClient {
    #[track_caller]
    fn subscribe(&mut self, topic: &str, id: &str, durable: bool) {
        let body = json!({"topic": topic, "id": id, "durable": durable}).to_string();
        assert_eq!(self.call(command::CONSUME, &body).ok(), json!({"status": "subscribed"}));
    }

    #[track_caller]
    fn tell(&mut self, topic: &str, payload: Value) -> String {
        let body = json!({"topic": topic, "payload": payload}).to_string();
        let reply = self.call(command::PUBLISH_TOPIC, &body).ok();
        let id = reply["id"].as_str().unwrap().to_owned();
        assert_eq!(reply, json!({"id": id, "topic": topic}));
        id
    }

    #[track_caller]
    fn pushed(&mut self) -> Value {
        self.receive().expect("a push").ok()
    }
}

pub(crate) fn payloads(client: &mut BinaryClient, count: usize) -> Vec<Value> {
    (0..count).map(|_| client.pushed()["payload"].clone()).collect()
}

fn numbers(range: std::ops::Range<u64>) -> Vec<Value> {
    range.map(Value::from).collect()
}

fn ready(client: &mut BinaryClient, queue: &str) -> Option<u64> {
    client.stats()["Queues"][queue].as_u64()
}

#[test]
fn all_subscribers_get_a_push_with_the_id_of_the_publish() {
    let (server, mut publisher) = connected();
    let mut subscribers = ["edge-1", "edge-2"].map(|id| {
        let mut client = BinaryClient::connect(server.messaging());
        client.subscribe("prices", id, false);
        (id, client)
    });
    assert_eq!(publisher.stats()["Topics"], json!({"prices": 2}));
    let body =
        json!({"topic": "prices", "payload": {"cents": 1}, "headers": {"src": "erp"}, "delay": 5_000_000_000_u64});
    let id = publisher.call(command::PUBLISH_TOPIC, &body.to_string()).ok()["id"].clone();
    for (subscriber, client) in &mut subscribers {
        let mut push = client.pushed();
        assert!(push["timestamp"].take().is_u64());
        let wanted = json!({"id": id, "topic": "prices", "payload": {"cents": 1}, "headers": {"src": "erp"},
            "timestamp": null, "subscriber_id": subscriber});
        assert_eq!(push, wanted);
    }
    drop(subscribers);
    eventually(PATIENCE, "the ends of the connections are noticed", || {
        (publisher.stats()["Topics"] == json!({})).then_some(())
    });
}

/// Weakness A7.
#[test]
fn a_topic_without_durable_subscriptions_keeps_nothing() {
    let mut server = Server::start(&ServerOptions::disk());
    let mut client = BinaryClient::connect(server.messaging());
    for n in 0..10 {
        client.tell("t", json!(n));
    }
    client.subscribe("t", "late", false);
    client.tell("t", json!("now"));
    // Before or after the reply, as it comes.
    assert_eq!(client.pushed()["payload"], "now");
    assert_eq!(client.stats()["Queues"], json!({}));
    server.kill();
    server.restart();
    let mut client = BinaryClient::connect(server.messaging());
    assert!(client.consume("t").is_none());
}

/// Example 7 of the semantics; weaknesses B9 and A4.
#[test]
fn a_durable_subscription_gets_what_it_missed_in_order_and_each_once() {
    let mut server = Server::start(&ServerOptions::disk());
    let mut publisher = BinaryClient::connect(server.messaging());
    publisher.tell("t", json!("before there was one"));
    let mut client = BinaryClient::connect(server.messaging());
    client.subscribe("t", "s", true);
    for n in 0..3 {
        publisher.tell("t", json!(n));
    }
    assert_eq!(payloads(&mut client, 3), numbers(0..3));
    eventually(PATIENCE, "what was pushed is done", || {
        (ready(&mut publisher, "t:s") == Some(0)).then_some(())
    });
    drop(client);
    for n in 3..6 {
        publisher.tell("t", json!(n));
    }
    assert_eq!(ready(&mut publisher, "t:s"), Some(3));
    server.kill();
    server.restart();
    let mut publisher = BinaryClient::connect(server.messaging());
    let mut client = BinaryClient::connect(server.messaging());
    client.subscribe("t", "s", true);
    for n in 6..9 {
        publisher.tell("t", json!(n));
    }
    assert_eq!(payloads(&mut client, 6), numbers(3..9));
    eventually(PATIENCE, "what was pushed is done", || {
        (ready(&mut publisher, "t:s") == Some(0)).then_some(())
    });
    drop(client);
    let mut client = BinaryClient::connect(server.messaging());
    client.subscribe("t", "s", true);
    publisher.tell("t", json!("last"));
    assert_eq!(client.pushed()["payload"], "last", "what was pushed live came again");
}

/// Weaknesses B11 and B12.
#[test]
fn the_same_again_replaces_the_earlier_one_whose_end_does_not_end_it() {
    let (server, mut publisher) = connected();
    for durable in [false, true] {
        let mut old = BinaryClient::connect(server.messaging());
        old.subscribe("t", "s", durable);
        let mut new = BinaryClient::connect(server.messaging());
        new.subscribe("t", "s", durable);
        assert_eq!(publisher.stats()["Topics"], json!({"t": 1}));
        publisher.tell("t", json!(1));
        assert_eq!(new.pushed()["payload"], 1);
        // It is not told, and stays open.
        assert_eq!(old.call(command::PING, "").ok(), json!({"status": "pong"}));
        drop(old);
        publisher.tell("t", json!(2));
        assert_eq!(new.pushed()["payload"], 2);
        drop(new);
        eventually(PATIENCE, "nobody listens", || {
            (publisher.stats()["Topics"] == json!({})).then_some(())
        });
    }
}

#[test]
fn who_takes_nothing_loses_the_newest_and_it_is_counted() {
    let (server, mut publisher) = connected();
    let mut slow = BinaryClient::connect(server.messaging());
    slow.subscribe("t", "slow", false);
    // More than sockets hold.
    let large = "x".repeat(1 << 20);
    for n in 0..64 {
        publisher.tell("t", json!([n, large]));
    }
    let dropped = || {
        let metrics = http::get(server.admin(), "/metrics").unwrap();
        let line = metrics
            .text()
            .lines()
            .find(|line| line.starts_with("boltq_topic_messages_dropped_total "));
        line.and_then(|line| line.split(' ').nth(1)?.parse::<u64>().ok())
            .unwrap()
    };
    let dropped = dropped();
    assert!(dropped > 0);
    let got: Vec<u64> = (0..64 - dropped)
        .map(|_| slow.pushed()["payload"][0].as_u64().unwrap())
        .collect();
    assert!(got.is_sorted(), "{got:?}");
    publisher.tell("t", json!(["after"]));
    assert_eq!(slow.pushed()["payload"], json!(["after"]));
}

#[test]
fn many_subscriptions_share_a_connection_with_ordinary_commands() {
    let (_server, mut client) = connected();
    for id in ["a", "b"] {
        client.subscribe("t", id, false);
        client.subscribe("u", id, true);
    }
    let is_push = |frame: &Frame| frame.json().get("subscriber_id").is_some();
    let mut pushes = Vec::new();
    let reply = |client: &mut BinaryClient, pushes: &mut Vec<Value>| loop {
        let frame = client.receive().unwrap();
        if !is_push(&frame) {
            return frame;
        }
        pushes.push(frame.json());
    };
    for n in 0..20 {
        for topic in ["t", "u"] {
            client
                .send(
                    command::PUBLISH_TOPIC,
                    json!({"topic": topic, "payload": n}).to_string().as_bytes(),
                )
                .unwrap();
            reply(&mut client, &mut pushes).ok();
        }
        client.send(command::PING, b"").unwrap();
        assert_eq!(reply(&mut client, &mut pushes).ok(), json!({"status": "pong"}));
    }
    while pushes.len() < 80 {
        pushes.push(client.pushed());
    }
    for topic in ["t", "u"] {
        for id in ["a", "b"] {
            let own = pushes
                .iter()
                .filter(|push| push["topic"] == topic && push["subscriber_id"] == id);
            assert_eq!(
                own.map(|push| push["payload"].clone()).collect::<Vec<_>>(),
                numbers(0..20)
            );
        }
    }
}

#[test]
fn a_backlog_can_be_drained_like_any_queue() {
    let (server, mut publisher) = connected();
    let mut client = BinaryClient::connect(server.messaging());
    client.subscribe("t", "s", true);
    drop(client);
    eventually(PATIENCE, "nobody listens", || {
        (publisher.stats()["Topics"] == json!({})).then_some(())
    });
    let id = publisher.tell("t", json!(1));
    let body = json!({"topic": "t", "payload": 2, "ttl": 1}).to_string();
    publisher.call(command::PUBLISH_TOPIC, &body).ok();
    let taken = publisher.consume("t:s").unwrap();
    assert_eq!(
        (taken.payload(), &taken.body["headers"]["boltq-publish-id"]),
        (&json!(1), &json!(id))
    );
    publisher.ack(&taken.id).ok();
    assert!(publisher.consume("t:s").is_none(), "backlogs honour the time to live");
    // Without `durable` the backlog is left alone.
    publisher.tell("t", json!(3));
    let mut live = BinaryClient::connect(server.messaging());
    live.subscribe("t", "s", false);
    publisher.tell("t", json!(4));
    assert_eq!(live.pushed()["payload"], 4);
    assert_eq!(ready(&mut publisher, "t:s"), Some(2));
}

#[test]
fn what_is_wrong_is_said_in_the_words_of_the_protocol() {
    let (_server, mut client) = connected();
    for (code, body, text) in [
        (command::PUBLISH_TOPIC, "{}", "topic is required"),
        (command::CONSUME, r#"{"id":"s"}"#, "topic is required"),
        (
            command::CONSUME,
            r#"{"topic":"t","id":"a\u0000b"}"#,
            "failed to subscribe: subscription name has a control character (U+0000) at byte 1",
        ),
    ] {
        assert_eq!(client.call(code, body).error(), text);
    }
    client.subscribe("t:a", "x", true);
    let refused = client
        .call(command::CONSUME, r#"{"topic":"t","id":"a:x","durable":true}"#)
        .error();
    assert!(
        refused.starts_with("failed to subscribe: its backlog would be that of"),
        "{refused}"
    );
}

/// `queue.durable_expiry`.
#[test]
fn abandoned_subscriptions_are_removed_and_those_in_use_are_not() {
    let server = Server::start(&ServerOptions::memory().set("queue.durable_expiry", "2s"));
    let mut publisher = BinaryClient::connect(server.messaging());
    let mut client = BinaryClient::connect(server.messaging());
    client.subscribe("t", "used", true);
    let mut gone = BinaryClient::connect(server.messaging());
    gone.subscribe("t", "abandoned", true);
    drop(gone);
    eventually(PATIENCE, "it is noticed that one has gone", || {
        (publisher.stats()["Topics"] == json!({"t": 1})).then_some(())
    });
    publisher.tell("t", json!(0));
    assert_eq!(client.pushed()["payload"], 0);
    let mut n = 0;
    eventually(PATIENCE, "its backlog goes with it", || {
        n += 1;
        publisher.tell("t", json!(n));
        ready(&mut publisher, "t:abandoned").is_none().then_some(())
    });
    assert_eq!(payloads(&mut client, n), numbers(1..n as u64 + 1));
}

/// The lines of a stream of events.
pub(crate) fn events(address: SocketAddr, query: &str) -> impl Iterator<Item = String> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /subscribe?{query} HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
    let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    assert!(
        head.iter().any(|line| line == "content-type: text/event-stream"),
        "{head:?}"
    );
    assert!(head.iter().any(|line| line == "cache-control: no-cache"), "{head:?}");
    lines.filter_map(|line| line.strip_prefix("data: ").map(str::to_owned))
}

#[test]
fn the_admin_port_publishes_and_streams_events() {
    let (server, mut client) = connected();
    let mut events = events(server.admin(), "topic=t&id=s&durable=true");
    let body = b"{\"topic\":\"t\",\"payload\":{\"a\":\n[1]}}";
    let published = http::request(server.admin(), "POST", "/publish/topic", &[], body).unwrap();
    let id = published.json()["id"].clone();
    assert_eq!(published.json(), json!({"status": "published", "id": id}));
    client.tell("t", json!(2));
    let first: Value = serde_json::from_str(&events.next().unwrap()).unwrap();
    assert_eq!(
        (&first["id"], &first["topic"], &first["payload"]),
        (&id, &json!("t"), &json!({"a": [1]}))
    );
    assert!(first.get("subscriber_id").is_none());
    assert!(events.next().unwrap().contains("\"payload\":2"));
    for (path, text) in [
        ("/subscribe?id=s", "topic is required"),
        ("/subscribe?topic=t", "id is required"),
    ] {
        let response = http::get(server.admin(), path).unwrap();
        assert_eq!((response.status, response.json()), (400, json!({"error": text})));
    }
    // The same again ends the stream before.
    let mut client = BinaryClient::connect(server.messaging());
    client.subscribe("t", "s", true);
    assert_eq!(events.next(), None);
}
