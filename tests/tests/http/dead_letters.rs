//! `/dead-letters`: lists, purging, sending back.

use std::net::SocketAddr;

use boltq_proto::queue::v1::{CreateQueueRequest, QueueSettings};
use boltq_tests::harness::grpc::connect;
use serde_json::{Value, json};

use super::client::{done, get, id, post, publish, refused, server, take};

/// Makes dead letters of messages with these payloads.
fn kill(admin: SocketAddr, queue: &str, payloads: std::ops::Range<u64>) {
    for payload in payloads {
        publish(
            admin,
            &json!({"topic": queue, "payload": payload, "headers": {"odd": (payload % 2).to_string()}}),
        );
        let taken = take(admin, queue).unwrap();
        done(&post(admin, "/nack", &json!({"id": id(&taken), "requeue": false})));
    }
}

fn payloads(admin: SocketAddr, queue: &str) -> Vec<Value> {
    std::iter::from_fn(|| take(admin, queue))
        .map(|message| message["payload"].clone())
        .collect()
}

#[test]
fn queues_with_dead_letters_are_listed_by_the_queue_that_they_come_from() {
    let server = server();
    let admin = server.admin();
    publish(admin, &json!({"topic": "fine"}));
    assert_eq!(
        done(&get(admin, "/dead-letters")),
        json!({"dead_letters": [], "next_page_token": ""})
    );
    // With the suffix, these two are the other way round.
    kill(admin, "a", 0..2);
    kill(admin, "a!", 0..1);
    take(admin, "a_dead_letter").unwrap();
    let row = |queue: &str, ready, leased| json!({"queue": queue, "name": format!("{queue}_dead_letter"), "ready": ready, "leased": leased});
    let first = done(&get(admin, "/dead-letters?page_size=1"));
    assert_eq!(first, json!({"dead_letters": [row("a", 1, 1)], "next_page_token": "a"}));
    let second = done(&get(admin, "/dead-letters?page_token=a"));
    assert_eq!(
        second,
        json!({"dead_letters": [row("a!", 1, 0)], "next_page_token": ""})
    );
    let named = done(&get(admin, "/dead-letters?prefix=a!&linearizable=true"));
    assert_eq!(named["dead_letters"], json!([row("a!", 1, 0)]));
}

#[test]
fn a_purge_takes_the_name_of_the_queue_that_they_come_from() {
    let server = server();
    let admin = server.admin();
    kill(admin, "jobs", 0..3);
    let purged = done(&post(admin, "/dead-letters/purge", &json!({"queue": "jobs"})));
    assert_eq!(purged, json!({"status": "purged", "queue": "jobs", "purged_count": 3}));
    let none = refused(&post(admin, "/dead-letters/purge", &json!({"queue": "none"})));
    assert_eq!(none, (500, "dead letter queue none_dead_letter not found".to_owned()));
    assert_eq!(
        refused(&post(admin, "/dead-letters/purge", &json!({}))),
        (400, "queue is required".to_owned())
    );
}

#[test]
fn dead_letters_go_back_all_or_some() {
    let server = server();
    let admin = server.admin();
    kill(admin, "jobs", 0..6);
    let redrive = |body: Value| post(admin, "/dead-letters/redrive", &body);
    let wanted = |count| json!({"status": "redriven", "queue": "jobs", "redriven_count": count, "more": false});
    assert_eq!(
        done(&redrive(
            json!({"queue": "jobs", "headers": {"odd": "1"}, "max_messages": 2})
        )),
        wanted(2)
    );
    assert_eq!(payloads(admin, "jobs"), [1, 3].map(Value::from));
    assert_eq!(
        done(&redrive(json!({"queue": "jobs", "max_per_second": 1_000}))),
        wanted(4)
    );
    assert_eq!(payloads(admin, "jobs"), [0, 2, 4, 5].map(Value::from));
    assert_eq!(done(&redrive(json!({"queue": "jobs"}))), wanted(0));
    assert_eq!(refused(&redrive(json!({"queue": "none"}))).0, 404);
    assert_eq!(refused(&redrive(json!({}))), (400, "queue is required".to_owned()));
    for (name, value) in [("max_messages", -1_i64), ("max_per_second", 1 << 40)] {
        let (status, text) = refused(&redrive(json!({"queue": "jobs", name: value})));
        assert_eq!(
            (status, text),
            (400, format!("{name} is {value}; 0, for no bound, or more is allowed"))
        );
    }
}

/// One call works for 20 s.
#[test]
fn what_takes_longer_than_a_call_may_goes_on_with_the_next() {
    let server = server();
    let admin = server.admin();
    kill(admin, "jobs", 0..30);
    let first = done(&post(
        admin,
        "/dead-letters/redrive",
        &json!({"queue": "jobs", "max_per_second": 1}),
    ));
    let count = first["redriven_count"].as_u64().unwrap();
    assert!(first["more"] == true && (1..30).contains(&count), "{first}");
    let second = done(&post(admin, "/dead-letters/redrive", &json!({"queue": "jobs"})));
    assert_eq!(
        (&second["redriven_count"], &second["more"]),
        (&json!(30 - count), &json!(false))
    );
    assert_eq!(payloads(admin, "jobs"), (0..30).map(Value::from).collect::<Vec<_>>());
}

#[tokio::test]
async fn queues_may_have_their_dead_letters_in_one() {
    let server = server();
    let admin = server.admin();
    let mut queues = connect(server.messaging()).await;
    for queue in ["a", "b"] {
        let settings = QueueSettings {
            dead_letter_queue: "graveyard".to_owned(),
            ..QueueSettings::default()
        };
        let create = CreateQueueRequest {
            queue: queue.to_owned(),
            settings: Some(settings),
        };
        queues.create_queue(create).await.unwrap();
        kill(admin, queue, 0..1);
    }
    kill(admin, "c", 0..1);
    let row = |queue, name, ready| json!({"queue": queue, "name": name, "ready": ready, "leased": 0});
    let rows = [
        row("a", "graveyard", 2),
        row("b", "graveyard", 2),
        row("c", "c_dead_letter", 1),
    ];
    assert_eq!(done(&get(admin, "/dead-letters"))["dead_letters"], json!(rows));
}
