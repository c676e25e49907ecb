//! `boltq top`, and how far long work is.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::fake::{Fake, boltq};
use crate::terminal::{PATIENCE, Screen, ended, on_terminal};

#[test]
fn top_prints_one_frame_or_an_object() {
    let fake = Fake::start();
    let ran = fake.run(&["top", "-once", "-interval", "100ms", "-sort", "name"]);
    let expected = format!(
        "\
boltq 0.1.0 at {}  up 12s  disk 32.0 MiB
published 0.0/s  consumed 0.0/s  acked 0.0/s  nacked 0.0/s
ready 3  leased 0  delayed 0  dead letters 1  queues 3

    DEPTH  CHANGE/S     READY   LEASED  DELAYED     DEAD  CONS  QUEUE
        3         0         3        0        0        1     0  a
        3         0         3        0        0        1     0  b
        3         0         3        0        0        1     0  c
",
        fake.addr
    );
    assert_eq!((ran.code, ran.stdout, ran.stderr), (Some(0), expected, String::new()));
    let ran = fake.run(&["top", "-once", "-interval", "100ms", "-filter", "b", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["queues"].as_array().unwrap().len(), 1);
    assert_eq!(json["queues"][0]["change_per_second"], 0.0);
    let ran = fake.run(&["top"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("--once"), "{ran:?}");
}

#[test]
fn top_follows_keys_and_leaves_the_terminal_as_it_was() {
    let fake = Fake::start();
    let (mut screen, terminal) = Screen::new();
    let before = rustix::termios::tcgetattr(&terminal).unwrap();
    let mut command = boltq(&["top", "-interval", "100ms"]);
    let child = on_terminal(command.env("BOLTQ_ADDR", fake.addr.to_string()), &terminal);
    let mut at = screen.await_text("\x1b[?1049h", 0);
    at = screen.await_text("by depth", at);
    screen.type_keys("n");
    at = screen.await_text("by name", at);
    screen.type_keys("/zz\r");
    at = screen.await_text("names with \"zz\"", at);
    screen.type_keys("\x1b");
    at = screen.await_text("by name\x1b[K", at);
    screen.type_keys("q");
    screen.await_text("\x1b[?1049l", at);
    assert_eq!(ended(child), Some(0));
    let after = rustix::termios::tcgetattr(&terminal).unwrap();
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
}

#[test]
fn top_on_a_terminal_ends_with_a_signal_as_with_a_key() {
    let fake = Fake::start();
    let (screen, terminal) = Screen::new();
    let before = rustix::termios::tcgetattr(&terminal).unwrap();
    let mut command = boltq(&["top"]);
    let child = on_terminal(command.env("BOLTQ_ADDR", fake.addr.to_string()), &terminal);
    screen.await_text("by depth", 0);
    let terminated = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(terminated.success());
    screen.await_text("\x1b[?1049l", 0);
    assert_eq!(ended(child), Some(0));
    let after = rustix::termios::tcgetattr(&terminal).unwrap();
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
}

#[test]
fn long_work_shows_on_a_terminal_how_far_it_is() {
    let fake = Fake::start();
    let (screen, terminal) = Screen::new();
    let mut command = boltq(&["publish", "-topic", "a", "-file", "-"]);
    command.env("BOLTQ_ADDR", fake.addr.to_string());
    command.stderr(Stdio::from(terminal.try_clone().unwrap()));
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let (shown, started) = (Arc::clone(&screen.shown), Instant::now());
    while !shown.lock().unwrap().contains("messages, refused 0") {
        stdin.write_all(b"line\n").unwrap();
        assert!(started.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(5));
    }
    drop(stdin);
    assert_eq!(ended(child), Some(0));
    // The line is gone in the end.
    screen.await_text("\r\x1b[K", 0);

    let mut command = boltq(&["queue", "purge", "slow"]);
    command.env("BOLTQ_ADDR", fake.addr.to_string());
    command.stderr(Stdio::from(terminal.try_clone().unwrap()));
    let child = command.spawn().unwrap();
    screen.await_text("purging slow, ", 0);
    fake.finish_slow_purge();
    assert_eq!(ended(child), Some(0));
}
