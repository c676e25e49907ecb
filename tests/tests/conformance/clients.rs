//! What the client libraries of the binary protocol do that are out there, whether it is wise or not.
//!
//! One of them reads replies on two threads, so that it loses some, times out after ten seconds, connects again and repeats what it
//! asked for; it comes back with the same subscriptions, as durable ones, and does not close the connection before. Another one
//! matches replies by their position, and sends everything at once after it has connected again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use boltq_tests::harness::binary::{BinaryClient, command, frame, status};
use boltq_tests::harness::{Server, ServerOptions, eventually};
use serde_json::{Value, json};

use super::calls::{Calls, PATIENCE, is_push, metric};

#[test]
fn who_connects_authenticates_and_asks_again_and_again_is_served() {
    let server = Server::start(&ServerOptions::memory().set("security.api_key", "s3cret"));
    let auth = || frame(command::AUTH, br#"{"api_key":"s3cret"}"#);
    let publish = frame(command::PUBLISH, br#"{"topic":"q","payload":1,"headers":null}"#);
    let mut open = Vec::new();
    for round in 0..150 {
        let mut client = BinaryClient::connect(server.messaging());
        client.send_bytes(&[auth(), publish.clone(), auth()].concat()).unwrap();
        if round % 3 > 0 {
            // Left without a reply having been read, and without being closed.
            open.push(client);
        }
    }
    let mut client = BinaryClient::connect(server.messaging());
    client.send_bytes(&auth()).unwrap();
    client.receive().unwrap().ok();
    let ready = || client.stats()["Queues"]["q"].as_u64().filter(|ready| *ready >= 100);
    eventually(PATIENCE, "what the open connections published", ready);
    for client in &mut open {
        for reply in 0..3 {
            assert_eq!(client.receive().unwrap().status, status::OK, "reply {reply}");
        }
    }
    assert_eq!(metric(server.admin(), "boltq_authentications_failed_total"), 0);
    assert_eq!(metric(server.admin(), "boltq_connections_refused_total"), 0);
}

#[test]
fn a_subscription_that_comes_back_over_and_over_belongs_to_the_newest_connection_alone() {
    let server = Server::start(&ServerOptions::memory());
    let mut publisher = BinaryClient::connect(server.messaging());
    let mut tell = |number: u64| publisher.ask(command::PUBLISH_TOPIC, &json!({"topic": "t", "payload": number}));
    let mut looking = BinaryClient::connect(server.messaging());
    let mut is_done = || {
        let stats = looking.stats();
        assert_eq!(stats["Topics"], json!({"t": 1}), "one subscriber");
        (stats["Queues"]["t:s"].as_u64().unwrap_or(0) == 0 && stats["PendingCount"] == 0).then_some(())
    };
    let mut left: Vec<BinaryClient> = Vec::new();
    for number in 0..20 {
        let mut client = BinaryClient::connect(server.messaging());
        // Whatever it was before, it comes back as a durable one.
        client.subscribe("t", "s", number > 0);
        tell(number);
        assert_eq!(client.pushed()["payload"], number);
        eventually(PATIENCE, "what was pushed is done", &mut is_done);
        left.push(client);
    }
    let mut newest = left.pop().expect("the last one");
    for client in &mut left {
        let answer = client.call(command::PING, "").ok();
        assert_eq!(answer, json!({"status": "pong"}), "it got what the newer one got");
    }
    drop(left);
    for number in 20..25 {
        tell(number);
        assert_eq!(newest.pushed()["payload"], number);
    }
}

#[test]
fn everything_that_is_sent_at_once_is_answered_by_position_with_pushes_in_between() {
    const TOPICS: usize = 20;
    let server = Server::start(&ServerOptions::memory());
    let stop = Arc::new(AtomicBool::new(false));
    // Others publish all the time.
    let others = {
        let (stop, address) = (stop.clone(), server.messaging());
        std::thread::spawn(move || {
            let mut client = BinaryClient::connect(address);
            for number in (0..TOPICS).cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let body = json!({"topic": format!("t{number}"), "payload": "of others"});
                client.ask(command::PUBLISH_TOPIC, &body);
            }
        })
    };
    for round in 0..10 {
        let mut client = BinaryClient::connect(server.messaging());
        let own = format!("round {round}");
        let (subscribe, tell): (Vec<_>, Vec<_>) = (0..TOPICS)
            .map(|number| {
                let subscribe = json!({"topic": format!("t{number}"), "id": "node", "durable": number % 2 == 0});
                let tell = json!({"topic": format!("t{number}"), "payload": own});
                (
                    frame(command::CONSUME, subscribe.to_string().as_bytes()),
                    frame(command::PUBLISH_TOPIC, tell.to_string().as_bytes()),
                )
            })
            .unzip();
        let requests = [
            subscribe.concat(),
            frame(command::STATS, b""),
            tell.concat(),
            frame(command::PING, b""),
        ];
        client.send_bytes(&requests.concat()).unwrap();
        let (mut replies, mut pushes) = (Vec::new(), BTreeMap::new());
        while replies.len() < 2 * TOPICS + 2 || pushes.len() < TOPICS {
            let body = client.receive().unwrap().ok();
            if !is_push(&body) {
                assert!(body.get("subscriber_id").is_none(), "{body}");
                replies.push(body);
                continue;
            }
            let topic = body["topic"].as_str().unwrap();
            let number: usize = topic[1..].parse().unwrap();
            assert!(number < replies.len(), "a push of {topic} before it was subscribed to");
            if body["payload"] == *own {
                assert_eq!(pushes.insert(number, ()), None, "{topic} twice");
            }
        }
        let subscribed = json!({"status": "subscribed"});
        assert!(
            replies[..TOPICS].iter().all(|reply| *reply == subscribed),
            "{replies:?}"
        );
        assert!(replies[TOPICS]["Queues"].is_object());
        for (number, reply) in replies[TOPICS + 1..2 * TOPICS + 1].iter().enumerate() {
            assert_eq!(reply["topic"], format!("t{number}"));
        }
        assert_eq!(replies[2 * TOPICS + 1], json!({"status": "pong"}));
    }
    stop.store(true, Ordering::Relaxed);
    others.join().expect("a publisher");
}

/// A client that looks for pushes looks at the outermost members.
#[test]
fn no_reply_looks_like_a_push_whatever_it_carries() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = BinaryClient::connect(server.messaging());
    let looks_like_one = json!({"subscriber_id": "s", "topic": "t"});
    let body = json!({"topic": "subscriber_id", "payload": looks_like_one, "headers": looks_like_one,
        "subscriber_id": "s"});
    let published = client.ask(command::PUBLISH, &body);
    client.declare("subscriber_id", "fanout");
    client.bind("subscriber_id", "q", "");
    let route = json!({"exchange": "subscriber_id", "routing_key": "subscriber_id", "payload": looks_like_one});
    let replies = [
        client.ask(command::PUBLISH_EXCHANGE, &route),
        client.stats(),
        client.ask(command::CONSUME, &json!({"topic": "subscriber_id"})),
        client.ask(command::ACK, &json!({"id": published["id"]})),
        client.ask(command::PREFETCH, &json!({"count": 5})),
        client.ask(command::CONFIRM_SELECT, &looks_like_one),
        client.ask(command::CLUSTER_STATUS, &looks_like_one),
        published,
    ];
    for reply in replies {
        assert!(reply.get("subscriber_id").is_none() && !is_push(&reply), "{reply}");
    }
}

/// The connection broke before the reply came, so the library sends the same once more.
#[test]
fn what_is_repeated_on_the_next_connection_does_no_harm() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = BinaryClient::connect(server.messaging());
    let id = client.publish("work", &json!("x"));
    client.consume("work").unwrap();
    let once = |code: u8, body: Value| {
        let mut lost = BinaryClient::connect(server.messaging());
        lost.send(code, body.to_string().as_bytes()).unwrap();
        lost.finish_sending();
        // The server has carried it out when it closes.
        let reply = lost.receive().unwrap();
        assert_eq!(reply.status, status::OK, "{}", reply.text());
        assert!(lost.ends());
        BinaryClient::connect(server.messaging()).call(code, &body.to_string())
    };
    assert_eq!(
        once(command::ACK, json!({"id": id})).error(),
        format!("message {id} not found in pending")
    );
    once(command::EXCHANGE_DECLARE, json!({"name": "e", "type": "direct"})).ok();
    once(
        command::BIND_QUEUE,
        json!({"exchange": "e", "queue": "q", "binding_key": "k"}),
    )
    .ok();
    let stats = client.stats();
    assert_eq!(
        (&stats["PendingCount"], &stats["Queues"]["work"]),
        (&json!(0), &json!(0))
    );
    let route = json!({"exchange": "e", "routing_key": "k", "payload": 1});
    assert_eq!(client.ask(command::PUBLISH_EXCHANGE, &route)["routed"], 1);
    once(
        command::UNBIND_QUEUE,
        json!({"exchange": "e", "queue": "q", "binding_key": "k"}),
    )
    .ok();
    // Without a key of its own, a publish that is repeated is a second message: at least once.
    once(command::PUBLISH, json!({"topic": "twice", "payload": 1})).ok();
    once(
        command::PUBLISH,
        json!({"topic": "once", "payload": 1, "idempotency_key": "k"}),
    )
    .ok();
    let queues = client.stats()["Queues"].take();
    assert_eq!((&queues["twice"], &queues["once"]), (&json!(2), &json!(1)));
}

#[test]
fn a_frame_over_the_limit_is_counted_and_named_in_the_log() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = BinaryClient::connect(server.messaging());
    client.send_bytes(&[command::PUBLISH, 0x01, 0x00, 0x40, 0x00]).unwrap();
    assert!(client.ends());
    assert_eq!(metric(server.admin(), "boltq_frames_rejected_total"), 1);
    eventually(PATIENCE, "a line that says why", || {
        let log = server.log();
        let line = log.lines().find(|line| line.contains("frame over the limit"))?;
        (line.contains("4194305") && line.contains("4194304")).then_some(())
    });
}

#[test]
fn a_header_that_is_called_like_an_idempotency_key_is_a_header() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = BinaryClient::connect(server.messaging());
    let headers = json!({"idempotency_key": "k", "Idempotency-Key": "k", "x-idempotency_key": "k"});
    let body = json!({"topic": "q", "payload": 1, "headers": headers});
    assert_ne!(client.publish_with(&body), client.publish_with(&body));
    assert_eq!(client.consume("q").unwrap().body["headers"], headers);
}
