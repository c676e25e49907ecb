//! `boltq consume`, `ack`, `nack` and `extend`.

use std::io::{BufRead, BufReader, Read};

use crate::done;
use crate::fake::{Fake, ID, Ran, UNKNOWN_ID, boltq};

#[test]
fn consume_leases_one_message_and_leaves_it_to_be_acknowledged() {
    let fake = Fake::with(&[b"hello", b"other"]);
    let ran = fake.run(&["consume", "-topic", "a", "-wait", "5s", "-lease", "1m"]);
    let published = "1970-01-01T00:00:00Z";
    let block = format!("id        {ID}\nattempts  0\npublished {published}\nheader    k=v\npayload   hello\n\n");
    assert_eq!(ran, done(&block));
    let asked = fake.asked();
    assert_eq!(asked.consumed[0].max_messages, 1);
    assert_eq!(asked.consumed[0].wait.unwrap().seconds, 5);
    assert_eq!(asked.consumed[0].lease.unwrap().seconds, 60);
    assert!(asked.acked.is_empty());
}

#[test]
fn consume_with_ack_settles_what_it_printed_by_token() {
    let fake = Fake::with(&[b"1", b"2", b"3"]);
    let ran = fake.run(&["consume", "-topic", "a", "-max", "5", "-ack", "-output", "json"]);
    assert_eq!(
        (ran.code, ran.stdout.lines().count(), ran.stderr.as_str()),
        (Some(0), 3, "")
    );
    let mut tokens = fake.asked().acked[0].delivery_tokens.clone();
    tokens.sort();
    assert_eq!(tokens, [&[1][..], &[2], &[3]]);
}

#[test]
fn an_empty_queue_is_no_error_and_no_output() {
    let ran = Fake::start().run(&["consume", "-topic", "a"]);
    assert_eq!(
        ran,
        Ran {
            code: Some(0),
            stdout: String::new(),
            stderr: "no message in a\n".into()
        }
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error_and_nothing_is_acknowledged() {
    let fake = Fake::with(&[b"hello"]);
    let mut command = boltq(&["consume", "-topic", "a", "-ack"]);
    let mut child = command.env("BOLTQ_ADDR", fake.addr.to_string()).spawn().unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
    assert!(fake.asked().acked.is_empty());
}

#[test]
fn follow_ends_after_max_messages_and_acknowledges_just_those() {
    let fake = Fake::with(&[b"1", b"2", b"3"]);
    let ran = fake.run(&["consume", "-topic", "a", "-follow", "-max", "2", "-ack", "-o", "json"]);
    assert_eq!(
        (ran.code, ran.stdout.lines().count(), ran.stderr.as_str()),
        (Some(0), 2, "")
    );
    let asked = fake.asked();
    assert_eq!(asked.subscribed[0].max_in_flight, 2);
    let mut tokens = asked.stream_acked.clone();
    tokens.sort();
    assert_eq!(tokens, [&[1][..], &[2]]);
}

#[test]
fn follow_goes_on_until_it_is_interrupted() {
    let fake = Fake::with(&[b"1", b"2"]);
    let mut command = boltq(&["consume", "-topic", "a", "-follow", "-prefetch", "7", "-o", "json"]);
    let mut child = command.env("BOLTQ_ADDR", fake.addr.to_string()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..2 {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert!(line.starts_with("{\"message_id\":"), "{line}");
    }
    let interrupted = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(interrupted.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(fake.asked().subscribed[0].max_in_flight, 7);
}

#[test]
fn ack_and_nack_take_several_ids_and_name_those_that_were_not_settled() {
    let fake = Fake::start();
    assert_eq!(fake.run(&["ack", "-id", ID]), done("acknowledged 1 message\n"));
    let ran = fake.run(&["nack", "-id", ID, UNKNOWN_ID, "-delay", "10s", "-o", "json"]);
    let failure = format!("{{\"message_id\":\"{UNKNOWN_ID}\",\"reason\":\"NOT_FOUND\"}}");
    assert_eq!(ran.stdout, format!("{{\"settled\":1,\"failures\":[{failure}]}}\n"));
    let why = "unknown, settled before, expired or purged (NOT_FOUND)";
    assert_eq!(ran.stderr, format!("error: message {UNKNOWN_ID} not settled: {why}\n"));
    assert_eq!(ran.code, Some(1));
    assert_eq!(
        fake.run(&["nack", "-id", ID, "-dead-letter"]),
        done("dead-lettered 1 message\n")
    );
    let asked = fake.asked();
    assert_eq!(asked.nacked[0].delay.unwrap().seconds, 10);
    assert!(asked.nacked[1].dead_letter);
}

#[test]
fn many_ids_are_settled_by_several_calls() {
    let fake = Fake::start();
    let ids = vec![ID; 1_001];
    assert_eq!(
        fake.run(&[&["ack", "-id"], &ids[..]].concat()),
        done("acknowledged 1001 messages\n")
    );
    let calls: Vec<_> = fake.asked().acked.iter().map(|ack| ack.message_ids.len()).collect();
    assert_eq!(calls, [1_000, 1]);
}

#[test]
fn a_lease_is_extended_by_the_token_that_consume_printed() {
    let fake = Fake::with(&[b"hello"]);
    let consumed = fake.run(&["consume", "-topic", "a", "-output", "json"]).stdout;
    let consumed: serde_json::Value = serde_json::from_str(&consumed).unwrap();
    let token = consumed["delivery_token"].as_str().unwrap();
    let ran = fake.run(&["extend", "-token", token, "-lease", "10m"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "extended 1 lease\n"));
    let asked = fake.asked().extended.pop().unwrap();
    assert_eq!(asked.delivery_tokens, [&[1][..]]);
    assert_eq!(asked.lease.unwrap().seconds, 600);

    let ran = fake.run(&["extend", "-token", token, "AAAA", "-lease", "10m", "-o", "json"]);
    let failure = r#"{"delivery_token":"AAAA","reason":"LEASE_LOST"}"#;
    assert_eq!(ran.stdout, format!("{{\"extended\":1,\"failures\":[{failure}]}}\n"));
    assert_eq!(
        ran.stderr,
        "error: lease AAAA not extended: it has ended (LEASE_LOST)\n"
    );
    assert_eq!(ran.code, Some(1));
    let ran = fake.run(&["extend", "-token", "no base64", "-lease", "10m"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("a token is base64"), "{ran:?}");
}
