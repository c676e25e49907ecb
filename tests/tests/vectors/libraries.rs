//! What the two public libraries do, against one node: restarts, kills, lost replies, pipelining, slow readers, the cache.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boltq_tests::harness::binary::{BinaryClient, Frame, command, frame, status};
use boltq_tests::harness::library::{Habits, Lockstep, Positional};
use boltq_tests::harness::{Server, ServerOptions, eventually};
use serde_json::{Value, json};

use super::work::{PATIENCE, Stop, Work, number_of, until};

const KEY: &str = "s3cret";

fn habits(server: &Server) -> Habits {
    Habits::new(vec![server.messaging()], Some(KEY))
}

fn locked(options: &ServerOptions) -> Server {
    Server::start(&options.clone().set("security.api_key", KEY))
}

#[test]
fn a_worker_goes_on_when_its_server_is_restarted_and_killed() {
    let mut server = locked(&ServerOptions::disk());
    let work = Work::default();
    let worker = Positional::new(habits(&server));
    let mut publisher = Lockstep::new(habits(&server)).losing(17);
    std::thread::scope(|scope| {
        let _stop = Stop(&work);
        scope.spawn(|| work.publish(&mut publisher, command::PUBLISH, "work"));
        scope.spawn(|| work.process(&worker, "work"));
        let await_progress = || {
            let before = work.processed.load(Ordering::SeqCst);
            eventually(PATIENCE, "work goes on", || {
                (work.processed.load(Ordering::SeqCst) > before + 50).then_some(())
            });
        };
        await_progress();
        assert!(server.terminate().success());
        server.start_again();
        await_progress();
        for _ in 0..2 {
            server.kill();
            server.start_again();
            await_progress();
        }
    });
    // What is left.
    let stats = || until(|| worker.request(command::STATS, &Value::Null)).ok();
    work.stop.store(false, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let _stop = Stop(&work);
        scope.spawn(|| work.process(&worker, "work"));
        eventually(PATIENCE, "everything is processed", || {
            let stats = stats();
            (stats["Queues"]["work"] == 0 && stats["PendingCount"] == 0 && stats["DelayedCount"] == 0).then_some(())
        });
    });
    work.check();
    assert_eq!(stats()["DeadLetters"], json!({}));
    assert!(worker.connections() >= 4 && publisher.connections() > 4);
    assert_eq!(worker.strays(), 0, "every frame belongs to a request");
}

#[test]
fn a_subscription_that_times_out_and_comes_back_misses_nothing_and_repeats_nothing() {
    const SHORT: Duration = Duration::from_millis(300);
    let server = locked(&ServerOptions::memory());
    let mut subscriber = Lockstep::new(habits(&server));
    // The library makes it durable as soon as it comes back.
    subscriber.subscribe("quiet", "s", false);
    let mut publisher = Lockstep::new(habits(&server));
    for number in 0..8 {
        let connections = subscriber.connections();
        subscriber.set_deadline(SHORT);
        eventually(PATIENCE, "the quiet subscription is made again", || {
            assert_eq!(subscriber.push(), None, "before {number}");
            (subscriber.connections() > connections + 1).then_some(())
        });
        // The connections before are open, and none of them may get what comes now.
        subscriber.set_deadline(PATIENCE);
        subscriber.connect().unwrap();
        let tell = json!({"topic": "quiet", "payload": number});
        publisher.command(command::PUBLISH_TOPIC, &tell).unwrap().ok();
        let push = subscriber.push().expect("a push");
        assert_eq!(push["payload"], number);
        let mut stats = || publisher.command(command::STATS, &Value::Null).unwrap().ok();
        eventually(PATIENCE, "it is done", || {
            let stats = stats();
            (stats["Queues"]["quiet:s"] == 0 && stats["PendingCount"] == 0).then_some(())
        });
        assert_eq!(
            stats()["Topics"],
            json!({"quiet": 1}),
            "the connections that were left have none"
        );
    }
}

/// More than sockets hold, and nobody reads. Then everything is there, in order.
#[test]
fn a_reader_that_is_slow_gets_everything_in_order_and_holds_up_nobody() {
    const MESSAGES: u64 = 200;
    // It is not closed for reading nothing, however long the publishing takes.
    let server = locked(&ServerOptions::memory().set("server.idle_write_timeout", "10m"));
    let mut slow = authenticated(&server);
    let subscribe = json!({"topic": "large", "id": "slow", "durable": true});
    slow.call(command::CONSUME, &subscribe.to_string()).ok();
    let mut publisher = Lockstep::new(habits(&server));
    let large = "x".repeat(128 << 10);
    for number in 0..MESSAGES {
        let tell = json!({"topic": "large", "payload": [number, large]});
        publisher.command(command::PUBLISH_TOPIC, &tell).unwrap().ok();
    }
    // Requests wait behind what is not read, and are answered by position.
    let asked: Vec<u8> = (0..50)
        .flat_map(|number| frame(command::ACK, json!({"id": number.to_string()}).to_string().as_bytes()))
        .collect();
    slow.send_bytes(&asked).unwrap();
    publisher
        .command(command::PUBLISH, &json!({"topic": "other", "payload": 1}))
        .unwrap()
        .ok();
    let (mut replies, mut pushes) = (Vec::new(), Vec::new());
    while replies.len() < 50 || pushes.len() < MESSAGES as usize {
        let frame = slow.receive().expect("a frame");
        match frame.status {
            status::OK => pushes.push(frame.ok()["payload"][0].as_u64().expect("a number")),
            _ => replies.push(frame.error()),
        }
    }
    assert_eq!(pushes, (0..MESSAGES).collect::<Vec<_>>());
    let wanted: Vec<String> = (0..50)
        .map(|number| format!("message {number} not found in pending"))
        .collect();
    assert_eq!(replies, wanted);
}

#[test]
fn of_a_batch_in_which_the_server_is_killed_what_was_answered_is_there_once() {
    const MESSAGES: u64 = 6_000;
    let mut server = locked(&ServerOptions::disk());
    for round in 0..3 {
        let queue = format!("batch{round}");
        let mut client = authenticated(&server);
        let mut writing = client.second_handle().expect("a handle");
        let body = |number| json!({"topic": queue, "payload": number}).to_string();
        let batch: Vec<u8> = (0..MESSAGES)
            .flat_map(|number| frame(command::PUBLISH, body(number).as_bytes()))
            .collect();
        let mut answered: Vec<String> = Vec::new();
        std::thread::scope(|scope| {
            // It breaks when the server is gone.
            scope.spawn(|| drop(writing.send_bytes(&batch)));
            let mut killed = false;
            while let Ok(reply) = client.receive() {
                answered.push(reply.ok()["id"].as_str().expect("an id").to_owned());
                if answered.len() == 1 + 100 * round && !killed {
                    server.kill();
                    killed = true;
                }
            }
        });
        server.start_again();
        check_batch(&server, &queue, &answered);
    }
}

fn authenticated(server: &Server) -> BinaryClient {
    let mut client = BinaryClient::connect(server.messaging());
    client.call(command::AUTH, &json!({"api_key": KEY}).to_string()).ok();
    client
}

fn check_batch(server: &Server, queue: &str, answered: &[String]) {
    let mut client = authenticated(server);
    let mut there: BTreeMap<String, u64> = BTreeMap::new();
    let mut last = None;
    while let Some(message) = client.consume(queue) {
        let number = number_of(&message.body);
        assert!(last < Some(number), "{number} behind {last:?}");
        last = Some(number);
        client.ack(&message.id).ok();
        assert_eq!(there.insert(message.id, number), None);
    }
    for (number, id) in (0..).zip(answered) {
        assert_eq!(
            there.get(id),
            Some(&number),
            "{} were answered, {} are there",
            answered.len(),
            there.len()
        );
    }
}

#[test]
fn the_cache_is_asked_at_the_port_below() {
    let server = locked(&ServerOptions::memory());
    let library = Lockstep::new(habits(&server));
    let ask = |method, path, body| library.cache(method, path, body).expect("an answer");
    assert_eq!(
        ask("POST", "/cache/set", r#"{"key":"k","value":{"a":1}}"#).json()["status"],
        "ok"
    );
    assert_eq!(ask("GET", "/cache/get?key=k", "").json()["value"], json!({"a": 1}));
    assert_eq!(
        ask("POST", "/cache/incr", r#"{"key":"n","delta":2}"#).json()["value"],
        2
    );
    assert_eq!(ask("GET", "/cache/exists?key=none", "").json()["exists"], false);
    assert_eq!(ask("POST", "/cache/del", r#"{"key":"k"}"#).json()["deleted"], true);
    assert_eq!(ask("GET", "/cache/get?key=k", "").status, 404);
    let stranger = Lockstep::new(Habits::new(vec![server.messaging()], None));
    assert_eq!(stranger.cache("GET", "/cache/get?key=n", "").unwrap().status, 401);
}

/// The library gives it to the next request, which is why no answer may be late.
#[test]
fn no_request_is_held_open() {
    let server = locked(&ServerOptions::memory());
    let library = Positional::new(Habits {
        deadline: Duration::from_secs(20),
        ..habits(&server)
    });
    until(|| library.subscribe("t", "s", true)).ok();
    for number in 0..200_u64 {
        assert!(library.consume("empty").expect("an answer").is_none());
        let published: Frame = library.publish("q", &json!({"n": number})).expect("an answer");
        let taken = library.consume("q").expect("an answer").expect("a message");
        assert_eq!(
            (&taken["id"], &taken["payload"]),
            (&published.ok()["id"], &json!(json!({"n": number}).to_string()))
        );
    }
    assert_eq!(library.strays(), 0);
}
