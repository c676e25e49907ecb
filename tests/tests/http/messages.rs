//! `/publish`, `/consume`, `/ack`, `/nack`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use boltq_proto::queue::v1::{CreateQueueRequest, QueueSettings};
use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::grpc::{QueueCalls, connect, message};
use boltq_tests::harness::{Server, ServerOptions, eventually, http};
use serde_json::{Value, json};

use super::client::{PATIENCE, await_message, done, get, id, post, publish, refused, server, take};

#[test]
fn a_message_has_the_members_of_the_specification() {
    let server = server();
    let admin = server.admin();
    let first = publish(admin, &json!({"topic": "q", "payload": {"a": [1.0, "é"]}}));
    let mut taken = take(admin, "q").unwrap();
    assert!(taken["timestamp"].take().as_u64() > Some(1_700_000_000_000_000_000));
    let wanted = json!({"id": first, "topic": "q", "payload": {"a": [1.0, "é"]}, "timestamp": null, "retry": 0,
        "max_retry": 5, "delivery_count": 0});
    assert_eq!(taken, wanted);

    let body = json!({"topic": "q", "payload": null, "headers": {"k": "v", "tenant": "acme"}, "delay": 1_000_000,
        "ttl": 3_600_000_000_000_u64, "priority": 4});
    publish(admin, &body);
    let taken = await_message(admin, "q");
    let number = |name: &str| taken[name].as_u64().unwrap_or_else(|| panic!("{name} of {taken}"));
    assert_eq!((&taken["payload"], &taken["headers"]), (&Value::Null, &body["headers"]));
    assert_eq!(
        (number("delay"), number("ttl"), number("priority")),
        (1_000_000, 3_600_000_000_000, 4)
    );
    // Times are kept as whole milliseconds, rounded up.
    for (at, after) in [("deliver_at", "delay"), ("expires_at", "ttl")] {
        let beyond = number(at) - number("timestamp") - number(after);
        assert!(beyond < 1_000_000 && number(at) % 1_000_000 == 0, "{at} of {taken}");
    }
}

#[test]
fn what_came_through_an_exchange_says_so() {
    let server = server();
    let admin = server.admin();
    done(&post(
        admin,
        "/exchange/declare",
        &json!({"name": "orders", "type": "topic"}),
    ));
    done(&post(
        admin,
        "/exchange/bind",
        &json!({"exchange": "orders", "queue": "eu", "binding_key": "eu.*"}),
    ));
    let routed = done(&post(
        admin,
        "/exchange/publish",
        &json!({"exchange": "orders", "routing_key": "eu.new", "payload": 1}),
    ));
    let taken = take(admin, "eu").unwrap();
    assert_eq!(
        (&taken["exchange"], &taken["routing_key"]),
        (&json!("orders"), &json!("eu.new"))
    );
    assert_eq!(taken["headers"]["boltq-publish-id"], routed["id"]);
}

#[test]
fn payloads_come_as_json_or_as_older_servers_show_them() {
    let server = server();
    let admin = server.admin();
    let payload = r#"{"b" : 1.0,"a":[ 123456789012345678901234567890, "<&>\u2028" ]}"#;
    let body = format!(r#"{{"topic":"q","payload":{payload}}}"#);
    for _ in 0..2 {
        let response = http::request(admin, "POST", "/publish", &[], body.as_bytes()).unwrap();
        assert_eq!(response.status, 200);
    }
    let plain = get(admin, "/consume?topic=q");
    assert!(
        plain.text().contains(&format!(r#""payload":{payload},"#)),
        "{}",
        plain.text()
    );
    let encoded = done(&get(admin, "/consume?topic=q&payload=base64"));
    let wanted = "eyJiIiA6IDEuMCwiYSI6WyAxMjM0NTY3ODkwMTIzNDU2Nzg5MDEyMzQ1Njc4OTAsICI8Jj5cdTIwMjgiIF19";
    assert_eq!(
        (&encoded["payload"], encoded.get("payload_encoding")),
        (&json!(wanted), None)
    );
    let (status, text) = refused(&get(admin, "/consume?topic=q&payload=xml"));
    assert_eq!((status, text.as_str()), (400, "payload is json or base64"));
}

#[tokio::test]
async fn bytes_of_other_doors_come_as_base64_and_say_so() {
    let server = server();
    connect(server.messaging()).await.put("q", message(vec![0xff, 0])).await;
    let taken = take(server.admin(), "q").unwrap();
    assert_eq!(
        (&taken["payload"], &taken["payload_encoding"]),
        (&json!("/wA="), &json!("base64"))
    );
}

#[test]
fn priorities_are_kept_and_what_is_over_is_left_out() {
    let server = server();
    let admin = server.admin();
    publish(admin, &json!({"topic": "q", "payload": "over", "ttl": 1}));
    publish(admin, &json!({"topic": "q", "payload": "low"}));
    publish(admin, &json!({"topic": "q", "payload": "high", "priority": 99}));
    assert_eq!(await_message(admin, "q")["payload"], "high");
    assert_eq!(take(admin, "q").unwrap()["payload"], "low");
    assert_eq!(take(admin, "q"), None);
}

#[test]
fn a_publish_with_a_key_can_be_repeated() {
    let server = server();
    let admin = server.admin();
    let body = |payload| json!({"topic": "q", "payload": payload, "idempotency_key": "order-17"});
    let first = publish(admin, &body(1));
    assert_eq!(publish(admin, &body(2)), first);
    assert_eq!(take(admin, "q").unwrap()["payload"], 1);
    assert_eq!(take(admin, "q"), None);
    let long = json!({"topic": "q", "idempotency_key": "k".repeat(201)});
    let (status, text) = refused(&post(admin, "/publish", &long));
    assert_eq!(status, 400);
    assert!(text.contains("idempotency_key has 201 bytes"), "{text}");
    // A topic of the same name has keys of its own.
    let topic = |payload| post(admin, "/publish/topic", &body(payload)).json()["id"].clone();
    let told = topic(3);
    assert!(told.is_string() && told != first, "{told}");
    assert_eq!(topic(4), told);
}

/// Each request has a connection of its own, which is closed when it is answered.
#[test]
fn a_lease_outlives_the_connection() {
    let server = server();
    let admin = server.admin();
    publish(admin, &json!({"topic": "q"}));
    let taken = take(admin, "q").unwrap();
    assert_eq!(take(admin, "q"), None);
    assert_eq!(done(&get(admin, "/stats"))["PendingCount"], 1);
    done(&post(admin, "/ack", &json!({"id": id(&taken)})));
    let stats = done(&get(admin, "/stats"));
    assert_eq!((&stats["Queues"]["q"], &stats["PendingCount"]), (&json!(0), &json!(0)));
}

#[test]
fn a_lease_ends_by_its_time() {
    let options = ServerOptions::memory()
        .set("queue.ack_timeout", "200ms")
        .set("queue.retry_backoff", 0);
    let server = Server::start(&options);
    let admin = server.admin();
    publish(admin, &json!({"topic": "q"}));
    let taken = take(admin, "q").unwrap();
    let again = await_message(admin, "q");
    assert_eq!((id(&again), &again["retry"]), (id(&taken), &json!(1)));
}

#[test]
fn any_door_settles_what_another_one_took() {
    let server = server();
    let admin = server.admin();
    let mut binary = BinaryClient::connect(server.messaging());
    binary.publish("q", &json!(1));
    let taken = take(admin, "q").unwrap();
    binary.ack(id(&taken)).ok();
    publish(admin, &json!({"topic": "q"}));
    let taken = binary.consume("q").unwrap();
    assert_eq!(
        done(&post(admin, "/ack", &json!({"id": taken.id}))),
        json!({"status": "acked"})
    );
}

#[test]
fn a_message_that_is_given_back_comes_again_after_the_backoff_or_when_it_is_said() {
    let server = Server::start(
        &ServerOptions::memory()
            .set("queue.retry_backoff", "1h")
            .set("queue.retry_backoff_max", "1h"),
    );
    let admin = server.admin();
    publish(admin, &json!({"topic": "q", "payload": "waits"}));
    let taken = take(admin, "q").unwrap();
    assert_eq!(
        done(&post(admin, "/nack", &json!({"id": id(&taken)}))),
        json!({"status": "nacked"})
    );
    publish(admin, &json!({"topic": "q", "payload": "at once"}));
    let taken = take(admin, "q").unwrap();
    assert_eq!(taken["payload"], "at once");
    done(&post(admin, "/nack", &json!({"id": id(&taken), "delay": 0})));
    let again = await_message(admin, "q");
    assert_eq!(
        (id(&again), &again["retry"], &again["delivery_count"]),
        (id(&taken), &json!(1), &json!(1))
    );
    done(&post(
        admin,
        "/nack",
        &json!({"id": id(&again), "delay": 20_000_000, "requeue": null}),
    ));
    assert_eq!(await_message(admin, "q")["retry"], 2);
    for (delay, text) in [
        (-1_i64, "delay is -1;"),
        (86_400_000_000_001, "delay is 86400000000001;"),
    ] {
        let (status, error) = refused(&post(admin, "/nack", &json!({"id": id(&again), "delay": delay})));
        assert_eq!(status, 400);
        assert!(error.starts_with(text), "{error}");
    }
}

#[test]
fn a_message_that_is_not_to_be_tried_again_is_a_dead_letter() {
    let server = server();
    let admin = server.admin();
    publish(admin, &json!({"topic": "q", "payload": 1}));
    let taken = take(admin, "q").unwrap();
    done(&post(admin, "/nack", &json!({"id": id(&taken), "requeue": false})));
    let dead = take(admin, "q_dead_letter").unwrap();
    assert_eq!(
        (id(&dead), &dead["headers"]["x-death-reason"]),
        (id(&taken), &json!("rejected"))
    );
}

#[test]
fn what_is_not_leased_is_not_found() {
    let server = server();
    let admin = server.admin();
    publish(admin, &json!({"topic": "q"}));
    let taken = take(admin, "q").unwrap();
    done(&post(admin, "/ack", &json!({"id": id(&taken)})));
    for unknown in [id(&taken), "none", &"0".repeat(32), "\u{1}"] {
        for path in ["/ack", "/nack"] {
            let answer = refused(&post(admin, path, &json!({"id": unknown})));
            assert_eq!(
                answer,
                (404, format!("message {unknown} not found in pending")),
                "{path}"
            );
        }
    }
    let (_, text) = refused(&post(admin, "/ack", &json!({"id": "x".repeat(1_000_000)})));
    assert!(text.len() < 300, "{}", text.len());
}

#[test]
fn a_wait_ends_when_a_message_comes() {
    let server = server();
    let admin = server.admin();
    let waiting = std::thread::spawn(move || get(admin, "/consume?topic=q&wait=60s"));
    eventually(PATIENCE, "the consumer waits", || {
        let queues = done(&get(admin, "/queues"));
        (queues["queues"][0]["consumers"] == 1).then_some(())
    });
    let published = publish(admin, &json!({"topic": "q", "payload": "here"}));
    assert_eq!(done(&waiting.join().unwrap())["id"], published.as_str());
}

#[test]
fn a_wait_for_nothing_ends_at_its_time() {
    let server = server();
    let started = Instant::now();
    assert_eq!(get(server.admin(), "/consume?topic=q&wait=300ms").status, 204);
    assert!(started.elapsed() >= Duration::from_millis(300));
    for (wait, shown) in [("61s", "61s"), ("5", "5"), ("-1s", "-1s"), ("soon", "soon")] {
        let (status, text) = refused(&get(server.admin(), &format!("/consume?topic=q&wait={wait}")));
        assert_eq!(
            (status, text),
            (400, format!("wait is {shown:?}; 0s to 1m are allowed"))
        );
    }
}

#[test]
fn a_client_that_goes_while_it_waits_takes_nothing() {
    let server = server();
    let admin = server.admin();
    let mut gone = TcpStream::connect(admin).unwrap();
    gone.write_all(b"GET /consume?topic=q&wait=60s HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    let consumers = |count: u64| {
        eventually(PATIENCE, "so many consumers", || {
            let queues = done(&get(admin, "/queues"));
            (queues["queues"][0]["consumers"] == count).then_some(())
        });
    };
    consumers(1);
    drop(gone);
    consumers(0);
    publish(admin, &json!({"topic": "q", "payload": 1}));
    assert_eq!(take(admin, "q").unwrap()["retry"], 0);
}

/// Weakness C11: a stop ends long polls.
#[test]
fn a_stop_ends_waits() {
    let mut server = server();
    let admin = server.admin();
    let mut waiting = TcpStream::connect(admin).unwrap();
    waiting.set_read_timeout(Some(PATIENCE)).unwrap();
    waiting
        .write_all(b"GET /consume?topic=q&wait=60s HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    eventually(PATIENCE, "the consumer waits", || {
        let queues = done(&get(admin, "/queues"));
        (queues["queues"][0]["consumers"] == 1).then_some(())
    });
    assert!(server.terminate().success());
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
}

/// Section 4: a message that does not fit into a frame of the binary protocol fits here.
#[tokio::test]
async fn the_largest_message_is_delivered_as_base64() {
    let server = server();
    let bytes = vec![7; 4_100_000];
    connect(server.messaging()).await.put("q", message(bytes.clone())).await;
    let taken = take(server.admin(), "q").unwrap();
    assert_eq!(taken["payload"].as_str().unwrap().len(), bytes.len().div_ceil(3) * 4);
    let large = json!({"topic": "q", "payload": "x".repeat(5 << 20)});
    let (status, text) = refused(&post(server.admin(), "/publish", &large));
    assert_eq!((status, text.as_str()), (413, "the body has more than 4194304 bytes"));
}

#[test]
fn what_was_published_over_http_survives_a_kill() {
    let mut server = Server::start(&ServerOptions::disk());
    let ids: Vec<_> = (0..20)
        .map(|n| publish(server.admin(), &json!({"topic": "q", "payload": n})))
        .collect();
    let taken = take(server.admin(), "q").unwrap();
    done(&post(server.admin(), "/ack", &json!({"id": id(&taken)})));
    server.kill();
    server.restart();
    let again: Vec<_> = (1..20)
        .map(|_| id(&take(server.admin(), "q").unwrap()).to_owned())
        .collect();
    assert_eq!(again, ids[1..]);
    assert_eq!(take(server.admin(), "q"), None);
}

/// No queue, no key, no memory: what has to wait for others is 429 and says when to come again.
#[test]
fn what_is_refused_because_of_a_limit_says_when_to_come_again() {
    let server = Server::start(&ServerOptions::memory().set("queue.dedup_max_keys", 1));
    let admin = server.admin();
    publish(admin, &json!({"topic": "q", "idempotency_key": "a"}));
    let response = post(admin, "/publish", &json!({"topic": "q", "idempotency_key": "b"}));
    assert_eq!((response.status, response.header("retry-after")), (429, Some("1")));
    assert!(refused(&response).1.contains("queue.dedup_max_keys"));
    publish(admin, &json!({"topic": "q"}));
}

/// A queue with settings of its own shows them, and refuses what it has no room for.
#[tokio::test]
async fn a_queue_that_is_full_says_when_to_come_again() {
    let server = server();
    let admin = server.admin();
    let settings = QueueSettings {
        max_length: Some(1),
        max_retry: Some(7),
        ..QueueSettings::default()
    };
    let create = CreateQueueRequest {
        queue: "small".to_owned(),
        settings: Some(settings),
    };
    connect(server.messaging()).await.create_queue(create).await.unwrap();
    publish(admin, &json!({"topic": "small"}));
    for (path, body) in [
        ("/publish", json!({"topic": "small"})),
        ("/exchange/publish", json!({"routing_key": "small"})),
    ] {
        let response = post(admin, path, &body);
        assert_eq!(
            (response.status, response.header("retry-after")),
            (429, Some("1")),
            "{path}"
        );
        assert!(refused(&response).1.contains("full"), "{}", response.text());
    }
    let taken = take(admin, "small").unwrap();
    assert_eq!(taken["max_retry"], 7);
    done(&post(admin, "/ack", &json!({"id": id(&taken)})));
    publish(admin, &json!({"topic": "small"}));
}
