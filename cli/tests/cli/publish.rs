//! `boltq publish`.

use std::io::{BufRead, BufReader};

use boltq_proto::queue::v1::AckLevel;

use crate::fake::{Fake, ID, boltq, run};
use crate::{done, failed};

#[test]
fn publish_in_the_documented_form_prints_the_id() {
    let fake = Fake::start();
    let ran = fake.run(&[
        "publish",
        "-topic",
        "email_jobs",
        "-payload",
        r#"{"to":"user@example.com"}"#,
    ]);
    assert_eq!(ran, done(&format!("{ID}\n")));
    let asked = fake.asked();
    let message = asked.published[0].message.as_ref().unwrap();
    assert_eq!(asked.published[0].queue, "email_jobs");
    assert_eq!(message.payload, r#"{"to":"user@example.com"}"#);
    assert_eq!(message.content_type, "application/json");
    assert_eq!(asked.keys, [None]);
}

#[test]
fn the_api_key_goes_with_every_call() {
    let fake = Fake::start();
    let mut command = boltq(&[
        "publish",
        "--addr",
        &fake.addr.to_string(),
        "-topic",
        "a",
        "-payload",
        "x",
        "-o",
        "json",
    ]);
    let ran = run(command.env("BOLTQ_API_KEY", "secret"), b"");
    assert_eq!(ran, done(&format!("{{\"queue\":\"a\",\"message_id\":\"{ID}\"}}\n")));
    assert_eq!(fake.asked().keys, [Some("secret".to_owned())]);
}

#[test]
fn every_line_of_stdin_is_published_and_refused_ones_are_named() {
    let fake = Fake::start();
    let ran = fake.run_with_input(&["publish", "-topic", "a", "-file", "-"], b"one\n\nrefuse me\n{}\n");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.starts_with("published 2 messages to a in "), "{ran:?}");
    assert!(ran.stdout.ends_with(" s, refused 1\n"), "{ran:?}");
    assert_eq!(
        ran.stderr,
        "line 3: no (INVALID_HEADERS)\nerror: 1 of 3 messages were refused\n"
    );
    let messages: Vec<_> = fake
        .asked()
        .batches
        .iter()
        .flat_map(|batch| batch.messages.clone())
        .collect();
    let sent: Vec<_> = messages
        .iter()
        .map(|m| (&m.payload[..], m.content_type.as_str()))
        .collect();
    assert_eq!(
        sent,
        [(&b"one"[..], ""), (b"refuse me", ""), (b"{}", "application/json")]
    );
}

#[test]
fn a_publisher_that_waits_for_less_gets_no_ids() {
    let fake = Fake::start();
    let publish = ["publish", "-topic", "a", "-file", "-"];
    for (option, level) in [("leader", AckLevel::Leader), ("none", AckLevel::None)] {
        let ran = fake.run_with_input(&[&publish[..], &["-ack-level", option]].concat(), b"one\nrefuse me\n");
        assert_eq!(ran.code, Some(1));
        assert!(ran.stdout.starts_with("published 1 message to a in "), "{ran:?}");
        assert!(ran.stdout.ends_with(" s, refused 1\n"), "{ran:?}");
        assert_eq!(fake.asked().batches.pop().unwrap().ack_level(), level);
        let ran = fake.run_with_input(
            &[&publish[..], &["-print-ids", "-ack-level", option]].concat(),
            b"one\n",
        );
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.contains("--print-ids needs --ack-level quorum"), "{ran:?}");
    }
    let ran = fake.run_with_input(
        &[&publish[..], &["-print-ids", "-ack-level", "quorum"]].concat(),
        b"one\n",
    );
    assert_eq!((ran.code, ran.stdout), (Some(0), format!("{ID}\n")));
}

#[test]
fn a_stream_that_breaks_leaves_lines_that_are_named() {
    let fake = Fake::start();
    let ran = fake.run_with_input(&["publish", "-topic", "a", "-file", "-"], b"one\nbreak here\nthree\n");
    assert_eq!(ran.code, Some(1));
    let error = "the server ended the stream; whether the server carried the call out is unknown";
    assert_eq!(ran.stderr, format!("lines 1 to 3 are not confirmed\nerror: {error}\n"));
}

#[test]
fn ids_of_a_file_come_alone_and_in_order() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "x\n".repeat(2_500)).unwrap();
    let fake = Fake::start();
    let ran = fake.run(&[
        "publish",
        "-topic",
        "a",
        "-file",
        file.path().to_str().unwrap(),
        "-print-ids",
    ]);
    assert_eq!(ran.stdout, format!("{ID}\n").repeat(2_500));
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(0), "published 2500 and refused 0 messages\n")
    );
    assert!(
        fake.asked()
            .batches
            .iter()
            .all(|batch| batch.messages.len() <= 1_000 && batch.queue == "a")
    );
}

#[test]
fn a_line_is_published_before_the_input_ends() {
    let fake = Fake::start();
    let mut command = boltq(&["publish", "-topic", "a", "-file", "-", "-print-ids"]);
    let mut child = command.env("BOLTQ_ADDR", fake.addr.to_string()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..3 {
        std::io::Write::write_all(&mut stdin, b"line\n").unwrap();
        let mut id = String::new();
        stdout.read_line(&mut id).unwrap();
        assert_eq!(id.trim_end(), ID);
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let ran = Fake::start().run(&["publish", "-topic", "a", "-file", "/nowhere"]);
    assert_eq!(
        ran,
        failed(1, "error: /nowhere: No such file or directory (os error 2)\n")
    );
}
