//! `boltq bench`.

use std::io::Read;
use std::process::{Command, Stdio};

use crate::fake::{Fake, boltq};
use crate::terminal::{Screen, ended};

/// Publishes alone, without a warm-up.
fn load<'a>(queue: &'a str, duration: &'a str) -> [&'a str; 9] {
    [
        "bench",
        "-queue",
        queue,
        "-consumers",
        "0",
        "-warm-up",
        "0",
        "-duration",
        duration,
    ]
}

#[test]
fn a_load_refuses_a_queue_that_is_in_use() {
    let fake = Fake::start();
    let ran = fake.run(&["bench", "-queue", "jobs"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    let why = "error: queue \"jobs\" is in use: messages 3, consumers 0; give another --queue, or --force";
    assert!(ran.stderr.starts_with(why), "{ran:?}");
    assert!(fake.asked().batches.is_empty());
    let ran = fake.run(&["bench", "-size", "1000000", "-batch", "5"]);
    assert_eq!(ran.code, Some(2));
}

#[test]
fn a_load_says_what_it_measured_and_purges_what_is_left() {
    let fake = Fake::start();
    let load = load("empty", "100ms");
    let ran = fake.run(&[&load[..], &["-size", "100", "-batch", "10", "-o", "json"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["queue"], "empty");
    let published = report["published"]["messages"].as_u64().unwrap();
    assert_eq!(report["published"]["bytes"], published * 100);
    assert_eq!(
        (&report["delivered"], &report["failed"]),
        (&serde_json::Value::Null, &0.into())
    );
    let asked = fake.asked();
    assert!(asked.batches.iter().all(|batch| batch.messages.len() == 10));
    assert_eq!(asked.batches[0].queue, "empty");
    assert!(
        asked.batches[0]
            .messages
            .iter()
            .all(|message| message.payload.len() == 100)
    );
    // The queue was there before, so it stays.
    assert_eq!(
        (&asked.purged[..], &asked.deleted[..]),
        (&["empty".to_owned()][..], &[][..])
    );
    assert_eq!(asked.linearizable, [true, true]);
    drop(asked);
    let table = fake.run(&[&load[..], &["-publishers", "2"]].concat()).stdout;
    for part in [
        "queue         empty\n",
        "measured      0.",
        "published     ",
        "  answered in p50 ",
    ] {
        assert!(table.contains(part), "{table}");
    }
}

#[test]
fn a_load_deletes_a_queue_that_it_made_and_leaves_what_is_to_be_kept() {
    let fake = Fake::start();
    let load = load("new", "50ms");
    assert_eq!(fake.run(&load).code, Some(0));
    assert_eq!(std::mem::take(&mut fake.asked().deleted), ["new"]);
    for option in ["-keep", "-force"] {
        assert_eq!(fake.run(&[&load[..], &[option]].concat()).code, Some(0));
    }
    let asked = fake.asked();
    assert_eq!((asked.deleted.len(), asked.purged.len()), (0, 0));
}

#[test]
fn a_load_whose_messages_are_refused_fails_and_says_why() {
    let fake = Fake::start();
    fake.refuse_all();
    let ran = fake.run(&load("empty", "100ms"));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.contains(": INVALID_HEADERS "), "{ran:?}");
    assert!(
        ran.stderr
            .starts_with("error: publishes or acknowledgements that failed: "),
        "{ran:?}"
    );
}

#[test]
fn a_load_that_is_interrupted_ends_with_its_result() {
    let fake = Fake::start();
    let (screen, terminal) = Screen::new();
    let mut command = boltq(&["bench", "-queue", "empty", "-consumers", "0", "-duration", "1h"]);
    command.env("BOLTQ_ADDR", fake.addr.to_string());
    command.stderr(Stdio::from(terminal.try_clone().unwrap()));
    let mut child = command.spawn().unwrap();
    // Progress is only for a terminal.
    screen.await_text("measuring 2 of 3600 s: ", 0);
    let interrupted = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(interrupted.success());
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    assert_eq!(ended(child), Some(0));
    assert!(stdout.contains("published     "), "{stdout}");
}
