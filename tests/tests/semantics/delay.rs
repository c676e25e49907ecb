//! Delayed messages: never early, soon after they are due.

use std::time::{Duration, Instant};

use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::grpc::{QueueCalls, connect, duration, message};
use boltq_tests::harness::{Server, ServerOptions, eventually, eventually_async};
use serde_json::json;

fn connected() -> (Server, BinaryClient) {
    let server = Server::start(&ServerOptions::memory());
    let client = BinaryClient::connect(server.messaging());
    (server, client)
}

/// Example 3 of the specification.
#[test]
fn a_delayed_message_is_counted_apart_until_it_is_due() {
    let (_server, mut client) = connected();
    let published = Instant::now();
    client.publish_with(&json!({"topic": "q", "payload": 1, "delay": 200_000_000}));
    assert!(client.consume("q").is_none());
    let stats = client.stats();
    assert_eq!((&stats["DelayedCount"], &stats["Queues"]["q"]), (&json!(1), &json!(0)));
    eventually(Duration::from_secs(2), "it is delivered", || client.consume("q"));
    let waited = published.elapsed();
    assert!(waited >= Duration::from_millis(200), "early: {waited:?}");
    assert!(waited < Duration::from_millis(1300), "late: {waited:?}");
    assert_eq!(client.stats()["DelayedCount"], 0);
}

/// Every message carries its due time; the waiting consumer sees when each one really came.
#[tokio::test]
async fn no_message_is_ever_early_and_most_are_within_ten_milliseconds() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let start = Instant::now();
    let mut due = Vec::new();
    for number in 0..200_u32 {
        let delay = Duration::from_micros(u64::from(number * 7919 % 200) * 7_500 + 333);
        let published = start.elapsed();
        let delayed = Message {
            delay: duration(delay),
            ..message(number.to_le_bytes().to_vec())
        };
        client.put("q", delayed).await;
        due.push(published + delay);
    }
    let mut late = Vec::new();
    for _ in 0..200 {
        let delivery = client.take_one("q").await;
        let now = start.elapsed();
        let number = u32::from_le_bytes(delivery.payload[..].try_into().unwrap());
        let due = due[number as usize];
        assert!(now >= due, "message {number} was due at {due:?} and came at {now:?}");
        late.push(now - due);
    }
    late.sort_unstable();
    // Publishing all of them takes a while, in which nobody consumes; so the earliest half says nothing about lateness.
    let typical = late[100];
    println!("late by {typical:?} at the median, {:?} at most", late[199]);
    assert!(client.take("q", 1).await.is_empty());
}

#[test]
fn messages_come_in_the_order_of_their_due_times() {
    let (_server, mut client) = connected();
    for (name, delay_ms) in [("third", 600), ("first", 200), ("second", 400)] {
        client.publish_with(&json!({"topic": "q", "payload": name, "delay": delay_ms * 1_000_000}));
    }
    let mut order = Vec::new();
    eventually(Duration::from_secs(5), "all three", || {
        order.extend(client.consume("q").map(|taken| taken.payload().clone()));
        (order.len() == 3).then_some(())
    });
    assert_eq!(order, ["first", "second", "third"]);
}

#[test]
fn zero_and_negative_delays_are_none() {
    let (_server, mut client) = connected();
    for delay in [0_i64, -1, i64::MIN] {
        client.publish_with(&json!({"topic": "q", "payload": delay, "delay": delay, "ttl": delay}));
        assert_eq!(client.consume("q").unwrap().payload(), &json!(delay));
    }
}

/// A client library documents milliseconds and sends the number as it is: the server takes it for nanoseconds.
#[test]
fn a_small_number_is_nanoseconds_too() {
    let (_server, mut client) = connected();
    client.publish_with(&json!({"topic": "q", "payload": 1, "delay": 1000}));
    eventually(Duration::from_secs(1), "it is due at once", || client.consume("q"));
}

#[test]
fn a_delayed_message_keeps_its_priority_when_it_is_due() {
    let (_server, mut client) = connected();
    client.publish_with(&json!({"topic": "q", "payload": "low"}));
    client.publish_with(&json!({"topic": "q", "payload": "high", "priority": 5, "delay": 100_000_000}));
    eventually(Duration::from_secs(2), "it is due", || {
        (client.stats()["Queues"]["q"] == 2).then_some(())
    });
    assert_eq!(client.consume("q").unwrap().payload(), "high");
}

#[tokio::test]
async fn a_hundred_thousand_delayed_messages_keep_the_queue_quick() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let hour = duration(Duration::from_secs(3600));
    let late = Message {
        delay: hour,
        ..message("later")
    };
    let request = boltq_proto::queue::v1::PublishStreamRequest {
        queue: "q".into(),
        messages: vec![late; 1000],
        ..boltq_proto::queue::v1::PublishStreamRequest::default()
    };
    let stream = tokio_stream::iter(std::iter::repeat_n(request, 100));
    let mut responses = client.publish_stream(stream).await.unwrap().into_inner();
    while responses.message().await.unwrap().is_some() {}
    assert_eq!(client.look("q").await.delayed, 100_000);
    // Side by side with a queue that has none, so that a busy machine is slow for both.
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..100 {
        for (queue, times) in ["empty", "q"].into_iter().zip(&mut times) {
            let started = Instant::now();
            client.put(queue, message("now")).await;
            let taken = client.take(queue, 1).await;
            client.done(&taken).await;
            times.push(started.elapsed());
        }
    }
    let [without, with] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    assert!(
        with < 5 * without + Duration::from_millis(5),
        "{with:?} instead of {without:?}"
    );
}

#[tokio::test]
async fn what_became_due_while_the_server_was_down_comes_in_due_order_after_the_start() {
    let mut server = Server::start(&ServerOptions::disk());
    let mut client = connect(server.messaging()).await;
    let due_ms = |number: u64| 1 + number * 7_919 % 1_009;
    for number in 0..300_u64 {
        let delayed = Message {
            delay: duration(Duration::from_millis(3_600_000 + due_ms(number))),
            ..message(number.to_le_bytes().to_vec())
        };
        client.put("q", delayed).await;
    }
    for number in 300..600_u64 {
        let delayed = Message {
            delay: duration(Duration::from_millis(due_ms(number))),
            ..message(number.to_le_bytes().to_vec())
        };
        client.put("q", delayed).await;
    }
    server.kill();
    std::thread::sleep(Duration::from_millis(1_100));
    server.restart();
    let mut client = connect(server.messaging()).await;
    let taken = eventually_async(Duration::from_secs(30), "what is due", || {
        let mut client = client.clone();
        async move {
            let taken = client.take("q", 1_000).await;
            (!taken.is_empty()).then_some(taken)
        }
    })
    .await;
    assert_eq!(taken.len(), 300, "all of them at once");
    let times: Vec<_> = taken.iter().map(|delivery| delivery.deliver_at.unwrap()).collect();
    assert!(times.is_sorted_by_key(|time| (time.seconds, time.nanos)));
    assert_eq!(client.look("q").await.delayed, 300);
}
