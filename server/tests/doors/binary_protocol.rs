//! Frames, order, limits and the life of a connection.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::harness::*;

#[tokio::test]
async fn the_examples_of_the_protocol_hold_byte_for_byte() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.send(&[0x06, 0, 0, 0, 0]).await;
    assert_eq!(client.frame().await, (OK, r#"{"status":"pong"}"#.to_owned()));
    client.send(b"\x03\x0d\0\0\0{\"topic\":\"q\"}").await;
    assert_eq!(client.frame().await, (EMPTY, String::new()));
    client.send(&[0x7f, 0, 0, 0, 0]).await;
    assert_eq!(
        client.frame().await,
        (ERROR, r#"{"error":"unknown command: 0x7f"}"#.to_owned())
    );
    client.send(&[0x01, 0x01, 0, 0x40, 0]).await;
    assert_eq!(client.closed().await, b"");
}

#[tokio::test]
async fn commands_of_features_that_are_missing_say_so_and_keep_the_connection() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (code, text) in [
        (0x10, "clustering is not enabled"),
        (0x11, "clustering is not enabled"),
        (0x00, "unknown command: 0x00"),
        (0x0f, "unknown command: 0x0f"),
    ] {
        assert_eq!(client.ask(code, "not JSON").await, error(text));
    }
    assert_eq!(client.ask(0x12, "").await, (OK, json!({"enabled": false})));
    assert_eq!(client.ask(PING, "{}").await, status("pong"));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_their_order() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut requests = Vec::new();
    for n in 0..300 {
        requests.extend(frame(PUBLISH, &format!(r#"{{"topic":"q","payload":{n}}}"#)));
        requests.extend(frame(PUBLISH, r#"{"topic":"q","delay":"soon"}"#));
        requests.extend(frame(PUBLISH, r#"{"topic":"a\u0000b"}"#));
        if n % 7 == 0 {
            requests.extend(frame(PING, ""));
        }
        requests.extend(frame(CONSUME, r#"{"topic":"q"}"#));
        requests.extend(frame(ACK, r#"{"id":"none"}"#));
    }
    client.send(&requests).await;
    for n in 0..300 {
        let (code, published) = client.reply().await;
        assert_eq!(code, OK);
        let (code, refused) = client.reply().await;
        assert_eq!(code, ERROR);
        assert!(
            refused["error"].as_str().unwrap().starts_with("invalid json: "),
            "{refused}"
        );
        let (code, refused) = client.reply().await;
        assert_eq!(code, ERROR);
        assert!(
            refused["error"].as_str().unwrap().contains("control character"),
            "{refused}"
        );
        if n % 7 == 0 {
            assert_eq!(client.reply().await, status("pong"));
        }
        let (code, message) = client.reply().await;
        assert_eq!(
            (code, &message["payload"], id_of(&message)),
            (OK, &json!(n), id_of(&published))
        );
        assert_eq!(client.reply().await, error("message none not found in pending"));
    }
}

#[tokio::test]
async fn a_run_of_consumes_is_answered_as_if_they_came_one_by_one() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let publishes: Vec<u8> = (0..50)
        .flat_map(|n| frame(PUBLISH, &format!(r#"{{"topic":"q","payload":{n}}}"#)))
        .collect();
    client.send(&publishes).await;
    for _ in 0..50 {
        assert_eq!(client.reply().await.0, OK);
    }
    client.send(&frame(CONSUME, r#"{"topic":"q"}"#).repeat(60)).await;
    for n in 0..50 {
        let (code, message) = client.reply().await;
        assert_eq!((code, &message["payload"]), (OK, &json!(n)));
    }
    for _ in 50..60 {
        assert_eq!(client.frame().await, (EMPTY, String::new()));
    }
}

#[tokio::test]
async fn bytes_may_come_one_at_a_time() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.stream.set_nodelay(true).unwrap();
    for byte in frame(PUBLISH, r#"{"topic":"q","payload":[1,2]}"#) {
        client.send(&[byte]).await;
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(client.reply().await.0, OK);
}

#[tokio::test]
async fn a_payload_comes_back_as_the_bytes_that_were_sent() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for payload in [
        r#"{"b" : 1.0,"a":[ 123456789012345678901234567890, "<&>\u2028\ud83d\ude00é" ]}"#,
        r#""{\"a\":1}""#,
        "null",
        "-0.0",
    ] {
        client
            .send(&frame(PUBLISH, &format!(r#"{{"topic":"q","payload":{payload}}}"#)))
            .await;
        assert_eq!(client.reply().await.0, OK);
        client.send(&frame(CONSUME, r#"{"topic":"q"}"#)).await;
        let (code, body) = client.frame().await;
        assert_eq!(code, OK);
        assert!(
            body.contains(&format!(r#","payload":{payload},"timestamp":"#)),
            "{body}"
        );
    }
}

#[tokio::test]
async fn what_fits_into_a_frame_with_its_envelope_is_accepted_and_more_is_refused() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let publish = |length: usize| {
        frame(
            PUBLISH,
            &format!(r#"{{"topic":"q","payload":"{}"}}"#, "x".repeat(length)),
        )
    };
    client.send(&publish(4_128_766)).await;
    assert_eq!(client.reply().await.0, OK);
    let (code, message) = client.consume("q").await;
    assert_eq!((code, message["payload"].as_str().unwrap().len()), (OK, 4_128_766));
    client.send(&publish(4_128_767)).await;
    let (code, refused) = client.reply().await;
    assert_eq!(code, ERROR);
    assert!(
        refused["error"]
            .as_str()
            .unwrap()
            .contains("at most 4128768 are allowed"),
        "{refused}"
    );
    assert_eq!(client.ask(PING, "").await, status("pong"));
}

#[tokio::test]
async fn after_a_half_close_what_was_sent_is_answered_before_the_end() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.send(&frame(PUBLISH, r#"{"topic":"q"}"#).repeat(10)).await;
    client.send(&frame(PING, "")[..3]).await;
    client.stream.shutdown().await.unwrap();
    for _ in 0..10 {
        assert_eq!(client.reply().await.0, OK);
    }
    assert_eq!(client.closed().await, b"");
}

#[tokio::test]
async fn replies_before_a_frame_that_closes_the_connection_still_arrive() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut requests = frame(PING, "").repeat(100);
    requests.extend([0x01, 0xff, 0xff, 0xff, 0xff]);
    // What follows stays unread, and must not turn the close into a reset.
    requests.extend([0; 10_000]);
    client.send(&requests).await;
    for _ in 0..100 {
        assert_eq!(client.reply().await, status("pong"));
    }
    assert_eq!(client.closed().await, b"");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_closed() {
    let server = Server::start_with(|config| config.server.idle_write_timeout = Duration::from_millis(200)).await;
    let mut client = server.client().await;
    let pings = frame(PING, "").repeat(10_000);
    let flood = async { while client.stream.write_all(&pings).await.is_ok() {} };
    timeout(PATIENCE, flood).await.expect("still open");
    // The others are served as before.
    assert_eq!(server.client().await.ask(PING, "").await, status("pong"));
}

#[tokio::test]
async fn a_silent_connection_is_kept_and_closed_when_the_server_stops() {
    let server = Server::start().await;
    let mut silent = server.client().await;
    let mut idle = server.client().await;
    assert_eq!(idle.ask(PING, "").await, status("pong"));
    server.stop().await;
    assert_eq!(silent.closed().await, b"");
    assert_eq!(idle.closed().await, b"");
}

#[tokio::test]
async fn statistics_have_their_five_members() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let empty = json!({"Queues": {}, "Topics": {}, "DeadLetters": {}, "PendingCount": 0, "DelayedCount": 0});
    assert_eq!(client.ask(STATS, "not JSON").await, (OK, empty));
    client.publish("a\"b", &json!(1)).await;
    client.publish("jobs", &json!(1)).await;
    client.publish("jobs", &json!(2)).await;
    client.consume("jobs").await;
    client.consume("none").await;
    let (code, stats) = client.ask(STATS, "").await;
    let wanted = json!({"Queues": {"a\"b": 1, "jobs": 1, "none": 0}, "Topics": {}, "DeadLetters": {},
        "PendingCount": 1, "DelayedCount": 0});
    assert_eq!((code, stats), (OK, wanted));
}

/// Not random: the same bytes in every run, so that a failure can be repeated.
fn garbage(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[4]
    };
    std::iter::repeat_with(byte).take(length).collect()
}

#[tokio::test]
async fn garbage_is_answered_or_closed_and_others_are_served() {
    let server = Server::start().await;
    let mut other = server.client().await;
    for seed in 0..200_u8 {
        let mut client = server.client().await;
        let mut bytes = garbage(seed.into(), 1 + usize::from(seed) * 20);
        if seed % 2 == 0 {
            // As the body of a whole frame.
            let length = u32::try_from(bytes.len()).unwrap().to_le_bytes();
            bytes = [&[bytes[0] % 0x19], &length[..], &bytes].concat();
        }
        client.stream.write_all(&bytes).await.unwrap();
        client.stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, client.stream.read_to_end(&mut rest))
            .await
            .expect("still open");
        assert_eq!(other.ask(PING, "").await, status("pong"), "seed {seed}");
    }
}

#[tokio::test]
async fn a_flood_of_long_answers_is_not_gathered_in_memory() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let names = (0..1_000).map(|n| frame(CONSUME, &format!(r#"{{"topic":"{n}{}"}}"#, "x".repeat(190))));
    client.send(&names.flatten().collect::<Vec<u8>>()).await;
    for _ in 0..1_000 {
        assert_eq!(client.frame().await, (EMPTY, String::new()));
    }
    // 200 kB each: 400 MB for 10 kB of requests. Gathered, all of it would be there before the first one arrives.
    client.send(&frame(STATS, "").repeat(2_000)).await;
    let (code, body) = client.frame().await;
    assert!(code == OK && body.len() > 190_000, "{code} {}", body.len());
    let peak_kib = peak_memory_kib();
    assert!(peak_kib < 300 << 10, "{peak_kib} KiB");
}

fn peak_memory_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim_end_matches("kB").trim().parse().unwrap()
}
