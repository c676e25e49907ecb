//! Counting.

use boltq_proto::kv::v1::IncrementRequest;
use boltq_tests::harness::grpc::reason;
use boltq_tests::harness::{Server, ServerOptions, eventually};
use serde_json::json;
use tonic::Code;

use super::client::{SOON, connect, done, entry, get, look, post, put};

fn server() -> Server {
    Server::start(&ServerOptions::memory().set("cache.cleanup_sec", 3_600))
}

#[test]
fn what_has_no_value_counts_from_nought_and_for_ever() {
    let server = server();
    let admin = server.admin();
    let wanted = [
        (json!({"key": "n"}), 1),
        (json!({"key": "n", "delta": 0}), 2),
        (json!({"key": "n", "delta": -5}), -3),
    ];
    for (body, value) in wanted {
        assert_eq!(done(admin, "incr", &body), json!({"key": "n", "value": value}));
    }
    let stored = look(admin, "get?key=n");
    assert_eq!((&stored["value"], &stored["ttl"]), (&json!(-3), &json!(-1)));
    // One that was there, and is over.
    done(admin, "set", &json!({"key": "n", "value": 40, "ttl": 1}));
    eventually(SOON, "the end of the value", || {
        (get(admin, "get?key=n").0 == 404).then_some(())
    });
    assert_eq!(done(admin, "incr", &json!({"key": "n"}))["value"], 1);
    assert_eq!(look(admin, "get?key=n")["ttl"], -1);
}

#[test]
fn a_value_keeps_its_time_to_live_and_when_it_was_set() {
    let server = server();
    let admin = server.admin();
    done(admin, "set", &json!({"key": "n", "value": " 41\n", "ttl": 3_600_000}));
    let before = look(admin, "get?key=n");
    assert_eq!(
        done(admin, "incr", &json!({"key": "n"}))["value"],
        42,
        "spaces are no fault"
    );
    let after = look(admin, "get?key=n");
    assert_eq!(after["created_at"], before["created_at"]);
    assert!((1..=before["ttl"].as_i64().unwrap()).contains(&after["ttl"].as_i64().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_number_or_has_no_room_is_refused_and_stays() {
    let server = server();
    let admin = server.admin();
    let mut client = connect(server.messaging()).await;
    let increment = |delta| IncrementRequest {
        key: "k".to_owned(),
        delta: Some(delta),
    };
    for text in ["abc", "", "1.5", "9223372036854775808", "1 2"] {
        put(&mut client, "k", text).await;
        let answer = post(admin, "incr", &json!({"key": "k"}));
        assert_eq!(
            answer,
            (400, json!({"error": format!("value is not an integer: {text}")}))
        );
        let refused = client.increment(increment(1)).await.unwrap_err();
        assert_eq!(
            (refused.code(), &*reason(&refused)),
            (Code::FailedPrecondition, "NOT_AN_INTEGER")
        );
        assert_eq!(&entry(&mut client, "k").await.unwrap().value[..], text.as_bytes());
    }
    for (value, delta) in [(i64::MAX, 1), (i64::MIN, -1), (-1, i64::MIN)] {
        put(&mut client, "k", &value.to_string()).await;
        assert_eq!(post(admin, "incr", &json!({"key": "k", "delta": delta})).0, 400);
        let refused = client.increment(increment(delta)).await.unwrap_err();
        assert_eq!(
            (refused.code(), &*reason(&refused)),
            (Code::OutOfRange, "INCREMENT_OVERFLOW")
        );
        assert_eq!(
            &entry(&mut client, "k").await.unwrap().value[..],
            value.to_string().as_bytes()
        );
    }
    let unset = IncrementRequest {
        key: "new".to_owned(),
        delta: None,
    };
    assert_eq!(client.increment(unset.clone()).await.unwrap().into_inner().value, 1);
    let nothing = IncrementRequest {
        delta: Some(0),
        ..unset
    };
    assert_eq!(
        client.increment(nothing).await.unwrap().into_inner().value,
        1,
        "0 is 0 here"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_many_count_at_once() {
    let server = server();
    let mut client = connect(server.messaging()).await;
    let counting = (0..20).map(|_| {
        let mut client = client.clone();
        tokio::spawn(async move {
            for _ in 0..25 {
                let one = IncrementRequest {
                    key: "n".to_owned(),
                    delta: Some(1),
                };
                client.increment(one).await.unwrap();
            }
        })
    });
    for task in counting.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(&entry(&mut client, "n").await.unwrap().value[..], b"500");
}
