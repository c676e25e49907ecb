//! `/queues` and `/topics`: lists, looking without taking, purging.

use boltq_tests::harness::binary::BinaryClient;
use serde_json::{Value, json};

use super::client::{done, get, post, publish, refused, server, take};

fn names(page: &Value, list: &str) -> Vec<String> {
    let entries = page[list].as_array().expect("a list");
    entries
        .iter()
        .map(|entry| entry["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn queues_are_listed_with_their_figures() {
    let server = server();
    let admin = server.admin();
    assert_eq!(
        done(&get(admin, "/queues")),
        json!({"queues": [], "next_page_token": ""})
    );
    for payload in 0..3 {
        publish(admin, &json!({"topic": "jobs", "payload": payload}));
    }
    publish(admin, &json!({"topic": "jobs", "delay": 3_600_000_000_000_u64}));
    let taken = take(admin, "jobs").unwrap();
    done(&post(admin, "/nack", &json!({"id": taken["id"], "requeue": false})));
    take(admin, "jobs").unwrap();
    let listed = done(&get(admin, "/queues?prefix=jobs&linearizable=true"));
    let row = |name, ready, leased, delayed, dead| json!({"name": name, "ready": ready, "leased": leased, "delayed": delayed, "dead_letters": dead, "consumers": 0});
    let rows = [row("jobs", 1, 1, 1, 1), row("jobs_dead_letter", 1, 0, 0, 0)];
    assert_eq!(listed, json!({"queues": rows, "next_page_token": ""}));
}

#[test]
fn lists_come_in_pages() {
    let server = server();
    let admin = server.admin();
    let mut binary = BinaryClient::connect(server.messaging());
    for n in 0..7 {
        binary.publish(&format!("a&b {n}"), &json!(n));
    }
    binary.publish("other", &json!(1));
    let mut found = Vec::new();
    let mut token = String::new();
    loop {
        let token_in_query = token.replace('&', "%26").replace(' ', "+");
        let page = done(&get(
            admin,
            &format!("/queues?prefix=a%26&page_size=3&page_token={token_in_query}"),
        ));
        let on_page = names(&page, "queues");
        assert!((1..=3).contains(&on_page.len()), "{page}");
        found.extend(on_page);
        token = page["next_page_token"].as_str().unwrap().to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(found, (0..7).map(|n| format!("a&b {n}")).collect::<Vec<_>>());
    for path in ["/queues", "/topics", "/dead-letters"] {
        let (status, text) = refused(&get(admin, &format!("{path}?page_size=1001")));
        assert_eq!(
            (status, text.as_str()),
            (400, r#"page_size is "1001"; 0 to 1000 are allowed"#),
            "{path}"
        );
        let (status, text) = refused(&get(admin, &format!("{path}?linearizable=perhaps")));
        assert_eq!(
            (status, text.as_str()),
            (400, r#"linearizable is "perhaps"; true and false are allowed"#),
            "{path}"
        );
    }
}

#[test]
fn a_look_takes_nothing() {
    let server = server();
    let admin = server.admin();
    for payload in 0..12 {
        publish(
            admin,
            &json!({"topic": "q", "payload": payload, "headers": {"n": payload.to_string()}}),
        );
    }
    let peeked = done(&get(admin, "/queues/peek?queue=q"))["messages"].clone();
    let payloads: Vec<_> = peeked
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["payload"].clone())
        .collect();
    assert_eq!(payloads, (0..10).map(Value::from).collect::<Vec<_>>());
    assert_eq!(take(admin, "q").unwrap(), peeked[0]);
    let two = done(&get(admin, "/queues/peek?queue=q&max_messages=2&payload=base64"))["messages"].clone();
    assert_eq!((two.as_array().unwrap().len(), &two[0]["payload"]), (2, &json!("MQ==")));
    assert_eq!(done(&get(admin, "/stats"))["PendingCount"], 1);
    assert_eq!(
        refused(&get(admin, "/queues/peek")),
        (400, "queue is required".to_owned())
    );
    assert_eq!(refused(&get(admin, "/queues/peek?queue=none")).0, 404);
    assert_eq!(refused(&get(admin, "/queues/peek?queue=a%00")).0, 400);
    assert_eq!(refused(&get(admin, "/queues/peek?queue=q&max_messages=1001")).0, 400);
}

#[test]
fn a_purge_removes_what_is_ready_and_nothing_else() {
    let server = server();
    let admin = server.admin();
    for payload in 0..5 {
        publish(admin, &json!({"topic": "jobs", "payload": payload}));
    }
    publish(admin, &json!({"topic": "jobs", "delay": 3_600_000_000_000_u64}));
    let taken = take(admin, "jobs").unwrap();
    let purged = done(&post(admin, "/queues/purge", &json!({"queue": "jobs"})));
    assert_eq!(purged, json!({"status": "purged", "queue": "jobs", "purged_count": 4}));
    let listed = done(&get(admin, "/queues"));
    let left = &listed["queues"][0];
    assert_eq!(
        (&left["ready"], &left["leased"], &left["delayed"]),
        (&json!(0), &json!(1), &json!(1))
    );
    done(&post(admin, "/ack", &json!({"id": taken["id"]})));
    assert_eq!(
        refused(&post(admin, "/queues/purge", &json!({}))),
        (400, "queue is required".to_owned())
    );
    assert_eq!(
        refused(&post(admin, "/queues/purge", &json!({"queue": "a\u{0}b"}))).0,
        400
    );
}

#[test]
fn topics_are_listed_with_who_listens() {
    let server = server();
    let admin = server.admin();
    assert_eq!(
        done(&get(admin, "/topics")),
        json!({"topics": [], "next_page_token": ""})
    );
    let mut listening = Vec::new();
    for (topic, durable) in [("news", false), ("news", true), ("prices", false)] {
        let mut client = BinaryClient::connect(server.messaging());
        let body = json!({"topic": topic, "id": format!("{topic} {durable}"), "durable": durable});
        client
            .call(boltq_tests::harness::binary::command::CONSUME, &body.to_string())
            .ok();
        listening.push(client);
    }
    let first = done(&get(admin, "/topics?page_size=1"));
    let row = json!({"name": "news", "durable_subscriptions": 1, "subscribers": 2});
    assert_eq!(first, json!({"topics": [row], "next_page_token": "news"}));
    let second = done(&get(admin, "/topics?page_token=news"));
    let row = json!({"name": "prices", "durable_subscriptions": 0, "subscribers": 1});
    assert_eq!(second, json!({"topics": [row], "next_page_token": ""}));
}
